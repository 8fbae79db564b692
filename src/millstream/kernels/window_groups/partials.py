"""Rows of window tables aggregated before an exchange: a partial for each group and pane of a batch."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from millstream.kernels.batch import Batch
from millstream.kernels.partials import GroupPartials, in_order
from millstream.plan.node import by_told
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.kernels.window_groups.kernel import WindowGroupKernel
    from millstream.kernels.window_groups.spec import WindowGroupSpec


@dataclass(frozen=True)
class PanePartials(GroupPartials):
    """What groups have in panes. Partials in order of time are in order of their panes."""

    spec: WindowGroupSpec

    def step(self, batch: Batch) -> Batch:
        """The partials of a batch, whose rows may be in any order of time."""
        batch = in_order(batch)
        kernel = _built(self.spec)
        state = kernel.open()
        places = kernel.take_in(state, batch)
        panes = state.panes
        # entries are made in the order of their first rows
        first = np.flatnonzero(np.diff(np.maximum.accumulate(places), prepend=-1))
        count = panes.count
        keys = [] if state.keys is None else state.keys.keys(panes.slot_at[:count]).columns
        return self._made(keys, batch, first, panes.rows_at[:count], panes.records[:count], state.texts)

    def describe(self) -> str:
        """One line for EXPLAIN."""
        calls = ", ".join(call.told for call in self.spec.calls)
        return f"Partial {calls}{by_told(self.spec.by)} of each pane, where that leaves clearly fewer rows"


@lru_cache(256)
def _built(spec: WindowGroupSpec) -> WindowGroupKernel:
    return spec.build()

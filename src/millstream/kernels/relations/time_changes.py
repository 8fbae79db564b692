"""Time windows as changes: a row comes at once and goes when time has passed it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.one_input import ByKeys
from millstream.kernels.registry import register
from millstream.kernels.relations.convert import ChangesKernel, MakesChanges
from millstream.kernels.relations.stages import window_bounds, window_upto
from millstream.kernels.relations.waiting import WaitingState
from millstream.kernels.streams.runs import in_order
from millstream.plan.relations import RangeWindow
from millstream.records import dataclass


@register
@dataclass(frozen=True)
class RangeChangesSpec(ByKeys, MakesChanges):
    """Events as the changes of a relation: +1 when a time window takes a row up, -1 when it lets it go.

    Any columns may be `by`, to divide the rows that wait for their end as the next operator divides its own.
    """

    window: RangeWindow
    by: tuple[str, ...] = ()

    def state_signature(self) -> object:
        """Rows that wait for their ends: those that a window of another length took up go when they would have gone."""
        return {"input": self.input, "by": self.by, "slides": self.window.slide > 1}

    def build(self) -> RangeChangesKernel:
        return RangeChangesKernel(self)

    def describe(self) -> str:
        return f"window {self.window} as changes"


class RangeChangesKernel(ChangesKernel):
    """Runs a RangeChangesSpec."""

    def __init__(self, spec: RangeChangesSpec) -> None:
        super().__init__(spec)
        self.spec = spec

    def step(self, state: WaitingState, batch: Batch) -> Batch:
        upto = window_upto(batch.upto, self.spec.window)
        limit = upto - 1 if upto > BEGIN else BEGIN
        came: list[Batch] = []
        if len(batch):
            start, end = window_bounds(batch.time, self.spec.window)
            limit = max(limit, int(start[-1]))
            came, ends = self._come(batch, start, end)
            state.waiting.add(ends)
        # Whatever comes later goes after `limit`, so all that goes until then is known.
        gone = state.waiting.release(min(limit, FOREVER - 1))
        if not gone and not came:
            return Batch.empty(self.spec.output.arrow, upto)
        return in_order([*(self.signed(piece, -1) for piece in gone), *came]).with_upto(upto)

    def _come(self, batch: Batch, start: Ints, end: Ints) -> tuple[list[Batch], Batch]:
        """The rows as they come, and those that will go, at their ends."""
        held = replace(batch, seq=np.zeros(len(batch), dtype=np.int64), other=None)
        shown = end > start
        if not shown.all():
            kept = np.flatnonzero(shown)
            held, start, end = held.take(kept), start[kept], end[kept]
        came = [self.signed(replace(held, time=start), 1)] if len(held) else []
        goes = held.slice(0, 0) if self.spec.window.size is None else replace(held, time=end)
        return came, goes

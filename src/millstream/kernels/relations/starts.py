"""A relation's rows as the events that they began with. No state, no exchange."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.kernels.batch import Batch
from millstream.kernels.one_input import AtMostOne, KeepsColumns
from millstream.kernels.relations.stages import ends_of
from millstream.kernels.relations.unroll import events
from millstream.plan.event_joins import Lasting
from millstream.records import dataclass


@dataclass(frozen=True)
class StartsStage(AtMostOne, KeepsColumns):
    """Rows as events at their starts, without those that do not last as they should."""

    lasting: tuple[Lasting, ...] = ()

    def describe(self) -> str:
        return "starts" + (f" of {', '.join(map(str, self.lasting))}" if self.lasting else "")

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.output.arrow, batch.upto, batch.port)
        kept = np.ones(len(batch), dtype=np.bool_)
        lengths = ends_of(batch) - batch.time if self.lasting else None
        for each in self.lasting:
            holds = lengths == each.size
            if each.match is not None:
                holds |= batch.rows.column(self.input.index(each.match)).is_valid().to_numpy(zero_copy_only=False)
            kept &= holds
        chosen = np.flatnonzero(kept)
        return replace(events(batch.rows, chosen, batch.time[chosen], batch.upto), port=batch.port)

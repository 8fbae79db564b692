"""Rows of relations aggregated before an exchange: a partial for those of a group that begin and end together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Batch
from millstream.kernels.keys import KeyTable
from millstream.kernels.partials import GroupPartials, in_order
from millstream.kernels.relations.stages import ends_of
from millstream.plan.node import by_told
from millstream.records import dataclass
from millstream.types import BIGINT

if TYPE_CHECKING:
    from millstream.kernels.relations.summary import SummarySpec


@dataclass(frozen=True)
class SummaryPartials(GroupPartials):
    """What groups have of rows that are valid from the same instant to the same instant: these enter and leave their
    group as one, so that at every instant it has what it had."""

    spec: SummarySpec

    def step(self, batch: Batch) -> Batch:
        """The partials of a batch, whose rows may be in any order of time."""
        bounds = [pa.array(batch.time), pa.array(ends_of(batch))]
        own = KeyTable([BIGINT, BIGINT, *(self.spec.input[name].type for name in self.spec.by)])
        # slots are given in the order of first rows
        places = own.encode([*bounds, *(batch.rows.column(name) for name in self.spec.by)]).astype(np.int64)
        first = np.flatnonzero(np.diff(np.maximum.accumulate(places), prepend=-1))
        layout, texts = self.layout, self.layout.tables()
        records = layout.new(own.size)
        layout.take_rows(places, batch.rows.column, records, texts)
        rows = np.bincount(places, minlength=own.size)
        return in_order(self._made(own.keys().columns[2:], batch, first, rows, records, texts))

    def describe(self) -> str:
        """One line for EXPLAIN."""
        calls = ", ".join(call.told for call in self.spec.calls)
        told = f"{calls}{by_told(self.spec.by)} of rows that begin and end together"
        return f"Partial {told}, where that leaves clearly fewer rows"

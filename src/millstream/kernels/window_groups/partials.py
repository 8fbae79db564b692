"""Rows aggregated before an exchange: a partial for each group and pane of a batch, which the kernel merges."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.kernels.accumulators.records import Records
from millstream.kernels.batch import Batch, Ints
from millstream.plan.node import by_told
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, from_kernel

if TYPE_CHECKING:
    from millstream.kernels.window_groups.kernel import WindowGroupKernel, WindowGroupState
    from millstream.kernels.window_groups.spec import WindowGroupSpec

_ROWS = "$rows"


@dataclass(frozen=True)
class PanePartials:
    """What groups have in panes: a row for each group and pane of a batch, with the time and the arrival number of the
    first row that it stands for, so that partials in order of time are in order of their panes.

    Its columns are those of the key, how many rows it stands for, the lanes of the record, and strings whose codes are
    in these.
    """

    spec: WindowGroupSpec

    @cached_property
    def output(self) -> Schema:
        layout = self.kernel.layout
        lanes = [Field(f"${lane}", BIGINT) for lane in range(layout.width)]
        texts = [
            Field(f"$text{i}", self.spec.input[name].type) for i, (_, name) in enumerate(layout.text_lanes.values())
        ]
        return Schema((*(self.spec.input[name] for name in self.spec.by), Field(_ROWS, BIGINT), *lanes, *texts))

    @property
    def kernel(self) -> WindowGroupKernel:
        return _built(self.spec)

    def step(self, batch: Batch) -> Batch:
        """The partials of a batch, whose rows may be in any order of time."""
        batch = in_order(batch)
        state = self.kernel.open()
        places = self.kernel.take_in(state, batch)
        panes = state.panes
        # entries are made in the order of their first rows
        first = np.flatnonzero(np.diff(np.maximum.accumulate(places), prepend=-1))
        count = panes.count
        keys = [] if state.keys is None else state.keys.keys(panes.slot_at[:count]).columns
        return self._made(state, keys, batch, first, panes.rows_at[:count], panes.records[:count])

    def each(self, batch: Batch) -> Batch:
        """The rows of a batch as partials that stand for one row each."""
        state, layout = self.kernel.open(), self.kernel.layout
        places = np.arange(len(batch))
        records = layout.new(len(batch))
        layout.take_rows(places, batch.rows.column, records, state.texts)
        keys = [batch.rows.column(name) for name in self.spec.by]
        return self._made(state, keys, batch, places, np.ones(len(batch), dtype=np.int64), records)

    def _made(
        self, state: WindowGroupState, keys: list[pa.Array], batch: Batch, first: Ints, rows: Ints, records: Records
    ) -> Batch:
        lanes = [pa.array(lane) for lane in np.ascontiguousarray(records.T)]
        texts = self.kernel.layout.strings(records, state.texts)
        columns = [*keys, from_kernel(rows, None, BIGINT), *lanes, *texts]
        made = pa.RecordBatch.from_arrays(columns, schema=self.output.arrow)
        return Batch(made, batch.time[first], batch.seq[first], batch.upto)

    def counted(self, partials: pa.RecordBatch) -> int:
        """How many rows partials stand for."""
        return int(self.rows_of(partials).sum())

    def rows_of(self, partials: pa.RecordBatch) -> Ints:
        rows: Ints = partials.column(_ROWS).to_numpy()
        return rows

    def records_of(self, partials: pa.RecordBatch, state: WindowGroupState) -> Records:
        """The records of partials, with codes of the state's strings."""
        layout, start = self.kernel.layout, len(self.spec.by) + 1
        lanes = partials.columns[start : start + layout.width]
        records = layout.new(partials.num_rows)
        for lane, column in enumerate(lanes):
            records[:, lane] = column.to_numpy()
        texts = partials.columns[start + layout.width :]
        return layout.coded(records, texts, state.texts) if texts else records

    def describe(self) -> str:
        """One line for EXPLAIN."""
        calls = ", ".join(call.told for call in self.spec.calls)
        return f"Partial {calls}{by_told(self.spec.by)} of each pane, where that leaves clearly fewer rows"


@lru_cache(256)
def _built(spec: WindowGroupSpec) -> WindowGroupKernel:
    return spec.build()


def in_order(batch: Batch) -> Batch:
    """The rows of a batch in order of time, ties by arrival number."""
    time, seq = batch.time, batch.seq
    if bool(((time[1:] > time[:-1]) | ((time[1:] == time[:-1]) & (seq[1:] >= seq[:-1]))).all()):
        return batch
    by_seq = np.argsort(seq, kind="stable")
    return batch.take(by_seq[np.argsort(time[by_seq], kind="stable")])

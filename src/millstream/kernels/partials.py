"""Rows aggregated before an exchange, as records of accumulators that the kernel merges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from millstream.kernels.accumulators.records import RecordLayout, Records, Texts
from millstream.kernels.batch import Batch, Ints
from millstream.plan.aggregate_calls import AggregateCall
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, from_kernel

_ROWS = "$rows"


class GroupingSpec(Protocol):
    """What computes aggregates over groups of rows."""

    @property
    def input(self) -> Schema: ...

    @property
    def by(self) -> tuple[str, ...]: ...

    @property
    def calls(self) -> tuple[AggregateCall[str], ...]: ...


@dataclass(frozen=True)
class GroupPartials:
    """Records of rows that a kernel of groups takes in as one, each with the time and the arrival number of its first
    row.

    Their columns are those of the key, how many rows a record stands for, its lanes, and strings whose codes are in
    these.
    """

    spec: GroupingSpec

    @cached_property
    def output(self) -> Schema:
        layout = self.layout
        lanes = [Field(f"${lane}", BIGINT) for lane in range(layout.width)]
        texts = [
            Field(f"$text{i}", self.spec.input[name].type) for i, (_, name) in enumerate(layout.text_lanes.values())
        ]
        return Schema((*(self.spec.input[name] for name in self.spec.by), Field(_ROWS, BIGINT), *lanes, *texts))

    @property
    def layout(self) -> RecordLayout:
        return _layout_of(self.spec.input, self.spec.calls)

    def each(self, batch: Batch) -> Batch:
        """The rows of a batch as partials that stand for one row each."""
        texts = self.layout.tables()
        records = self.records_of_rows(batch.rows, texts)
        keys = [batch.rows.column(name) for name in self.spec.by]
        each, rows = np.arange(len(batch)), np.ones(len(batch), dtype=np.int64)
        return self._made(keys, batch, each, rows, records, texts)

    def _made(
        self, keys: Sequence[pa.Array], batch: Batch, first: Ints, rows: Ints, records: Records, texts: Texts
    ) -> Batch:
        """Partials whose first rows are those of the batch at these places."""
        lanes = [pa.array(lane) for lane in np.ascontiguousarray(records.T)]
        columns = [*keys, from_kernel(rows, None, BIGINT), *lanes, *self.layout.strings(records, texts)]
        made = pa.RecordBatch.from_arrays(columns, schema=self.output.arrow)
        other = None if batch.other is None else batch.other[first]
        return Batch(made, batch.time[first], batch.seq[first], batch.upto, other)

    def counted(self, partials: pa.RecordBatch) -> int:
        """How many rows partials stand for."""
        return int(self.rows_of(partials).sum())

    def are_in(self, rows: pa.RecordBatch) -> bool:
        """Whether these are partials, not rows."""
        return _ROWS in rows.schema.names

    def rows_of(self, partials: pa.RecordBatch) -> Ints:
        rows: Ints = partials.column(_ROWS).to_numpy()
        return rows

    def records_of_rows(self, rows: pa.RecordBatch, texts: Texts) -> Records:
        """Records of one row each, with codes of these strings."""
        records = self.layout.new(rows.num_rows)
        self.layout.take_rows(np.arange(rows.num_rows), rows.column, records, texts)
        return records

    def records_of(self, partials: pa.RecordBatch, texts: Texts) -> Records:
        """The records of partials, with codes of these strings."""
        layout, start = self.layout, len(self.spec.by) + 1
        lanes = partials.columns[start : start + layout.width]
        records = layout.new(partials.num_rows)
        for lane, column in enumerate(lanes):
            records[:, lane] = column.to_numpy()
        strings = partials.columns[start + layout.width : start + layout.width + len(layout.text_lanes)]
        return layout.coded(records, strings, texts) if strings else records


@lru_cache(256)
def _layout_of(rows: Schema, calls: tuple[AggregateCall[str], ...]) -> RecordLayout:
    return RecordLayout(rows, calls)


def in_order(batch: Batch) -> Batch:
    """The rows of a batch in order of time, ties by arrival number."""
    time, seq = batch.time, batch.seq
    if bool(((time[1:] > time[:-1]) | ((time[1:] == time[:-1]) & (seq[1:] >= seq[:-1]))).all()):
        return batch
    by_seq = np.argsort(seq, kind="stable")
    return batch.take(by_seq[np.argsort(time[by_seq], kind="stable")])

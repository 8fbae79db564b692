"""Rows that loops know by number: they wait as Arrow columns and never enter a loop."""

from __future__ import annotations

import pyarrow as pa

from millstream.kernels.batch import Ints


class HeldRows:
    """Rows numbered from 0 in the order they came."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, rows: pa.RecordBatch) -> None:
        """Number further rows on."""
        if not rows.num_rows:
            return
        self._size += rows.num_rows
        self._chunks.append(rows)
        # Chunks of like size become one, so that there are few and each row is moved a few times at most.
        while len(self._chunks) > 1 and 2 * len(self._chunks[-1]) >= len(self._chunks[-2]):
            last = self._chunks.pop()
            self._chunks[-1] = _one(pa.Table.from_batches([self._chunks[-1], last], self._schema))

    def take(self, numbers: Ints) -> pa.RecordBatch:
        """The rows of these numbers, in that order."""
        if not len(numbers):
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(numbers))
        return _one(pa.Table.from_batches(self._chunks, self._schema).take(pa.array(numbers)))

    def keep(self, numbers: Ints) -> None:
        """Forget all rows but these, whose numbers are then 0, 1, …"""
        kept = self.take(numbers)
        self._chunks, self._size = ([kept] if len(numbers) else []), len(numbers)


def _one(table: pa.Table) -> pa.RecordBatch:
    table = table.combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)

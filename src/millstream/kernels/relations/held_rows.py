"""Rows that loops know by number: they wait as Arrow columns and never enter a loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Ints

_SMALL = 4_096
"""Chunks below this size are not worth having apart: looking into each costs more than moving its rows."""


class HeldRows:
    """Rows numbered from 0 in the order they came: chunks of which later ones are smaller, so that there are few and
    each row is moved a few times at most."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self._begins: Ints = np.empty(0, dtype=np.int64)
        self._size = 0
        self._numbers: list[Ints] = []
        self._next = 0

    def __len__(self) -> int:
        return self._size

    @property
    def lasting(self) -> Ints:
        """Numbers that rows keep when others are forgotten; for saving."""
        return np.concatenate(self._numbers) if self._numbers else np.empty(0, dtype=np.int64)

    def add(self, rows: pa.RecordBatch, lasting: Ints | None = None) -> None:
        """Number further rows on; those that were saved have lasting numbers."""
        if not rows.num_rows:
            return
        self._numbers.append(np.arange(self._next, self._next + len(rows)) if lasting is None else lasting)
        self._next = int(self._numbers[-1][-1]) + 1
        # Chunks that become one have the very same schema; without columns, only the batch itself tells its length.
        self._chunks.append(
            pa.RecordBatch.from_arrays(rows.columns, schema=self._schema) if len(self._schema) else rows
        )
        while len(self._chunks) > 1 and max(2 * len(self._chunks[-1]), _SMALL) >= len(self._chunks[-2]):
            last = self._chunks.pop()
            self._chunks[-1] = pa.concat_batches([self._chunks[-1], last])
            self._numbers[-2:] = [np.concatenate(self._numbers[-2:])]
        self._set(self._chunks)

    def take(self, numbers: Ints) -> pa.RecordBatch:
        """The rows of these numbers, in that order."""
        if not len(self._schema):
            return pa.RecordBatch.from_arrays([pa.nulls(len(numbers))], names=[""]).select([])
        columns = self.columns(numbers, range(len(self._schema)))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def columns(self, numbers: Ints, columns: Sequence[int]) -> list[pa.Array]:
        """These columns of the rows of these numbers."""
        if not columns:
            return []
        if not len(numbers):
            return [pa.nulls(0, self._schema.field(column).type) for column in columns]
        chunk = np.zeros(1, dtype=np.int8)
        if len(self._chunks) > 1:
            chunk = (np.searchsorted(self._begins, numbers, side="right") - 1).astype(np.int8)
        if (chunk == chunk[0]).all():
            places = pa.array(numbers - self._begins[chunk[0]])
            return [self._chunks[chunk[0]].column(column).take(places) for column in columns]
        order = np.argsort(chunk, kind="stable")
        edges = np.searchsorted(chunk[order], np.arange(len(self._chunks) + 1))
        parts = [pa.array(numbers[order[edges[i] : edges[i + 1]]] - self._begins[i]) for i in range(len(self._chunks))]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        restore = pa.array(back)
        return [
            pa.concat_arrays(
                [own.column(column).take(part) for own, part in zip(self._chunks, parts, strict=True)]
            ).take(restore)
            for column in columns
        ]

    def keep(self, numbers: Ints) -> None:
        """Forget all rows but these, whose numbers are then 0, 1, …"""
        self._numbers = [self.lasting[numbers]] if len(numbers) else []
        self._set([self.take(numbers)] if len(numbers) else [])

    def _set(self, chunks: list[pa.RecordBatch]) -> None:
        self._chunks = chunks
        *begins, self._size = np.cumsum([0, *map(len, chunks)]).tolist()
        self._begins = np.array(begins, dtype=np.int64)

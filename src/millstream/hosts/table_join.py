"""Rows of a stream with their matches in a stored table, by batch: how both hosts join where the rows are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.evaluator import compile_arrow, compile_filter
from millstream.expressions.nodes import columns_of
from millstream.kernels.batch import Batch
from millstream.kernels.keys import KeyTable
from millstream.physical.nodes import SEVERAL_ROWS, StoredTable, TableJoin
from millstream.schema import Schema


class TableMatches:
    """Each row with its matches in a stored table, which is hashed again whenever it has changed."""

    def __init__(self, node: TableJoin, read: Callable[[StoredTable], pa.Table], version: Callable[[str], int]) -> None:
        self.schema = node.schema
        self._node = node
        self._read = read
        self._version = version
        self._seen: list[int] | None = None
        self._mine = compile_arrow([mine for mine, _ in node.pairs], node.input.schema)
        self._theirs = compile_arrow([theirs for _, theirs in node.pairs], node.table.schema)
        self._residual = None if node.residual is None else compile_filter(node.residual, node.both)
        reads = frozenset() if node.residual is None else columns_of(node.residual)
        # whether all that matters is that the table has a row
        self._asks_rows = node.how in ("semi", "anti", "mark") and reads.isdisjoint(node.table.schema.names)

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.schema.arrow, batch.upto, batch.port)
        self._refresh()
        left, right = self._matches(batch.rows)
        match self._node.how:
            case "semi":
                return batch.take(np.unique(left))
            case "anti":
                return batch.take(_missing(left, len(batch)))
            case "mark":
                marks = np.zeros(len(batch), dtype=bool)
                marks[left] = True
                return batch.with_rows(
                    pa.RecordBatch.from_arrays([*batch.rows.columns, pa.array(marks)], schema=self.schema.arrow)
                )
            case "left" | "single" as how:
                if how == "single" and len(np.unique(left)) < len(left):
                    raise DataError(SEVERAL_ROWS, hint="aggregate it: (SELECT max(…) …), or use IN")
                missing = _missing(left, len(batch))
                left = np.concatenate([left, missing])
                right = np.concatenate([right, np.full(len(missing), -1)])
                order = np.argsort(left, kind="stable")
                left, right = left[order], right[order]
        return batch.take(left).with_rows(self._joined(batch.rows, left, right, self.schema))

    def _refresh(self) -> None:
        versions = [self._version(table) for table in self._node.table.tables]
        if versions == self._seen:
            return
        table = self._read(self._node.table).combine_chunks()
        self._seen = versions
        batches = table.to_batches()
        self._rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
        if not self._node.pairs:
            return
        keys = self._theirs(self._rows)
        # NULL equals nothing, so rows with a NULL key are left out of the hash table
        usable = np.flatnonzero(_all_valid(keys, len(self._rows)))
        keys = [key.take(pa.array(usable)) for key in keys]
        self._keys = KeyTable(tuple(expr.type for _, expr in self._node.pairs))
        slots = np.asarray(self._keys.encode(keys), dtype=np.int64)
        order = np.argsort(slots, kind="stable")
        self._order = usable[order]
        self._starts = np.searchsorted(slots[order], np.arange(len(self._keys) + 1))

    def _matches(self, rows: pa.RecordBatch) -> tuple[Any, Any]:
        """The numbers of the rows that match each other, in order of the left ones."""
        if self._node.pairs:
            return self._tested(rows, *self._equal(rows))
        size = self._rows.num_rows
        if self._asks_rows:
            size = min(size, 1)
        # not all pairs at once: they may be many, and few of them match
        many = rows.num_rows if self._residual is None else max(_MOST_PAIRS // max(size, 1), 1)
        parts = [
            self._tested(rows, *_all_pairs(start, min(start + many, rows.num_rows), size))
            for start in range(0, rows.num_rows, many)
        ]
        return np.concatenate([left for left, _ in parts]), np.concatenate([right for _, right in parts])

    def _equal(self, rows: pa.RecordBatch) -> tuple[Any, Any]:
        keys = self._mine(rows)
        slots = np.asarray(self._keys.lookup(keys), dtype=np.int64)
        slots = np.where(_all_valid(keys, rows.num_rows), slots, -1)
        found = np.flatnonzero(slots >= 0)
        first = self._starts[slots[found]]
        lengths = self._starts[slots[found] + 1] - first
        left = np.repeat(found, lengths)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return left, self._order[np.repeat(first, lengths) + within]

    def _tested(self, rows: pa.RecordBatch, left: Any, right: Any) -> tuple[Any, Any]:
        if self._residual is None:
            return left, right
        kept = np.flatnonzero(np.asarray(self._residual(self._joined(rows, left, right, self._node.both))))
        return left[kept], right[kept]

    def _joined(self, rows: pa.RecordBatch, left: Any, right: Any, schema: Schema) -> pa.RecordBatch:
        taken = pa.array(right, mask=right < 0) if len(right) else pa.array(right, pa.int64())
        ours = rows.take(pa.array(left, pa.int64())).columns
        return pa.RecordBatch.from_arrays(
            ours + [column.take(taken) for column in self._rows.columns], schema=schema.arrow
        )


_MOST_PAIRS = 1 << 20


def _all_pairs(start: int, end: int, size: int) -> tuple[Any, Any]:
    return np.repeat(np.arange(start, end), size), np.tile(np.arange(size), end - start)


def _missing(left: Any, count: int) -> Any:
    return np.setdiff1d(np.arange(count), left)


def _all_valid(arrays: list[pa.Array], count: int) -> Any:
    valid = np.ones(count, dtype=bool)
    for array in arrays:
        if array.null_count:
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
    return valid

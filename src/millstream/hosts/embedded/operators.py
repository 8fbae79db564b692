"""The operators of the in-process graph: each takes a batch and gives one back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import Kernel, KernelSpec
from millstream.kernels.keys import KeyTable
from millstream.physical.expressions import compile_arrow, compile_filter
from millstream.physical.nodes import Compute, Staged, StoredTable, TableJoin
from millstream.schema import Schema


class Operator(Protocol):
    """A node of the graph. `touched` tells whether it has seen data: then a new query may not share its state."""

    schema: Schema
    touched: bool

    def step(self, batch: Batch) -> Batch: ...

    def snapshot(self) -> bytes | None:
        """The state to save, None if there is none."""
        ...

    def restore(self, saved: bytes) -> None: ...


class Stateless:
    """What operators without state have in common: any query may share them at any time."""

    touched = False

    def snapshot(self) -> bytes | None:
        return None

    def restore(self, saved: bytes) -> None:
        raise AssertionError("an operator without state was given one")


class SelectColumns(Stateless):
    """A stream's rows narrowed to the columns that a query reads, from arrival number `since` on.

    Rows that were still being put in order when the query started are history for it, and end here.
    """

    def __init__(self, schema: Schema, since: int = 0) -> None:
        self.schema = schema
        self.since = since
        self._names = list(schema.names)

    def snapshot(self) -> bytes | None:
        return str(self.since).encode() if self.since else None

    def restore(self, saved: bytes) -> None:
        self.since = int(saved)

    def step(self, batch: Batch) -> Batch:
        if self.since:
            recent = batch.seq >= self.since
            if not recent.all():
                batch = batch.take(np.flatnonzero(recent))
        if batch.rows.schema.names == self._names:
            return batch
        return batch.with_rows(batch.rows.select(self._names))


class ComputeColumns(Stateless):
    """Filter, then project."""

    def __init__(self, node: Compute) -> None:
        self.schema = node.schema
        self._compute = ComputeStage(node.input.schema, node.predicate, node.columns).build()

    def step(self, batch: Batch) -> Batch:
        return self._compute.step(batch)


class RunStage(Stateless):
    """Work on rows and their times that keeps nothing."""

    def __init__(self, node: Staged) -> None:
        self.schema = node.schema
        self.step = node.stage.step


class JoinStoredTable(Stateless):
    """Each row with its matches in a stored table, which is hashed again whenever it has changed."""

    def __init__(self, node: TableJoin, read: Callable[[StoredTable], pa.Table], version: Callable[[str], int]) -> None:
        self.schema = node.schema
        self._node = node
        self._read = read
        self._version = version
        self._seen = -1
        self._mine = compile_arrow([mine for mine, _ in node.pairs], node.input.schema)
        self._theirs = compile_arrow([theirs for _, theirs in node.pairs], node.table.schema)
        self._residual = None if node.residual is None else compile_filter(node.residual, node.schema)

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.schema.arrow, batch.upto, batch.port)
        self._refresh()
        left, right = self._matches(batch.rows)
        joined = self._joined(batch.rows, left, right)
        if self._residual is not None:
            kept = np.flatnonzero(np.asarray(self._residual(joined)))
            left, right = left[kept], right[kept]
            joined = joined.take(pa.array(kept))
        if self._node.outer:
            missing = np.setdiff1d(np.arange(len(batch)), left)
            left = np.concatenate([left, missing])
            right = np.concatenate([right, np.full(len(missing), -1)])
            order = np.argsort(left, kind="stable")
            left, right = left[order], right[order]
            joined = self._joined(batch.rows, left, right)
        return batch.take(left).with_rows(joined)

    def _refresh(self) -> None:
        version = self._version(self._node.table.table)
        if version == self._seen:
            return
        table = self._read(self._node.table).combine_chunks()
        self._seen = version
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
        count = rows.num_rows
        if not self._node.pairs:
            size = self._rows.num_rows
            return np.repeat(np.arange(count), size), np.tile(np.arange(size), count)
        keys = self._mine(rows)
        slots = np.asarray(self._keys.lookup(keys), dtype=np.int64)
        slots = np.where(_all_valid(keys, count), slots, -1)
        found = np.flatnonzero(slots >= 0)
        first = self._starts[slots[found]]
        lengths = self._starts[slots[found] + 1] - first
        left = np.repeat(found, lengths)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return left, self._order[np.repeat(first, lengths) + within]

    def _joined(self, rows: pa.RecordBatch, left: Any, right: Any) -> pa.RecordBatch:
        taken = pa.array(right, mask=right < 0) if len(right) else pa.array(right, pa.int64())
        ours = rows.take(pa.array(left, pa.int64())).columns
        return pa.RecordBatch.from_arrays(
            ours + [column.take(taken) for column in self._rows.columns], schema=self.schema.arrow
        )


def _all_valid(arrays: list[pa.Array], count: int) -> Any:
    valid = np.ones(count, dtype=bool)
    for array in arrays:
        if array.null_count:
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
    return valid


class RunKernel:
    """A kernel and its state."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.schema = spec.output
        self.kernel: Kernel = spec.build()
        self.state = self.kernel.open()
        self.touched = False

    def step(self, batch: Batch) -> Batch:
        # how far time has come is told to every query, so it does not tell queries apart
        self.touched = self.touched or len(batch) > 0
        return self.kernel.step(self.state, batch)

    def snapshot(self) -> bytes | None:
        return self.kernel.snapshot(self.state)

    def restore(self, saved: bytes) -> None:
        self.state = self.kernel.restore(saved)
        self.touched = True

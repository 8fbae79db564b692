"""The operators of the in-process graph: each takes a batch and gives one back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np

from millstream.hosts.pieces import Growth
from millstream.hosts.table_join import ReadTables, TableMatches
from millstream.kernels.batch import Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import Kernel, KernelSpec
from millstream.kernels.saving import states as saving
from millstream.kernels.streams.failing import failing_places
from millstream.limits import Limits
from millstream.physical.nodes import Compute, Staged, TableJoin
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
        self._stage = ComputeStage(node.input.schema, node.predicate, node.columns)
        self._compute = self._stage.build()

    def step(self, batch: Batch) -> Batch:
        return self._compute.step(batch)

    def before_failing(self, batch: Batch) -> Batch | None:
        """What becomes of the rows before the first one that cannot be computed; None if there are none."""
        first = min(failing_places(self._stage, batch.rows), default=0)
        if not first:
            return None
        return self._compute.step(batch.slice(0, first).with_upto(int(batch.time[:first].max())))


class RunStage(Stateless):
    """Work on rows and their times that keeps nothing."""

    def __init__(self, node: Staged) -> None:
        self.schema = node.schema
        self.step = node.stage.step


class JoinStoredTable(Stateless):
    """Each row with its matches in a stored table."""

    def __init__(self, node: TableJoin, tables: ReadTables) -> None:
        self.schema = node.schema
        self.step = TableMatches(node, tables).step


class RunKernel:
    """A kernel and its state."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self.schema = spec.output
        self.kernel: Kernel = spec.build()
        self.state = self.kernel.open()
        self.touched = False
        self._is_saved = False
        self._growth = Growth()

    def check_memory(self, allowed: Limits, taken: Batch) -> None:
        self._growth.check(allowed, taken, self.state)

    def step(self, batch: Batch) -> Batch:
        # how far time has come is told to every query, so it does not tell queries apart
        self.touched = self.touched or len(batch) > 0
        self._is_saved = False
        return self.kernel.step(self.state, batch)

    def is_ahead(self, ports: Collection[int]) -> bool:
        """Whether rows of these inputs wait for some that may begin something; only automata have such inputs."""
        kernel: Any = self.kernel
        return bool(kernel.is_ahead(self.state, ports))

    def snapshot(self) -> bytes | None:
        return saving.snapshot(self.kernel, self.state)

    def restore(self, saved: bytes) -> None:
        self.state = saving.restore(self.kernel, saved)
        self.touched, self._is_saved = True, False

    def changes(self) -> dict[int, bytes | None]:
        """The pieces of the state that changed since the last call; None for one that is gone."""
        if self._is_saved:
            return {}
        self._is_saved = True
        return saving.changes(self.kernel, self.state)

    def assemble(self, pieces: Mapping[int, bytes]) -> None:
        """The state that has these pieces; `changes` goes on from them."""
        self.state = saving.assemble(self.kernel, pieces)
        self.touched = True

"""A stream inside the graph: where rows arrive, are sorted, and go to its readers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.catalog import ERRORS_SCHEMA, Clock, StreamDef
from millstream.connectors.contract import Rejected
from millstream.hosts.arrivals import refuse_untimed, times_of
from millstream.hosts.contract import Counts
from millstream.hosts.embedded.graph import Vertex, emit
from millstream.hosts.embedded.operators import RunKernel, SelectColumns
from millstream.hosts.history import StreamHistory
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.streams.reorder import LateSpec, ReorderSpec
from millstream.plan.costs.statistics import StreamObserver


class Stream:
    """The entry of one declared stream: rows in order (`main`), too late (`late`) and refused (`errors`)."""

    def __init__(self, definition: StreamDef) -> None:
        self.definition = definition
        name, schema = definition.name, definition.schema
        self._reorder = RunKernel(ReorderSpec(schema, definition.slack))
        self._late = RunKernel(LateSpec(schema, definition.slack))
        self.sides = {
            "main": Vertex(f"{name}", self._reorder),
            "late": Vertex(f"late({name})", self._late),
            "errors": Vertex(f"errors({name})", SelectColumns(ERRORS_SCHEMA)),
        }
        self.progress = BEGIN
        self.frontier = BEGIN
        self.latest = BEGIN
        """the latest time of a row or heartbeat"""
        self.observer = StreamObserver()
        self.rows = 0
        self.rejected = 0
        self.heard, self.rows_heard = 0, -1
        """when the clock was looked at after its last rows, and how many rows it had then"""
        self.emitted = 0
        """how many rows have been put in order and passed on"""
        self.history: StreamHistory | None = None
        """the rows that it keeps for queries that come later"""
        self.windows: dict[str, int] = {}
        """how far back running queries look, by name: that much is kept of a stream without KEEP"""

    @property
    def ended(self) -> bool:
        return self.progress == FOREVER

    @property
    def waiting(self) -> int:
        """How many rows wait to be put in order."""
        return len(self._reorder.state.waiting)

    @property
    def late(self) -> int:
        return int(self._reorder.state.late_count)

    @property
    def counts(self) -> Counts:
        """What became of all rows so far."""
        return Counts(self.rows - self.late, self.late, self.rejected)

    def copied(self) -> Stream:
        """An entry of the same stream that has come as far, keeps nothing of its past, and has no readers."""
        copy = Stream(replace(self.definition, keep=None))
        saved = self._reorder.snapshot()
        if saved is not None:
            copy._reorder.restore(saved)
        copy.progress, copy.frontier, copy.latest, copy.rows = self.progress, self.frontier, self.latest, self.rows
        return copy

    def arrive(self, rows: pa.RecordBatch, rejected: tuple[Rejected, ...], first: int, batch_rows: int) -> Counts:
        """Rows in order of arrival, numbered from `first`; refused ones go to the errors side."""
        late = self.late
        if self.definition.clock is not Clock.LATENT:
            rows, untimed = refuse_untimed(rows, self.definition)
            rejected += untimed
        if rejected:
            self._refuse(rejected, first)
        seq = np.arange(first, first + rows.num_rows, dtype=np.int64)
        time = seq if self.definition.clock is Clock.LATENT else times_of(rows, self.definition)
        self.rows += rows.num_rows
        self.latest = max(self.latest, int(time.max(initial=BEGIN)))
        batch = Batch(rows, time, seq, self.progress)
        for start in range(0, len(batch), batch_rows):
            self._enter(batch if len(batch) <= batch_rows else batch.slice(start, min(start + batch_rows, len(batch))))
        late = self.late - late
        return Counts(rows.num_rows - late, late, sum(row.count for row in rejected))

    def advance(self, upto: int) -> None:
        """No later row is below `upto`."""
        if upto <= self.progress:
            return
        self.progress = upto
        self.latest = max(self.latest, upto) if upto < FOREVER else self.latest
        self._enter(Batch.empty(self.definition.schema.arrow, upto))
        emit(self.sides["errors"], Batch.empty(ERRORS_SCHEMA.arrow, upto))

    def _enter(self, batch: Batch) -> None:
        # late rows are told by the same progress as rows in time, so it is kept once
        late = self.sides["late"]
        before = replace(self._reorder.state.progress) if late.in_use or late.monitors else None
        ordered = self._reorder.step(batch)
        if before is not None:
            self._late.state = before
            emit(late, self._late.step(batch))
        self._pass(ordered)

    def take(self, batch: Batch) -> None:
        """Rows in order of time from the query that this stream passes on."""
        self.progress = batch.upto
        self.rows += len(batch)
        self.latest = max(
            self.latest, int(batch.time.max(initial=BEGIN)), batch.upto if batch.upto < FOREVER else BEGIN
        )
        self._pass(batch)

    def _pass(self, ordered: Batch) -> None:
        self.frontier = ordered.upto
        self.observer.observe(ordered.time, ordered.rows)
        if len(ordered):
            self.emitted += len(ordered)
            if self.history is not None:
                self.history.append(ordered)
        emit(self.sides["main"], ordered)

    def _refuse(self, rejected: tuple[Rejected, ...], first: int) -> None:
        self.rejected += sum(row.count for row in rejected)
        arrays = [pa.array([getattr(row, name) for row in rejected], pa.string()) for name in ERRORS_SCHEMA.names]
        rows = pa.RecordBatch.from_arrays(arrays, schema=ERRORS_SCHEMA.arrow)
        number: Ints = np.full(len(rejected), first, dtype=np.int64)
        time: Ints = np.full(len(rejected), self.frontier, dtype=np.int64)
        emit(self.sides["errors"], Batch(rows, time, number, self.frontier))

"""Sources without an end that only the driver can read, such as ports: spooled to files, which Spark follows.

What has been spooled can be read again, so a streaming query that fails or restarts loses nothing that arrived.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time_ns

import pyarrow as pa

from millstream.catalog import Clock, StreamDef
from millstream.connectors.contract import Acknowledged, Chunk, Offset, Rejected, RowSource
from millstream.errors import ConnectorError, MillstreamError
from millstream.hosts.spark.arrive import Entry, local_path, stamped
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.sources import PushedRows, Reading, followed, fresh, no_rows
from millstream.hosts.spark.steps import Arrows, Batches
from millstream.kernels.batch import BEGIN
from millstream.physical import nodes as physical
from millstream.records import dataclass

GATHER_SECONDS = 0.2
"""Rows that arrive within this time share a file."""

GATHER_ROWS = 65_536

TICK_SECONDS = 1.0
"""How often a stream that is stamped on arrival tells the time while nothing arrives."""


@dataclass
class Spooled:
    """A live source: read on a thread from the moment a streaming query wants it. Rows may be pushed to it as well."""

    stream: StreamDef
    source: RowSource
    directory: Path | None = None
    """where spooled files are kept beyond this process; None is a temporary place"""
    streaming: bool = True
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.pushed = PushedRows(self.stream)
        self._stop = Event()
        self._thread: Thread | None = None
        self._place: Path | None = None

    def branch(self, node: physical.Source, reading: Reading) -> Branch:
        if node.side == "late":
            return no_rows(reading, node.schema)
        df = followed(reading.spark, str(self._home()))
        return fresh(df, node.schema, reading.clockwork, self.stream, self.opening(node, reading))

    def opening(self, node: physical.Source, reading: Reading) -> ReadSpool:
        """How rows enter a worker that is given paths."""
        return ReadSpool(reading.entry(self.stream, node))

    def as_bounded(self) -> PushedRows:
        """What was pushed, as if nothing else ever came."""
        return self.pushed

    def size(self) -> int | None:
        return None

    def begin(self) -> None:
        """Start to read, if nobody does."""
        if self._thread is None:
            self._thread = Thread(target=self._read, daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise what ended the reading, if something did."""
        if self.error is not None:
            raise self.error if isinstance(self.error, MillstreamError) else ConnectorError(str(self.error))

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        if self.directory is None and self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    def _home(self) -> Path:
        if self._place is None:
            self._place = self.directory or Path(tempfile.mkdtemp(prefix="millstream-spool-"))
            self._place.mkdir(parents=True, exist_ok=True)
        return self._place

    def _read(self) -> None:
        try:
            by_clock = self.stream.clock is Clock.INTERNAL
            chunks = self.source.read(self._begun(), self._stop.is_set)
            for rows, rejected, offset in gathered(chunks, self.stream.given.arrow, by_clock):
                now = time_ns() // 1000
                # an idle moment of a stream that is stamped here is news: a file without rows that tells the time
                self._write(stamped(rows, self.stream, now), rejected, now if by_clock else BEGIN, offset)
                if isinstance(self.source, Acknowledged):
                    self.source.kept(offset)
        except Exception as error:
            self.error = error

    def _begun(self) -> Offset:
        """Where reading goes on: after the last file, if the source holds back what came after it."""
        files = sorted(self._home().glob("*.arrow")) if isinstance(self.source, Acknowledged) else []
        if not files:
            return {}
        with pa.memory_map(str(files[-1])) as file:
            begun: Offset = json.loads((pa.ipc.open_file(file).schema.metadata or {})[b"offset"])
            return begun

    def _write(self, rows: pa.RecordBatch, rejected: list[Rejected], upto: int, offset: Offset) -> None:
        """A file that appears whole; its name tells the order of arrival. No later row is below `upto`."""
        notes = json.dumps([[row.error, row.row, row.origin, row.count] for row in rejected])
        schema = rows.schema.with_metadata({"rejected": notes, "upto": str(upto), "offset": json.dumps(offset)})
        name = f"{time_ns():020d}.arrow"
        hidden = self._home() / f".{name}"
        with pa.OSFile(str(hidden), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(rows.columns, schema=schema))
        hidden.rename(self._home() / name)


def gathered(
    chunks: Iterator[Chunk], schema: pa.Schema, idle: bool = False
) -> Iterator[tuple[pa.RecordBatch, list[Rejected], Offset]]:
    """Chunks put together while they come quickly, with the offset after them; with `idle` also nothing, from time to
    time while nothing comes."""
    parts: list[pa.RecordBatch] = []
    rejected: list[Rejected] = []
    since = told = monotonic()
    for chunk in chunks:
        if not parts and not rejected:
            since = monotonic()
        if chunk.rows.num_rows:
            parts.append(chunk.rows)
        rejected += chunk.rejected
        if idle and not parts and not rejected and monotonic() - told >= TICK_SECONDS:
            told = monotonic()
            yield _one([], schema), [], chunk.offset
        full = sum(part.num_rows for part in parts) >= GATHER_ROWS
        if (parts or rejected) and (full or monotonic() - since >= GATHER_SECONDS):
            yield _one(parts, schema), rejected, chunk.offset
            parts, rejected, told = [], [], monotonic()
    if parts or rejected:
        yield _one(parts, schema), rejected, chunk.offset


def _one(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)


@dataclass(frozen=True)
class ReadSpool:
    """A worker's step: the spooled files whose paths it is given."""

    entry: Entry

    def __call__(self, arrows: Arrows) -> Batches:
        for batch in arrows:
            for uri in batch.column(0).to_pylist():
                with pa.memory_map(local_path(uri)) as file:
                    reader = pa.ipc.open_file(file)
                    told = reader.schema.metadata or {}
                    notes, upto = json.loads(told[b"rejected"]), int(told.get(b"upto", BEGIN))
                    rejected = [Rejected(*note) for note in notes]
                    for number in range(reader.num_record_batches):
                        rows = self.entry.rows(reader.get_batch(number).replace_schema_metadata(None), rejected, 0)
                        rejected = []
                        if len(rows) or upto > BEGIN:
                            yield rows.with_upto(upto)

"""Rows entering a program: times are read, arrival numbers assigned, and rejected rows become rows of ERRORS(s).

The same code serves rows pushed in the driver and rows read in workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from time import time_ns
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millstream.catalog import ERRORS_SCHEMA, Clock, StreamDef
from millstream.connectors.contract import Chunk, Divisible, Rejected
from millstream.connectors.files.source import FileSource
from millstream.connectors.files.wanted import Wanted
from millstream.connectors.past import DivisiblePastAndLive
from millstream.connectors.registry import make_source
from millstream.expressions.nodes import Call, Column, Expr, Literal
from millstream.hosts.arrivals import refuse_untimed, times_of
from millstream.hosts.spark import blobs
from millstream.hosts.spark.meters import StreamMeter
from millstream.hosts.spark.steps import Arrows, Batches
from millstream.kernels.batch import BEGIN, Batch
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, INTEGER, TIMESTAMP

Narrows = TypeVar("Narrows", FileSource, DivisiblePastAndLive)

FILE_BITS = 36
"""Bits of a row's number within its file, or part of a generator."""


@dataclass(frozen=True)
class Entry:
    """How a stream's rows enter a program: one side of it, narrowed to the columns that are read."""

    stream: StreamDef
    side: str
    wanted: Schema
    meter: StreamMeter = field(default=StreamMeter(), compare=False)

    def wants(self) -> Wanted | None:
        """What a source must bring; None is everything, as the text of refused rows shows all columns."""
        if self.side == "errors":
            return None
        own_time = self.stream.time_column if self.stream.clock is Clock.EXTERNAL else None
        return Wanted.of(self.wanted.names, own_time)

    def narrowed(self, source: Narrows) -> Narrows:
        """The source without the columns that nobody reads."""
        wanted = self.wants()
        return source if wanted is None else source.narrowed(wanted)

    def rows(self, rows: pa.RecordBatch, rejected: Sequence[Rejected], first: int) -> Batch:
        """What a chunk brings, with arrival numbers from `first`."""
        if self.stream.clock is not Clock.LATENT:
            rows, untimed = refuse_untimed(rows, self.stream)
            rejected = (*rejected, *untimed)
        self.meter.add(rows.num_rows, sum(row.count for row in rejected))
        if self.side == "errors":
            return self._refused(rejected, first)
        seq = np.arange(first, first + rows.num_rows, dtype=np.int64)
        time = seq if self.stream.clock is Clock.LATENT else times_of(rows, self.stream)
        columns = [rows.column(self.stream.schema.index(name)) for name in self.wanted.names]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.wanted.arrow), time, seq, BEGIN)

    def _refused(self, rejected: Sequence[Rejected], first: int) -> Batch:
        seq = np.arange(first, first + len(rejected), dtype=np.int64)
        names = [ERRORS_SCHEMA[name].name for name in self.wanted.names]
        columns = [pa.array([getattr(row, name) for row in rejected], pa.string()) for name in names]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.wanted.arrow), seq, seq, BEGIN)


@dataclass(frozen=True)
class ReadFiles:
    """How rows enter a worker: the files of its task, given by number, read by the file connector."""

    entry: Entry
    source: FileSource
    paths: tuple[str, ...]

    def __call__(self, arrows: Arrows) -> Batches:
        for batch in arrows:
            for number in batch.column(0).to_pylist():
                yield from entered(self.entry, self.source.read_file(self.paths[number]), number << FILE_BITS)

    def where(self, predicate: Expr) -> ReadFiles:
        """The same files in a bounded run that needs only rows for which the predicate holds.

        Refused rows are needed whatever they hold, and without declared times the rows before a row make its time.
        """
        wanted = self.entry.wants()
        if wanted is None or self.entry.stream.clock is Clock.LATENT:
            return self
        return replace(self, source=self.source.narrowed(replace(wanted, predicate=predicate)))


@dataclass(frozen=True)
class ReadParts:
    """How rows enter a worker: the parts of a source that its task is given, as JSON, or by number if known."""

    entry: Entry
    source: Divisible
    parts: tuple[str, ...] | None = None

    def __call__(self, arrows: Arrows) -> Batches:
        for batch in arrows:
            for given in batch.column(0).to_pylist():
                part = given if self.parts is None else self.parts[given]
                number = 0 if self.parts is None else given << FILE_BITS
                yield from entered(self.entry, self.source.read_part(json.loads(part)), number)


@dataclass(frozen=True)
class ReadPaths:
    """How rows enter a worker: the files whose paths it is given, while Spark follows a directory."""

    entry: Entry
    options: tuple[tuple[str, str | int | float | bool], ...]
    predicate: Expr | None = None
    """what holds for all rows that are needed"""

    def since(self, time: int) -> ReadPaths:
        """The same if only rows from a time on are needed, so that parts of files may be left unread."""
        stream = self.entry.stream
        assert stream.time_column is not None
        column = stream.schema[stream.time_column]
        if column.type not in (BIGINT, INTEGER, TIMESTAMP) or (column.type == INTEGER and abs(time) >= 1 << 31):
            return self
        ends = Column(column.type, column.name), Literal(column.type, time)
        return replace(self, predicate=Call(BOOLEAN, ">=", ends))

    def __call__(self, arrows: Arrows) -> Batches:
        for batch in arrows:
            for uri in batch.column(0).to_pylist():
                path = local_path(uri)
                options = {**dict(self.options), "path": path, "follow": False}
                source = make_source(options, self.entry.stream.given, self.entry.stream.name)
                assert isinstance(source, FileSource)
                source = self.entry.narrowed(source.below(str(dict(self.options)["path"])))
                wanted = self.entry.wants()
                if self.predicate is not None and wanted is not None:
                    source = source.narrowed(replace(wanted, predicate=self.predicate))
                # Spark remembers what was read: no marks are made of the file
                yield from entered(self.entry, source.read_file(path), 0)


def entered(entry: Entry, chunks: Iterable[Chunk], number: int) -> Batches:
    """The rows of chunks as they enter, numbered from `number`."""
    for chunk in chunks:
        rows = stamped(chunk.rows, entry.stream, time_ns() // 1000)
        batch = entry.rows(rows, chunk.rejected, number)
        number += rows.num_rows + len(chunk.rejected)
        if len(batch):
            yield batch


@dataclass(frozen=True)
class RefuseUntimed:
    """How rows enter a worker: rows of a DataFrame without a time, as rows of ERRORS(s)."""

    entry: Entry

    def __call__(self, arrows: Arrows) -> Batches:
        schema = self.entry.stream.schema.arrow
        for batch in arrows:
            yield self.entry.rows(blobs.fit(batch, schema), (), 0)


def stamped(rows: pa.RecordBatch, stream: StreamDef, now: int) -> pa.RecordBatch:
    """Rows of a stream with internal times, with the time of their arrival."""
    if stream.clock is not Clock.INTERNAL or rows.num_columns == len(stream.schema):
        return rows
    assert stream.time_column is not None
    index = stream.schema.index(stream.time_column)
    stamp = pa.array(np.full(rows.num_rows, now, dtype=np.int64)).view(stream.schema.fields[index].type.arrow)
    columns = [*rows.columns[:index], stamp, *rows.columns[index:]]
    return pa.RecordBatch.from_arrays(columns, schema=stream.schema.arrow)


def local_path(uri: str) -> str:
    """The path of a file as Spark names it; nothing in it is escaped.

    >>> local_path("file:/data/a b%20.csv"), local_path("file:///data/a.csv"), local_path("/data/a.csv")
    ('/data/a b%20.csv', '/data/a.csv', '/data/a.csv')
    """
    return "/" + uri.removeprefix("file:").lstrip("/") if uri.startswith("file:") else uri

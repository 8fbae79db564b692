"""Where a program's streams come from: pushed rows, DataFrames of the user's, declared files and generators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.catalog import Clock, Options, StreamDef
from millstream.connectors.contract import Chunk, Divisible, Offset, Rejected
from millstream.connectors.contract import RowSource as BoundSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.past import PAST, DivisiblePastAndLive
from millstream.connectors.registry import make_source
from millstream.hosts.arrivals import refuse_untimed, times_of
from millstream.hosts.contract import Counts
from millstream.hosts.spark.arrive import (
    FILE_BITS,
    Entry,
    ReadFiles,
    ReadParts,
    ReadPaths,
    RefuseUntimed,
    entered,
)
from millstream.hosts.spark.blobs import SEQ, TIME, from_batch, layout_of
from millstream.hosts.spark.branches import Branch, Clockwork, rows_ddl
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.session import cores_of
from millstream.hosts.spark.steps import Numbered, Opening
from millstream.hosts.spark.tables import arrow_frame
from millstream.hosts.spark.times import time_sql, zone_of
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.streams.reorder import TimeProgress
from millstream.physical.nodes import Source
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAME_BITS = 53
"""Bits of the row numbers that Spark gives to a DataFrame's rows: 33 within a partition, and a million partitions."""

TASKS_PER_CORE = 3

EVERYTHING = 1 << 62
"""More rows than any source has."""

FILES_PER_TRIGGER = "spark.millstream.filesPerTrigger"
"""How many followed files a micro-batch reads; all that are there if it is not set."""


@dataclass(frozen=True)
class Reading:
    """The program that reads: its session, how it sees time, and from which pushed row on it reads."""

    spark: SparkSession
    clockwork: Clockwork
    meters: Meters
    since: int = 0
    dry: bool = False
    """whether the program is only looked at: nothing is read in the driver"""

    def entry(self, stream: StreamDef, node: Source) -> Entry:
        return Entry(stream, node.side, node.schema, self.meters[stream.name])


class Input(Protocol):
    """Where the rows of one stream come from."""

    stream: StreamDef

    @property
    def streaming(self) -> bool: ...

    def branch(self, node: Source, reading: Reading) -> Branch:
        """The rows that a program reads from the stream."""
        ...

    def size(self) -> int | None:
        """How many rows there are, or about how many, if that is known."""
        ...


@dataclass
class PushedRows:
    """Rows handed over in the driver. Which of them are late is known when they come, as it is in-process."""

    stream: StreamDef
    chunks: list[tuple[int, pa.RecordBatch, tuple[Rejected, ...]]] = field(default_factory=list)
    """rows in time, each chunk with the arrival number of its first row"""
    late: list[Batch] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    streaming: bool = False

    def __post_init__(self) -> None:
        self._progress = TimeProgress()

    def take(self, first: int, rows: pa.RecordBatch, rejected: tuple[Rejected, ...]) -> Counts:
        """Rows arrive, numbered from `first`."""
        late = 0
        if self.stream.clock is Clock.EXTERNAL:
            rows, untimed = refuse_untimed(rows, self.stream)
            rejected += untimed
            seq = np.arange(first, first + rows.num_rows, dtype=np.int64)
            batch = Batch(rows, times_of(rows, self.stream), seq, BEGIN)
            reached, is_late, _ = self._progress.advance(batch, self.stream.slack)
            if late := int(np.count_nonzero(is_late)):
                self.late.append(replace(batch.take(np.flatnonzero(is_late)), time=reached[is_late]))
                rows = batch.take(np.flatnonzero(~is_late)).rows
        self.chunks.append((first, rows, rejected))
        counts = Counts(rows.num_rows, late, sum(row.count for row in rejected))
        self.counts += counts
        return counts

    @property
    def reached(self) -> int:
        """The latest time that a row or a heartbeat has had."""
        return max(self._progress.highest, self._progress.beat)

    @property
    def settled(self) -> int:
        """No row that is still to come, or waits for others, is below that."""
        return self._progress.reached(self.stream.slack)

    def advance(self, upto: int) -> None:
        """No later row is below `upto`: one that is, is late."""
        self._progress.advance(Batch.empty(self.stream.schema.arrow, upto), self.stream.slack)

    def branch(self, node: Source, reading: Reading) -> Branch:
        return in_driver(self.batches(node, reading), node.schema, reading)

    def batches(self, node: Source, reading: Reading) -> list[Batch]:
        """The rows that a program reads."""
        entry = reading.entry(self.stream, node)
        if node.side == "late":
            names = list(node.schema.names)
            late = [batch for batch in self.late if int(batch.seq[0]) >= reading.since]
            return [batch.with_rows(batch.rows.select(names)) for batch in late]
        given = [chunk for chunk in self.chunks if chunk[0] >= reading.since]
        return [entry.rows(rows, rejected, first) for first, rows, rejected in given]

    def size(self) -> int | None:
        return self.counts.accepted

    def until_now(self, clock: int, arrivals: int) -> PushedUntil:
        """What has been pushed so far, and how far time has come; `clock` is the time of streams stamped on arrival,
        `arrivals` that of streams without times."""
        match self.stream.clock:
            case Clock.INTERNAL:
                upto = max(clock, self._progress.beat)
            case Clock.LATENT:
                upto = arrivals
            case Clock.EXTERNAL:
                upto = self.settled
        return PushedUntil(PushedRows(self.stream, self.chunks[:], self.late[:]), upto)


@dataclass
class PushedUntil:
    """The rows that had been pushed to a stream at some time, of those whose order is settled."""

    pushed: PushedRows
    upto: int

    @staticmethod
    def nothing(stream: StreamDef) -> PushedUntil:
        return PushedUntil(PushedRows(stream), BEGIN)

    @property
    def stream(self) -> StreamDef:
        return self.pushed.stream

    def has_rows(self, since: int) -> bool:
        """Whether any row came from arrival number `since` on."""
        return any(first >= since for first, _, _ in self.pushed.chunks) or bool(self.pushed.late)

    def batches(self, node: Source, reading: Reading) -> list[Batch]:
        batches = self.pushed.batches(node, reading)
        if node.side != "main" or not self.stream.slack:
            return batches
        return [batch.take(np.flatnonzero(batch.time <= self.upto)) for batch in batches]


@dataclass
class RegisteredFrame:
    """A DataFrame of the user's, static or streaming; its columns are the stream's, by position."""

    stream: StreamDef
    df: DataFrame

    @property
    def streaming(self) -> bool:
        return bool(self.df.isStreaming)

    def branch(self, node: Source, reading: Reading) -> Branch:
        schema = self.stream.schema
        df = self.df.toDF(*[f"s{i}" for i in range(len(schema))])
        time = f"s{schema.index(self.stream.time_column or '')}"
        if node.side == "main":
            columns = [_column(schema, name) + f" AS c{i}" for i, name in enumerate(node.schema.names)]
            number = "0L" if self.streaming else "monotonically_increasing_id()"
            timed = df.where(f"{time} IS NOT NULL").selectExpr(
                f"{time_sql(schema, self.stream.time_column or '', time, zone_of(reading.spark))} AS {TIME}",
                f"{number} AS {SEQ}",
                *columns,
            )
            return fresh(timed, node.schema, reading.clockwork, self.stream)
        if node.side == "late":
            return no_rows(reading, node.schema)
        untimed = df.where(f"{time} IS NULL").selectExpr(*[_column(schema, name) for name in schema.names])
        refuse = RefuseUntimed(reading.entry(self.stream, node))
        return fresh(untimed, node.schema, reading.clockwork, self.stream, refuse)

    def size(self) -> int | None:
        return None


@dataclass
class Files:
    """Files of a path: Spark spreads them over its tasks, the file connector reads them there."""

    stream: StreamDef
    source: FileSource
    streaming: bool = False

    def branch(self, node: Source, reading: Reading) -> Branch:
        if node.side == "late":
            return no_rows(reading, node.schema)
        paths = tuple(str(path) for path in self.source.files())
        df = reading.spark.range(0, len(paths), 1, tasks_for(reading.spark, len(paths)))
        entry = reading.entry(self.stream, node)
        read = ReadFiles(entry, entry.narrowed(self.source), paths)
        branch = Branch(df, node.schema, reading.clockwork, read, bits=FILE_BITS + len(paths).bit_length())
        if partition_of(self.stream) is None:
            return branch
        return replace(branch, partition=_numbered([self.source.partition(Path(path)) for path in paths]))

    def size(self) -> int | None:
        return self.source.size()


@dataclass
class FollowedFiles:
    """Files of a path as they appear: Spark notices them and remembers which it has read."""

    stream: StreamDef
    options: Options
    streaming: bool = True

    def branch(self, node: Source, reading: Reading) -> Branch:
        if node.side == "late":
            return no_rows(reading, node.schema)
        df = followed(reading.spark, str(self.options["path"]))
        branch = fresh(df, node.schema, reading.clockwork, self.stream, self.opening(node, reading))
        column = partition_of(self.stream)
        return branch if column is None else replace(branch, partition=_directory_hash(column))

    def opening(self, node: Source, reading: Reading) -> Opening:
        """How rows enter a worker that is given paths."""
        return ReadPaths(reading.entry(self.stream, node), tuple(self.options.items()))

    def as_bounded(self) -> Files:
        """The files that are there now, as if no others ever came."""
        source = make_source({**self.options, "follow": False}, self.stream.given, self.stream.name)
        assert isinstance(source, FileSource)
        return Files(self.stream, source)

    def size(self) -> int | None:
        return None


@dataclass
class Parts:
    """A source that workers read in parts, such as a generator or a topic; without an end it is a streaming source."""

    stream: StreamDef
    source: Divisible
    bounded: bool

    @property
    def streaming(self) -> bool:
        return not self.bounded

    def branch(self, node: Source, reading: Reading) -> Branch:
        if node.side == "late":
            return no_rows(reading, node.schema)
        opening, own = self.opening(node, reading), partition_of(self.stream)
        if not self.bounded:
            from millstream.hosts.spark.parts import followed_parts

            df = followed_parts(reading.spark, self.stream)
            branch = fresh(df, node.schema, reading.clockwork, self.stream, opening)
            return branch if own is None else replace(branch, partition=_PART)
        parts = () if reading.dry else tuple(map(json.dumps, self._all_parts()))
        df = reading.spark.range(0, len(parts), 1, tasks_for(reading.spark, len(parts)))
        read = replace(opening, parts=parts)
        branch = Branch(df, node.schema, reading.clockwork, read, bits=FILE_BITS + len(parts).bit_length())
        return branch if own is None else replace(branch, partition=_numbered([_part_of(part) for part in parts]))

    def opening(self, node: Source, reading: Reading) -> ReadParts:
        """How rows enter a worker that is given parts."""
        entry, source = reading.entry(self.stream, node), self.source
        return ReadParts(entry, entry.narrowed(source) if isinstance(source, DivisiblePastAndLive) else source)

    def until(self, offset: Offset) -> list[Offset]:
        """What there is from the beginning up to an offset."""
        if isinstance(self.source, DivisiblePastAndLive) and "past" not in offset:
            offset = {**self.source.latest(self.source.initial()), **offset}
        return self.source.parts(self.source.initial(), offset)

    def _all_parts(self) -> list[Offset]:
        begin = self.source.initial()
        return self.source.parts(begin, self.source.latest(begin, EVERYTHING))

    def size(self) -> int | None:
        size = getattr(self.source, "size", lambda: None)()
        return None if size is None else int(size)


@dataclass
class DriverSource:
    """Any other bounded source: read in the driver when a program runs."""

    stream: StreamDef
    source: BoundSource
    streaming: bool = False

    def __post_init__(self) -> None:
        self._read: list[Chunk] | None = None

    def branch(self, node: Source, reading: Reading) -> Branch:
        return in_driver(self.batches(node, reading), node.schema, reading)

    def batches(self, node: Source, reading: Reading) -> list[Batch]:
        """The rows that a program reads; in a bounded run none is late."""
        if node.side == "late" or reading.dry:
            return []
        return list(entered(reading.entry(self.stream, node), self._chunks(), 0))

    def _chunks(self) -> Iterable[Chunk]:
        """What the source brings; if it can be read only once, it is kept for other queries."""
        if self.source.replayable:
            return self.source.read({}, lambda: False)
        if self._read is None:
            self._read = list(self.source.read({}, lambda: False))
        return self._read

    def size(self) -> int | None:
        return self.source.size()


def partition_of(stream: StreamDef) -> str | None:
    """The column by which the rows of a source are divided, so that all of a value are in one partition.

    Only where rows bring their times: a partition is told how far time has come elsewhere between micro-batches.
    """
    options = {name.lower(): value for name, value in (stream.source or {}).items()}
    column = options.get("partitioned_by")
    if column is None or PAST in options or stream.clock is not Clock.EXTERNAL:
        return None
    name = stream.schema[str(column)].name
    return name if name.isascii() and name.isidentifier() else None


def partition_read(entry: Input, node: Source) -> str | None:
    """The same for what a program reads, if workers do."""
    is_read = isinstance(entry, Files | FollowedFiles | Parts) and node.side == "main"
    return partition_of(entry.stream) if is_read else None


_PART = "CAST(get_json_object(part, '$.partition') AS INT)"
"""The number of a topic's partition, of a part of it."""


def _part_of(part: str) -> str:
    return str(json.loads(part)["partition"])


def _directory_hash(column: str) -> str:
    """A number for the value that the directories of a path say of a column."""
    # it may be written in several ways, as in URLs
    text = f"regexp_extract(path, '(?i).*/{column}=([^/]*)/', 1)"
    return f"hash(coalesce(try_url_decode(replace({text}, '+', '%2B')), {text}))"


def _numbered(partitions: Sequence[str]) -> str:
    """The number of a partition, of the things that are in them."""
    known: dict[str, int] = {}
    numbers = [str(known.setdefault(partition, len(known))) for partition in partitions]
    return f"element_at(array({', '.join(numbers) or '0'}), CAST(id AS INT) + 1)"


def tasks_for(spark: SparkSession, parts: int) -> int:
    """How many tasks read so many parts: a few per core, because every task of a Python worker costs some time."""
    return max(1, min(parts, TASKS_PER_CORE * cores_of(spark)))


def in_driver(batches: list[Batch], schema: Schema, reading: Reading) -> Branch:
    """Rows that the driver has, handed to Spark."""
    layout = layout_of(schema)
    table = pa.Table.from_batches([from_batch(batch, layout) for batch in batches], layout)
    last = max((int(batch.seq[-1]) for batch in batches if len(batch)), default=0)
    df = arrow_frame(reading.spark, table, rows_ddl(schema))
    return Branch(df, schema, reading.clockwork, bits=max(1, last.bit_length()))


def followed(spark: SparkSession, path: str) -> DataFrame:
    """The paths of files as they appear in a directory; Spark remembers which it has seen."""
    reader = spark.readStream.format("binaryFile").schema(
        "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
    )
    per_trigger = spark.conf.get(FILES_PER_TRIGGER, None)
    if per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", per_trigger)
    return reader.load(path).select("path")


def fresh(
    df: DataFrame, schema: Schema, clockwork: Clockwork, stream: StreamDef, opening: Opening | None = None
) -> Branch:
    """A source's branch: in a streaming query its rows still need arrival numbers, and tell how far time has come."""
    if not clockwork.streaming:
        return Branch(df, schema, clockwork, opening, bits=FRAME_BITS)
    if not clockwork.timed:
        return Branch(df, schema, clockwork, opening)
    numbered = Numbered(stream.slack, clockwork.latent)
    branch = Branch(df, schema, clockwork, opening, fresh=True, slack=None if clockwork.latent else stream.slack)
    return replace(branch, source=numbered) if opening is None else replace(branch, steps=(numbered,))


def no_rows(reading: Reading, schema: Schema) -> Branch:
    """An empty branch: in a bounded run, where all rows are put in order, none is late."""
    empty = reading.spark.createDataFrame([], rows_ddl(schema))
    return Branch(empty, schema, reading.clockwork, bits=1)


def _column(schema: Schema, name: str) -> str:
    return f"CAST(s{schema.index(name)} AS {schema[name].type.spark})"

"""Where a program's streams come from: pushed rows, DataFrames of the user's, declared files and generators."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from millstream.catalog import Clock, Options, StreamDef
from millstream.connectors.contract import Rejected
from millstream.connectors.contract import Source as BoundSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.generators.source import GeneratorSource
from millstream.errors import EngineError
from millstream.hosts.spark.arrive import (
    FILE_BITS,
    Entry,
    ReadFiles,
    ReadGenerated,
    ReadPaths,
    RefuseUntimed,
    entered,
)
from millstream.hosts.spark.blobs import SEQ, TIME, layout_of
from millstream.hosts.spark.branches import Branch, Clockwork, rows_ddl
from millstream.hosts.spark.steps import Step
from millstream.hosts.spark.tables import arrow_frame
from millstream.physical.nodes import Source
from millstream.schema import Schema
from millstream.types import DATE, TIMESTAMP, TIMESTAMPTZ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAME_BITS = 53
"""Bits of the row numbers that Spark gives to a DataFrame's rows: 33 within a partition, and a million partitions."""

GENERATED_ROWS = 1 << 18
"""Rows of a generator that one task makes."""

TICKS_PER_SECOND = 10

FILES_PER_TRIGGER = "spark.millstream.filesPerTrigger"
"""How many followed files a micro-batch reads; all that are there if it is not set."""


class Input(Protocol):
    """Where the rows of one stream come from."""

    stream: StreamDef

    @property
    def streaming(self) -> bool: ...

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        """The rows a program reads; of pushed ones, those from arrival number `since` on."""
        ...


@dataclass
class PushedRows:
    """Rows handed over in the driver, each chunk with the arrival number of its first row."""

    stream: StreamDef
    chunks: list[tuple[int, pa.RecordBatch, tuple[Rejected, ...]]] = field(default_factory=list)
    streaming: bool = False

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        entry = Entry(self.stream, node.side, node.schema)
        entered = [
            entry.rows(rows, rejected, first)
            for first, rows, rejected in self.chunks
            if first >= since and node.side != "late"
        ]
        table = pa.Table.from_batches(entered, layout_of(node.schema))
        last = max((int(batch.column(1)[-1].as_py()) for batch in entered if batch.num_rows), default=0)
        df = arrow_frame(spark, table, rows_ddl(node.schema))
        return Branch(df, node.schema, clockwork, bits=max(1, last.bit_length()))


@dataclass
class RegisteredFrame:
    """A DataFrame of the user's, static or streaming; its columns are the stream's, by position."""

    stream: StreamDef
    df: DataFrame

    @property
    def streaming(self) -> bool:
        return bool(self.df.isStreaming)

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        schema = self.stream.schema
        df = self.df.toDF(*[f"s{i}" for i in range(len(schema))])
        time = f"s{schema.index(self.stream.time_column or '')}"
        if node.side == "main":
            columns = [_column(schema, name) + f" AS c{i}" for i, name in enumerate(node.schema.names)]
            number = "0L" if self.streaming else "monotonically_increasing_id()"
            timed = df.where(f"{time} IS NOT NULL").selectExpr(
                f"{time_sql(schema, self.stream.time_column or '', time, zone_of(spark))} AS {TIME}",
                f"{number} AS {SEQ}",
                *columns,
            )
            return _fresh(timed, node.schema, clockwork, self.stream, FRAME_BITS)
        if node.side == "late":
            return no_rows(spark, node.schema, clockwork)
        untimed = df.where(f"{time} IS NULL").selectExpr(*[_column(schema, name) for name in schema.names])
        step = RefuseUntimed(Entry(self.stream, "errors", node.schema))
        return Branch(untimed, node.schema, clockwork, step, FRAME_BITS, numbered=not self.streaming)


@dataclass
class Files:
    """Files of a path: Spark spreads them over its tasks, the file connector reads them there."""

    stream: StreamDef
    source: FileSource
    streaming: bool = False

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        if node.side == "late":
            return no_rows(spark, node.schema, clockwork)
        paths = tuple(str(path) for path in self.source.files())
        df = spark.range(0, len(paths), 1, len(paths))
        read = ReadFiles(Entry(self.stream, node.side, node.schema), self.source, paths)
        return Branch(df, node.schema, clockwork, read, FILE_BITS + len(paths).bit_length())


@dataclass
class FollowedFiles:
    """Files of a path as they appear: Spark notices them and remembers which it has read."""

    stream: StreamDef
    options: Options
    streaming: bool = True

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        if node.side == "late":
            return no_rows(spark, node.schema, clockwork)
        reader = spark.readStream.format("binaryFile").schema(
            "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
        )
        per_trigger = spark.conf.get(FILES_PER_TRIGGER, None)
        if per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", per_trigger)
        df = reader.load(str(self.options["path"])).select("path")
        read = ReadPaths(Entry(self.stream, node.side, node.schema), tuple(self.options.items()))
        return _fresh(df, node.schema, clockwork, self.stream, FRAME_BITS, read)


@dataclass
class Generated:
    """Rows of a generator, each made in the task that needs it; without an end it is a streaming source."""

    stream: StreamDef
    source: GeneratorSource
    options: Options

    @property
    def streaming(self) -> bool:
        return not self.source.bounded

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        if node.side == "late":
            return no_rows(spark, node.schema, clockwork)
        entry = Entry(self.stream, node.side, node.schema)
        now = time_ns() // 1000
        rows = self.source.size()
        if rows is None:
            ticks, stretch = self._ticks(spark)
            read = ReadGenerated(entry, self.source, now, stretch)
            return _fresh(ticks, node.schema, clockwork, self.stream, FRAME_BITS, read)
        count = max(1, -(-rows // GENERATED_ROWS))
        df = spark.range(0, count, 1, count)
        read = ReadGenerated(entry, self.source, now, GENERATED_ROWS)
        return Branch(df, node.schema, clockwork, read, max(1, rows.bit_length()))

    def _ticks(self, spark: SparkSession) -> tuple[DataFrame, int]:
        """A stream of numbers, each standing for a stretch of rows: at the generator's own pace, or Spark's."""
        if str(self.options.get("realtime", "false")).lower() in ("true", "t", "yes", "on", "1"):
            stretch = max(1, int(float(self.options.get("rate", 1000)) / TICKS_PER_SECOND))
            ticks = spark.readStream.format("rate").option("rowsPerSecond", TICKS_PER_SECOND)
        else:
            stretch = 1 << 14
            ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 16)
        return ticks.option("numPartitions", 2).load().select("value"), stretch


@dataclass
class DriverSource:
    """Any other bounded source: read in the driver when a program runs."""

    stream: StreamDef
    source: BoundSource
    streaming: bool = False

    def branch(self, spark: SparkSession, node: Source, clockwork: Clockwork, since: int) -> Branch:
        if node.side == "late":
            return no_rows(spark, node.schema, clockwork)
        entry = Entry(self.stream, node.side, node.schema)
        batches = list(entered(entry, self.source.read({}, lambda: False), 0))
        table = pa.Table.from_batches(batches, layout_of(node.schema))
        last = int(batches[-1].column(1)[-1].as_py()) if batches else 0
        return Branch(
            arrow_frame(spark, table, rows_ddl(node.schema)), node.schema, clockwork, bits=max(1, last.bit_length())
        )


def _fresh(
    df: DataFrame, schema: Schema, clockwork: Clockwork, stream: StreamDef, bits: int, read: Step | None = None
) -> Branch:
    """A source's branch: in a streaming query it still needs arrival numbers and a watermark."""
    if not clockwork.streaming:
        return Branch(df, schema, clockwork, read, bits)
    slack = None if clockwork.latent or not clockwork.timed else stream.slack
    return Branch(df, schema, clockwork, read, numbered=False, slack=slack)


def no_rows(spark: SparkSession, schema: Schema, clockwork: Clockwork) -> Branch:
    """An empty branch: in a bounded run, where all rows are put in order, none is late."""
    if clockwork.streaming:
        raise EngineError(
            "LATE(stream) does not yet run in a streaming query on Spark",
            hint="run it in-process, or bounded, where no row is late",
        )
    return Branch(spark.createDataFrame([], rows_ddl(schema)), schema, clockwork, bits=1)


def time_sql(schema: Schema, name: str, column: str, zone: str) -> str:
    """The order time of a row, int64 µs (or an integer column's own numbers), from its time column."""
    type_ = schema[name].type
    if type_ == DATE:
        return f"unix_date({column}) * 86400000000L"
    if type_ == TIMESTAMPTZ:
        return f"unix_micros({column})"
    if type_ != TIMESTAMP:
        return f"CAST({column} AS BIGINT)"
    if zone in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        return f"unix_micros(CAST({column} AS TIMESTAMP))"
    # a cast to an instant would read the time in the session's zone
    since = f"CAST({column} - TIMESTAMP_NTZ '1970-01-01 00:00:00' AS INTERVAL SECOND)"
    return f"CAST(CAST({since} AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"


def zone_of(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.session.timeZone", ""))


def _column(schema: Schema, name: str) -> str:
    return f"CAST(s{schema.index(name)} AS {schema[name].type.spark})"


def is_ticks(stream: StreamDef) -> bool:
    """Whether a stream's times are plain numbers."""
    if stream.clock is Clock.LATENT or stream.time_column is None:
        return False
    return stream.schema[stream.time_column].type.is_integer

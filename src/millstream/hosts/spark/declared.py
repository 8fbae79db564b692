"""What was declared in a session on Spark: its streams, its tables, and the rows pushed to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from millstream.catalog import Clock, StreamDef
from millstream.connectors.contract import Divisible, Rejected, RowSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.registry import source_of
from millstream.errors import CatalogError, DataError, EngineError, UnsupportedError
from millstream.hosts.contract import Counts, Once
from millstream.hosts.spark.arrive import stamped
from millstream.hosts.spark.branches import Clockwork
from millstream.hosts.spark.build import is_exchange, needs_watermark
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.sources import (
    DriverSource,
    Files,
    FollowedFiles,
    Input,
    Parts,
    PushedRows,
    PushedUntil,
    RegisteredFrame,
)
from millstream.hosts.spark.spool import Spooled
from millstream.hosts.spark.tables import SparkTable, brought_table, collected, registered_table, stored_table
from millstream.hosts.spark.times import is_ticks
from millstream.hosts.tables import TableStore
from millstream.limits import NO_LIMITS, Limits
from millstream.physical import nodes as physical
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadTable = Callable[..., pa.Table]
"""reads a physical.StoredTable; a second argument are tables that are lent to it, by name"""


class DeclaredInputs:
    """Streams and tables by name, and where their rows come from."""

    def __init__(
        self,
        spark: SparkSession,
        read_table: ReadTable,
        now: Callable[[], int] | None = None,
        checkpoint: str | None = None,
        follow: bool = False,
        tables: TableStore | None = None,
        buckets: int | None = None,
    ) -> None:
        self.spark = spark
        self._stored = tables
        self.checkpoint = checkpoint
        self.buckets = buckets
        self._follow = follow
        self._read_table = read_table
        self._now = now or (lambda: time_ns() // 1000)
        self._inputs: dict[str, Input] = {}
        self._tables: dict[str, tuple[DataFrame, Schema]] = {}
        self.arrivals = 0
        self.stamp = 0
        self._finished = False

    def declare(self, stream: StreamDef) -> None:
        if self._follow and stream.source is not None and str(stream.source.get("connector")).startswith("file"):
            stream = replace(stream, source={**stream.source, "follow": True})
        self._inputs[stream.name.lower()] = _input_of(stream, self.checkpoint)

    def bind_source(self, stream: str, source: RowSource) -> None:
        """Let a stream's rows come from `source`, which must be bounded."""
        self._inputs[stream.lower()] = _bounded_input(self.find(stream).stream, source)

    def register_stream(self, stream: StreamDef, df: DataFrame) -> None:
        """A stream whose rows are those of a DataFrame with the same columns, static or streaming."""
        self._inputs[stream.name.lower()] = RegisteredFrame(stream, df)

    def register_table(self, name: str, df: DataFrame, schema: Schema) -> None:
        """A table that is a static DataFrame with the same columns."""
        self._tables[name.lower()] = (df, schema)

    def forget(self, stream: str) -> None:
        self._inputs.pop(stream.lower(), None)

    def find(self, stream: str) -> Input:
        found = self._inputs.get(stream.lower())
        if found is None:
            raise CatalogError(f"no stream {stream}")
        return found

    def hold(self, stream: str, rows: object) -> Counts | None:
        """None waits in front of the driver."""
        return None

    def settle(self) -> None:
        return

    def push(
        self, stream: str, rows: pa.RecordBatch, rejected: tuple[Rejected, ...] = (), once: Once | None = None
    ) -> Counts:
        if once is not None:
            raise UnsupportedError("numbered pushes work on the in-process engine only")
        entry = self.find(stream)
        if self._finished:
            raise DataError(f"stream {entry.stream.name} has ended", hint="push rows before finish()")
        pushed = pushed_to(entry)
        if pushed is None:
            raise DataError(
                f"stream {entry.stream.name} has its own source", hint="push() is for streams without a source"
            )
        self.stamp = max(self.stamp, self._now())
        rows = stamped(rows, entry.stream, self.stamp)
        first, self.arrivals = self.arrivals, self.arrivals + rows.num_rows + len(rejected)
        return pushed.take(first, rows, rejected)

    def advance(self, stream: str, upto: int) -> None:
        """All rows are put in order at the end: a heartbeat only makes later rows below it late."""
        pushed = pushed_to(self.find(stream))
        if pushed is not None:
            pushed.advance(upto)

    def is_streaming(self, plan: physical.Physical) -> bool:
        """Whether a query has no end."""
        return self._clockwork(plan).streaming

    def _clockwork(self, plan: physical.Physical) -> Clockwork:
        nodes = list(physical.walk(plan))
        inputs = [(node, self.find(node.stream)) for node in nodes if isinstance(node, physical.Source)]
        streaming_ = {entry.streaming for _, entry in inputs}
        if len(streaming_) > 1:
            for _, entry in inputs:
                if entry.stream.table is not None:
                    raise EngineError(
                        f"a streaming query cannot read {entry.stream.name}, the changes of a stored table",
                        detail="on Spark, such changes are rows that are pushed, and are read at finish()",
                        hint="run the query in-process, or read the changes from a stream with a connector",
                    )
            raise EngineError(
                "a query reads both streaming and static inputs",
                hint="register static ones without time=, as tables, or make all of them streaming",
            )
        streams = [entry.stream for node, entry in inputs if node.side != "errors"]
        is_streaming = True in streaming_
        return Clockwork(
            streaming=is_streaming,
            timed=any(map(is_exchange, nodes)) or any(node.side == "late" for node, _ in inputs),
            latent=all(stream.clock is Clock.LATENT for stream in streams),
            ticks=any(map(is_ticks, streams)),
            watermarked=is_streaming and needs_watermark(plan, self._in_spark),
        )

    def _in_spark(self, node: physical.Physical) -> bool:
        """Whether the rows of an operator are Spark's, not in the hands of Python workers."""
        match node:
            case physical.Source():
                return isinstance(self.find(node.stream), RegisteredFrame | PushedRows | DriverSource)
            case physical.Compute():
                return self._in_spark(node.input)
        return isinstance(node, physical.TableJoin | physical.NativeGroups)

    def _table(self, node: physical.StoredTable) -> SparkTable:
        registered = {name: self._tables[name.lower()] for name in node.tables if name.lower() in self._tables}
        if node.table in registered:
            return registered_table(*registered[node.table], node)
        # a query over DataFrames is answered where stored tables are
        return stored_table(self.spark, self._table_rows(node), node.schema)

    @property
    def allowed(self) -> Limits:
        """What each operator may cost for a batch of rows."""
        return NO_LIMITS if self._stored is None else self._stored.config.limits

    def inputs(
        self,
        meters: Meters,
        *,
        streaming: bool,
        dry: bool = False,
        until: Mapping[str, PushedUntil] | None = None,
        entries: Mapping[str, Input] | None = None,
    ) -> SessionInputs:
        """The streams and tables of this session, for a job; some streams in another form."""

        def find(stream: str) -> Input:
            return (entries or {}).get(stream.lower()) or self.find(stream)

        made = partial(
            SessionInputs,
            self.spark,
            find,
            self._table_rows,
            meters,
            allowed=self.allowed,
            streaming=streaming,
            dry=dry,
            until=until,
        )
        return made() if self._stored is None else made(version=self._stored.version, row_number=self._stored.number_of)

    def _table_rows(self, node: physical.StoredTable) -> pa.Table:
        registered = {name: self._tables[name.lower()] for name in node.tables if name.lower() in self._tables}
        if node.table in registered:
            return brought_table(*registered[node.table], node)
        lent = {name: collected(*known) for name, known in registered.items()}
        return self._read_table(node, lent) if lent else self._read_table(node)


def pushed_to(entry: Input) -> PushedRows | None:
    """The rows that were pushed to a stream, if it takes any."""
    if isinstance(entry, Spooled):
        return entry.pushed
    return entry if isinstance(entry, PushedRows) else None


def _input_of(stream: StreamDef, kept: str | None) -> Input:
    """Where the rows of a declaration come from; `kept` is the directory of checkpoints, if there is one."""
    source = source_of(stream)
    if source is None or stream.source is None:
        return PushedRows(stream)
    if isinstance(source, FileSource) and not source.bounded:
        return FollowedFiles(stream, stream.source)
    if hasattr(source, "read_part"):
        return Parts(stream, cast(Divisible, source), source.bounded)
    if not source.bounded:
        return Spooled(stream, source, None if kept is None else Path(kept) / "spool" / stream.name)
    return _bounded_input(stream, source)


def _bounded_input(stream: StreamDef, source: RowSource) -> Input:
    """A stream whose rows end by themselves."""
    return Files(stream, source) if isinstance(source, FileSource) else DriverSource(stream, source)

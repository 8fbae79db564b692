"""The Spark host: queries over pushed rows and bounded sources run as batch programs, others as streaming queries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event
from time import time_ns
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.catalog import Clock, StreamDef
from millstream.connectors.contract import Rejected, RowSource
from millstream.errors import CatalogError, DataError, EngineError, MillstreamError, UnsupportedError
from millstream.hosts.contract import Counts, Progress, ReadyQuery, Report, Shared, not_running
from millstream.hosts.results import Gate, ResultLog
from millstream.hosts.spark import streaming
from millstream.hosts.spark.arrive import stamped
from millstream.hosts.spark.branches import Branch, Clockwork
from millstream.hosts.spark.build import BranchBuilder, fused, is_exchange, needs_watermark
from millstream.hosts.spark.explain import explained
from millstream.hosts.spark.failures import telling
from millstream.hosts.spark.inputs import bounded_input, input_of
from millstream.hosts.spark.job.bounded import settle
from millstream.hosts.spark.job.sharing import shared_filters
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.kept_plan import KeptPlan
from millstream.hosts.spark.meters import Meters, StreamMeter
from millstream.hosts.spark.runs import StartedQuery
from millstream.hosts.spark.session import send_whole
from millstream.hosts.spark.sources import DriverSource, FollowedFiles, Input, PushedRows, Reading, RegisteredFrame
from millstream.hosts.spark.spool import Spooled
from millstream.hosts.spark.stage import Stage
from millstream.hosts.spark.streaming import Trigger
from millstream.hosts.spark.surface import surface
from millstream.hosts.spark.tables import SparkTable, brought_table, collected, registered_table, stored_table
from millstream.hosts.spark.times import is_ticks
from millstream.limits import cancelled
from millstream.physical import nodes as physical
from millstream.plan.costs.statistics import UNKNOWN, Statistics
from millstream.plan_form import python_in
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WRITTEN = "written by "
"""What the meter of a query's output is called among those of streams."""

ReadTable = Callable[..., pa.Table]
"""reads a physical.StoredTable; a second argument are tables that are lent to it, by name"""

log = logging.getLogger("millstream")


class SparkHost:
    """Runs queries on a Spark session.

    `checkpoint` is where streaming queries keep how far they came, `trigger` when their micro-batches start. With
    `follow` declared files are followed, as streams without an end. `buckets` fixes the number of parts that keys are
    divided into, for tests.
    """

    def __init__(
        self,
        spark: SparkSession,
        read_table: ReadTable,
        *,
        now: Callable[[], int] | None = None,
        buckets: int | None = None,
        checkpoint: str | None = None,
        trigger: Trigger | None = None,
        follow: bool = False,
    ) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.trigger = trigger
        self._follow = follow
        self._read_table = read_table
        self._now = now or (lambda: time_ns() // 1000)
        self._buckets = buckets
        self._inputs: dict[str, Input] = {}
        self._tables: dict[str, tuple[DataFrame, Schema]] = {}
        self._queries: dict[str, StartedQuery] = {}
        self._arrivals = 0
        self._stamp = 0
        self._finished = False
        self._stop = Event()
        self._gate = Gate()
        self._read: dict[str, tuple[int, int]] = {}
        self._metered: Meters | None = None

    # -- streams, tables and queries -------------------------------------------------------------------------------

    def declare(self, stream: StreamDef) -> None:
        if self._follow and stream.source is not None and str(stream.source.get("connector")).startswith("file"):
            stream = replace(stream, source={**stream.source, "follow": True})
        self._inputs[stream.name.lower()] = input_of(stream, self.checkpoint)

    def bind_source(self, stream: str, source: RowSource) -> None:
        """Let a stream's rows come from `source`, which must be bounded."""
        self._inputs[stream.lower()] = bounded_input(self._find(stream).stream, source)

    def register_stream(self, stream: StreamDef, df: DataFrame) -> None:
        """A stream whose rows are those of a DataFrame with the same columns, static or streaming."""
        self._inputs[stream.name.lower()] = RegisteredFrame(stream, df)

    def register_table(self, name: str, df: DataFrame, schema: Schema) -> None:
        """A table that is a static DataFrame with the same columns."""
        self._tables[name.lower()] = (df, schema)

    def hold(self, stream: str, rows: object) -> Counts | None:
        return None

    def settle(self) -> None:
        return

    def forget(self, stream: str) -> None:
        self._inputs.pop(stream.lower(), None)

    def start(self, program: ReadyQuery) -> None:
        for node in physical.walk(program.plan):
            why = getattr(node.spec, "why", "") if isinstance(node, physical.Apply) else ""
            if why:
                log.warning("%s: an automaton runs in one task, on one core: %s", program.name, why)
        results = ResultLog(physical.streams_of(program.plan), self._gate, program.sink is None)
        self._queries[program.name.lower()] = StartedQuery(program, self._arrivals, results)

    def replace(self, program: ReadyQuery) -> None:
        """Nothing is handed over here: state is in checkpoints, which know what fits them."""
        self.stop(program.name)
        self.start(program)

    def stop(self, name: str) -> None:
        self._queries.pop(name.lower()).results.close()

    def _find(self, stream: str) -> Input:
        found = self._inputs.get(stream.lower())
        if found is None:
            raise CatalogError(f"no stream {stream}")
        return found

    # -- input -----------------------------------------------------------------------------------------------------

    def push(self, stream: str, rows: pa.RecordBatch, rejected: tuple[Rejected, ...] = ()) -> Counts:
        entry = self._find(stream)
        if self._finished:
            raise DataError(f"stream {entry.stream.name} has ended", hint="push rows before finish()")
        pushed = _pushed(entry)
        if pushed is None:
            raise DataError(
                f"stream {entry.stream.name} has its own source", hint="push() is for streams without a source a source"
            )
        self._stamp = max(self._stamp, self._now())
        rows = stamped(rows, entry.stream, self._stamp)
        first, self._arrivals = self._arrivals, self._arrivals + rows.num_rows + len(rejected)
        return pushed.take(first, rows, rejected)

    def advance(self, stream: str, upto: int) -> None:
        """All rows are put in order at the end: a heartbeat only makes later rows below it late."""
        pushed = _pushed(self._find(stream))
        if pushed is not None:
            pushed.advance(upto)

    def counts(self, name: str) -> Counts:
        """Of rows that are read, late ones are known of streaming queries only: in a bounded run none is."""
        running = self._running(name)
        entries = [self._find(stream) for stream in physical.streams_of(running.program.plan)]
        counts = Counts(late=running.late)
        for entry in entries:
            pushed = _pushed(entry)
            counts += Counts() if pushed is None else pushed.counts
            if not isinstance(entry, PushedRows):
                rows, rejected = self._read.get(entry.stream.name.lower(), (0, 0))
                counts += Counts(accepted=rows, rejected=rejected)
        return replace(counts, accepted=counts.accepted - running.late)

    # -- programs --------------------------------------------------------------------------------------------------

    def branches(
        self, program: ReadyQuery, since: int = 0, meters: Meters | None = None, dry: bool = False, rows: bool = False
    ) -> tuple[Branch, ...]:
        """The program's rows with their hidden columns, or with `rows` only what is seen; `dry` only to look at it."""
        return self._built(program, since, meters, dry, rows)[0]

    def _built(
        self, program: ReadyQuery, since: int, meters: Meters | None, dry: bool, rows: bool
    ) -> tuple[tuple[Branch, ...], list[Stage]]:
        """The branches of a program, and the stages among them that keep state."""
        send_whole(python_in(program.plan).values())
        clockwork = self._clockwork(program.plan)
        reading = Reading(self.spark, clockwork, meters or Meters({}), since, dry)
        if not dry:
            for entry in map(self._find, physical.streams_of(program.plan)):
                if isinstance(entry, Spooled):
                    entry.begin()

        def source(node: physical.Source) -> Branch:
            return self._find(node.stream).branch(node, reading)

        with telling():
            builder = BranchBuilder(self.spark, clockwork, source, self._table, self._buckets)
            return builder.build(program.plan, rows), builder.stages

    def to_dataframe(self, program: ReadyQuery) -> DataFrame:
        """The program as a DataFrame, streaming if any of its inputs is."""
        with telling():
            return surface(self.branches(program, rows=True), program.columns)

    def _clockwork(self, plan: physical.Physical) -> Clockwork:
        nodes = list(physical.walk(plan))
        inputs = [(node, self._find(node.stream)) for node in nodes if isinstance(node, physical.Source)]
        streaming_ = {entry.streaming for _, entry in inputs}
        if len(streaming_) > 1:
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
                return isinstance(self._find(node.stream), RegisteredFrame | PushedRows | DriverSource)
            case physical.Compute():
                return self._in_spark(node.input)
        return isinstance(node, physical.TableJoin)

    def _table(self, node: physical.StoredTable) -> SparkTable:
        registered = {name: self._tables[name.lower()] for name in node.tables if name.lower() in self._tables}
        if node.table in registered:
            return registered_table(*registered[node.table], node)
        # a query over DataFrames is answered where stored tables are
        return stored_table(self.spark, self._table_rows(node), node.schema)

    # -- running ---------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All inputs end: followed files with those that are there; a generator without end has brought nothing."""
        self._run(self._left(), None)
        self._finished = True

    def _left(self) -> list[StartedQuery]:
        """The queries that have not run, now that all inputs end."""
        for name, entry in self._inputs.items():
            if isinstance(entry, FollowedFiles | Spooled):
                self._inputs[name] = entry.as_bounded()
        left = [query for query in self._queries.values() if not query.ended]
        return [query for query in left if self._streaming_of(query) is False]

    @staticmethod
    def finish_together(hosts: Sequence[SparkHost]) -> None:
        """Finish several sessions of one Spark session with one job, as if each was finished on its own."""
        asked: list[tuple[StartedQuery, Callable[[], SessionInputs]]] = []
        for host in hosts:
            inputs = partial(host.inputs, Meters({}), streaming=False)
            asked += [(query, inputs) for query in host._left()]
        if asked:
            settle(hosts[0].spark, asked, Event(), lambda: None, hosts[0]._buckets)
        for host in hosts:
            host._finished = True

    def run(self, names: tuple[str, ...], report: Report | None = None) -> None:
        """Run these queries over their declared sources; those that also wait for pushed rows run at `finish`."""
        chosen = [self._queries[name.lower()] for name in names]
        self._run([q for q in chosen if not q.ended and not self._waits(q.program.plan)], report)

    def _waits(self, plan: physical.Physical) -> bool:
        return any(isinstance(self._find(name), PushedRows) for name in physical.streams_of(plan))

    def _run(self, queries: list[StartedQuery], report: Report | None) -> None:
        self._stop.clear()
        kinds = [(query, self._streaming_of(query)) for query in queries]
        bounded = [query for query, is_streaming in kinds if is_streaming is False]
        if bounded:
            self._run_bounded(bounded, report)
        unbounded = [query for query, is_streaming in kinds if is_streaming]
        if unbounded and not self._stop.is_set():
            self._run_unbounded(unbounded, report)

    def _streaming_of(self, query: StartedQuery) -> bool | None:
        """Whether a query has no end; None if it cannot run, which its next fetch tells."""
        try:
            return self._clockwork(query.program.plan).streaming
        except MillstreamError as error:
            query.fail(error)
            return None

    def _run_bounded(self, queries: list[StartedQuery], report: Report | None) -> None:
        """Queries as one job."""
        meters = Meters({})

        def inputs() -> SessionInputs:
            nonlocal meters
            meters = Meters.of(self.spark, [s for query in queries for s in physical.streams_of(query.program.plan)])
            return self.inputs(meters, streaming=False)

        asked = [(query, inputs) for query in queries]
        settle(self.spark, asked, self._stop, lambda: self._tell(report, meters), self._buckets)
        self._tell(report, meters)

    def inputs(self, meters: Meters, *, streaming: bool, dry: bool = False) -> SessionInputs:
        """The streams and tables of this session, for a job."""
        return SessionInputs(self.spark, self._find, self._table_rows, meters, streaming=streaming, dry=dry)

    def _table_rows(self, node: physical.StoredTable) -> pa.Table:
        registered = {name: self._tables[name.lower()] for name in node.tables if name.lower() in self._tables}
        if node.table in registered:
            return brought_table(*registered[node.table], node)
        lent = {name: collected(*known) for name, known in registered.items()}
        return self._read_table(node, lent) if lent else self._read_table(node)

    def _run_unbounded(self, queries: list[StartedQuery], report: Report | None) -> None:
        """Streaming queries side by side until `interrupt`; without a checkpoint directory they start afresh."""
        streams = [name for query in queries for name in physical.streams_of(query.program.plan)]
        meters = Meters.of(self.spark, streams)
        outlets = Meters.of(self.spark, [WRITTEN + query.program.name for query in queries])
        before = {query.program.name: query.rows for query in queries}

        def look(news: Mapping[str, streaming.News]) -> None:
            for query in queries:
                name = query.program.name
                before[name] += news[name].rows
                query.rows = max(query.rows, before[name] + outlets[WRITTEN + name].counted[0])
                query.late += news[name].late
            for entry in map(self._find, meters.by_stream):
                if isinstance(entry, Spooled):
                    entry.check()
            self._tell(report, meters)

        with TemporaryDirectory(prefix="millstream-", ignore_cleanup_errors=True) as scratch:
            base = self.checkpoint or scratch
            self._metered = Meters(meters.by_stream | outlets.by_stream)
            try:
                started = {q.program.name: self.start_streaming(q.program, f"{base}/{q.program.name}") for q in queries}
            finally:
                self._metered = None
            streaming.wait(started, self._stop, look)
        for query in queries:
            query.ended = True
            query.results.close()

    def _tell(self, report: Report | None, meters: Meters) -> None:
        for name, meter in meters.by_stream.items():
            now, before = meter.counted, self._read.get(name, (0, 0))
            self._read[name] = (max(now[0], before[0]), max(now[1], before[1]))
        if report is None:
            return
        report(self.progress())

    def progress(self) -> Progress:
        sizes = [self._find(name).size() for name in self._read]
        return Progress(
            {self._find(name).stream.name: rows for name, (rows, _) in self._read.items()},
            {query.program.name: query.rows for query in self._queries.values()},
            sum(rejected for _, rejected in self._read.values()),
            sum(query.late for query in self._queries.values())
            + sum(pushed.counts.late for pushed in map(_pushed, self._inputs.values()) if pushed is not None),
            total=None if None in sizes else sum(size or 0 for size in sizes),
        )

    def interrupt(self) -> None:
        self._stop.set()

    def cancel(self, name: str) -> None:
        """A run in progress ends with it: Spark's jobs of a run are cancelled together."""
        self._running(name).fail(cancelled())
        self._stop.set()

    def start_streaming(self, program: ReadyQuery, checkpoint: str, trigger: Trigger | None = None) -> StreamingQuery:
        """Run a program as a streaming query into its sink, resuming from `checkpoint` if there is one.

        A query that is the same as the one that began there goes on with its plan, whatever the settings are now;
        another one goes on if all its state is the same.
        """
        kept = KeptPlan.read(self.spark, checkpoint, program)
        if kept is not None:
            program = kept.resumed(program)
        running = self._queries.get(program.name.lower())

        def deliver(rows: pa.Table) -> None:
            if running is not None:
                # Spark's next micro-batch waits with this one for readers that must not miss a row
                self._gate.pass_(next(iter(running.results.feeds)), self._stop.is_set)
                running.rows += rows.num_rows
                running.deliver([rows])

        branches, stages = self._built(program, 0, self._metered, dry=False, rows=False)
        # before anything is read: what does not fit is refused at the start
        streams = [self._find(name).stream for name in physical.streams_of(program.plan)]
        KeptPlan.of(program, stages, streams).follow(kept, self.spark, checkpoint)
        written = StreamMeter() if self._metered is None else self._metered[WRITTEN + program.name]
        return streaming.start(program, branches, checkpoint, trigger or self.trigger, deliver, written)

    # -- output ----------------------------------------------------------------------------------------------------

    def _running(self, name: str) -> StartedQuery:
        if name.lower() not in self._queries:
            raise not_running(name)
        return self._queries[name.lower()]

    def fetch(self, name: str) -> pa.Table:
        running = self._running(name)
        if running.error is not None:
            raise running.error
        fields = zip(running.program.columns, running.program.plan.schema, strict=True)
        schema = pa.schema([(column, field.type.arrow) for column, field in fields])
        return pa.Table.from_batches(running.results.fetch(), schema=schema)

    def results(self, name: str) -> ResultLog:
        return self._running(name).results

    def waits(self, name: str) -> bool:
        return self._waits(self._running(name).program.plan)

    def content(self, name: str, at: int | None) -> pa.Table:
        raise UnsupportedError(
            "the content of a relation at an instant is only available in-process",
            hint="fetch() its rows and compare valid_from and valid_to, or use ms.connect()",
        )

    def statistics(self) -> Statistics:
        """Nothing: rows pass through workers, which do not tell."""
        return UNKNOWN

    def sharing(self) -> list[Shared]:
        """What a job of all queries of this session evaluates together."""
        return shared_filters({query.program.name: query.program.plan for query in self._queries.values()})

    def explain(self, program: ReadyQuery) -> str:
        with telling():
            clockwork = self._clockwork(program.plan)
            df = surface(self.branches(program, dry=True, rows=True), program.columns)
            return explained(fused(program.plan), clockwork, self._in_spark, df)

    def close(self) -> None:
        """Forget everything; the Spark session stays, others may use it."""
        self._stop.set()
        for entry in self._inputs.values():
            if isinstance(entry, Spooled):
                entry.close()
        for query in self._queries.values():
            query.results.close()
        self._queries.clear()
        self._inputs.clear()


def _pushed(entry: Input) -> PushedRows | None:
    """The rows that were pushed to a stream, if it takes any."""
    if isinstance(entry, Spooled):
        return entry.pushed
    return entry if isinstance(entry, PushedRows) else None

"""A set of queries as one streaming query of Spark's: one checkpoint, each source read once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from millstream.catalog import StreamDef
from millstream.errors import EngineError, MillstreamError, UnsupportedError
from millstream.hosts.spark.build import first_buckets, idle_of, puts_together
from millstream.hosts.spark.failures import telling, translated
from millstream.hosts.spark.job.backfill import Again, backfill
from millstream.hosts.spark.job.committed import Committed
from millstream.hosts.spark.job.frames import job_frame, writes_above
from millstream.hosts.spark.job.graph import GraphBuilder, JobGraph, JobQuery
from millstream.hosts.spark.job.kept_job import KeptJob, new_name, refuse_unfit
from millstream.hosts.spark.job.live import LiveQueries, refuse_missing_code, widened
from millstream.hosts.spark.job.outlets import Deliver, Outlets, TakeBatch
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.meters import STAGE_METRICS, Meters, numbers_of
from millstream.hosts.spark.runs import StartedQuery
from millstream.hosts.spark.session import FILES, KEPT_AS, VALUE, kept_as, register_own, send_whole
from millstream.hosts.spark.streaming import Trigger
from millstream.physical.nodes import Source
from millstream.plan_form import python_in
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

PATIENCE = 10.0
"""Seconds that a change waits for the micro-batch in progress, before the job is stopped for it."""

log = logging.getLogger("millstream")


@dataclass
class StreamingJob:
    """A running job: Spark's streaming query, and what became of the outlets so far."""

    query: StreamingQuery
    first: JobGraph
    outlets: Outlets
    late: dict[int, int] = field(default_factory=dict)
    """late rows that each stage counted"""
    live: LiveQueries | None = None
    """the queries of an open job, which come and go"""
    session: JobSession | None = None
    """makes queries of texts, for `add` and `drop`"""
    _seen: int = -1

    @property
    def graph(self) -> JobGraph:
        """What it runs; of an open job what was asked for last."""
        return self.first if self.live is None else self.live.asked.graph

    @property
    def queries(self) -> list[str]:
        """The names of its queries."""
        return [query.program.name for query in self.graph.queries]

    @property
    def failed(self) -> dict[str, MillstreamError]:
        """The queries of an open job that failed, by name, and why. They ended; the others went on."""
        return {} if self.live is None else dict(self.live.failed)

    def add(
        self, queries: Mapping[str, str] | None = None, *, foreach_batch: Mapping[str, TakeBatch] | None = None
    ) -> None:
        """Let an open job run more queries, of any shape, from its next micro-batch on.

        These are INSERTs that were executed since it started, and `queries`, by name, as for `start`. Each begins
        with empty windows. One that needs more exchanges than the job has, or a stream that it does not read, is
        refused, and nothing changes.
        """
        live, session = self._opened()
        if not self.query.isActive:
            raise EngineError("the job has ended", hint="start it again, then add queries")
        functions = {name.lower(): function for name, function in (foreach_batch or {}).items()}
        for name in queries or {}:
            if name.lower() in map(str.lower, self.queries):
                raise EngineError(f"the job has a query {name}", hint="drop it first, or choose another name")
        for name in self.failed:
            session.dropped(name)
        with session.asked(queries or {}, self.queries) as started:
            asked = [query.asked(live.inputs) for query in started]
            names = [query.program.name.lower() for query in asked]
            for name in functions:
                if name not in names:
                    raise EngineError(f"no query named {name} for its function", hint="queries: " + ", ".join(names))
            if not asked:
                raise EngineError("nothing to add", hint="give queries by name, or execute INSERT INTO a sink before")
            before = dict(self.outlets.functions)
            self.outlets.functions |= functions
            try:
                with telling():
                    live.change([*live.queries(), *asked])
            except BaseException:
                self.outlets.functions = before
                raise

    def drop(self, name: str) -> None:
        """Let an open job end a query with the micro-batch in progress; its state is removed.

        From a job that failed, it takes the query for good: the micro-batch that failed runs without it when the job is
        started again.
        """
        live, session = self._opened()
        left = [query for query in live.queries() if query.program.name.lower() != name.lower()]
        if len(left) == len(live.queries()):
            raise EngineError(f"the job has no query {name}", hint="queries: " + ", ".join(self.queries))
        with telling():
            live.change(left)
        if not self.query.isActive:
            live.files.forget_last()
        session.dropped(name)

    def _opened(self) -> tuple[LiveQueries, JobSession]:
        if self.live is None or self.session is None:
            raise EngineError(
                "queries cannot come and go: the job was not started open",
                detail="its plan is part of Spark's streaming query",
                hint="start it with open=True, on the same checkpoint",
            )
        return self.live, self.session

    @property
    def stages(self) -> dict[str, str]:
        """The kernels of the job, by the names of their metrics in Spark's progress."""
        return {f"{STAGE_METRICS}{stage.number + 1}": stage.stage.spec.describe() for stage in self.graph.stages}

    def rows(self, name: str) -> int:
        """How many rows of a query have been committed."""
        return self.committed(name).rows

    def committed(self, name: str) -> Committed:
        """How many rows of a query have been committed, and in which micro-batches."""
        graph = self.graph
        place = _place(graph, name)
        if self.live is not None:
            place = self.live.numbers[1](graph.queries[place].key)
        return self.outlets.committed.get(place, Committed())

    def late_rows(self, name: str) -> int:
        """How many rows came too late for the stages of a query."""
        graph, late = self.graph, self.late if self.live is None else self.outlets.late
        return sum(late.get(graph.stages[place].number, 0) for place in graph.stages_of[_place(graph, name)])

    def look(self) -> None:
        """Take in what Spark tells of the micro-batches since the last look."""
        for entry in self.query.recentProgress:
            if entry["batchId"] <= self._seen:
                continue
            self._seen = int(entry["batchId"])
            for name, row in dict(entry["observedMetrics"]).items():
                if name.startswith(STAGE_METRICS):
                    number = int(name.removeprefix(STAGE_METRICS)) - 1
                    self.late[number] = self.late.get(number, 0) + numbers_of(row)["late"]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job ends, at most so many seconds; whether it has. What made it fail is raised."""
        with telling():
            ended = self.query.awaitTermination(timeout) if timeout is not None else self.query.awaitTermination()
        self.look()
        if timeout is not None and not ended:
            return False
        self.outlets.close()
        return True

    def stop(self) -> None:
        """End it in good order: the micro-batch in progress is given up, and done again at the next start."""
        self.query.stop()
        self.outlets.close()

    def raise_failure(self) -> None:
        """Raise what ended the job, if something did."""
        error = self.query.exception()
        if error is not None:
            raise translated(error) from None


def _place(graph: JobGraph, name: str) -> int:
    return [query.program.name.lower() for query in graph.queries].index(name.lower())


class JobSession(Protocol):
    """What an open job asks of the session that started it."""

    def asked(self, queries: Mapping[str, str], known: Sequence[str]) -> AbstractContextManager[Sequence[StartedQuery]]:
        """These queries, and INSERTs that were executed, without those that the job knows by name."""
        ...

    def dropped(self, name: str) -> None:
        """A query is no longer part of the job."""
        ...


class RunningJob:
    """A job of a session's run, whose queries count their rows."""

    def __init__(self, job: StreamingJob, queries: Sequence[StartedQuery], meters: Meters) -> None:
        self.meters = meters
        self._job = job
        self._before = [_told(query) for query in queries]

    @property
    def reads(self) -> set[str]:
        """The streams that queries may read which come while it runs."""
        live = self._job.live
        return set() if live is None else {source.stream.lower() for source in live.asked.kept.sources}

    def follow(self, queries: Sequence[StartedQuery]) -> bool:
        """Go on with other queries, without a stop; whether that is possible."""
        live = self._job.live
        if live is None or not self.is_active:
            return False
        try:
            live.change([query.asked(live.inputs) for query in queries], PATIENCE)
        except MillstreamError:
            return False
        known = {told[0]: told for told in self._before}
        self._before = [known.get(query) or _told(query) for query in queries]
        return True

    @property
    def is_active(self) -> bool:
        return bool(self._job.query.isActive)

    def look(self) -> None:
        self._job.look()
        for query, others, committed, late in self._before:
            with suppress(ValueError):  # another thread may just have dropped it
                query.committed = self._job.committed(query.program.name).after(committed)
                query.rows = others + query.committed.rows
                query.late = late + self._job.late_rows(query.program.name)

    def stop(self) -> None:
        self._job.stop()

    def raise_failure(self) -> None:
        self._job.raise_failure()


def _told(query: StartedQuery) -> tuple[StartedQuery, int, Committed, int]:
    """A query before a job: its rows that no job committed, what jobs committed, and its late rows."""
    return query, query.rows - query.committed.rows, query.committed, query.late


def start_job(
    spark: SparkSession,
    queries: Sequence[JobQuery],
    inputs: SessionInputs,
    streams: Sequence[StreamDef],
    checkpoint: str,
    trigger: Trigger | None,
    deliver: Deliver,
    functions: Mapping[str, TakeBatch],
    buckets: int | None = None,
    name: str | None = None,
    beats: str = "",
    opened: HowOpen | None = None,
    again: Again | None = None,
) -> StreamingJob:
    """Start queries as one job, resuming from `checkpoint` if there is one; `beats` is the file of heartbeats, `again`
    gives what was read before.

    `functions` are by the names of queries in lower case. With `opened`, queries may come and go while it runs.
    """
    from millstream.hosts.spark.one_value import Unchecked

    for query in queries:
        send_whole(python_in(query.program.plan).values())
    kept = KeptJob.read(spark, checkpoint, [query.program for query in queries])
    if kept is not None:
        kept.refuse_streams(streams)
        queries = [kept.resumed(query) for query in queries]
        if kept.open and opened is None:
            opened = HowOpen(kept.levels)
    with telling():
        # the client of a Spark server does not see micro-batches: there tables are what they were at the start
        steering = inputs.steering(checkpoint) if hasattr(spark, "_jsparkSession") else None
        outlets = Outlets(spark, checkpoint, deliver, dict(functions))
        live: LiveQueries | None = None

        def builder(before: KeptJob | None) -> GraphBuilder:
            how: dict[str, Any] = {"partials": puts_together(spark), "steering": steering, "around": inputs}
            how["beside_sources"] = opened is None and (kept_as(spark) if before is None else before.kept) == FILES
            if live is not None and opened is not None:
                known = widened(opened.sources if before is None else before.sources, streams)
                how |= {"known": known, "numbers": live.numbers}
            elif before is not None:
                how |= {"known": before.sources}
            if before is None:
                return GraphBuilder(True, buckets or first_buckets(spark), idle_of(spark), new_name, **how)
            return GraphBuilder(True, before.buckets, idle_of(spark), before.state_name, **how)

        if opened is not None:
            opened.check(spark, checkpoint, kept)
            queries = opened.going_on(queries, kept, inputs, functions)
            live = LiveQueries(spark, checkpoint, inputs, streams, builder, steering, outlets, opened.all_of)
        graph = builder(kept).build(queries)
        refuse_unfit(graph, kept)
        levels = 0 if opened is None else opened.exchanges
        now = KeptJob.of(graph, streams, kept, kept_as(spark), levels, outlets.functions)
        if kept is not None:
            kept.refuse_another(now)
            anew = [query for query in graph.queries if query.anew]
            if anew and graph.at(0):
                raise UnsupportedError(
                    "the state of a query cannot be computed anew in a job with a source that is partitioned by a key",
                    hint="stop the query and start the other one WITH HISTORY",
                )
            if anew and again is not None:
                backfill(spark, checkpoint, kept, anew, again)
        read = {inputs.number: inputs}
        at_work = None if live is None else live.files.at_work
        writes = None
        if live is None:
            outlets.add(dict(enumerate(query.program for query in queries)))
            if writes_above(spark, graph, now.kept):
                writes = outlets.written_above()
        packed = job_frame(
            spark,
            graph,
            read,
            streaming=True,
            levels=now.levels,
            beats=beats,
            kept=now.kept,
            at_work=at_work,
            writes=writes,
        )
        new = [query.program.name for query in queries if kept is None or kept.find(query.program.name) is None]
        if live is not None:
            outlets.prepare, outlets.isolate = live.prepare, live.isolate
            live.begin(now, graph, new)
            writer = _writer(packed, outlets)
        else:
            if steering is not None:
                outlets.prepare = steering.note
            writer = _writer(packed, outlets)
            outlets.open(outlets.programs, [n for n, query in enumerate(queries) if query.program.name in new])
        if now != kept:
            now.write(spark, checkpoint)
        writer = writer.outputMode("append").option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        with Unchecked(spark, now.kept == VALUE and now.levels > 1):
            return StreamingJob(writer.start(), graph, outlets, live=live)


@dataclass(frozen=True)
class HowOpen:
    """How a job is open: with so many exchanges, over these sources if it begins.

    If it goes on (`all_of`), its queries are those of the checkpoint, too, without those that were dropped; otherwise
    just those that are given.
    """

    exchanges: int
    sources: tuple[Source, ...] = ()
    all_of: bool = False

    def check(self, spark: SparkSession, checkpoint: str, kept: KeptJob | None) -> None:
        """Refuse what an open job cannot be."""
        if not hasattr(spark, "_jsparkSession"):
            raise UnsupportedError(
                "an open job does not run on Spark Connect",
                detail="a client of Spark Connect does not see micro-batches, between which queries come and go",
                hint="start it in the driver of a classic session, or without open",
            )
        if (kept_as(spark) if kept is None else kept.kept) != FILES:
            raise UnsupportedError(
                "an open job keeps its state in files of the checkpoint",
                detail="the checkpoint began otherwise" if kept is not None else f"here {KEPT_AS} is not {FILES}",
                hint="start with a new checkpoint directory" if kept is not None else f"set {KEPT_AS} to {FILES}",
            )
        if "://" in checkpoint.removeprefix("file://"):
            raise UnsupportedError(
                "the checkpoint of an open job must be in a file system of this machine",
                detail="workers read in it which queries there are, at each micro-batch",
            )
        if kept is not None and not kept.levels:
            raise UnsupportedError(
                "this checkpoint was made without an exchange, and so cannot be of an open job",
                hint="start with a new checkpoint directory",
            )

    def going_on(
        self,
        given: Sequence[JobQuery],
        kept: KeptJob | None,
        around: SessionInputs,
        functions: Mapping[str, TakeBatch],
    ) -> list[JobQuery]:
        """The queries that the job goes on with."""
        if kept is None or not kept.open or not self.all_of:
            return list(given)
        by_name = {query.program.name.lower(): query for query in given}
        found = []
        for old in kept.queries:
            refuse_missing_code(old.program)
            if old.taken and old.name not in functions:
                raise EngineError(
                    f"the job of this checkpoint has a query {old.program.name}, whose rows a function takes",
                    hint=f"give it in foreach_batch; job.drop({old.program.name!r}) ends the query",
                )
            found.append(by_name.pop(old.name) if old.name in by_name else old.asked(around))
        for name, query in by_name.items():
            if name in kept.dropped:
                log.warning("%s was dropped from this job, and stays so; add() brings it back", query.program.name)
            else:
                found.append(query)
        return found


def _writer(packed: DataFrame, outlets: Outlets) -> DataStreamWriter:
    if hasattr(packed.sparkSession, "_jsparkSession"):
        return packed.writeStream.foreachBatch(outlets.take)
    if not outlets.only_files:
        # there foreachBatch runs its function on the server, out of reach of this process
        raise EngineError(
            "a streaming query on Spark Connect cannot return rows to the client",
            hint="write files with INSERT INTO, or use writeStream of the DataFrame that Millstream.sql returns",
        )
    from millstream.hosts.spark.job.outlets_sink import SINK_FORMAT, OutletsSink

    return packed.writeStream.format(register_own(packed.sparkSession, OutletsSink, SINK_FORMAT, work=outlets.work))

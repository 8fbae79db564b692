"""The Spark host: queries over pushed rows and bounded sources run as batch programs, others as streaming queries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import EngineError, MillstreamError
from millstream.hosts.contract import Counts, Left, Progress, ReadyQuery, Report, Shared, not_running
from millstream.hosts.results import Admit, Gate, ResultLog
from millstream.hosts.spark import streaming
from millstream.hosts.spark.apart import run_apart
from millstream.hosts.spark.declared import ReadTable, pushed_to
from millstream.hosts.spark.history import JOB
from millstream.hosts.spark.job.bounded import settle
from millstream.hosts.spark.job.kept_job import KeptJob
from millstream.hosts.spark.job.outlets import TakeBatch
from millstream.hosts.spark.job.sharing import shared_filters
from millstream.hosts.spark.job.streaming_job import HowOpen, RunningJob, StreamingJob, start_job
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.kept_plan import KeptPlan
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.programs import Programs
from millstream.hosts.spark.runs import StartedQuery
from millstream.hosts.spark.session import exchanges_of, refuse_setting
from millstream.hosts.spark.so_far import LeftOver, content_of
from millstream.hosts.spark.sources import FollowedFiles, PushedRows
from millstream.hosts.spark.spool import Spooled
from millstream.hosts.spark.streaming import Trigger
from millstream.hosts.tables import TableStore
from millstream.limits import cancelled
from millstream.physical import nodes as physical
from millstream.plan.costs.statistics import UNKNOWN, Statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from millstream.hosts.spark.job.clock import HeartbeatFile

log = logging.getLogger("millstream")


class SparkHost(Programs):
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
        tables: TableStore | None = None,
    ) -> None:
        super().__init__(spark, read_table, now, checkpoint, follow, tables, buckets)
        self.trigger = trigger
        self._queries: dict[str, StartedQuery] = {}
        self._stop = Event()
        self._at_work: list[StartedQuery] = []
        """the queries of the run in progress"""
        self._jobs: list[RunningJob] = []
        """the streaming jobs of that run"""
        self._interrupted = False
        self._heartbeats: HeartbeatFile | None = None
        self._gate = Gate()
        self._read: dict[str, tuple[int, int]] = {}

    # -- streams, tables and queries -------------------------------------------------------------------------------

    def new_member(self) -> None:
        """What runs in a job is planned as a whole: its queries share equal operators, and filters by their shape."""

    def start(self, program: ReadyQuery) -> None:
        program = self.kept_by(program)
        self._drawn(physical.streams_of(program.plan))
        for node in physical.walk(program.plan):
            why = getattr(node.spec, "why", "") if isinstance(node, physical.Apply) else ""
            if why:
                log.warning("%s: an automaton runs in one task, on one core: %s", program.name, why)
        results = ResultLog(physical.streams_of(program.plan), self._gate, program.sink is None)
        query = StartedQuery(program, self.begins(program), results, after=self.sees_from(program))
        self._queries[program.name.lower()] = query
        read = {stream for each in self._at_work for stream in physical.streams_of(each.program.plan)}
        read = read.union(*(job.reads for job in self._jobs))
        if read and read.issuperset(physical.streams_of(program.plan)) and self._streaming_of(query):
            self._change([*self._at_work, query])

    def replace(self, program: ReadyQuery) -> None:
        """Nothing is handed over here: state is in checkpoints, which know what fits them."""
        self._queries.pop(program.name.lower()).results.close()
        self.start(program)

    def stop(self, name: str) -> Left:
        query = self._queries.pop(name.lower())
        self._drawn(physical.streams_of(query.program.plan))
        if query in self._at_work:
            self._change([each for each in self._at_work if each is not query])
        left = None
        if not query.ended and query.error is None and self._waits(query.program.plan):
            left = LeftOver(self, query)
            if left.is_awaited:
                left.deliver()
        query.results.close()
        return partial(self._left_of, query, left)

    def _left_of(self, query: StartedQuery, left: LeftOver | None) -> pa.Table:
        if left is not None and not query.ended:
            left.deliver()
        return query.fetched()

    # -- input -----------------------------------------------------------------------------------------------------

    def counts(self, name: str) -> Counts:
        """Of rows that are read, late ones are known of streaming queries only: in a bounded run none is."""
        running = self._running(name)
        entries = [self.find(stream) for stream in physical.streams_of(running.program.plan)]
        counts = Counts(late=running.late)
        for entry in entries:
            pushed = pushed_to(entry)
            counts += Counts() if pushed is None else pushed.counts
            if not isinstance(entry, PushedRows):
                rows, rejected = self._read.get(entry.stream.name.lower(), (0, 0))
                counts += Counts(accepted=rows, rejected=rejected)
        return replace(counts, accepted=counts.accepted - running.late)

    # -- running ---------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All inputs end: followed files with those that are there; a generator without end has brought nothing."""
        left = self._left()
        for query in left:
            if query.program.view and query.program.sink is not None:
                self._run([query], None)  # others read its rows
        self._run([query for query in left if not query.ended], None)
        self._finished = True

    def _left(self) -> list[StartedQuery]:
        """The queries that have not run, now that all inputs end."""
        for name, entry in self._inputs.items():
            if isinstance(entry, FollowedFiles | Spooled):
                self._inputs[name] = entry.as_bounded()
        self._drawn(self._inputs, ends=True)
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
            settle(hosts[0].spark, asked, Event(), lambda: None, hosts[0].buckets)
        for host in hosts:
            host._finished = True

    def run(self, names: tuple[str, ...], report: Report | None = None) -> None:
        """Run these queries over their declared sources; those that also wait for pushed rows run at `finish`."""
        chosen = [self._queries[name.lower()] for name in names]
        ready = [s for q in chosen if not self._waits(q.program.plan) for s in physical.streams_of(q.program.plan)]
        self._drawn([*ready, *names], ends=True)
        self._run([q for q in chosen if not q.ended and not self._waits(q.program.plan)], report)

    def _waits(self, plan: physical.Physical) -> bool:
        streams = physical.streams_of(plan)
        return any(isinstance(self.find(s), PushedRows) and not self._is_drawn_fully(s) for s in streams)

    def _run(self, queries: list[StartedQuery], report: Report | None) -> None:
        self._interrupted = False
        kinds = [(query, self._streaming_of(query)) for query in queries]
        try:
            self._run_bounded([query for query, is_streaming in kinds if is_streaming is False], report)
            self._run_unbounded([query for query, is_streaming in kinds if is_streaming], report)
        finally:
            self._at_work = []

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

        self._at_work = queries
        while left := self._next_round():
            asked = [(query, inputs) for query in left]
            settle(self.spark, asked, self._stop, lambda: self._tell(report, meters), self.buckets)
        self._tell(report, meters)

    def _next_round(self) -> list[StartedQuery]:
        """The queries that the run in progress has still to do; it is begun anew when some came or went."""
        self._stop.clear()
        return [] if self._interrupted else [q for q in self._at_work if not q.ended and q.error is None]

    def _run_unbounded(self, queries: list[StartedQuery], report: Report | None) -> None:
        """One streaming job until `interrupt`; without a checkpoint directory it starts afresh."""
        self._at_work = queries
        with TemporaryDirectory(prefix="millstream-", ignore_cleanup_errors=True) as scratch:
            base = self.checkpoint or scratch
            while left := self._next_round():
                if any(KeptPlan.read(self.spark, f"{base}/{q.program.name}", q.program) for q in left):
                    self._run_apart(left, base, report)
                else:
                    self._run_jobs(left, base, report)
                if not self._stop.is_set():
                    break  # they have come to an end by themselves
        for query in self._at_work:
            query.ended = True
            query.results.close()

    def _run_jobs(self, queries: list[StartedQuery], base: str, report: Report | None) -> None:
        """One job, and one for each query that begins with what the first has read already: it reads all anew."""
        by_place: dict[str, list[StartedQuery]] = {}
        for query in queries:
            query.job = self._job_of(query, base)
            by_place.setdefault(query.job, []).append(query)
        running: list[RunningJob] = []
        try:
            for place, own in by_place.items():
                kept = KeptJob.read(self.spark, f"{base}/{place}", ())
                opened = self.how_open(exchanges_of(self.spark), own, kept) if place == JOB else None
                names = [] if opened is None else [source.stream for source in opened.sources]
                streams = [s for query in own for s in physical.streams_of(query.program.plan)]
                meters = Meters.of(self.spark, [*streams, *names])
                job = self.start_job(own, f"{base}/{place}", self.trigger, meters=meters, opened=opened)
                running.append(RunningJob(job, own, meters))
            self._jobs = running
            while any(job.is_active for job in running) and not self._stop.wait(streaming.LOOK_SECONDS):
                for each in running:
                    self._look(each, report)
        finally:
            self._jobs = []
            for each in running:
                each.stop()
        for each in running:
            self._look(each, report)
            each.raise_failure()

    def _job_of(self, query: StartedQuery, base: str) -> str:
        """Where below the directory of checkpoints the job of a query is."""
        if query.program.history is None:
            return JOB
        kept = KeptJob.read(self.spark, f"{base}/{JOB}", [query.program])
        return JOB if kept is None or kept.find(query.program.name) is not None else f"{JOB}-{query.program.name}"

    def _look(self, job: RunningJob, report: Report | None) -> None:
        job.look()
        self._check_spools(job.meters)
        self._tell(report, job.meters)

    def _beats(self) -> HeartbeatFile:
        """How heartbeats reach running jobs."""
        if self._heartbeats is None:
            from millstream.hosts.spark.job.clock import HeartbeatFile

            self._heartbeats = HeartbeatFile()
        return self._heartbeats

    def advance(self, stream: str, upto: int) -> None:
        """Rows that are pushed are put in order at the end: there a heartbeat only makes later rows below it late. In a
        running job time comes to `upto` with the next micro-batch."""
        super().advance(stream, upto)
        if self.find(stream).streaming:
            self._beats().advance(stream, upto)

    def run_inserts(self) -> list[StartedQuery]:
        """Run what goes to sinks and reads inputs that end, as one job; which queries that were."""
        asked = [query for query in self._queries.values() if query.program.sink is not None and not query.ended]
        ready = [q for q in asked if not self._waits(q.program.plan) and self._streaming_of(q) is not True]
        self._run([query for query in ready if query.error is None], None)
        return ready

    def start_all(
        self,
        checkpoint: str,
        trigger: Trigger | None,
        functions: Mapping[str, TakeBatch],
        name: str | None,
        open_: bool | int | None = None,
        streams: Sequence[str] | None = None,
        altered: Collection[str] = (),
    ) -> StreamingJob:
        """All queries over streaming inputs as one job."""
        queries = self.endless()
        self.require_place()
        by_name = {query.program.name.lower(): query for query in queries}
        for changed in altered:
            if changed.lower() not in by_name:
                raise EngineError(f"no query named {changed} is altered", hint="queries: " + ", ".join(by_name))
            by_name[changed.lower()].anew = True
        names = [query.program.name for query in queries]
        kept = KeptJob.read(self.spark, checkpoint, ())
        opened = self.how_open(exchanges_of(self.spark, open_), queries, kept, streams, all_of=True)
        if opened is not None:
            names += [] if kept is None else [query.program.name for query in kept.queries]
        elif streams is not None:
            raise EngineError("streams is for open jobs", hint="give open=True, too")
        elif not queries:
            raise EngineError("nothing to start", hint="give queries by name, or execute INSERT INTO a sink before")
        for known in functions:
            if known.lower() not in map(str.lower, names):
                raise EngineError(f"no query named {known} for its function", hint="queries: " + ", ".join(names))
        return self.start_job(queries, checkpoint, trigger, functions, name=name, opened=opened)

    def started(self) -> list[StartedQuery]:
        """The queries that were started and not stopped, oldest first."""
        return list(self._queries.values())

    def start_job(
        self,
        queries: Sequence[StartedQuery],
        checkpoint: str,
        trigger: Trigger | None = None,
        functions: Mapping[str, TakeBatch] | None = None,
        meters: Meters | None = None,
        name: str | None = None,
        opened: HowOpen | None = None,
    ) -> StreamingJob:
        """Run queries as one streaming query, resuming from `checkpoint` if there is one.

        `functions` take the micro-batches of queries, by name, as those of Spark's `foreachBatch` do. With `opened`
        queries may come and go while it runs.
        """
        names = [stream for query in queries for stream in physical.streams_of(query.program.plan)]
        names += [] if opened is None else [source.stream.lower() for source in opened.sources]
        for entry in map(self.find, dict.fromkeys(names)):
            if isinstance(entry, Spooled):
                entry.begin()
        inputs = self.inputs(meters or Meters({}), streaming=True)
        given = {known.lower(): function for known, function in (functions or {}).items()}
        started = {query.program.name.lower(): query for query in queries}

        def deliver(name: str, rows: pa.Table, batch: int) -> None:
            running = self._queries.get(name.lower()) or started.get(name.lower())
            if running is None or batch <= running.delivered:
                return  # of a query that is gone, or of a micro-batch that is repeated because the job was stopped
            running.delivered = batch
            # Spark's next micro-batch waits with this one for readers that must not miss a row
            self._gate.pass_(next(iter(running.results.feeds)), self._stop.is_set)
            running.deliver([rows])

        asked = [query.asked(inputs) for query in queries]
        job = start_job(
            self.spark,
            asked,
            inputs,
            [entry.stream for entry in self._inputs.values()],
            checkpoint,
            trigger,
            deliver,
            given,
            self.buckets,
            name,
            self._beats().path,
            opened,
            self.read_again,
        )
        for query, one in zip(queries, asked, strict=True):
            query.anew = query.anew and query.program is not one.program
        return job

    def _run_apart(self, queries: list[StartedQuery], base: str, report: Report | None) -> None:
        def start(query: StartedQuery, meters: Meters) -> StreamingQuery:
            return self.start_streaming(query.program, f"{base}/{query.program.name}", meters=meters)

        def look(meters: Meters) -> None:
            self._check_spools(meters)
            self._tell(report, meters)

        run_apart(self.spark, queries, start, self._stop, look)

    def _check_spools(self, meters: Meters) -> None:
        for entry in map(self.find, meters.by_stream):
            if isinstance(entry, Spooled):
                entry.check()

    def _tell(self, report: Report | None, meters: Meters) -> None:
        for name, meter in meters.by_stream.items():
            now, before = meter.counted, self._read.get(name, (0, 0))
            self._read[name] = (max(now[0], before[0]), max(now[1], before[1]))
        if report is not None:
            report(self.progress())

    def progress(self) -> Progress:
        sizes = [self.find(name).size() for name in self._read]
        return Progress(
            {self.find(name).stream.name: rows for name, (rows, _) in self._read.items()},
            {query.program.name: query.rows for query in self._queries.values()},
            sum(rejected for _, rejected in self._read.values()),
            sum(query.late for query in self._queries.values())
            + sum(pushed.counts.late for pushed in map(pushed_to, self._inputs.values()) if pushed is not None),
            total=None if None in sizes else sum(size or 0 for size in sizes),
        )

    def interrupt(self) -> None:
        self._interrupted = True
        self._stop.set()

    def cancel(self, name: str, error: MillstreamError | None = None) -> None:
        """Spark's jobs of a run are cancelled together: those of other queries begin anew, from their checkpoint."""
        query = self._running(name)
        query.fail(error or cancelled())
        if query in self._at_work:
            self._change([each for each in self._at_work if each is not query])

    # -- output ----------------------------------------------------------------------------------------------------

    def _running(self, name: str) -> StartedQuery:
        if name.lower() not in self._queries:
            raise not_running(name)
        return self._queries[name.lower()]

    def fetch(self, name: str) -> pa.Table:
        running = self._running(name)
        if running.error is not None and not running.results.unfetched():
            raise running.error
        return running.fetched()

    def admit(self, name: str, admit: Admit) -> None:
        self._running(name).results.admit = admit

    def unfetched(self, name: str) -> tuple[int, int]:
        log = self._running(name).results
        return log.fetched_to, log.end

    def results(self, name: str) -> ResultLog:
        return self._running(name).results

    def acknowledge(self, name: str, reader: str, upto: int | None) -> None:
        self._running(name).results.acknowledge(reader, upto)

    def trouble(self) -> Mapping[str, str]:
        return {name: query.error.message for name, query in self._queries.items() if query.error is not None}

    def waits(self, name: str) -> bool:
        return self._waits(self._running(name).program.plan)

    def content(self, name: str, at: int | None) -> pa.Table:
        running = self._running(name)
        self._drawn(physical.streams_of(running.program.plan))
        if running.error is not None:
            raise running.error
        return content_of(self, running, at)

    def check_setting(self, name: str) -> None:
        refuse_setting(name)

    def statistics(self) -> Statistics:
        """Nothing: rows pass through workers, which do not tell."""
        return UNKNOWN

    def sharing(self) -> list[Shared]:
        """What a job of all queries of this session evaluates together."""
        return shared_filters({query.program.name: query.program.plan for query in self._queries.values()})

    def inspector(self) -> None:
        """Operators run in Spark's workers; its own pages show them."""

    def close(self) -> None:
        """Forget everything; the Spark session stays, others may use it."""
        self.interrupt()
        for entry in (each for each in self._inputs.values() if isinstance(each, Spooled)):
            entry.close()
        if self._heartbeats is not None:
            self._heartbeats.close()
        for query in self._queries.values():
            query.results.close()
        self._queries.clear()
        self._inputs.clear()

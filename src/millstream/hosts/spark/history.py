"""The past of streams on Spark, and what can be changed there while it runs.

Rows that were pushed stay on the driver until the end, and declared sources keep their own past: a query that starts
with history reads them from their beginning on. A running job is changed by starting it again from its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import pyarrow as pa

from millstream.catalog import FromHistory, StreamDef
from millstream.connectors.past import PastAndLive
from millstream.errors import EngineError, UnsupportedError
from millstream.hosts.contract import Coverage, ReadyQuery
from millstream.hosts.spark.build import is_exchange
from millstream.hosts.spark.declared import pushed_to
from millstream.hosts.spark.job.bounded import run_together
from millstream.hosts.spark.job.derived import DerivedStreams
from millstream.hosts.spark.job.graph import JobQuery
from millstream.hosts.spark.job.kept_job import KeptJob, states_of
from millstream.hosts.spark.job.read_again import ReadSoFar
from millstream.hosts.spark.job.streaming_job import HowOpen, RunningJob
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.runs import StartedQuery, counted, done
from millstream.hosts.spark.session import FILES, KEPT_AS, kept_as
from millstream.hosts.spark.so_far import LeftOver
from millstream.hosts.spark.sources import FollowedFiles, Input, Parts, partition_of
from millstream.hosts.spark.spool import Spooled
from millstream.kernels.batch import FOREVER
from millstream.kernels.over.spec import AheadSpec, OverSpec
from millstream.physical import nodes as physical
from millstream.plan.reach import reaches

JOB = "job"
"""Where below the directory of checkpoints that of a pipeline's job is."""


class SparkHistory(DerivedStreams):
    """The part of the Spark host that knows the past of its streams, and that changes what runs."""

    _queries: dict[str, StartedQuery]
    _at_work: list[StartedQuery]
    _stop: Event
    _jobs: list[RunningJob]

    # -- the past --------------------------------------------------------------------------------------------------

    def begins(self, program: ReadyQuery) -> int:
        """From which arrival on a query that starts now reads pushed rows."""
        if program.history is None or program.history.since is not None:
            return self.arrivals
        pushed = [entry for entry in map(self.find, physical.streams_of(program.plan)) if pushed_to(entry) is not None]
        kept = {entry.stream.keep is not None for entry in pushed}
        if len(kept) > 1:
            raise UnsupportedError(
                "some streams of this query keep their history, others do not",
                hint="declare all of them with KEEP, or none",
            )
        return self.arrivals if kept == {False} else 0

    def sees_from(self, program: ReadyQuery) -> tuple[tuple[str, int], ...]:
        """From which instant on a query that starts now with SINCE sees older rows of each stream; rows that wait for
        their order to be settled are still to come."""
        since = None if program.history is None else program.history.since
        return () if since is None else self.waiting(program, since)

    def waiting(self, program: ReadyQuery, since: int = FOREVER) -> tuple[tuple[str, int], ...]:
        """From which instant on rows of each stream wait for their order to be settled; or `since`, if earlier."""
        entries = [(name, pushed_to(self.find(name))) for name in physical.streams_of(program.plan)]
        return tuple((name, since if own is None else min(since, own.settled + 1)) for name, own in entries)

    def history(self, stream: str) -> Any:
        """The rows of a stream so far: those that were pushed, in order of arrival, or what its source has."""
        entry = self.find(stream)
        self._drawn([stream])
        pushed = pushed_to(entry)
        if pushed is not None:
            return pa.Table.from_batches([rows for _, rows, _ in pushed.chunks], schema=entry.stream.schema.arrow)
        bounded = _bounded(entry)
        inputs = self.inputs(Meters({}), streaming=False, entries={stream.lower(): bounded})
        program = ReadyQuery(
            f"HISTORY({stream})", physical.Source(entry.stream.schema, stream, "main"), entry.stream.schema.names
        )
        readers = {inputs.number: inputs}
        asked = [JobQuery(program, inputs)]
        [outcome] = done(self.spark, lambda: run_together(self.spark, asked, readers, self.buckets))
        return outcome.fetched[0]

    def coverage(self, name: str) -> Coverage:
        """A query that sees all rows from the first one on is complete; SINCE tells from when on others have seen all,
        and how far back its windows look from when on answers are complete."""
        query = self._queries[name.lower()]
        asked = query.program.history
        if asked is None or asked.since is None:
            return Coverage(None, None, query.since == 0)
        bound = query.program.bound
        back = [None] if bound is None else list(reaches(bound).values())
        known = [reach for reach in back if reach is not None]
        complete = asked.since + max(known, default=0) if len(known) == len(back) else None
        return Coverage(asked.since, complete, False)

    def sources_of_history(self, program: ReadyQuery) -> list[str]:
        return [_told(self.find(name)) for name in physical.streams_of(program.plan)]

    knows_what_waits = False

    def takes_in(self, name: str, inputs: Collection[physical.Physical]) -> bool:
        # a bounded run reads tables once: rows that were pushed would meet queries that came after them. What waits
        # is known to a streaming job only, which has no other program for queries that come while it runs
        query = self._queries[name.lower()]
        return not (self._is_pushed_to(query.program) and query.since < self.arrivals)

    def emit_so_far(self, name: str) -> None:
        query = self._queries[name.lower()]
        if query.ended or query.program.sink is not None or not self._is_pushed_to(query.program):
            return
        self._give_so_far(query)

    def _give_so_far(self, query: StartedQuery) -> None:
        fetched = LeftOver(self, query).outcome().fetched
        fresh = query.not_given(fetched)
        query.rows += sum(table.num_rows for table in fresh)
        query.deliver(fresh)
        query.given = counted(fetched)

    def _is_pushed_to(self, program: ReadyQuery) -> bool:
        return any(pushed_to(self.find(name)) for name in physical.streams_of(program.plan))

    def keep(self, stream: StreamDef) -> None:
        raise UnsupportedError(
            "ALTER STREAM works in-process only",
            hint="declare the stream with KEEP before rows come: CREATE OR REPLACE STREAM … KEEP …",
        )

    # -- changing what runs ----------------------------------------------------------------------------------------

    def endless(self) -> list[StartedQuery]:
        """The queries that `start` is for: none that reads inputs which end is among them."""
        queries = [q for q in self._queries.values() if not q.program.view or q.program.sink is not None]
        for query in queries:
            if not self._clockwork(query.program.plan).streaming:
                raise EngineError(
                    f"all inputs of {query.program.name} end, and start() is for streaming ones",
                    hint="use sql() for a DataFrame, or INSERT INTO a sink, which runs at once",
                )
        return queries

    def how_open(
        self,
        exchanges: int,
        queries: Sequence[StartedQuery],
        kept: KeptJob | None,
        streams: Sequence[str] | None = None,
        all_of: bool = False,
    ) -> HowOpen | None:
        """How a job is open, if it is: a job that was stays so, and reads what it read. One that begins reads `streams`
        with all their columns, or all that have no end, and those of its queries."""
        if kept is not None:
            exchanges = max(exchanges, kept.levels if kept.open else 0)
            return HowOpen(exchanges, kept.sources, all_of) if exchanges else None
        if not exchanges:
            return None
        wanted = [stream for query in queries for stream in physical.streams_of(query.program.plan)]
        names = [name for name, entry in self._inputs.items() if entry.streaming] if streams is None else streams
        entries = [self.find(name) for name in dict.fromkeys(map(str.lower, [*names, *wanted]))]
        for entry in entries:
            if not entry.streaming:
                raise EngineError(f"the rows of {entry.stream.name} end, and open jobs read streams without an end")
        if not entries:
            raise EngineError("nothing to read", hint="declare a stream without an end before")
        sources = (physical.Source(entry.stream.schema, entry.stream.name, "main") for entry in entries)
        return HowOpen(exchanges, tuple(sources), all_of)

    def prepare(self, program: ReadyQuery) -> None:
        """Nothing runs yet that could go on meanwhile."""

    def alter(self, program: ReadyQuery) -> None:
        """The job of a streaming query starts again with the new definition. That continues with the state of the old
        one, or with state that is computed from what the job has read."""
        old = self._alterable(program)
        if not self.is_streaming(program.plan):
            self._take_over(old, program)
            return
        old.program, old.anew = replace(program, sink=old.program.sink), True
        if old in self._at_work:
            self._change(self._at_work)

    def _take_over(self, old: StartedQuery, program: ReadyQuery) -> None:
        """Rows so far are the old definition's; what the new one makes of them it does not give. Without kept rows its
        state begins empty if it is another."""
        same = states_of(old.program.plan) == states_of(program.plan)
        self._drawn(physical.streams_of(program.plan))
        if not self._is_pushed_to(program):
            old.program = program
            return
        self._give_so_far(old)
        old.program = program
        if not same:
            since = self.begins(replace(program, history=FromHistory()))
            waiting = () if since == 0 else self.waiting(program)
            old.since, old.after = since, waiting
        old.given = counted(LeftOver(self, old).outcome().fetched)

    def explain_alteration(self, program: ReadyQuery) -> list[str]:
        old = self._alterable(program)
        how = "the job starts again" if self.is_streaming(program.plan) else "the new definition takes over"
        if states_of(old.program.plan) == states_of(program.plan):
            return [f"{how}, and all state is reused"]
        return [f"{how}; all operators: computed again from {told}" for told in self.sources_of_history(program)]

    def read_again(self, offsets: Mapping[str, Sequence[str]], since: Mapping[str, int]) -> SessionInputs:
        """The inputs of a job with just what these offsets name; of some streams, rows matter from a time on only."""
        entries: dict[str, Input] = {}
        for name, given in offsets.items():
            entry = self.find(name)
            assert isinstance(entry, FollowedFiles | Parts | Spooled)
            if isinstance(entry, Parts):
                given = [json.dumps(part) for offset in given for part in entry.until(json.loads(offset))]
            entries[name] = ReadSoFar(entry, tuple(given), since.get(name))
        return self.inputs(Meters({}), streaming=True, entries=entries)

    def _alterable(self, program: ReadyQuery) -> StartedQuery:
        """The running query that a program may take the place of."""
        old = self._queries[program.name.lower()]
        if (old.program.columns, old.program.plan.schema.arrow.types) != (
            program.columns,
            program.plan.schema.arrow.types,
        ):
            raise UnsupportedError(f"{program.name} would have other columns", hint="name and cast them as they were")
        if old.ended or old.error is not None:
            raise UnsupportedError(f"{program.name} has ended", hint="start the other query under another name")
        before, after = states_of(old.program.plan), states_of(program.plan)
        if why := self._why_not(old, program) if before != after else None:
            raise UnsupportedError(
                f"{program.name} would need other state, which cannot be computed here",
                detail=why,
                hint="stop the query and start the other one WITH HISTORY",
            )
        return old

    def _why_not(self, old: StartedQuery, program: ReadyQuery) -> str | None:
        """Why the state of a definition cannot take the place of another's."""
        streams = physical.streams_of(program.plan)
        streaming = self.is_streaming(program.plan)
        gives = _gives(old.program, streaming), _gives(program, streaming)
        if None not in gives and (gives[0] != gives[1] or gives[0] == LATER):
            return f"rows have their results {gives[0]}, and then {gives[1]}: some would have two, or none"
        if old.paused:
            return "it is paused"
        if not streaming:
            if old.program.sink is not None:
                return "its sink would get rows before the inputs end"
            shared = {*states_of(old.program.plan)} & {*states_of(program.plan)}
            kept = all(self.find(name).stream.keep is not None for name in streams)
            return "some operators would keep their state, and others begin empty" if shared and not kept else None
        if kept_as(self.spark) != FILES:
            return f"{KEPT_AS} is not {FILES}"
        known = {name for query in self._at_work or [old] for name in physical.streams_of(query.program.plan)}
        for name in streams:
            entry = self.find(name)
            if name not in known:
                return f"the job does not read {entry.stream.name}"
            if partition_of(entry.stream) is not None:
                return f"{entry.stream.name} is partitioned by a key, and state is kept where it is read"
            if not isinstance(entry, FollowedFiles | Parts | Spooled):
                return f"{entry.stream.name} is a streaming DataFrame, whose rows cannot be read again"
        return None

    def pause(self, name: str) -> None:
        """The job starts again, and no rows reach the query."""
        self._rest(name, True)

    def go_on(self, name: str) -> None:
        self._rest(name, False)

    def _rest(self, name: str, paused: bool) -> None:
        query = self._in_a_job(name, "PAUSE" if paused else "RESUME")
        kernels = _kernels(query.program.plan)
        for other in self._at_work:
            together = other is not query and other.job == query.job
            if together and not kernels.isdisjoint(_kernels(other.program.plan)):
                raise UnsupportedError(
                    f"{query.program.name} shares a kernel with {other.program.name}, which keeps running",
                    hint="stop it; it can be started again WITH HISTORY",
                )
        query.paused = paused
        self._change(self._at_work)

    def _in_a_job(self, name: str, what: str) -> StartedQuery:
        query = self._queries[name.lower()]
        if query not in self._at_work or not self.is_streaming(query.program.plan):
            raise UnsupportedError(
                f"{what} works only for queries of a running streaming job",
                detail=f"{query.program.name} runs when all its inputs have ended",
                hint="use a source that does not end, and start the job: db.run()",
            )
        return query

    def _change(self, queries: list[StartedQuery]) -> None:
        """Let a run in progress go on with other queries: an open job takes them if it can; otherwise a job is stopped
        and started again from its checkpoint."""
        follows = len(self._jobs) == 1 and not self._stop.is_set() and self._follows(self._jobs[0], queries)
        self._at_work = queries
        if not follows:
            self._stop.set()

    def _follows(self, job: RunningJob, queries: list[StartedQuery]) -> bool:
        places = {query.job or (JOB if query.program.history is None else "") for query in queries}
        names = {query.program.name.lower() for query in queries}
        if len(places) != 1 or len(names) != len(queries) or not job.follow(queries):
            return False
        for query in queries:
            query.job = next(iter(places))
        return True

    def content_of(self, program: ReadyQuery, at: int | None) -> pa.Table:
        raise UnsupportedError(
            "snapshot(window=…) works in-process only", hint="start a query with that window WITH HISTORY"
        )

    def phase(self, name: str) -> str:
        """A query that starts with history has a job of its own, which runs like any other."""
        return "planning"

    def state(self, name: str) -> str:
        query = self._queries[name.lower()]
        if query.error is not None:
            return "failed"
        return "ended" if query.ended else "paused" if query.paused else "running"


def _kernels(plan: physical.Physical) -> set[physical.Physical]:
    return {node for node in physical.walk(plan) if is_exchange(node)}


AT_ONCE, IN_ORDER, PASSED = "as they come", "in order of time", "when time has passed them"
LATER = "when later rows have come"


def _gives(program: ReadyQuery, streaming: bool) -> str | None:
    """When each row of a query gets its result; None if results do not belong to rows."""
    nodes = list(physical.walk(program.plan))
    specs = [node.spec for node in nodes if isinstance(node, physical.Apply) and is_exchange(node)]
    by_row = all(isinstance(spec, OverSpec | AheadSpec) for spec in specs)
    if program.relation or not by_row or sum(isinstance(node, physical.Source) for node in nodes) != 1:
        return None
    if any(isinstance(spec, AheadSpec) for spec in specs):
        return LATER
    if any(isinstance(spec, OverSpec) and spec.waits for spec in specs):
        return PASSED
    # a stage of a streaming job waits for time to pass a row in any case
    return AT_ONCE if not specs and streaming else PASSED if streaming else IN_ORDER


def _bounded(entry: Input) -> Input:
    """A source as it is now, as if nothing else ever came."""
    if isinstance(entry, FollowedFiles):
        return entry.as_bounded()
    if isinstance(entry, Parts):
        return replace(entry, bounded=True)
    if entry.streaming:
        raise UnsupportedError(
            f"the history of {entry.stream.name} is in its source",
            detail="it is a streaming DataFrame, or a source that can be read only once",
            hint="write it to files with INSERT INTO, and read these",
        )
    return entry


def _told(entry: Input) -> str:
    name = entry.stream.name
    if pushed_to(entry) is None:
        has_past = isinstance(getattr(entry, "source", None), PastAndLive)
        return f"{name}: " + ("files of its history, then its source" if has_past else "its source, from the beginning")
    return f"{name}: " + ("the rows that were pushed" if entry.stream.keep is not None else "nothing is kept")

"""The queries of an open job, which are added, dropped and changed while it runs.

A change takes effect with the next micro-batch that begins, and is kept from when it was asked for. A micro-batch that
is repeated runs with the queries that it had.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.catalog import StreamDef
from millstream.errors import EngineError, MillstreamError, StateError, UnsupportedError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.checkpoints import STATE_PLACE
from millstream.hosts.spark.job.control import Steering
from millstream.hosts.spark.job.frames import open_work
from millstream.hosts.spark.job.graph import GraphBuilder, JobGraph, JobQuery, Numbers
from millstream.hosts.spark.job.kept_job import KeptJob, refuse_unfit
from millstream.hosts.spark.job.outlets import Outlets
from millstream.hosts.spark.job.plans import PLACE, PlanFiles, digest_of
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.session import send_whole
from millstream.physical.nodes import Source
from millstream.plan_form import python_in
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("millstream")

MakeBuilder = Callable[[KeptJob | None], GraphBuilder]
"""A builder of graphs that goes on with the state of a job."""


@dataclass
class JobSet:
    """Queries that ran, run or shall run together."""

    kept: KeptJob
    graph: JobGraph
    digest: str
    programs: dict[int, str]
    """of each outlet the name of its query"""


class LiveQueries:
    """What an open job runs: the queries that were asked for last, and those of the micro-batch at hand."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        inputs: SessionInputs,
        streams: Sequence[StreamDef],
        builder: MakeBuilder,
        steering: Steering | None,
        outlets: Outlets,
        isolates: bool = False,
    ) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self.inputs, self._streams, self._builder = inputs, streams, builder
        self._steering, self._outlets = steering, outlets
        self._local = Path(checkpoint.removeprefix("file://")).absolute()
        self.files = PlanFiles(self._local / PLACE)
        self.numbers = Numbers(), Numbers()
        self.isolates = isolates
        """whether queries that fail end alone"""
        self.failed: dict[str, MillstreamError] = {}
        """the queries that failed and ended, by name, and why"""
        self.asked: JobSet
        self._now: JobSet | None = None

    # -- the set that is asked for ---------------------------------------------------------------------------------

    def begin(self, kept: KeptJob, graph: JobGraph, new: Iterable[str]) -> None:
        """The queries that the job starts with; `new` are the names of those that begin."""
        self.asked = self._set(kept, graph)
        self._open(self.asked, new)

    def change(self, queries: Sequence[JobQuery], patience: float = -1) -> None:
        """From the next micro-batch on these are the queries, or it stays as it is: what they cannot be is refused.

        It waits for the micro-batch in progress, at most so many seconds.
        """
        for query in queries:
            send_whole(python_in(query.program.plan).values())
        if not self._outlets.lock.acquire(timeout=patience):
            raise EngineError("the micro-batch in progress takes too long")
        try:
            before = self.asked.kept
            found = self._changed(before, queries)
            new = [query.program.name for query in queries if before.find(query.program.name) is None]
            self._open(found, new)
            found.kept.write(self._spark, self._checkpoint)
            self.asked = found
            for name in new:
                self.failed.pop(name, None)
        finally:
            self._outlets.lock.release()

    def _changed(self, before: KeptJob, queries: Sequence[JobQuery]) -> JobSet:
        """Other queries on the state of a job."""
        resumed = [before.resumed(query) for query in queries]
        if any(query.anew for query in resumed):
            raise UnsupportedError("the job must be started again to compute the state of a query anew")
        graph = self._built(resumed, before)
        now = KeptJob.of(graph, self._streams, before, before.kept, before.levels, self._outlets.functions)
        before.refuse_another(now)
        return self._set(now, graph)

    def isolate(self, batch: int) -> bool:
        """A micro-batch failed. Whether queries are to blame: they end, and it can be tried again without them."""
        now = self._now
        failures = self.files.failures(batch)
        if now is None or not self.isolates:
            return False
        blamed: dict[str, MillstreamError] = {}
        for failure in failures:
            for query, own in zip(now.graph.queries, now.graph.stages_of, strict=True):
                stages = {now.graph.stages[place].number for place in own}
                if self.numbers[1](query.key) in failure.outlets or stages & set(failure.stages):
                    blamed.setdefault(query.program.name, failure.error)
        if not blamed:
            return False
        if self.asked.digest != now.digest:
            self.asked = self._less(self.asked, blamed)
            found = self._less(now, blamed)
        else:
            found = self.asked = self._less(now, blamed)
        self.asked.kept.write(self._spark, self._checkpoint)
        self._turn_to(found, batch)
        self.files.note(batch, found.digest)
        self.failed |= blamed
        for name, error in blamed.items():
            log.warning("%s failed and was stopped; the other queries of the job go on: %s", name, error)
        return True

    def _less(self, found: JobSet, names: Container[str]) -> JobSet:
        left = [query for query in found.graph.queries if query.program.name not in names]
        return self._changed(found.kept, left)

    def queries(self) -> list[JobQuery]:
        return list(self.asked.graph.queries)

    def _built(self, queries: Sequence[JobQuery], before: KeptJob) -> JobGraph:
        builder = self._builder(before)
        graph = builder.build(queries)
        for source in graph.sources[len(before.sources) :]:
            raise unread(source.node, before.sources)
        if [source.node for source in graph.sources] != list(before.sources):
            raise UnsupportedError(
                "a stream has other columns than when the job was started", hint="stop the job and start it again"
            )
        for query, own in zip(graph.queries, graph.stages_of, strict=True):
            needed = max((graph.stages[place].level for place in own), default=0)
            if needed > before.levels:
                raise UnsupportedError(
                    f"{query.program.name} needs {needed} exchanges, and the job was started with {before.levels}",
                    detail="rows of an open job pass through a number of exchanges that is fixed while it runs",
                    hint=f"stop the job and start it again on the same checkpoint with open={needed}",
                )
        refuse_unfit(graph, before)
        return graph

    def _set(self, kept: KeptJob, graph: JobGraph) -> JobSet:
        programs = {self.numbers[1](query.key): query.program.name for query in graph.queries}
        return JobSet(kept, graph, digest_of(kept.text), programs)

    def _open(self, found: JobSet, new: Iterable[str]) -> None:
        """Outlets for queries that have none."""
        begun = {name.lower() for name in new}
        programs = {self.numbers[1](query.key): query.program for query in found.graph.queries}
        missing = {number: own for number, own in programs.items() if number not in self._outlets.programs}
        self._outlets.add(missing)
        try:
            self._outlets.open(missing, [n for n, program in missing.items() if program.name.lower() in begun])
        except Exception:
            for number in missing:
                self._outlets.remove(number)
            raise
        for number, program in programs.items():
            # a query that was altered keeps its outlet
            self._outlets.programs[number] = program

    # -- micro-batches ---------------------------------------------------------------------------------------------

    def prepare(self, batch: int) -> None:
        """Before a micro-batch runs: note which queries it has, unless it was tried before and has those of then."""
        noted = self.files.noted(batch)
        found = self.asked if noted is None or noted == self.asked.digest else self._earlier(noted)
        if self._now is None or self._now.digest != found.digest:
            self._turn_to(found, batch)
        if noted is None:
            self.files.note(batch, found.digest)
        if self._steering is not None:
            self._steering.note(batch)

    def _turn_to(self, found: JobSet, batch: int) -> None:
        self.files.put(found.digest, found.kept.text)
        self.files.put_work(found.digest, open_work(found.graph, {self.inputs.number: self.inputs}, found.kept.levels))
        if self._steering is not None:
            self._steering.only(found.graph.tables)
        for number in set(self._outlets.programs) - found.programs.keys() - self.asked.programs.keys():
            self._outlets.remove(number)
        from millstream.hosts.spark.job.levels import forget_gone

        forget_gone(self._local / STATE_PLACE, batch, [stage.name for stage in found.graph.stages])
        self._outlets.at_work = set(found.programs)
        self._now = found

    def _earlier(self, digest: str) -> JobSet:
        """The queries that a micro-batch had when it was tried before."""
        programs = [query.program for query in self.asked.kept.queries]
        kept = KeptJob.loads(self.files.get(digest), programs)
        for query in kept.queries:
            refuse_missing_code(query.program)
        graph = self._builder(kept).build([query.asked(self.inputs) for query in kept.queries])
        found = self._set(kept, graph)
        self._open(found, ())
        return found


def refuse_missing_code(program: ReadyQuery) -> None:
    """Refuse a query of the checkpoint whose code in Python is not at hand."""
    for code in python_in(program.plan).values():
        if code.made is None:
            raise StateError(
                f"query {program.name} of the checkpoint calls {code.name}, which nobody gave, or which has changed",
                hint="register it as it was, and give the query again in `queries`; it can be dropped afterwards",
            )


def unread(node: Source, sources: Sequence[Source]) -> MillstreamError:
    """A stream that an open job does not read."""
    name = node.stream if node.side == "main" else f"{node.side.upper()}({node.stream})"
    read = [source.stream if source.side == "main" else f"{source.side}({source.stream})" for source in sources]
    return UnsupportedError(
        f"the job does not read {name}",
        detail=f"an open job reads the streams that it was started with: {', '.join(read)}",
        hint="start another job, with a checkpoint of its own, after the stream is declared",
    )


def widened(sources: Iterable[Source], streams: Iterable[StreamDef]) -> tuple[Source, ...]:
    """Sources with all columns of their streams: queries that come later may read any."""
    by_name = {stream.name.lower(): stream for stream in streams}
    found = []
    for source in sources:
        schema = source.schema
        if source.side == "main" and source.stream.lower() in by_name:
            more = tuple(field for field in by_name[source.stream.lower()].schema if field.name not in schema)
            schema = replace(schema, fields=(*schema.fields, *more))
        found.append(replace(source, schema=schema))
    return tuple(found)

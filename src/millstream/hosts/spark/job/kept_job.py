"""What a checkpoint keeps of a job: the plans that run, and which state belongs to which query.

Queries may be added to a job and taken from it. A query of the same name continues with its state; a new one starts
with empty windows, as it would beside a running one, and shares no state with older ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from millstream import plan_form
from millstream.catalog import StreamDef
from millstream.expressions.python_calls import PythonCode
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.build import fused, is_exchange
from millstream.hosts.spark.checkpoints import JOB_PLACE
from millstream.hosts.spark.job.graph import JobGraph, JobQuery, Surroundings
from millstream.hosts.spark.kept_plan import KeptStage, another_query, read_text, told_stage, write_text
from millstream.hosts.spark.session import FILES, VARIABLES
from millstream.hosts.spark.spans import with_ends
from millstream.physical.nodes import Apply, Physical, Source, walk
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class KeptQuery:
    """A query of a job: its program, the names that its stages' state is kept under, and what each of them is."""

    program: ReadyQuery
    names: tuple[str, ...]
    stages: tuple[KeptStage, ...]
    generation: int
    after: tuple[tuple[str, int], ...] = ()
    paused: bool = False
    apart: tuple[int, ...] | None = None
    taken: bool = False
    """whether a function of the user's takes its rows"""
    fed: bool = False
    records: bool = False

    @property
    def name(self) -> str:
        """In lower case."""
        return self.program.name.lower()

    def asked(self, around: Surroundings) -> JobQuery:
        """The query as it ran."""
        return JobQuery(
            self.program,
            around,
            generation=self.generation,
            after=self.after,
            paused=self.paused,
            apart=self.apart,
            fed=self.fed,
            records=self.records,
        )


@dataclass(frozen=True)
class KeptJob:
    """A job as it ran. Spark knows sources and operators by their places, so these never change."""

    queries: tuple[KeptQuery, ...]
    sources: tuple[Source, ...]
    streams: tuple[StreamDef, ...]
    levels: int
    buckets: int
    generations: int = 1
    kept: str = VARIABLES
    """how state is kept"""
    open: bool = False
    """whether queries come and go while it runs, so that its plans are data"""
    dropped: tuple[str, ...] = ()
    """of an open job: the names of queries that were dropped, in lower case"""

    @staticmethod
    def of(
        graph: JobGraph,
        streams: Sequence[StreamDef],
        before: KeptJob | None,
        kept: str = VARIABLES,
        open_: int = 0,
        taken: Container[str] = (),
    ) -> KeptJob:
        """The job of a graph. One that is open has so many levels at least; `taken` are the names, in lower case, of
        queries whose rows functions take."""
        queries = []
        for query, numbers in zip(graph.queries, graph.stages_of, strict=True):
            stages = [graph.stages[number] for number in numbers]
            does = tuple(KeptStage(own.stage.spec.describe(), own.stage.signature) for own in stages)
            names, name = tuple(own.name for own in stages), query.program.name.lower()
            more = query.after, query.paused, query.apart, name in taken, query.fed, query.records
            queries.append(KeptQuery(query.program, names, does, query.generation, *more))
        levels = 0 if before is None else before.levels
        if before is None or before.kept == FILES:
            levels = max(levels, graph.levels, open_)
        gone = () if before is None or not open_ else (*before.dropped, *(query.name for query in before.queries))
        running = {query.name for query in queries}
        generations = 1 + max((query.generation for query in queries), default=0)
        return KeptJob(
            tuple(queries),
            tuple(source.node for source in graph.sources),
            # another slack keeps the state
            tuple(replace(stream, slack=0) for stream in streams),
            levels,
            graph.buckets,
            generations if before is None else max(generations, before.generations),
            kept if before is None else before.kept,
            open_ > 0,
            tuple(name for name in dict.fromkeys(gone) if name not in running),
        )

    @staticmethod
    def read(spark: SparkSession, checkpoint: str, now: Sequence[ReadyQuery]) -> KeptJob | None:
        """The job in a checkpoint that programs are started on; None if there is none."""
        text = read_text(spark, f"{checkpoint}/{JOB_PLACE}")
        return None if text is None else KeptJob.loads(text, now)

    @staticmethod
    def loads(text: str, now: Sequence[ReadyQuery]) -> KeptJob:
        """A job that was kept; code in Python is that of these programs."""
        codes = {name: code for program in now for name, code in plan_form.python_in(program).items()}

        def python(name: str, digest: str) -> PythonCode:
            # code whose text changed makes another plan: it is only compared, never run
            found = codes.get(name)
            return found if found is not None and found.digest == digest else PythonCode(name, digest, None)

        kept: KeptJob = plan_form.loads(text, python)
        return kept

    def write(self, spark: SparkSession, checkpoint: str) -> None:
        write_text(spark, f"{checkpoint}/{JOB_PLACE}", self.text)

    @property
    def text(self) -> str:
        return plan_form.dumps(self)

    def find(self, name: str) -> KeptQuery | None:
        return next((query for query in self.queries if query.program.name.lower() == name.lower()), None)

    def resumed(self, query: JobQuery) -> JobQuery:
        """What runs when a query is started on the checkpoint: the plan that ran before, if it is the same query."""
        old = self.find(query.program.name)
        if old is None:
            return replace(query, generation=self.generations, anew=False)
        program = query.program
        if query.anew and states_of(program.plan) != states_of(old.program.plan):
            # new queries begin empty: it shares nothing with them
            return replace(query, generation=self.generations + 1)
        if program.bound is not None and program.bound == old.program.bound:
            program = replace(program, plan=old.program.plan)
        apart = old.apart if program.plan == old.program.plan else None
        now = replace(query, program=program, generation=old.generation, apart=apart, fed=old.fed, records=old.records)
        return replace(now, anew=False)

    def state_name(self, query: JobQuery, place: int) -> str:
        """The name of the state of a query's stage."""
        old = None if query.anew else self.find(query.program.name)
        return old.names[place] if old is not None and place < len(old.names) else new_name(query, place)

    def refuse_streams(self, streams: Sequence[StreamDef]) -> None:
        """Refuse streams that were declared otherwise, or that are gone."""
        now = {stream.name.lower(): replace(stream, slack=0) for stream in streams}
        for stream in self.streams:
            if now.get(stream.name.lower(), stream) != stream:
                raise another_query(f"stream {stream.name} was declared differently")

    def refuse_another(self, now: KeptJob) -> None:
        """Refuse a job that would find the state of something else."""
        known = [(source.stream.lower(), source.side) for source in self.sources]
        for source in now.sources:
            if (source.stream.lower(), source.side) not in known:
                raise another_query(f"stream {source.stream} was not read before")
        for new in now.queries:
            old = self.find(new.program.name)
            if old is None:
                continue
            if old.program.sink != new.program.sink:
                raise another_query(f"rows of query {new.program.name} went to another sink")
            if old.generation != new.generation:
                continue  # its state is computed anew
            for number, (was, is_) in enumerate(zip_longest(old.stages, new.stages), 1):
                if was is None or is_ is None or was.signature != is_.signature:
                    what = f"stage {number} of query {new.program.name}"
                    raise another_query(f"{what} was {told_stage(was)} and is now {told_stage(is_)}")


def states_of(plan: Physical) -> list[Physical]:
    """What the state of a plan follows from: its kernels, with all that is below them."""
    return [node for node in walk(fused(with_ends(plan))) if isinstance(node, Apply) and is_exchange(node)]


def new_name(query: JobQuery, place: int) -> str:
    return f"{query.program.name}.{query.generation}#{place}"


def refuse_unfit(graph: JobGraph, before: KeptJob | None) -> None:
    """Refuse a graph in which two stages would use one state, or that has more levels than the checkpoint."""
    twice = [name for name, count in Counter(stage.name for stage in graph.stages).items() if count > 1]
    if twice:
        raise another_query(f"{twice[0].partition('.')[0]} no longer shares its kernel with another query")
    # Spark counts stateful operators, and there are none where state is in files: only the source of time must be there
    if before is not None and graph.levels > before.levels and not (before.kept == FILES and before.levels):
        raise another_query(
            f"a query needs {graph.levels} exchanges one after the other, and the checkpoint has {before.levels}"
        )

"""The graph of a job → one DataFrame of packed rows, of which each outlet has its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from millstream.hosts.spark import blobs
from millstream.hosts.spark.arrive import ReadFiles
from millstream.hosts.spark.branches import Branch, Clockwork
from millstream.hosts.spark.checkpoints import tell_checkpoints
from millstream.hosts.spark.job.fan import JOB_ROWS, TOLD, Fan, FanOut, FanRun, Spread, Writes, outlet_number
from millstream.hosts.spark.job.graph import JobGraph, JobSource, JobStage
from millstream.hosts.spark.meters import metered_stages
from millstream.hosts.spark.session import FILES, VARIABLES, check_streaming, cores_of, for_stages
from millstream.hosts.spark.stage import bucket_ids
from millstream.hosts.spark.steps import Arrows, Batches, spare_collector
from millstream.hosts.spark.tables import arrow_frame
from millstream.kernels.batch import BEGIN, Batch
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.hosts.spark.job.clock import Timed
    from millstream.hosts.spark.job.levels import LevelStage

AnyWork = Any
"""What a worker does in its task: Arrow batches in, or batches of ours behind an opening, and packed rows out."""

HELD_ROWS = 1 << 16
"""Rows in one blob of those that the driver hands out."""


class Readable(Protocol):
    """What a session knows of the sources of its queries."""

    def held(self, source: JobSource) -> list[Batch] | None:
        """The rows of a source that the driver has; None if workers read it."""
        ...

    def branch(self, source: JobSource) -> Branch:
        """The rows of a source that workers read."""
        ...

    def reached(self, source: JobSource) -> int | None:
        """How far time has come, if a bounded run shall not end it; None is to the end of time."""
        ...

    def by_clock(self, source: JobSource) -> bool:
        """Whether workers stamp the rows of a source when they read them, so that time passes without rows."""
        ...


def job_frame(
    spark: SparkSession,
    graph: JobGraph,
    readers: Mapping[int, Readable],
    streaming: bool,
    levels: int = 0,
    beats: str = "",
    kept: str = VARIABLES,
    ends: bool = True,
    at_work: Callable[[str], AnyWork] | None = None,
    joins: str | None = None,
    writes: Writes | None = None,
) -> DataFrame:
    """All rows of all outlets, packed; `readers` are by the number of the session.

    It has at least so many levels: Spark counts them in a checkpoint, also when queries have gone that needed them.
    `beats` is the file that tells of heartbeats in a streaming job, `kept` says how it keeps state. A bounded run that
    does not end (`ends`) gives what is final so far. In an open job, which keeps state in files, `at_work` gives what
    takes the place of each piece of `open_work`, and what stages tell of themselves comes with the rows. With `joins`
    it is a batch job over what was read before, which leaves the state of these stages beside that of others; that is
    how far time had come, as an offset of the clock. Tasks of the last level write rows
    of outlets themselves (`writes`).
    """
    # not before there is a job: importing the host must not import pyspark
    from millstream.hosts.spark.job.levels import BoundedLevel, FileLevel, LevelProcessor
    from millstream.hosts.spark.one_value import stateful

    if streaming and kept == VARIABLES and max(graph.levels, levels):
        check_streaming(spark)
    if streaming and kept == FILES:
        tell_checkpoints(spark)
    spread = _spread(graph, streaming, ends)
    last = max((stage.level for stage in graph.stages), default=0)
    packed = _read(spark, graph, readers, spread, at_work, None if last else writes)
    if streaming and max(graph.levels, levels):
        packed = packed.unionAll(_time(spark, graph, readers, spread, beats, at_work, joins))
    beside = list(graph.at(0))
    if streaming and beside:
        packed = metered_stages(packed, beside).where(f"port != {TOLD}")
    for level in range(1, max(graph.levels, levels) + 1):
        stages = _stages(graph.at(level))
        if not stages and at_work is None and (kept == FILES or not streaming):
            continue
        if streaming and kept == FILES:
            # something to compute: otherwise Spark hands rows of a Python worker to an exchange that cannot write them
            by_bucket = packed.where("bucket >= 0").repartition(min(graph.buckets, cores_of(spark)), "bucket")
            work: AnyWork = (
                FileLevel(level, stages, spread, joins is not None, writes if level == last else None)
                if at_work is None
                else at_work(_level(level))
            )
            with for_stages(spark):
                packed = by_bucket.mapInArrow(work, JOB_ROWS)
        elif streaming:
            packed = stateful(packed, LevelProcessor(stages, spread), JOB_ROWS, "None", kept)
        else:
            packed = _together(packed, graph.buckets).mapInArrow(BoundedLevel(stages, spread), JOB_ROWS)
        if streaming and joins is None and at_work is None:
            packed = metered_stages(packed, [stage.number for stage in stages]).where(f"port != {TOLD}")
    return packed.where("stage < 0" if at_work is None else f"stage < 0 OR port = {TOLD}")


def writes_above(spark: SparkSession, graph: JobGraph, kept: str) -> bool:
    """Whether tasks that make the rows of a streaming job can write them: rows then need not pass through Java on their
    way to another worker."""
    last = max((stage.level for stage in graph.stages), default=0)
    return hasattr(spark, "_jsparkSession") and not graph.at(0) and (kept == FILES or last == 0)


def open_work(graph: JobGraph, readers: Mapping[int, Readable], levels: int) -> dict[str, AnyWork]:
    """What workers of an open job do with these queries: for its sources, for the time and for each level."""
    from millstream.hosts.spark.job.clock import TellTime
    from millstream.hosts.spark.job.levels import FileLevel

    spread = _spread(graph, True, True)
    return {
        **{_source(number): FanOut(source.fan, spread) for number, source in enumerate(graph.sources)},
        _TIME: TellTime(_timed(graph, readers), spread),
        **{_level(level): FileLevel(level, _stages(graph.at(level)), spread) for level in range(1, levels + 1)},
    }


_TIME = "time"


def _source(number: int) -> str:
    return f"source {number}"


def _level(number: int) -> str:
    return f"level {number}"


def _spread(graph: JobGraph, streaming: bool, ends: bool) -> Spread:
    return Spread(graph.buckets, bucket_ids(graph.buckets) if streaming else None, streaming or not ends)


def _stages(stages: Mapping[int, JobStage]) -> tuple[LevelStage, ...]:
    from millstream.hosts.spark.job.levels import LevelStage

    return tuple(LevelStage(number, stage.name, stage.stage, stage.fan) for number, stage in stages.items())


def outlet_branch(packed: DataFrame, outlet: int, schema: Schema, streaming: bool) -> Branch:
    """The rows of one outlet, with their hidden columns."""
    own = packed.where(f"stage = {outlet_number(outlet)}").select("blob")
    return Branch(own, schema, Clockwork(streaming=streaming), FromBlobs(schema), bits=63)


def _read(
    spark: SparkSession,
    graph: JobGraph,
    readers: Mapping[int, Readable],
    spread: Spread,
    at_work: Callable[[str], AnyWork] | None,
    writes: Writes | None,
) -> DataFrame:
    frames: list[DataFrame] = []
    held: list[HeldSource] = []
    given: list[tuple[int, bytes]] = []
    for number, source in enumerate(graph.sources):
        reader = readers[source.around.number]
        batches = reader.held(source)
        if batches is not None:
            layout = blobs.layout_of(source.node.schema)
            rows = pa.Table.from_batches([blobs.from_batch(batch, layout) for batch in batches], layout)
            parts, upto = rows.combine_chunks().to_batches(HELD_ROWS), reader.reached(source)
            if not parts and upto is not None:
                parts = [pa.RecordBatch.from_pylist([], layout)]  # also without rows it tells the time
            given += [(len(held), blobs.encode(part)) for part in parts]
            held.append(HeldSource(source.fan, source.node.schema, upto))
            continue
        branch = reader.branch(source)
        if at_work is not None:
            at_each = at_work(_source(number))
            frames.append(branch.df.mapInArrow(at_each.over(branch.closed(at_each)), JOB_ROWS))
            continue
        if isinstance(branch.opening, ReadFiles) and len(source.predicates) == 1 and source.predicates[0] is not None:
            branch = replace(branch, opening=branch.opening.where(source.predicates[0]))
        if graph.beside(source):
            frames.append(_read_beside(spark, graph, number, branch, spread))
        else:
            frames.append(branch.df.mapInArrow(branch.closed(FanOut(source.fan, spread, writes)), JOB_ROWS))
    if held:
        table = pa.table({"source": pa.array([n for n, _ in given], pa.int32()), "blob": [b for _, b in given]})
        df = arrow_frame(spark, table, "source INT, blob BINARY")
        frames.append(df.mapInArrow(HeldSources(tuple(held), spread), JOB_ROWS))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _read_beside(spark: SparkSession, graph: JobGraph, number: int, branch: Branch, spread: Spread) -> DataFrame:
    """The packed rows of a source after the stages that run beside it."""
    from millstream.hosts.spark.job.beside import BoundedBeside, StreamingBeside

    source, tasks = graph.sources[number], min(graph.buckets, cores_of(spark))
    stages, told = _stages(graph.beside(source)), branch.by_partition(graph.buckets, tasks)
    if not branch.clockwork.streaming:
        return told.mapInArrow(branch.closed(BoundedBeside(source.fan, spread, stages)), JOB_ROWS)
    assert branch.opening is not None
    work = StreamingBeside(branch.opening, branch.steps, source.fan, spread, stages, beside_place(number), tasks)
    return told.mapInArrow(work, JOB_ROWS)


def beside_place(source: int) -> str:
    """Where stages beside a source keep their state, in that of a job."""
    return f"source-{source}"


def _time(
    spark: SparkSession,
    graph: JobGraph,
    readers: Mapping[int, Readable],
    spread: Spread,
    beats: str,
    at_work: Callable[[str], AnyWork] | None,
    joins: str | None,
) -> DataFrame:
    """Heartbeats for all sources, last in the union: it is asked for the time when all others know what they read."""
    from millstream.hosts.spark.job.clock import TellTime, clock_frame

    timed = _timed(graph, readers)
    work: AnyWork = TellTime(timed, spread) if at_work is None else at_work(_TIME)
    if joins is not None:
        from pyspark.sql import functions as F

        return spark.range(1).select(F.lit(joins)).mapInArrow(work, JOB_ROWS)
    return clock_frame(spark, timed, beats).mapInArrow(work, JOB_ROWS)


def _timed(graph: JobGraph, readers: Mapping[int, Readable]) -> tuple[Timed, ...]:
    from millstream.hosts.spark.job.clock import Timed

    def timed(number: int, source: JobSource) -> Timed:
        by_clock = readers[source.around.number].by_clock(source)
        beside = {stage.name: len(stage.stage.beating) for stage in graph.beside(source).values()}
        own = source.node.stream.lower(), by_clock, source.fan, source.node.schema
        return Timed(*own, beside_place(number), tuple(beside.items()))

    return tuple(timed(number, source) for number, source in enumerate(graph.sources))


def _together(packed: DataFrame, buckets: int) -> DataFrame:
    """Each bucket's rows in one task."""
    if buckets == 1:
        return packed.repartition(1)
    # from Spark 4.1 on, each bucket has a task of its own; before, hashing may put two into one
    by_number: Any = getattr(packed, "repartitionById", None)
    return packed.repartition(buckets, "bucket") if by_number is None else by_number(buckets, "bucket")


@dataclass(frozen=True)
class HeldSource:
    """Where rows go that the driver hands out, and how far time has come with them, if that is told."""

    fan: Fan
    schema: Schema
    upto: int | None


@dataclass(frozen=True)
class HeldSources:
    """A worker's work on rows that the driver handed out: each blob belongs to one of the sources."""

    sources: tuple[HeldSource, ...]
    spread: Spread

    def __call__(self, arrows: Arrows) -> Arrows:
        runs: dict[int, FanRun] = {}
        for rows in arrows:
            for number, blob in zip(rows.column(0).to_pylist(), rows.column(1), strict=True):
                source = self.sources[number]
                run = runs.setdefault(number, FanRun(source.fan, self.spread, number))
                part = blobs.decode(blob.as_buffer(), blobs.layout_of(source.schema))
                # the exchange waits for all parts, so each may tell how far time has come with all of them
                upto = BEGIN if source.upto is None else max(source.upto, BEGIN + 1)
                yield from run.take(blobs.to_batch(part, source.schema, upto, 0))
        for run in runs.values():
            yield from run.end()
        spare_collector()


@dataclass(frozen=True)
class FromBlobs:
    """How rows enter a worker: the blobs of one outlet."""

    schema: Schema

    def __call__(self, arrows: Arrows) -> Batches:
        layout = blobs.layout_of(self.schema)
        for rows in arrows:
            for blob in rows.column("blob"):
                yield blobs.to_batch(blobs.decode(blob.as_buffer(), layout), self.schema, BEGIN, 0)

"""Bounded runs of many queries as one job: all results in one pass over the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark import blobs
from millstream.hosts.spark.build import puts_together
from millstream.hosts.spark.job.fan import outlet_number
from millstream.hosts.spark.job.frames import Readable, job_frame, outlet_branch
from millstream.hosts.spark.job.graph import GraphBuilder, JobQuery
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.runs import Outcome, StartedQuery, watched
from millstream.hosts.spark.session import cores_of, send_whole
from millstream.hosts.spark.sinks import write_rows
from millstream.hosts.spark.surface import exact
from millstream.plan_form import python_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def settle(
    spark: SparkSession,
    asked: Sequence[tuple[StartedQuery, Callable[[], SessionInputs]]],
    stop: Event,
    look: Callable[[], None],
    buckets: int | None = None,
) -> None:
    """Run queries of one or several sessions as one job, and note what came of each.

    If that fails they run in halves, and so on: a failing query fails alone.
    """

    def work() -> list[Outcome]:
        inputs = {make: make() for _, make in asked}
        queries = [JobQuery(query.program, inputs[make], query.since, after=query.after) for query, make in asked]
        return run_together(spark, queries, {own.number: own for own in inputs.values()}, buckets)

    try:
        outcomes = watched(spark, work, stop, look)
    except MillstreamError as error:
        if len(asked) == 1:
            asked[0][0].fail(error)
            return
        middle = len(asked) // 2
        for half in (asked[:middle], asked[middle:]):
            if not stop.is_set():
                settle(spark, half, stop, look, buckets)
        return
    for (query, _), outcome in zip(asked, outcomes or (), strict=False):
        query.end(outcome)


def run_together(
    spark: SparkSession,
    queries: Sequence[JobQuery],
    readers: Mapping[int, Readable],
    buckets: int | None = None,
    ends: bool = True,
) -> list[Outcome]:
    """Run queries to the end of their inputs, or as far as time has come if these do not end; what each brought.

    Rows without a sink come with one action. With sinks the packed results are kept while each sink takes its part.
    """
    for query in queries:
        send_whole(python_in(query.program.plan).values())
    together = ends and puts_together(spark)
    builder = GraphBuilder(False, buckets or cores_of(spark), partials=together, merges=not ends, beside_sources=ends)
    graph = builder.build(queries)
    packed = job_frame(spark, graph, readers, streaming=False, ends=ends)
    if all(query.program.sink is None for query in queries):
        return _collected(packed, queries)
    packed = packed.persist()
    try:
        fetched = [number for number, query in enumerate(queries) if query.program.sink is None]
        outcomes = _collected(packed, queries) if fetched else [Outcome() for _ in queries]
        for number, query in enumerate(queries):
            sink = query.program.sink
            if sink is not None:
                branch = outlet_branch(packed, number, query.program.plan.schema, streaming=False)
                outcomes[number] = Outcome(write_rows(query.program, sink, (branch,)))
        return outcomes
    finally:
        packed.unpersist()


def _collected(packed: DataFrame, queries: Sequence[JobQuery]) -> list[Outcome]:
    """The rows of all queries without a sink."""
    wanted = [number for number, query in enumerate(queries) if query.program.sink is None]
    if len(wanted) < len(queries):
        packed = packed.where(f"stage IN ({', '.join(str(outlet_number(number)) for number in wanted)})")
    tables = by_outlet(packed.select("stage", "blob").toArrow(), [query.program for query in queries])
    return [Outcome(table.num_rows, [table]) for table in tables]


def by_outlet(packed: pa.Table, programs: Sequence[ReadyQuery]) -> list[pa.Table]:
    """Packed rows as a table for each program, in order."""
    parts: list[list[pa.RecordBatch]] = [[] for _ in programs]
    layouts = [blobs.layout_of(program.plan.schema) for program in programs]
    for stage, blob in zip(packed.column("stage").to_pylist(), packed.column("blob"), strict=True):
        outlet = outlet_number(stage)
        parts[outlet].append(blobs.decode(blob.as_buffer(), layouts[outlet]))
    return [
        exact(pa.Table.from_batches(rows, layout), program.plan.schema, program.columns)
        for rows, layout, program in zip(parts, layouts, programs, strict=True)
    ]

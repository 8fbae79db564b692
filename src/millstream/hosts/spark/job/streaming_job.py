"""A set of queries as one streaming query of Spark's: one checkpoint, each source read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.catalog import StreamDef
from millstream.errors import EngineError
from millstream.hosts.spark.build import buckets_of, idle_of, puts_together
from millstream.hosts.spark.failures import telling, translated
from millstream.hosts.spark.job.control import Steering
from millstream.hosts.spark.job.frames import job_frame
from millstream.hosts.spark.job.graph import GraphBuilder, JobGraph, JobQuery
from millstream.hosts.spark.job.kept_job import KeptJob, new_name, refuse_unfit
from millstream.hosts.spark.job.outlets import Outlets, TakeBatch
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.meters import STAGE_METRICS, Meters, numbers_of
from millstream.hosts.spark.runs import StartedQuery
from millstream.hosts.spark.session import VALUE, kept_as, register_own, send_whole
from millstream.hosts.spark.streaming import Trigger
from millstream.plan_form import python_in
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


@dataclass
class StreamingJob:
    """A running job: Spark's streaming query, and what became of the outlets so far."""

    query: StreamingQuery
    graph: JobGraph
    outlets: Outlets
    late: dict[int, int] = field(default_factory=dict)
    """late rows that each stage counted"""
    _seen: int = -1

    @property
    def stages(self) -> dict[str, str]:
        """The kernels of the job, by the names of their metrics in Spark's progress."""
        described = (stage.stage.spec.describe() for stage in self.graph.stages)
        return {f"{STAGE_METRICS}{number}": text for number, text in enumerate(described, 1)}

    def rows(self, name: str) -> int:
        """How many rows of a query have been committed."""
        return self.outlets.rows.get(self._place(name), 0)

    def late_rows(self, name: str) -> int:
        """How many rows came too late for the stages of a query."""
        return sum(self.late.get(number, 0) for number in self.graph.stages_of[self._place(name)])

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

    def _place(self, name: str) -> int:
        names = [query.program.name.lower() for query in self.graph.queries]
        return names.index(name.lower())


class RunningJob:
    """A job of a session's run, whose queries count their rows."""

    def __init__(self, job: StreamingJob, queries: Sequence[StartedQuery], meters: Meters) -> None:
        self.meters = meters
        self._job = job
        self._before = [(query, query.rows, query.late) for query in queries]

    @property
    def is_active(self) -> bool:
        return bool(self._job.query.isActive)

    def look(self) -> None:
        self._job.look()
        for query, rows, late in self._before:
            query.rows = rows + self._job.rows(query.program.name)
            query.late = late + self._job.late_rows(query.program.name)

    def stop(self) -> None:
        self._job.stop()

    def raise_failure(self) -> None:
        self._job.raise_failure()


def start_job(
    spark: SparkSession,
    queries: Sequence[JobQuery],
    inputs: SessionInputs,
    streams: Sequence[StreamDef],
    checkpoint: str,
    trigger: Trigger | None,
    deliver: Callable[[int, pa.Table], None],
    functions: Mapping[int, TakeBatch],
    buckets: int | None = None,
    name: str | None = None,
    beats: str = "",
) -> StreamingJob:
    """Start queries as one job, resuming from `checkpoint` if there is one; `beats` is the file of heartbeats."""
    from millstream.hosts.spark.one_value import Unchecked

    for query in queries:
        send_whole(python_in(query.program.plan).values())
    kept = KeptJob.read(spark, checkpoint, [query.program for query in queries])
    if kept is not None:
        kept.refuse_streams(streams)
        queries = [kept.resumed(query) for query in queries]
    with telling():
        # the client of a Spark server does not see micro-batches: there tables are what they were at the start
        steering = inputs.steering(checkpoint) if hasattr(spark, "_jsparkSession") else None
        graph = _graph(spark, queries, kept, buckets, steering)
        now = KeptJob.of(graph, streams, kept, kept_as(spark))
        if kept is not None:
            kept.refuse_another(now)
        read = {inputs.number: inputs}
        packed = job_frame(spark, graph, read, streaming=True, levels=now.levels, beats=beats, kept=now.kept)
        outlets = Outlets(spark, checkpoint, [query.program for query in queries], deliver, functions, steering)
        writer = _writer(packed, outlets)
        outlets.open(n for n, query in enumerate(queries) if kept is None or kept.find(query.program.name) is None)
        if now != kept:
            now.write(spark, checkpoint)
        writer = writer.outputMode("append").option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        with Unchecked(spark, now.kept == VALUE and now.levels > 1):
            return StreamingJob(writer.start(), graph, outlets)


def _graph(
    spark: SparkSession,
    queries: Sequence[JobQuery],
    kept: KeptJob | None,
    buckets: int | None,
    steering: Steering | None,
) -> JobGraph:
    how: dict[str, Any] = {"partials": puts_together(spark), "steering": steering}
    if kept is None:
        builder = GraphBuilder(True, buckets or buckets_of(spark), idle_of(spark), new_name, **how)
    else:
        builder = GraphBuilder(True, kept.buckets, idle_of(spark), kept.state_name, kept.sources, **how)
    graph = builder.build(queries)
    refuse_unfit(graph, kept)
    return graph


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

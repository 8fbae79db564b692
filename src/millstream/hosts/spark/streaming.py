"""Streaming queries: a program that runs until it is stopped, with a checkpoint to resume from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.catalog import SinkDef
from millstream.errors import EngineError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.failures import inside_a_micro_batch, telling, translated
from millstream.hosts.spark.meters import StreamMeter, late_rows, numbers_of
from millstream.hosts.spark.sinks import (
    driver_sink,
    is_part_sink,
    is_remote,
    part_options,
    spark_format,
    written_schema,
)
from millstream.hosts.spark.steps import FromRows
from millstream.hosts.spark.surface import all_rows, exact, surface
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

Trigger = Mapping[str, Any]
"""When micro-batches start, in Spark's words: {"availableNow": True}, {"processingTime": "1 second"}."""

LOOK_SECONDS = 0.2

COUNTED = "millstream"
"""The name under which Spark tells how many rows a micro-batch wrote."""


def start(
    program: ReadyQuery,
    branches: tuple[Branch, ...],
    checkpoint: str,
    trigger: Trigger | None,
    deliver: Callable[[pa.Table], None],
    written: StreamMeter,
) -> StreamingQuery:
    """Start a streaming query into the program's sink, or to `deliver` if it has none."""
    writer = _writer(program, branches, deliver, written)
    writer = writer.queryName(program.name).outputMode("append").option("checkpointLocation", checkpoint)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    with telling():
        return writer.start()


def _writer(
    program: ReadyQuery, branches: tuple[Branch, ...], deliver: Callable[[pa.Table], None], written: StreamMeter
) -> DataStreamWriter:
    if program.sink is not None and is_part_sink(program.sink):
        return _to_part_files(program, program.sink, branches, written)
    if program.sink is not None and is_remote(program.sink):
        from pyspark.sql import functions as F

        form, path, options = spark_format(program.sink)
        df = surface(branches, program.columns).observe(COUNTED, F.count(F.lit(1)).alias("rows"))
        return df.writeStream.format(form).options(**options).option("path", path)
    if not hasattr(branches[0].df.sparkSession, "_jsparkSession"):
        # there foreachBatch runs its function on the server, out of reach of this process
        raise EngineError(
            "a streaming query on Spark Connect cannot return rows to the client",
            hint="write files with INSERT INTO, or use writeStream of the DataFrame that Millstream.sql returns",
        )
    sink = None if program.sink is None else driver_sink(program, program.sink)

    def take(df: DataFrame, _: int) -> None:
        with inside_a_micro_batch():
            rows = exact(df.toArrow(), program.plan.schema, program.columns)
            if sink is None:
                deliver(rows)
                return
            for batch in rows.to_batches():
                sink.write(batch)
            sink.commit()

    return all_rows(branches).writeStream.foreachBatch(take)


def _to_part_files(
    program: ReadyQuery, sink: SinkDef, branches: tuple[Branch, ...], written: StreamMeter
) -> DataStreamWriter:
    """Our own writers, where the rows are: those of a kernel never become rows of Spark's."""
    from millstream.hosts.spark.packed_sink import WriteJob, writer_of

    branch = branches[0] if len(branches) == 1 else replace(branches[0], df=all_rows(branches), opening=None, steps=())
    opening = branch.opening or FromRows(branch.schema)
    target, options = part_options(sink)
    job = WriteJob(opening, branch.steps, written_schema(program), options, sink.name, target, written)
    return writer_of(branch.df, job)


@dataclass(frozen=True)
class News:
    """What a query's micro-batches since the last look say: rows that Spark's own writers wrote, and late rows."""

    rows: int
    late: int


def wait(queries: Mapping[str, StreamingQuery], stop: Event, look: Callable[[Mapping[str, News]], None]) -> None:
    """Wait until every query has ended or `stop` is set; then stop them in good order. A failure is told as ours."""
    seen = dict.fromkeys(queries, -1)
    try:
        while any(query.isActive for query in queries.values()) and not stop.wait(LOOK_SECONDS):
            look(_news(queries, seen))
    finally:
        for query in queries.values():
            query.stop()
    look(_news(queries, seen))
    for query in queries.values():
        error = query.exception()
        if error is not None:
            raise translated(error) from None


def _news(queries: Mapping[str, StreamingQuery], seen: dict[str, int]) -> dict[str, News]:
    news = {}
    for name, query in queries.items():
        rounds = [entry for entry in query.recentProgress if entry["batchId"] > seen[name]]
        observed = [dict(entry["observedMetrics"]) for entry in rounds]
        counts = [numbers_of(metrics[COUNTED])["rows"] for metrics in observed if COUNTED in metrics]
        news[name] = News(sum(counts), sum(map(late_rows, observed)))
        seen[name] = max([seen[name], *(int(entry["batchId"]) for entry in rounds)])
    return news

"""Streaming queries: a program that runs until it is stopped, with a checkpoint to resume from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.hosts.contract import Program
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.failures import telling, translated
from millstream.hosts.spark.sinks import driver_sink, is_file_sink, spark_format
from millstream.hosts.spark.surface import all_rows, exact, surface

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

Trigger = Mapping[str, Any]
"""When micro-batches start, in Spark's words: {"availableNow": True}, {"processingTime": "1 second"}."""

LOOK_SECONDS = 0.2

COUNTED = "millstream"
"""The name under which Spark tells how many rows a micro-batch wrote."""


def start(
    program: Program,
    branches: tuple[Branch, ...],
    checkpoint: str,
    trigger: Trigger | None,
    deliver: Callable[[pa.Table], None],
) -> StreamingQuery:
    """Start a streaming query into the program's sink, or to `deliver` if it has none."""
    if program.sink is not None and is_file_sink(program.sink):
        from pyspark.sql import functions as F

        form, path, options = spark_format(program.sink)
        df = surface(branches, program.columns).observe(COUNTED, F.count(F.lit(1)).alias("rows"))
        writer = df.writeStream.format(form).options(**options).option("path", path)
    else:
        sink = None if program.sink is None else driver_sink(program, program.sink)

        def take(df: DataFrame, _: int) -> None:
            rows = exact(df.toArrow(), program.plan.schema, program.columns)
            if sink is None:
                deliver(rows)
                return
            for batch in rows.to_batches():
                sink.write(batch)
            sink.commit()

        writer = all_rows(branches).writeStream.foreachBatch(take)
    writer = writer.queryName(program.name).outputMode("append").option("checkpointLocation", checkpoint)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    with telling():
        return writer.start()


def wait(queries: Mapping[str, StreamingQuery], stop: Event, look: Callable[[Mapping[str, int]], None]) -> None:
    """Wait until every query has ended or `stop` is set; then stop them in good order. A failure is told as ours."""
    seen = dict.fromkeys(queries, -1)
    try:
        while any(query.isActive for query in queries.values()) and not stop.wait(LOOK_SECONDS):
            look(_written(queries, seen))
    finally:
        for query in queries.values():
            query.stop()
    look(_written(queries, seen))
    for query in queries.values():
        error = query.exception()
        if error is not None:
            raise translated(error) from None


def _written(queries: Mapping[str, StreamingQuery], seen: dict[str, int]) -> dict[str, int]:
    """Rows that each query wrote through Spark's writers in the micro-batches since the last look."""
    news = {}
    for name, query in queries.items():
        rounds = [entry for entry in query.recentProgress if entry["batchId"] > seen[name]]
        counts = [dict(entry["observedMetrics"]).get(COUNTED) for entry in rounds]
        news[name] = sum(int(count["rows"]) for count in counts if count is not None)
        seen[name] = max([seen[name], *(int(entry["batchId"]) for entry in rounds)])
    return news

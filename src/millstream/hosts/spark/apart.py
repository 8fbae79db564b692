"""Streaming queries side by side, each with a checkpoint of its own: how earlier versions ran a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING

from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.runs import StartedQuery
from millstream.hosts.spark.streaming import News, wait
from millstream.physical.nodes import streams_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

WRITTEN = "written by "
"""What the meter of a query's output is called among those of streams."""


def run_apart(
    spark: SparkSession,
    queries: Sequence[StartedQuery],
    start: Callable[[StartedQuery, Meters], StreamingQuery],
    stop: Event,
    look: Callable[[Meters], None],
) -> None:
    """Run each query until it ends or `stop` is set; `look` is called with the meters of their streams."""
    meters = Meters.of(spark, [name for query in queries for name in streams_of(query.program.plan)])
    outlets = Meters.of(spark, [WRITTEN + query.program.name for query in queries])
    before = {query.program.name: query.rows for query in queries}

    def note(news: Mapping[str, News]) -> None:
        for query in queries:
            name = query.program.name
            before[name] += news[name].rows
            query.rows = max(query.rows, before[name] + outlets[WRITTEN + name].counted[0])
            query.late += news[name].late
        look(meters)

    both = Meters(meters.by_stream | outlets.by_stream)
    wait({query.program.name: start(query, both) for query in queries}, stop, note)

"""Bounded runs: a program executed once, into a sink or into memory, watched while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.results import ResultLog
from millstream.hosts.spark.failures import translated
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.1


@dataclass
class Outcome:
    """What a bounded run brought: rows to fetch, or how many went to the sink."""

    count: int = 0
    fetched: list[pa.Table] = field(default_factory=list)


@dataclass(eq=False)
class StartedQuery:
    """A started query: it sees rows pushed from arrival number `since` on."""

    program: ReadyQuery
    since: int
    results: ResultLog
    rows: int = 0
    late: int = 0
    ended: bool = False
    error: MillstreamError | None = None

    def deliver(self, tables: list[pa.Table]) -> None:
        for table in tables:
            for batch in table.to_batches():
                self.results.append(batch)

    def end(self, outcome: Outcome) -> None:
        """All inputs have ended, and that is what came of it."""
        self.ended = True
        self.rows += outcome.count
        self.deliver(outcome.fetched)
        self.results.close()

    def fail(self, error: MillstreamError) -> None:
        self.error = error
        self.results.close(error)


def watched(
    spark: SparkSession, work: Callable[[], list[Outcome]], stop: Event, look: Callable[[], None]
) -> list[Outcome] | None:
    """Do Spark work on a thread, looking at it from time to time; None if it was told to stop before it was done."""
    group = f"millstream-{uuid4()}"
    result: list[list[Outcome]] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            _context(spark, lambda context: context.setJobGroup(group, "millstream", True))
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = Thread(target=body, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK_SECONDS)
        look()
        if stop.is_set():
            _context(spark, lambda context: context.cancelJobGroup(group))
    if result:
        return result[0]
    if stop.is_set():
        return None
    error = failure[0]
    if isinstance(error, Exception):
        raise translated(error) from None
    raise error


def _context(spark: SparkSession, use: Callable[[Any], None]) -> None:
    """Use the Spark context where there is one: a session of Spark Connect has none."""
    if hasattr(spark, "_jsparkSession"):
        use(spark.sparkContext)

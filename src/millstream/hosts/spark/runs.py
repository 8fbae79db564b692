"""Bounded runs: a program executed once, into a sink or into memory, watched while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.failures import translated
from millstream.hosts.spark.sinks import write_rows
from millstream.hosts.spark.surface import all_rows, exact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.1


@dataclass
class Outcome:
    """What a bounded run brought: rows to fetch, or how many went to the sink."""

    count: int = 0
    fetched: list[pa.Table] = field(default_factory=list)


def run_bounded(program: ReadyQuery, branches: tuple[Branch, ...]) -> Outcome:
    """Execute a program to the end of its inputs."""
    if program.sink is not None:
        return Outcome(write_rows(program, program.sink, branches))
    rows = exact(all_rows(branches).toArrow(), program.plan.schema, program.columns)
    return Outcome(rows.num_rows, [rows])


def watched(spark: SparkSession, work: Callable[[], Outcome], stop: Event, look: Callable[[], None]) -> Outcome | None:
    """Do Spark work on a thread, looking at it from time to time; None if it was told to stop before it was done."""
    group = f"millstream-{uuid4()}"
    result: list[Outcome] = []
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

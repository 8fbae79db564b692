"""Bounded runs: a program executed once, into a sink or into memory, watched while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa

from millstream import limits
from millstream.errors import MillstreamError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.results import ResultLog
from millstream.hosts.spark.failures import translated
from millstream.hosts.spark.job.committed import Committed
from millstream.hosts.spark.job.graph import JobQuery, Surroundings
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.1

T = TypeVar("T")


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
    committed: Committed = field(default_factory=Committed)
    """of `rows`, what streaming jobs committed"""
    late: int = 0
    delivered: int = -1
    """the last micro-batch whose rows it has given"""
    ended: bool = False
    paused: bool = False
    after: tuple[tuple[str, int], ...] = ()
    """of each stream the instant from which on it also sees rows that came before it"""
    anew: bool = False
    """whether its definition changed, so that its state is computed from what was read before"""
    job: str = ""
    """the place of the streaming job that it runs in"""
    error: MillstreamError | None = None
    given: Counter[str] = field(default_factory=Counter)
    """of rows that it has given already, how many; what comes of all its inputs has them, too"""

    def asked(self, around: Surroundings) -> JobQuery:
        """The query for a streaming job."""
        return JobQuery(self.program, around, after=self.after, paused=self.paused, anew=self.anew)

    def deliver(self, tables: list[pa.Table]) -> None:
        for table in tables:
            for batch in table.to_batches():
                self.results.append(batch)

    def end(self, outcome: Outcome) -> None:
        """All inputs have ended, and that is what came of it."""
        self.ended = True
        fresh = self.not_given(outcome.fetched)
        self.rows += outcome.count - sum(table.num_rows for table in outcome.fetched)
        self.rows += sum(table.num_rows for table in fresh)
        self.deliver(fresh)
        self.results.close()

    def not_given(self, tables: list[pa.Table]) -> list[pa.Table]:
        """Of all that has come of its rows, what it has not given yet."""
        left, fresh = self.given.copy(), []
        for table in tables if left else ():
            places = [place for place, row in enumerate(_rows(table)) if not _takes(left, row)]
            fresh.append(table.take(pa.array(places, pa.int64())))
        return fresh if self.given else tables

    def fetched(self) -> pa.Table:
        """The rows that nobody has fetched before."""
        types = self.program.plan.schema.arrow.types
        schema = pa.schema(list(zip(self.program.columns, types, strict=True)))
        return pa.Table.from_batches(self.results.fetch(), schema=schema)

    def fail(self, error: MillstreamError) -> None:
        self.error = error
        self.results.close(error)


def counted(tables: list[pa.Table]) -> Counter[str]:
    """How often each row is there."""
    return Counter(row for table in tables for row in _rows(table))


def _rows(table: pa.Table) -> Iterator[str]:
    # names may repeat
    return map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True))


def _takes(left: Counter[str], row: str) -> bool:
    left[row] -= 1
    return left[row] >= 0


def watched(spark: SparkSession, work: Callable[[], T], stop: Event, look: Callable[[], None]) -> T | None:
    """Do Spark work on a thread, looking at it from time to time; None if it was told to stop before it was done.

    A statement that it is done for may be cancelled, or take too long: then Spark's jobs end, too.
    """
    ends = _Tagged(spark)
    result: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            ends.begin()
            result.append(work())
        except BaseException as error:
            failure.append(error)

    statement, given_up = limits.current(), None
    thread = Thread(target=body, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK_SECONDS)
        look()
        if statement is not None and given_up is None:
            given_up = statement.verdict()
        if stop.is_set() or given_up is not None:
            ends.interrupt()
    if given_up is not None:
        raise given_up
    if result:
        return result[0]
    if stop.is_set():
        return None
    error = failure[0]
    if isinstance(error, Exception):
        raise translated(error) from None
    raise error


class _Tagged:
    """Spark's jobs of one thread, and how another one ends them."""

    def __init__(self, spark: SparkSession) -> None:
        self._tag = f"millstream-{uuid4()}"
        self._spark = spark
        # tags of a session belong to a thread, unless it is one of Spark Connect, which has no context
        self._context: Any = spark.sparkContext if hasattr(spark, "_jsparkSession") else None

    def begin(self) -> None:
        if self._context is None:
            self._spark.addTag(self._tag)
        else:
            self._context.addJobTag(self._tag)
            self._context.setInterruptOnCancel(True)

    def interrupt(self) -> None:
        if self._context is None:
            self._spark.interruptTag(self._tag)
        else:
            self._context.cancelJobsWithTag(self._tag)


def done(spark: SparkSession, work: Callable[[], T]) -> T:
    """Spark work for a statement, within its limits."""
    found = watched(spark, work, Event(), lambda: None)
    assert found is not None
    return found

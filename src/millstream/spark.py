"""Millstream for PySpark: DataFrames in, a DataFrame out.

from millstream.spark import Millstream

m = Millstream(spark)
m.register("quotes", quotes, time="ts", slack="5 seconds")
m.sql("SELECT symbol, avg(price) OVER (PARTITION BY symbol RANGE 1 MINUTE PRECEDING) AS mean FROM quotes")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.bind.reads import tables_of
from millstream.catalog import TableDef
from millstream.errors import BindError, EngineError
from millstream.hosts.spark.frames import KnownFrame, known_frame, view_of
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.job.views import MaintainedView
from millstream.hosts.spark.rescale import rescale
from millstream.hosts.spark.session import get_session
from millstream.records import dataclass
from millstream.session.opening import access_of, open_session
from millstream.session.times import Moment, ordered_stream
from millstream.sql import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.hosts.spark.job.streaming_job import StreamingJob
    from millstream.hosts.spark.runs import StartedQuery
    from millstream.session.database import Database
    from millstream.session.query import Query, Result
    from millstream.sql.parameters import Parameters


class Millstream:
    """Continuous SQL over the DataFrames of one Spark session; without one, a local session is started.

    With `profile="untrusted"`, SQL may come from anybody: it reaches only the registered DataFrames and what
    `access` names (`locations`, `hosts`, `brokers`, `listen`, as in `millstream.connect`). Other arguments are
    settings.
    """

    def __init__(self, spark: SparkSession | None = None, *, profile: str = "default", **access: Any) -> None:
        named = {name: access.pop(name, ()) for name in ("locations", "hosts", "brokers", "listen")}
        allowed = access_of(profile, **{**named, "locations": named["locations"] or {}})
        self._database = open_session(None, "spark", spark or get_session(), None, (), access, allowed)
        host = self._database._host
        assert isinstance(host, SparkHost)
        self._host = host
        self._views: set[str] = set()
        self._left_out: dict[str, dict[str, str]] = {}
        """of each DataFrame, the columns whose types have no SQL type here"""

    @property
    def spark(self) -> SparkSession:
        """The session that queries run on."""
        return self._host.spark

    def register(
        self, name: str, df: DataFrame, time: str | None = None, slack: str | timedelta | int | None = None
    ) -> None:
        """Register a DataFrame: with `time` as a stream ordered by that column, without it as a table.

        Rows of a stream may be out of order by up to `slack`; in a streaming query it is the watermark delay.
        """
        known = known_frame(df, name)
        if time is None:
            if df.isStreaming:
                raise EngineError(
                    f"{name} is a streaming DataFrame without a time", hint="name its event-time column: time='ts'"
                )
            self._database.catalog.add(TableDef(name, known.schema), replace=True)
            self._host.register_table(name, known.df, known.schema)
        else:
            self._check_time(time, known)
            stream = ordered_stream(name, known.schema, time, slack)
            self._database.catalog.add(stream, replace=True)
            self._host.register_stream(stream, known.df)
        self._left_out[name] = known.left_out

    def _check_time(self, time: str, known: KnownFrame) -> None:
        given = {column.lower(): type_ for column, type_ in known.left_out.items()}
        if time.lower() in given:
            raise EngineError(
                f"column {time} is {given[time.lower()]}, which is not a time", hint="cast it to a timestamp"
            )

    @contextmanager
    def _knowing(self, text: str) -> Iterator[None]:
        """Bind a text: temporary views of the session are known in it, unless anybody may have written it, and columns
        that were left out are reported."""
        for name in (
            ()
            if not self._database.guard.is_free
            else dict.fromkeys(table.name for part in parse(text) for table in tables_of(part.ast))
        ):
            if name in self._views or self._database.catalog.find(name) is None:
                view = view_of(self.spark, name)
                if view is not None:
                    self.register(name, view)
                    self._views.add(name)
        try:
            yield
        except BindError as error:
            for name, columns in self._left_out.items():
                for column, type_ in columns.items():
                    if error.message.lower() == f"no column {column}".lower():
                        error.detail = f"column {column} of {name} is {type_}, which has no SQL type here"
                        error.hint = "extract its fields with select() before you register the DataFrame"
            raise

    def as_operator(self) -> AbstractContextManager[None]:
        """Inside this context, the thread is the operator of a session for untrusted SQL: everything is allowed."""
        return self._database.as_operator()

    def register_aggregate(self, made: Any) -> None:
        """Register an aggregate or function written in Python: `@millstream.aggregate` or `@millstream.function`.

        It is sent to the workers together with its module.
        """
        self._database.register_aggregate(made)

    register_function = register_aggregate

    def execute(self, sql: str, params: Parameters | None = None) -> Query | Result | None:
        """Run statements such as CREATE STREAM … AS, CREATE TABLE or INSERT, separated by `;`.

        INSERT INTO a sink runs at once, as one job for all of them, if the inputs end; over streaming inputs it
        waits for `start`.
        """
        with self._knowing(sql):
            result = self._database.execute(sql, params)
        done = self._host.run_inserts()
        for query in done:
            self._database.stop(query.program.name)
        for query in done:
            if query.error is not None:
                raise query.error
        return None if done else result

    def start(
        self,
        queries: Mapping[str, str] | None = None,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        foreach_batch: Mapping[str, Callable[[DataFrame, int], Any]] | None = None,
        views: Mapping[str, str] | None = None,
        name: str | None = None,
        open: bool | int | None = None,
        streams: Sequence[str] | None = None,
        altered: Collection[str] = (),
    ) -> StreamingJob:
        """Start all queries over streaming inputs as one streaming query, which reads each source once.

        These are the INSERTs that were executed, and `queries`, by name. Each goes to its sink or to its function
        in `foreach_batch`, which takes a DataFrame and the number of the micro-batch. `trigger` is as in Spark:
        {"processingTime": "5 seconds"} or {"availableNow": True}. The job resumes from `checkpoint` if there is one.
        `views` are relations, by name: the content of each is a temporary view of the session, updated with every
        micro-batch and kept in the checkpoint, which then must be a local directory.

        With `open`, you can add and drop queries of any shape while the job runs: `job.add({name: text})`,
        `job.drop(name)`. A query can need two exchanges one after the other, or as many as `open` says, and read
        `streams` (by default all streaming ones). An open job resumes with the queries that it had.

        `altered` are names of queries whose definitions are not those of the checkpoint. Where such a query needs other
        state, it is computed from all rows that the job has read; results for these are not emitted again.
        """
        asked, functions = dict(queries or {}), dict(foreach_batch or {})
        for view, text in (views or {}).items():
            came, went = f"{view}: came", f"{view}: went"
            asked |= {came: f"ISTREAM({text})", went: f"DSTREAM({text})"}
        with self._started(asked):
            for view in views or {}:
                came, went = f"{view}: came", f"{view}: went"
                place = Path(checkpoint) / "millstream" / "views" / view
                content = MaintainedView(self.spark, view, place, self._database.query(came).schema)
                functions |= {came: content.came, went: content.went}
            job = self._host.start_all(checkpoint, trigger, functions, name, open, streams, altered)
        job.session = _Asked(self._host, self._database, self._started)
        return job

    @contextmanager
    def _started(self, queries: Mapping[str, str]) -> Iterator[None]:
        """Queries of the session, for as long as it takes to give them to a job."""
        try:
            for known, text in queries.items():
                with self._knowing(text):
                    self._database.sql(text, name=known)
            yield
        finally:
            for query in self._database.queries():
                if query.name in queries:
                    self._database.stop(query.name)

    def sql(self, text: str, params: Parameters | None = None) -> DataFrame:
        """A query as a DataFrame: a streaming one if any of its inputs is.

        `params` are values for `$name` (a dict) or `?` (a list) in the text.
        """
        with self._knowing(text):
            return self._host.to_dataframe(self._database.prepare(text, params=params))

    def advance(self, stream: str, time: Moment) -> None:
        """Advance the watermark of `stream` to `time` (a heartbeat). A running job sees it in its next micro-batch."""
        self._database.advance(stream, time)

    def rescale(self, checkpoint: str, partitions: int) -> None:
        """Redistribute the state of a stopped streaming query over another number of tasks.

        `checkpoint` is its `checkpointLocation`.
        """
        rescale(self.spark, checkpoint, partitions)

    def close(self) -> None:
        """Release all resources. Ports are closed; running jobs continue without them. The Spark session stays open."""
        self._database.close()

    def explain(self, text: str) -> str:
        """How a query would run: the plan, the rules applied to it, the stages, and Spark's own plan."""
        with self._knowing(text):
            return self._database.explain(text)


@dataclass
class _Asked:
    """What an open job asks of the session that started it."""

    host: SparkHost
    database: Database
    started: Callable[[Mapping[str, str]], AbstractContextManager[None]]

    @contextmanager
    def asked(self, queries: Mapping[str, str], known: Sequence[str]) -> Iterator[list[StartedQuery]]:
        has = {name.lower() for name in known}
        with self.started(queries):
            yield [query for query in self.host.endless() if query.program.name.lower() not in has]

    def dropped(self, name: str) -> None:
        if name.lower() in (query.name.lower() for query in self.database.queries()):
            self.database.stop(name)

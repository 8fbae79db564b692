"""Millstream the PySpark way: DataFrames in, a DataFrame out.

from millstream.spark import Millstream

m = Millstream(spark)
m.register("quotes", quotes, time="ts", slack="5 seconds")
m.sql("SELECT symbol, avg(price) OVER (PARTITION BY symbol RANGE 1 MINUTE PRECEDING) AS mean FROM quotes")
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.catalog import TableDef
from millstream.config import Config
from millstream.errors import EngineError
from millstream.hosts.spark.frames import schema_of
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.rescale import rescale
from millstream.hosts.spark.session import get_session
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from millstream.session.times import ordered_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.session.query import Query, Result
    from millstream.sql.parameters import Parameters


class Millstream:
    """Continuous SQL over the DataFrames of one Spark session; without one, a local session is started."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        tables = TableStore()
        self._host = SparkHost(spark or get_session(), tables.read)
        self._database = Database(self._host, tables, Config())

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
        schema = schema_of(df, name)
        if time is None:
            if df.isStreaming:
                raise EngineError(
                    f"{name} is a streaming DataFrame without a time", hint="name its event-time column: time='ts'"
                )
            self._database.catalog.add(TableDef(name, schema), replace=True)
            self._host.register_table(name, df, schema)
            return
        stream = ordered_stream(name, schema, time, slack)
        self._database.catalog.add(stream, replace=True)
        self._host.register_stream(stream, df)

    def register_aggregate(self, made: Any) -> None:
        """Register an aggregate written in Python: a class or a function decorated with `@millstream.aggregate`.

        It travels to the workers with the module that it stands in.
        """
        self._database.register_aggregate(made)

    def execute(self, sql: str, params: Parameters | None = None) -> Query | Result | None:
        """Run statements such as CREATE STREAM … AS, CREATE TABLE or INSERT, separated by `;`."""
        return self._database.execute(sql, params)

    def sql(self, text: str, params: Parameters | None = None) -> DataFrame:
        """A query as a DataFrame: a streaming one if any of its inputs is.

        `params` are values for `$name` (a dict) or `?` (a list) in the text.
        """
        return self._host.to_dataframe(self._database.prepare(text, params=params))

    def rescale(self, checkpoint: str, partitions: int) -> None:
        """Redistribute the state of a stopped streaming query over another number of tasks.

        `checkpoint` is its `checkpointLocation`.
        """
        rescale(self.spark, checkpoint, partitions)

    def explain(self, text: str) -> str:
        """How a query would run: the plan, the rules applied to it, the stages, and Spark's own plan."""
        return self._database.explain(text)

"""Programs as DataFrames: what `m.sql` returns, what EXPLAIN shows, and what runs as a streaming query of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.build import BranchBuilder, arranged, fused, fuses_joins
from millstream.hosts.spark.explain import explained
from millstream.hosts.spark.failures import telling
from millstream.hosts.spark.history import SparkHistory
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.session import send_whole
from millstream.hosts.spark.sources import Reading
from millstream.hosts.spark.spool import Spooled
from millstream.hosts.spark.stage import Stage
from millstream.hosts.spark.surface import surface
from millstream.physical import nodes as physical
from millstream.plan_form import python_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Programs(SparkHistory):
    """The part of the Spark host that makes DataFrames of plans."""

    def branches(
        self, program: ReadyQuery, since: int = 0, meters: Meters | None = None, dry: bool = False, rows: bool = False
    ) -> tuple[Branch, ...]:
        """The program's rows with their hidden columns, or with `rows` only what is seen; `dry` only to look at it."""
        return self._built(program, since, meters, dry, rows)[0]

    def _built(
        self, program: ReadyQuery, since: int, meters: Meters | None, dry: bool, rows: bool, fed: bool | None = None
    ) -> tuple[tuple[Branch, ...], list[Stage]]:
        """The branches of a program, and the stages among them that keep state."""
        send_whole(python_in(program.plan).values())
        clockwork = self._clockwork(program.plan)
        reading = Reading(self.spark, clockwork, meters or Meters({}), since, dry)
        if not dry:
            for entry in map(self.find, physical.streams_of(program.plan)):
                if isinstance(entry, Spooled):
                    entry.begin()

        def source(node: physical.Source) -> Branch:
            return self.find(node.stream).branch(node, reading)

        with telling():
            builder = BranchBuilder(
                self.spark, clockwork, source, self._table, self.buckets, self._in_spark, self.allowed
            )
            builder.fed = fuses_joins(self.spark) if fed is None else fed
            return builder.build(program.plan, rows), builder.stages

    def to_dataframe(self, program: ReadyQuery) -> DataFrame:
        """The program as a DataFrame, streaming if any of its inputs is."""
        with telling():
            return surface(self.branches(program, rows=True), program.columns)

    def explain(self, program: ReadyQuery) -> str:
        with telling():
            clockwork = self._clockwork(program.plan)
            df = surface(self.branches(program, dry=True, rows=True), program.columns)
            plan = fused(program.plan, joins=fuses_joins(self.spark))
            plan = arranged(plan, self.spark, None if clockwork.streaming else self._in_spark)
            return explained(plan, clockwork, self._in_spark, df)

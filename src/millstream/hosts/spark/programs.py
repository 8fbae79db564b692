"""Programs as DataFrames: what `m.sql` returns, what EXPLAIN shows, and what runs as a streaming query of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.hosts.contract import ReadyQuery
from millstream.hosts.results import Gate
from millstream.hosts.spark import streaming
from millstream.hosts.spark.apart import WRITTEN
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.build import BranchBuilder, arranged, fused, fuses_joins, puts_together
from millstream.hosts.spark.explain import explained
from millstream.hosts.spark.failures import telling
from millstream.hosts.spark.history import SparkHistory
from millstream.hosts.spark.kept_plan import KeptPlan
from millstream.hosts.spark.meters import Meters, StreamMeter
from millstream.hosts.spark.session import send_whole
from millstream.hosts.spark.sinks import look_at_output
from millstream.hosts.spark.sources import Reading, partition_read
from millstream.hosts.spark.spool import Spooled
from millstream.hosts.spark.streaming import Trigger
from millstream.hosts.spark.surface import surface
from millstream.physical import nodes as physical
from millstream.physical.partials import with_records
from millstream.plan_form import python_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class Programs(SparkHistory):
    """The part of the Spark host that makes DataFrames of plans."""

    trigger: Trigger | None
    _gate: Gate

    def branches(
        self, program: ReadyQuery, since: int = 0, meters: Meters | None = None, dry: bool = False, rows: bool = False
    ) -> tuple[Branch, ...]:
        """The program's rows with their hidden columns, or with `rows` only what is seen; `dry` only to look at it."""
        return self._built(program, since, meters, dry, rows)[0]

    def _built(
        self,
        program: ReadyQuery,
        since: int,
        meters: Meters | None,
        dry: bool,
        rows: bool,
        kept: KeptPlan | None = None,
    ) -> tuple[tuple[Branch, ...], BranchBuilder]:
        """The branches of a program, as they were built before if that was kept, and what built them."""
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
            builder.fed = fuses_joins(self.spark) if kept is None else kept.fed
            builder.partitioned_by = self._partitioned_by
            builder.records = puts_together(self.spark) if kept is None else kept.records
            return builder.build(program.plan, rows), builder

    def start_streaming(
        self, program: ReadyQuery, checkpoint: str, trigger: Trigger | None = None, meters: Meters | None = None
    ) -> StreamingQuery:
        """Run a program as a streaming query into its sink, resuming from `checkpoint` if there is one.

        A query that is the same as the one that began there goes on with its plan, whatever the settings are now;
        another one goes on if all its state is the same.
        """
        kept = KeptPlan.read(self.spark, checkpoint, program)
        if kept is not None:
            program = kept.resumed(program)
        else:
            look_at_output(program, checkpoint)
        running = self._queries.get(program.name.lower())

        def deliver(rows: pa.Table) -> None:
            if running is not None:
                # Spark's next micro-batch waits with this one for readers that must not miss a row
                self._gate.pass_(next(iter(running.results.feeds)), self._stop.is_set)
                running.rows += rows.num_rows
                running.deliver([rows])

        branches, built = self._built(program, 0, meters, dry=False, rows=False, kept=kept)
        # before anything is read: what does not fit is refused at the start
        streams = [self.find(name).stream for name in physical.streams_of(program.plan)]
        KeptPlan.of(program, built.stages, streams, built.fed, built.records).follow(kept, self.spark, checkpoint)
        written = StreamMeter() if meters is None else meters[WRITTEN + program.name]
        return streaming.start(program, branches, checkpoint, trigger or self.trigger, deliver, written)

    def to_dataframe(self, program: ReadyQuery) -> DataFrame:
        """The program as a DataFrame, streaming if any of its inputs is."""
        with telling():
            return surface(self.branches(program, rows=True), program.columns)

    def explain(self, program: ReadyQuery) -> str:
        with telling():
            clockwork = self._clockwork(program.plan)
            df = surface(self.branches(program, dry=True, rows=True), program.columns)
            plan = with_records(program.plan) if puts_together(self.spark) else program.plan
            plan = fused(plan, joins=fuses_joins(self.spark))
            plan = arranged(plan, self.spark, None if clockwork.streaming else self._in_spark)
            return explained(plan, clockwork, self._in_spark, self._partitioned_by, df)

    def _partitioned_by(self, node: physical.Source) -> str | None:
        return partition_read(self.find(node.stream), node)

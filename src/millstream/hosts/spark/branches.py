"""Branches: DataFrames inside a program, with the hidden columns and what is still to be done to them.

A plan node becomes one branch, or several for a union: branches are put together as late as possible, so that each
keeps its own clock and its own place in the order of ties.

The rows of a branch are either Spark's or still (or again) in the hands of Python workers. Work goes to where the rows
are: Spark SQL for Spark's rows, the expressions of the in-process engine for the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.meters import TELLS_COLUMN, metered_told
from millstream.hosts.spark.stage import bucket_ids
from millstream.hosts.spark.steps import (
    ARRIVAL_BITS,
    PACKED,
    ClosingStep,
    FromRows,
    Numbered,
    Opening,
    Pack,
    Pipeline,
    Step,
    ToRows,
)
from millstream.kernels.contract import KernelSpec, Partials, keys_of
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER_BITS = 63


@dataclass(frozen=True)
class Clockwork:
    """How a program sees time: all its branches agree on it."""

    streaming: bool
    timed: bool = True
    """whether a kernel needs to know how far time has come"""
    latent: bool = False
    """times are arrival numbers"""
    ticks: bool = False
    """times are numbers of no unit: Spark takes them for milliseconds"""
    watermarked: bool = False
    """whether some rows reach a kernel through Spark SQL, where heartbeats get lost: then Spark's watermark tells how
    far time has come, one micro-batch later"""

    @property
    def micros(self) -> int:
        """Microseconds, to Spark, of one unit of time."""
        return 1000 if self.ticks else 1

    @property
    def per_ms(self) -> int:
        """Units of time in what Spark takes for a millisecond."""
        return 1 if self.ticks else 1000


@dataclass(frozen=True)
class Branch:
    """Rows: time, arrival number, then the plan's columns as c0, c1, …; or what `opening` makes such rows of."""

    df: DataFrame
    schema: Schema
    clockwork: Clockwork
    opening: Opening | None = None
    """how workers get rows from `df`; None if they are Spark's"""
    steps: tuple[Step, ...] = ()
    """what workers do to them"""
    bits: int = ARRIVAL_BITS
    """how many bits the arrival numbers need"""
    lane: int = 0
    """its place among the branches of a union, which decides ties"""
    source: Numbered | None = None
    """how rows of a streaming query's source get their numbers, while they are Spark's and have none"""
    fresh: bool = False
    """whether rows come from a source of a streaming query, so that some may be late"""
    slack: int | None = None
    """how far out of order they may be, while no watermark of Spark's is declared for them"""
    clocks: int = 1
    """how many clocks tell its time: those of the buckets of a stage, or one"""
    beating: bool = True
    """whether its heartbeats tell all; otherwise Spark's watermark must help"""
    partition: str | None = None
    """an SQL expression on `df`, if that says what workers read: a number for what has keys of its own"""
    metrics: str = ""
    """if `opening` is a stage: the name that its metrics are observed under"""

    def names(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.schema))]

    def by_partition(self, buckets: int, tasks: int) -> DataFrame:
        """What says what to read, as many numbers of buckets beside it: that of a bucket in one task."""
        ids = ", ".join(map(str, bucket_ids(buckets)))
        bucket = f"element_at(array({ids}), pmod({self.partition}, {buckets}) + 1) AS bucket"
        return self.df.selectExpr("*", bucket).repartition(tasks, "bucket")

    def after(self, step: Step, schema: Schema) -> Branch:
        """The branch with one more step for the workers that have its rows."""
        assert self.opening is not None
        return replace(self, steps=(*self.steps, step), schema=schema)

    def settled(self) -> Branch:
        """The branch as rows of Spark's; from here on heartbeats are lost."""
        branch = self
        if self.opening is not None:
            df = self.mapped(ToRows(self.schema), rows_ddl(self.schema))
            branch = replace(self, df=df, opening=None, steps=())
        if not self.clockwork.watermarked:
            return branch
        branch = replace(branch, beating=False)
        if self.slack is None:
            return branch
        # The task number is no function of the row, which keeps Spark from moving filters below the watermark:
        # rows that a filter drops are still news of the time.
        time = f"timestamp_micros({TIME} * {self.clockwork.micros}) AS __w"
        watermarked = branch.df.selectExpr("*", time).withWatermark("__w", delay(self.slack, self.clockwork))
        number = f"CAST(spark_partition_id() AS BIGINT) AS {SEQ}" if self.source is not None else SEQ
        return replace(branch, df=watermarked.selectExpr(TIME, number, *self.names()), slack=None)

    def packed(
        self,
        spec: KernelSpec,
        port: int,
        buckets: int,
        width: int,
        clock: int,
        partials: Partials | None,
        stage: int,
        fixed: bool,
    ) -> DataFrame:
        """The branch as packed rows for a kernel; `width` is the bits of arrival numbers before lanes, `clock` the
        number of its first clock, `partials` tells how rows may be put together for that stage, `fixed` whether the
        checkpoint may say that there are fewer buckets."""
        pack = Pack(
            self.schema,
            keys_of(spec, port),
            buckets,
            port,
            self.lane << width,
            fresh=self.fresh,
            clock=clock,
            tick=1 if self.clockwork.latent else self.clockwork.micros,
            ids=bucket_ids(buckets) if self.clockwork.streaming else None,
            partials=partials,
            partial_port=len(spec.inputs) + port,
            stage=stage,
            fixed=fixed,
        )
        df = self.mapped(pack, PACKED)
        if self.clockwork.watermarked and self.slack is not None:
            df = df.withWatermark("ts", delay(self.slack, self.clockwork))
        # Without the watermarked column Spark does not drop late rows by itself: kernels must see and count them.
        return df.drop("ts")

    def mapped(self, closing: ClosingStep, columns: str) -> DataFrame:
        """What workers make of the rows."""
        if not self.metrics:
            return self.df.mapInArrow(self.closed(closing), columns)
        # loads pyspark, which this module must not
        from millstream.hosts.spark.kept_stage import StageOpening, Telling
        from millstream.hosts.spark.session import for_stages

        assert isinstance(self.opening, StageOpening)
        work = Telling(self.opening, self.steps, closing)
        with for_stages(self.df.sparkSession):
            given = self.df.mapInArrow(work, f"{columns}, {TELLS_COLUMN}")
        return metered_told(given, self.metrics)

    def closed(self, closing: ClosingStep) -> Pipeline:
        """All the work of the workers that take the rows as they are in `df`."""
        opening = FromRows(self.schema) if self.opening is None else self.opening
        steps = self.steps if self.source is None else (self.source, *self.steps)
        return Pipeline(opening, steps, closing)

    def bare(self) -> DataFrame:
        """The rows as Spark's, without their hidden columns."""
        if self.opening is None:
            return self.df.select(*self.names())
        return self.mapped(ToRows(self.schema, hidden=False), rows_ddl(self.schema, hidden=False))

    def ordered(self, width: int) -> DataFrame:
        """The rows with arrival numbers that tell branches apart."""
        df = self.settled().df
        return df if not self.lane else df.selectExpr(TIME, f"{SEQ} + {self.lane << width} AS {SEQ}", *self.names())


def merged(parts: list[tuple[Branch, ...]]) -> tuple[Branch, ...]:
    """The branches of a union: earlier inputs come first among ties."""
    flat = [branch for part in parts for branch in part]
    return tuple(replace(branch, lane=lane) for lane, branch in enumerate(flat))


def width_of(branches: tuple[Branch, ...]) -> int:
    """The bits of the widest arrival numbers."""
    return max(branch.bits for branch in branches)


def rows_ddl(schema: Schema, hidden: bool = True) -> str:
    """The Spark columns of a branch."""
    columns = [f"c{i} {field.type.spark}" for i, field in enumerate(schema)]
    return ", ".join([f"{TIME} BIGINT", f"{SEQ} BIGINT", *columns] if hidden else columns)


def delay(slack: int, clockwork: Clockwork) -> str:
    """A slack in Spark's words; parts of a millisecond count as a whole one."""
    return f"{-(-slack // clockwork.per_ms)} milliseconds"

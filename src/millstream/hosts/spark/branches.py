"""Branches: DataFrames inside a program, with the hidden columns and what is still to be done to them.

A plan node becomes one branch, or several for a union: branches are put together as late as possible, so that each
keeps its own watermark and its own place in the order of ties.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.steps import ARRIVAL_BITS, PACKED, Chain, Emit, Pack, Step
from millstream.kernels.contract import KernelSpec
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER_BITS = 63


@dataclass(frozen=True)
class Clockwork:
    """How a branch's times relate to Spark's: all branches of a program agree on it."""

    streaming: bool
    timed: bool = True
    """whether a kernel needs to know how far time has come"""
    latent: bool = False
    """times are arrival numbers"""
    ticks: bool = False
    """times are numbers of no unit: Spark takes them for milliseconds"""

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
    """Rows: time, arrival number, then the plan's columns as c0, c1, …"""

    df: DataFrame
    """the rows, or what `then` makes rows of"""
    schema: Schema
    clockwork: Clockwork
    then: Step | None = None
    """work still to be done in Python workers before there are rows"""
    bits: int = ARRIVAL_BITS
    """how many bits the arrival numbers need"""
    lane: int = 0
    """its place among the branches of a union, which decides ties"""
    numbered: bool = True
    """whether arrival numbers are given; sources of streaming queries get them when they are packed"""
    slack: int | None = None
    """how far out of order its rows may be, while its watermark is still to be declared"""

    def names(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.schema))]

    def after(self, step: Step) -> Branch:
        """The branch with one more step for the workers."""
        return replace(self, then=step if self.then is None else Chain(self.then, step))

    def settled(self) -> Branch:
        """The branch as rows that Spark sees, its watermark declared."""
        df = self.df
        if self.then is not None:
            df = df.mapInArrow(Chain(self.then, Emit()), rows_ddl(self.schema))
        branch = replace(self, df=df, then=None, slack=None)
        if self.slack is None:
            return branch
        # The task number is no function of the row, which keeps Spark from moving filters below the watermark:
        # rows that a filter drops are still news of the time.
        watermarked = df.selectExpr("*", f"timestamp_micros({TIME} * {self.clockwork.micros}) AS __w").withWatermark(
            "__w", delay(self.slack, self.clockwork)
        )
        number = f"CAST(spark_partition_id() AS BIGINT) AS {SEQ}"
        return replace(branch, df=watermarked.selectExpr(TIME, number, *self.names()))

    def packed(self, spec: KernelSpec, port: int, buckets: int, width: int) -> DataFrame:
        """The branch as packed rows for a kernel; `width` is the bits of arrival numbers before lanes."""
        pack = Pack(
            self.schema,
            spec.keys or (),
            buckets,
            port,
            self.lane << width,
            fresh=not self.numbered,
            number=not self.numbered,
            latent=self.clockwork.latent,
            tick=1 if self.clockwork.latent else self.clockwork.micros,
        )
        df = self.df.mapInArrow(pack if self.then is None else Chain(self.then, pack), PACKED)
        if self.slack is not None:
            df = df.withWatermark("ts", delay(self.slack, self.clockwork))
        # Without the watermarked column Spark does not drop late rows by itself: kernels must see and count them.
        return df.select("bucket", "port", "fresh", "blob")

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


def rows_ddl(schema: Schema) -> str:
    """The Spark columns of a branch."""
    columns = [f"c{i} {field.type.spark}" for i, field in enumerate(schema)]
    return ", ".join([f"{TIME} BIGINT", f"{SEQ} BIGINT", *columns])


def delay(slack: int, clockwork: Clockwork) -> str:
    """A slack in Spark's words; parts of a millisecond count as a whole one."""
    return f"{-(-slack // clockwork.per_ms)} milliseconds"

"""Rows read by a run so far, and figures of its stages: counted in the tasks, reported in the driver.

What stages tell is visible in the progress of a streaming query, as observed metrics named `millstream_stage_1` and so
on: rows that came in, late rows among them, rows that wait for their time, and the bytes of the kernel's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STAGE_METRICS = "millstream_stage_"
"""How the metrics of a stage are named, before its number."""


@dataclass(frozen=True)
class StreamMeter:
    """The rows of one stream: those that were read and those that were refused."""

    rows: Any = None
    rejected: Any = None

    def add(self, rows: int, rejected: int) -> None:
        if self.rows is not None:
            self.rows.add(rows)
            self.rejected.add(rejected)

    @property
    def counted(self) -> tuple[int, int]:
        return (0, 0) if self.rows is None else (int(self.rows.value), int(self.rejected.value))


@dataclass(frozen=True)
class Meters:
    """The meters of one program's streams, by their names."""

    by_stream: dict[str, StreamMeter]

    @staticmethod
    def of(spark: SparkSession, streams: Iterable[str]) -> Meters:
        """New meters; without a Spark context (Spark Connect has none) nothing is counted."""
        if not hasattr(spark, "_jsparkSession"):
            return Meters({name.lower(): StreamMeter() for name in streams})
        context = spark.sparkContext
        return Meters({name.lower(): StreamMeter(context.accumulator(0), context.accumulator(0)) for name in streams})

    def __getitem__(self, stream: str) -> StreamMeter:
        return self.by_stream.get(stream.lower(), StreamMeter())


TELLS = ("rows", "late", "waiting", "state")
"""What stages tell."""
TELLS_COLUMN = "told BIGINT"
"""One of these, with its place among them: a column that costs little beside rows that tell nothing."""
_IN_JSON = [f"CAST(get_json_object(told, '$.{metric}') AS BIGINT)" for metric in TELLS]


def metered(output: DataFrame, name: str) -> DataFrame:
    """The packed output of a stage; its metrics are observed under that name."""
    return output.observe(name, *_sums(TELLS)).select("bucket", "upto", "blob")


def metered_stages(packed: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """The packed output of a job's level; the metrics of its stages are observed, each under the stage's number."""
    for number in numbers:
        told = [f"CASE WHEN port = -1 AND stage = {number} THEN {metric} END" for metric in TELLS]
        packed = packed.observe(f"{STAGE_METRICS}{number + 1}", *_sums(told))
    return packed


def metered_rows(output: DataFrame, name: str, columns: list[str]) -> DataFrame:
    """The rows that the last stage gave out as they are, in these columns; its metrics are observed under that name."""
    return output.observe(name, *_sums(_IN_JSON)).where("row").selectExpr(*columns)


def metered_told(output: DataFrame, name: str) -> DataFrame:
    """What a worker made of a stage's rows; the metrics, in rows of their own, are observed under that name."""
    told = [f"CASE WHEN told % {len(TELLS)} = {place} THEN told DIV {len(TELLS)} END" for place in range(len(TELLS))]
    return output.observe(name, *_sums(told)).where("told IS NULL").drop("told")


def told_numbers(told: Mapping[str, int]) -> list[int]:
    """What a stage tells, as numbers of that column."""
    return [told.get(metric, 0) * len(TELLS) + place for place, metric in enumerate(TELLS)]


def _sums(columns: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.expr(f"coalesce(sum({sql}), 0L)").alias(name) for name, sql in zip(TELLS, columns, strict=True)]


def late_rows(observed: Mapping[str, Any]) -> int:
    """The late rows that the stages of a micro-batch counted."""
    return sum(numbers_of(row)["late"] for name, row in observed.items() if name.startswith(STAGE_METRICS))


def numbers_of(row: Any) -> dict[str, int]:
    """What was observed under one name; Spark Connect tells the values and their schema apart."""
    told = row.asDict()
    if set(told) == {"values", "schema"}:
        told = dict(zip((field["name"] for field in told["schema"]["fields"]), told["values"], strict=True))
    return {name: int(value) for name, value in told.items()}

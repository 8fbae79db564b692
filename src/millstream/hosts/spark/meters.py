"""How many rows a run has read so far: counted in the tasks, known in the driver as tasks end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Meter:
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

    by_stream: dict[str, Meter]

    @staticmethod
    def of(spark: SparkSession, streams: Iterable[str]) -> Meters:
        """New meters; without a Spark context (Spark Connect has none) nothing is counted."""
        if not hasattr(spark, "_jsparkSession"):
            return Meters({name.lower(): Meter() for name in streams})
        context = spark.sparkContext
        return Meters({name.lower(): Meter(context.accumulator(0), context.accumulator(0)) for name in streams})

    def __getitem__(self, stream: str) -> Meter:
        return self.by_stream.get(stream.lower(), Meter())

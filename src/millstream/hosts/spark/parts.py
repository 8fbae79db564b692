"""Sources that workers read in parts, followed by Spark: a data source in Python that keeps the offsets.

It hands out descriptions of parts, a few bytes each; the rows themselves are read, filtered and packed by the step that
follows it, and never become rows of Spark's. Spark journals the offsets before a micro-batch runs, so a repeated
micro-batch reads the same parts again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream import plan_form
from millstream.catalog import StreamDef
from millstream.connectors.contract import Divisible
from millstream.connectors.registry import source_of
from millstream.hosts.spark.session import register_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as StopsWhenAsked
except ImportError:  # before Spark 4.2 there is no admission control: every micro-batch takes what is there
    ReadAllAvailable = ReadMaxRows = None
    StopsWhenAsked = object

__all__ = ["PartsReader", "PartsSource", "StopsWhenAsked", "followed_parts"]

FORMAT = "millstream_parts"

ROWS_PER_TRIGGER = "spark.millstream.rowsPerTrigger"
"""About how many rows of a source a micro-batch reads; all that are there if it is not set."""


class PartsSource(DataSource):  # type: ignore[misc]
    """Known to Spark by its name; the declaration of the stream travels in an option, as JSON."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "part STRING"

    def streamReader(self, schema: Any) -> PartsReader:
        stream: StreamDef = plan_form.loads(self.options["stream"])
        rows = self.options.get("rows")
        source = source_of(stream)
        return PartsReader(cast(Divisible, source), None if rows is None else int(rows))


class PartsReader(DataSourceStreamReader, StopsWhenAsked):  # type: ignore[misc]
    """Offsets as Spark wants them, a flat dictionary: ours as JSON inside."""

    def __init__(self, source: Divisible, rows: int | None) -> None:
        self.source = source
        self.rows = rows
        self.target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return _packed(self.source.initial())

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.source.latest(self.source.initial())

    def getDefaultReadLimit(self) -> Any:
        return ReadAllAvailable() if self.rows is None else ReadMaxRows(self.rows)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        begin = self.source.initial() if start is None else _unpacked(start)
        rows = getattr(limit, "max_rows", None)
        reached = self.source.latest(begin, rows)
        return _packed(reached if self.target is None else _earlier(reached, self.target, begin))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts = self.source.parts(_unpacked(start), _unpacked(end))
        return [InputPartition(json.dumps(part)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"part": [partition.value]})

    def commit(self, end: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


def followed_parts(spark: SparkSession, stream: StreamDef) -> DataFrame:
    """The parts of a stream's source as they come to be."""
    register_source(spark, PartsSource)
    reader = spark.readStream.format(FORMAT).option("stream", plan_form.dumps(stream))
    rows = spark.conf.get(ROWS_PER_TRIGGER, None)
    return (reader if rows is None else reader.option("rows", str(rows))).load()


def _packed(offset: dict[str, Any]) -> dict[str, Any]:
    return {"offset": json.dumps(offset, sort_keys=True)}


def _unpacked(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(offset["offset"])
    return found


def _earlier(reached: dict[str, Any], target: dict[str, Any], begin: dict[str, Any]) -> dict[str, Any]:
    """The less advanced of two offsets, place by place, but not before `begin`: what was there when a run began."""
    chosen: dict[str, Any] = {}
    for name, value in reached.items():
        if isinstance(value, dict):
            chosen[name] = _earlier(value, target.get(name, {}), begin.get(name, {}))
        elif isinstance(value, int):
            chosen[name] = max(min(value, int(target.get(name, value))), int(begin.get(name, 0)))
        else:
            chosen[name] = value
    return chosen

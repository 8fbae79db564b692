"""Columns that a stateful stage can hand to Spark as they are, without a worker behind it to unpack them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.hosts.spark.times import is_utc, zone_of
from millstream.schema import Schema
from millstream.types import SqlType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AS_THEY_ARE = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR")
_AS_MICROS = {"TIMESTAMPTZ": "timestamp_micros({})", "TIMESTAMP": "CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)"}


def can_travel(schema: Schema, spark: SparkSession) -> bool:
    """Whether Spark takes all these columns from pandas exactly; for others they are packed."""
    names = {field.type.name for field in schema}
    return names <= {*_AS_THEY_ARE, *_AS_MICROS} and ("TIMESTAMP" not in names or is_utc(zone_of(spark)))


def wire_ddl(schema: Schema) -> str:
    """The columns of a stage's output that hold rows."""
    return ", ".join(f"c{i} {_wire_type(field.type)}" for i, field in enumerate(schema))


def wire_sql(schema: Schema) -> list[str]:
    """The plan's columns from those of the wire."""
    return [_AS_MICROS.get(field.type.name, "{}").format(f"c{i}") + f" AS c{i}" for i, field in enumerate(schema)]


def wire_columns(rows: pa.RecordBatch) -> dict[str, Any]:
    """Columns for a pandas frame that shares their memory."""
    import pandas as pd

    found = {}
    for i, column in enumerate(rows.columns):
        plain = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
        found[f"c{i}"] = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([plain])))
    return found


def _wire_type(type_: SqlType) -> str:
    return "BIGINT" if type_.name in _AS_MICROS else type_.spark

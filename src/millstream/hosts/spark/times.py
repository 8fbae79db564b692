"""Order times in Spark SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.catalog import Clock, StreamDef
from millstream.schema import Schema
from millstream.types import DATE, TIMESTAMP, TIMESTAMPTZ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def time_sql(schema: Schema, name: str, column: str, zone: str) -> str:
    """The order time of a row, int64 µs (or an integer column's own numbers), from its time column."""
    type_ = schema[name].type
    if type_ == DATE:
        return f"unix_date({column}) * 86400000000L"
    if type_ == TIMESTAMPTZ:
        return f"unix_micros({column})"
    if type_ != TIMESTAMP:
        return f"CAST({column} AS BIGINT)"
    if is_utc(zone):
        return f"unix_micros(CAST({column} AS TIMESTAMP))"
    # a cast to an instant would read the time in the session's zone
    since = f"CAST({column} - TIMESTAMP_NTZ '1970-01-01 00:00:00' AS INTERVAL SECOND)"
    return f"CAST(CAST({since} AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"


def is_utc(zone: str) -> bool:
    return zone in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def zone_of(spark: SparkSession) -> str:
    # without a default: Spark knows one, and Spark Connect refuses a default that is no zone
    return str(spark.conf.get("spark.sql.session.timeZone"))


def is_ticks(stream: StreamDef) -> bool:
    """Whether a stream's times are plain numbers."""
    return stream.clock is not Clock.LATENT and stream.is_by_number

"""Constants as SQL text for DuckDB and for Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from millstream.expressions.functions.text import spark_text
from millstream.expressions.nodes import Literal
from millstream.types import SqlType

_EPOCH = datetime(1970, 1, 1)
_FIRST, _LAST = -62135596800000000, 253402300799999999
"""The instants that have a year of four digits."""


def duckdb(literal: Literal) -> str:
    """A constant in DuckDB's SQL."""
    value, type_ = literal.value, literal.type
    if value is None:
        return "NULL" if type_.name == "NULL" else f"CAST(NULL AS {type_.duckdb})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return _duckdb_double(value)
    if isinstance(value, str):
        # A NUL would end the query text.
        return "(" + " || chr(0) || ".join(map(_quoted, value.split("\0"))) + ")" if "\0" in value else _quoted(value)
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS {type_.duckdb})"
    assert isinstance(value, int), literal
    match type_.name:
        case "INTERVAL":
            return f"to_microseconds({_integer(value)})"
        case "TIMESTAMP":
            return f"TIMESTAMP '{_moment(value)}'" if _FIRST <= value <= _LAST else f"make_timestamp({value})"
        case "TIMESTAMPTZ":
            return f"TIMESTAMPTZ '{_moment(value)}+00'" if _FIRST <= value <= _LAST else f"make_timestamptz({value})"
        case "DATE" | "TIME":
            return f"{type_.name} '{_day_or_time(value, type_)}'"
        case "INTEGER" if value != -(2**31):
            return _integer(value)
    return f"CAST({_integer(value)} AS {type_.duckdb})"


def spark(literal: Literal) -> str:
    """A constant in Spark's SQL."""
    value, type_ = literal.value, literal.type
    if value is None:
        return "NULL" if type_.name == "NULL" else f"CAST(NULL AS {type_.spark})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"double('{name}')"
        return f"({value!r}D)" if math.copysign(1, value) < 0 else f"{value!r}D"
    if isinstance(value, str):
        return spark_text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS {type_.spark})"
    assert isinstance(value, int), literal
    match type_.name:
        case "INTERVAL":
            return _spark_interval(value)
        case "TIMESTAMP":
            return (
                f"TIMESTAMP_NTZ '{_moment(value)}'"
                if _FIRST <= value <= _LAST
                else _spark_micros(value, "TIMESTAMP_NTZ")
            )
        case "TIMESTAMPTZ":
            return (
                f"TIMESTAMP_LTZ '{_moment(value)}+00:00'"
                if _FIRST <= value <= _LAST
                else _spark_micros(value, "TIMESTAMP")
            )
        case "DATE" | "TIME":
            return f"{type_.name} '{_day_or_time(value, type_)}'"
        case "BIGINT" if value != -(2**63):
            return f"({value}L)" if value < 0 else f"{value}L"
        case "INTEGER" if value != -(2**31):
            return _integer(value)
    return f"CAST({_integer(value)} AS {type_.spark})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _integer(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


def _duckdb_double(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return f"CAST('{value}' AS DOUBLE)"
    text = repr(value)
    text = text if "e" in text else text + "e0"  # without an exponent it would be a DECIMAL
    return f"({text})" if math.copysign(1, value) < 0 else text


def _moment(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).isoformat(" ")


def _day_or_time(value: int, type_: SqlType) -> str:
    if type_.name == "DATE":
        return date.fromordinal(719163 + value).isoformat()
    return (datetime.combine(date.min, time(), UTC) + timedelta(microseconds=value)).time().isoformat()


def _spark_micros(value: int, type_: str) -> str:
    return f"CAST(timestamp_micros({_integer(value)}) AS {type_})"


def _spark_interval(micros: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    days, rest = divmod(seconds, 86_400)
    sign = "-" if micros < 0 else ""
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{fraction:06}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"

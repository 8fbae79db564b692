"""DataFrames of the user's: their schemas in our types, and those that a session knows as views."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.errors import CatalogError, EngineError
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import (
    ARRAY,
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    JSON,
    MAP,
    NULL,
    SMALLINT,
    STRUCT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    SqlType,
    sound,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = {
    "boolean": BOOLEAN, "tinyint": TINYINT, "smallint": SMALLINT, "int": INTEGER, "bigint": BIGINT, "float": DOUBLE,
    "double": DOUBLE, "string": VARCHAR, "binary": BLOB, "timestamp_ntz": TIMESTAMP, "timestamp": TIMESTAMPTZ,
    "date": DATE, "void": NULL,
}  # fmt: skip


@dataclass(frozen=True)
class KnownFrame:
    """A DataFrame with the columns that have a counterpart here, and what the types of the others are."""

    df: DataFrame
    schema: Schema
    left_out: dict[str, str]


def known_frame(df: DataFrame, name: str) -> KnownFrame:
    """What is known of a DataFrame as `name`."""
    fields, left_out = [], {}
    if variants := {field.name for field in df.schema.fields if field.dataType.simpleString() == "variant"}:
        quoted = {name: f"`{name.replace('`', '``')}`" for name in df.columns}
        df = df.selectExpr(*(f"to_json({q}) AS {q}" if name in variants else q for name, q in quoted.items()))
    for column in df.schema.fields:
        type_ = sql_type(column.dataType.simpleString())
        if type_ is None:
            left_out[column.name] = column.dataType.simpleString()
        else:
            fields.append(Field(column.name, JSON if column.name in variants else type_))
    names = [field.name.lower() for field in fields]
    repeated = next((field.name for field in fields if names.count(field.name.lower()) > 1), None)
    if repeated is not None:
        raise CatalogError(f"{name} has two columns {repeated}", hint="rename one: names are case-insensitive")
    if not fields:
        raise EngineError(f"no column of {name} has an SQL type here", hint="extract their fields with select()")
    if left_out:
        df = df.select(*[f"`{field.name.replace('`', '``')}`" for field in fields])
    return KnownFrame(df, Schema(tuple(fields)), left_out)


def view_of(spark: SparkSession, name: str) -> DataFrame | None:
    """The view or table that a session knows by that name; None if there is none."""
    quoted = f"`{name.replace('`', '``')}`"
    return spark.table(quoted) if name and spark.catalog.tableExists(quoted) else None


def sql_type(text: str) -> SqlType | None:
    """Our type for a Spark type by its name.

    >>> sql_type("decimal(10,2)"), sql_type("varchar(5)"), sql_type("array<int>")
    (DECIMAL(10, 2), VARCHAR, INTEGER[])
    """
    if match := re.fullmatch(r"(array|map|struct)<(.*)>", text):
        return _nested_type(match[1], _between_commas(match[2]))
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return DECIMAL(int(match[1]), int(match[2]))
    if re.fullmatch(r"(varchar|char)\(\d+\)|string collate \S+", text):
        return VARCHAR
    if re.fullmatch(r"time\(\d\)", text):
        return TIME
    if re.fullmatch(r"interval (day|hour|minute|second)( to (hour|minute|second))?", text):
        return INTERVAL
    return _TYPES.get(text)


def _nested_type(word: str, parts: list[str]) -> SqlType | None:
    named = [part.partition(":") if word == "struct" else ("", "", part) for part in parts]
    types = [(name, sql_type(text)) for name, _, text in named]
    known = [(name, type_) for name, type_ in types if type_ is not None]
    if len(known) < len(types):
        return None
    inner = [type_ for _, type_ in known]
    return sound(ARRAY(inner[0]) if word == "array" else MAP(*inner) if word == "map" else STRUCT(*known))


def _between_commas(text: str) -> list[str]:
    """The parts of a list, whose own parts may have commas between brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts

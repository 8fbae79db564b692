"""The schema of a DataFrame of the user's, in our types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.errors import CatalogError, EngineError
from millstream.schema import Field, Schema
from millstream.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULL,
    SMALLINT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    SqlType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES = {
    "boolean": BOOLEAN, "tinyint": TINYINT, "smallint": SMALLINT, "int": INTEGER, "bigint": BIGINT, "float": DOUBLE,
    "double": DOUBLE, "string": VARCHAR, "binary": BLOB, "timestamp_ntz": TIMESTAMP, "timestamp": TIMESTAMPTZ,
    "date": DATE, "void": NULL,
}  # fmt: skip


def schema_of(df: DataFrame, name: str) -> Schema:
    """The columns of a DataFrame that is to be known as `name`."""
    fields = []
    for column in df.schema.fields:
        type_ = sql_type(column.dataType.simpleString())
        if type_ is None:
            raise EngineError(
                f"column {column.name} of {name} is {column.dataType.simpleString()}, which has no SQL type here",
                hint="remove it with drop(), or extract its fields with select()",
            )
        fields.append(Field(column.name, type_))
    names = [field.name.lower() for field in fields]
    repeated = next((field.name for field in fields if names.count(field.name.lower()) > 1), None)
    if repeated is not None:
        raise CatalogError(f"{name} has two columns {repeated}", hint="rename one: names are case-insensitive")
    return Schema(tuple(fields))


def sql_type(text: str) -> SqlType | None:
    """Our type for a Spark type by its name.

    >>> sql_type("decimal(10,2)"), sql_type("varchar(5)"), sql_type("array<int>")
    (DECIMAL(10, 2), VARCHAR, None)
    """
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return DECIMAL(int(match[1]), int(match[2]))
    if re.fullmatch(r"(varchar|char)\(\d+\)|string collate \S+", text):
        return VARCHAR
    if re.fullmatch(r"time\(\d\)", text):
        return TIME
    if re.fullmatch(r"interval (day|hour|minute|second)( to (hour|minute|second))?", text):
        return INTERVAL
    return _TYPES.get(text)

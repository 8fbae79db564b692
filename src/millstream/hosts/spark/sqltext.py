"""Expressions over a program's columns as Spark SQL text."""

from __future__ import annotations

from millstream.expressions.nodes import Column, Expr, substitute
from millstream.schema import Schema


def spark_sql(
    expr: Expr, schema: Schema, prefix: str = "c", second: int | None = None, within: str | None = None
) -> str:
    """An expression over a program's columns; from column `second` on they are those of the table, d0, d1, …, or
    the fields d0, d1, … of a row called `within`."""
    from millstream.expressions.sql.text import to_spark_sql

    columns: dict[str, Expr] = {}
    for i, column in enumerate(schema):
        own = second is None or i < second
        theirs = f"{_FIELD if within else ''}d{i - (second or 0)}"
        columns[column.name] = Column(column.type, f"{prefix}{i}" if own else theirs)
    text = to_spark_sql(substitute(expr, columns))
    return text.replace("`" + _FIELD, f"{within}.`") if within else text


_FIELD = "\0field "
"""marks the names that are fields, since a quoted name cannot say so"""


def spark_value(expr: Expr, schema: Schema, prefix: str = "c") -> str:
    """An expression with exactly the Spark type of its SQL type."""
    text = spark_sql(expr, schema, prefix)
    return text if isinstance(expr, Column) else f"CAST({text} AS {expr.type.spark})"

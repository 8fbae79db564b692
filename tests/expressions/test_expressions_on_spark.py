"""Every function, operator and cast means the same in Spark SQL as in the embedded engine."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from expression_cases import outcomes

from millstream.errors import BindError, DataError
from millstream.expressions.evaluator import compile_arrow
from millstream.expressions.functions import case, cast, interval, resolve
from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal, columns_of
from millstream.expressions.sql.text import quote_spark, to_spark_sql
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
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    SqlType,
)  # fmt: skip
from tests.support.expressions import array_of, is_exact, same
from tests.support.operations import CASTS, EDGES, OPERATIONS, Constant

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="needs Java"),
]


def sample(combinations: list[Any]) -> list[Any]:
    """A few of many constant arguments: Spark compiles each expression."""
    return combinations if len(combinations) <= 8 else random.Random(3).sample(combinations, 8)


def all_types() -> list[SqlType]:
    params = [param for _, params in OPERATIONS for param in params] + [source for source, _ in CASTS]
    return list(dict.fromkeys(param for param in params if isinstance(param, SqlType)))


TYPES = all_types()
SCHEMA = Schema(tuple(Field(f"{type_.name} {i}", type_) for type_ in TYPES for i in range(4)))


def column(type_: SqlType, i: int) -> Column:
    return Column(type_, f"{type_.name} {i}")


def all_expressions() -> list[Expr]:
    found = []
    for fn, params in OPERATIONS:
        choices = [p.samples if isinstance(p, Constant) else [column(p, i)] for i, p in enumerate(params)]
        for args in sample(list(itertools.product(*choices))):
            try:
                found.append(resolve(fn, args))
            except BindError:
                continue
    return found + [cast(column(source, 0), target, safe) for source, target in CASTS for safe in (False, True)]


def edge_rows() -> pa.RecordBatch:
    """The first column of a type holds every edge value, the others any."""
    chance = random.Random(5)
    arrays = []
    for i, field in enumerate(SCHEMA):
        # Java before 19 does not always print the shortest form of a number, the least one for one; letters that
        # change their number with case are a gap of their own below.
        edges = [value for value in EDGES[field.type.name] if value not in (5e-324, "ß")]
        values = [edges[j % len(edges)] if i % 4 == 0 else chance.choice(edges) for j in range(ROWS)]
        arrays.append(array_of(values, field.type))
    return pa.record_batch(arrays, schema=SCHEMA.arrow)


ROWS = 120
EXPRESSIONS = all_expressions()
SLICES = [slice(start, start + 60) for start in range(0, len(EXPRESSIONS), 60)]


def in_spark(spark: Any, rows: pa.RecordBatch, guards: list[pa.Array], exprs: list[Expr]) -> list[pa.Array]:
    """The values of expressions in Spark, where their guards are true."""
    names = [*SCHEMA.names, *(f"ok{i}" for i in range(len(exprs)))]
    types = [*(f"{quote_spark(f.name)} {f.type.spark}" for f in SCHEMA), *(f"ok{i} BOOLEAN" for i in range(len(exprs)))]
    frame = spark.createDataFrame(pa.table([*rows.columns, *guards], names=names), ", ".join(types))
    texts = [f"CASE WHEN ok{i} THEN {to_spark_sql(expr)} END AS r{i}" for i, expr in enumerate(exprs)]
    table = frame.selectExpr(*texts).toArrow()
    return [pa.concat_arrays(column.chunks) for column in table.columns]


@pytest.mark.parametrize("part", SLICES, ids=lambda part: str(part.start))
def test_spark_agrees(spark: Any, part: slice) -> None:
    rows, exprs = edge_rows(), EXPRESSIONS[part]
    results = [outcomes(compile_arrow([expr], SCHEMA), rows, expr.type) for expr in exprs]
    guards = [pa.array([not error for error in errors]) for _, errors in results]
    bad = []
    for expr, (ours, _), theirs in zip(exprs, results, in_spark(spark, rows, guards, exprs), strict=True):
        if theirs.type != expr.type.arrow:
            bad.append(f"{expr}: {theirs.type}, not {expr.type.arrow}: {to_spark_sql(expr)}")
        elif not same(ours, theirs, is_exact(expr)):
            wrong = next(j for j in range(ROWS) if not same(ours.slice(j, 1), theirs.slice(j, 1), is_exact(expr)))
            given = {name: str(rows.column(SCHEMA.index(name))[wrong]) for name in columns_of(expr)}
            bad.append(f"{expr} of {given}: {ours[wrong]}, in Spark {theirs[wrong]}: {to_spark_sql(expr)}")
    assert not bad, "\n".join(bad)


def nested_expressions() -> list[Expr]:
    """Expressions with what single calls lack: guards, constants of every type, functions within functions."""
    i, f, s = column(BIGINT, 0), column(DOUBLE, 0), column(VARCHAR, 0)
    t, d = column(TIMESTAMP, 0), column(DATE, 0)
    digits = resolve("regexp_matches", (s, Literal(VARCHAR, r"^\d{1,4}$")))
    number = cast(s, INTEGER)
    return [
        case(((digits, number),), Literal(INTEGER, -1)),
        resolve("and", (digits, resolve(">", (number, Literal(INTEGER, 5))))),
        resolve("or", (resolve("not", (digits,)), resolve("<", (number, Literal(INTEGER, 5))))),
        resolve("in", (i, Literal(BIGINT, 2**63 - 1), Literal(INTEGER, -1), Literal(NULL, None))),
        resolve("in", (s, Literal(VARCHAR, "it's"), Literal(VARCHAR, "x\\y"), Literal(VARCHAR, "a\nb"))),
        resolve("/", (resolve("round", (f, Literal(INTEGER, 1))), resolve("%", (i, Literal(INTEGER, 3))))),
        resolve("greatest", (f, Literal(DOUBLE, float("nan")), Literal(NULL, None))),
        resolve("is_distinct", (f, Literal(DOUBLE, float("-inf")))),
        resolve("concat_ws", (Literal(VARCHAR, "|"), cast(f, VARCHAR), cast(t, VARCHAR), cast(d, VARCHAR), s)),
        resolve("-", (t, resolve("to_hours", (resolve("length", (s,)),)))),
        resolve("epoch", (resolve("-", (t, Literal(TIMESTAMP, 1_704_622_272_500_001))),)),
        resolve(">=", (t, Literal(VARCHAR, "2024-01-07 10:11:12.5"))),
        resolve("+", (d, interval(90, "minutes"))),
        resolve("coalesce", (resolve("nullif", (s, Literal(VARCHAR, "a"))), Literal(VARCHAR, "?"))),
        resolve("date_trunc", (Literal(VARCHAR, "week"), resolve("+", (t, Literal(INTERVAL, -1))))),
        resolve("||", (resolve("upper", (resolve("left", (s, Literal(INTEGER, 2))),)), Literal(VARCHAR, "é'\\n"))),
        Literal(INTERVAL, -86_400_000_001),
        Literal(TIMESTAMPTZ, -1),
        Literal(DECIMAL(20, 4), Decimal("-1234567890.5")),
        Literal(BLOB, b"\x00\xff"),
        Literal(BIGINT, -(2**63)),
        Literal(DOUBLE, -0.0),
        resolve("degrees", (f,)),
    ]


def test_nested_expressions(spark: Any) -> None:
    rows, exprs = edge_rows(), nested_expressions()
    everywhere = [pa.array([True] * ROWS)] * len(exprs)
    expected = compile_arrow(exprs, SCHEMA)(rows)
    for expr, ours, theirs in zip(exprs, expected, in_spark(spark, rows, everywhere, exprs), strict=True):
        assert theirs.type == ours.type, to_spark_sql(expr)
        assert same(ours, theirs, exact=False), f"{to_spark_sql(expr)}\n{ours}\n{theirs}"


def fails_in_spark(spark: Any, expr: Expr) -> bool:
    try:
        spark.sql(f"SELECT {to_spark_sql(expr)}").collect()
    except Exception as error:
        assert "SQLSTATE: 22" in str(error), error  # a data exception, not a query that makes no sense
        return True
    return False


BIG = Literal(BIGINT, 2**63 - 1)


@pytest.mark.parametrize(
    "expr",
    [
        Call(BIGINT, "+", (BIG, Literal(BIGINT, 1))),
        Call(BIGINT, "*", (BIG, BIG)),
        Call(BIGINT, "neg", (Literal(BIGINT, -(2**63)),)),
        Call(BIGINT, "//", (Literal(BIGINT, -(2**63)), Literal(BIGINT, -1))),
        Call(TINYINT, "abs", (Literal(TINYINT, -128),)),
        Cast(TINYINT, Literal(INTEGER, 300)),
        Cast(BIGINT, Literal(DOUBLE, float("nan"))),
        Cast(BIGINT, Literal(DOUBLE, 2.0**63)),
        Cast(INTEGER, Literal(VARCHAR, "1.5")),
        Cast(DOUBLE, Literal(VARCHAR, "1d")),
        Cast(DATE, Literal(VARCHAR, "2024")),
        Cast(TIMESTAMP, Literal(VARCHAR, "2024-01-01 10:00:00+02:00")),
        Cast(BOOLEAN, Literal(VARCHAR, "on")),
    ],
    ids=str,
)
def test_errors_are_errors_in_spark_too(spark: Any, expr: Expr) -> None:
    with pytest.raises(DataError):
        compile_arrow([expr], SCHEMA)(edge_rows())
    assert fails_in_spark(spark, expr)


@pytest.mark.xfail(strict=True, reason="Java changes the case of some letters by their number or their neighbours")
@pytest.mark.parametrize("fn,text", [("upper", "ß"), ("lower", "İ"), ("lower", "ΑΣ")])
def test_case_of_special_letters(spark: Any, fn: str, text: str) -> None:
    expr = Call(VARCHAR, fn, (Literal(VARCHAR, text),))
    (ours,) = compile_arrow([expr], SCHEMA)(edge_rows().slice(0, 1))
    assert spark.sql(f"SELECT {to_spark_sql(expr)}").collect()[0][0] == ours[0].as_py()

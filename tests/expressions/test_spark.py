"""Every function, operator and cast means the same in Spark SQL as in the embedded engine."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from test_every_operation import EDGES, outcomes

from millstream.errors import BindError
from millstream.functions import cast, resolve
from millstream.physical.expressions import compile_arrow, quote_spark, to_spark_sql
from millstream.plan.expr import Column, Expr, columns_of
from millstream.schema import Field, Schema
from millstream.testing.expressions import CASTS, OPERATIONS, Constant, array_of, is_exact, same
from millstream.types import SqlType

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="needs Java"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    yield session
    session.stop()


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

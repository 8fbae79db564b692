"""Every function, operator and cast means the same in Spark SQL as in the embedded engine."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import BindError
from millstream.functions import cast, resolve
from millstream.physical.expressions import compile_arrow, to_spark_sql
from millstream.plan.expr import Column, Expr
from millstream.schema import Field, Schema
from millstream.testing.expressions import CASTS, OPERATIONS, Constant, is_exact, same
from millstream.types import SqlType

from test_every_operation import outcomes, rows_of

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


def all_expressions() -> dict[tuple[SqlType, ...], list[Expr]]:
    """What to compare, by the types of the columns x0, x1, … it reads."""
    found: dict[tuple[SqlType, ...], list[Expr]] = {}
    for fn, params in OPERATIONS:
        types = tuple(param for param in params if isinstance(param, SqlType))
        numbers = iter(range(len(types)))
        choices = [p.samples if isinstance(p, Constant) else [Column(p, f"x{next(numbers)}")] for p in params]
        for args in itertools.product(*choices):
            try:
                found.setdefault(types, []).append(resolve(fn, args))
            except BindError:
                continue
    for source, target in CASTS:
        for safe in (False, True):
            found.setdefault((source,), []).append(cast(Column(source, "x0"), target, safe))
    return found


EXPRESSIONS = all_expressions()


@pytest.mark.parametrize("types", EXPRESSIONS, ids=lambda types: "-".join(map(str, types)))
def test_spark_agrees(spark: Any, types: tuple[SqlType, ...]) -> None:
    rows = rows_of(list(types))
    rows = rows.take(pa.array(range(0, rows.num_rows, max(1, rows.num_rows // 100))))
    schema = Schema(tuple(Field(f"x{i}", type_) for i, type_ in enumerate(types)))
    exprs = EXPRESSIONS[types]
    expected, usable = [], []
    for expr in exprs:
        values, errors = outcomes(compile_arrow([expr], schema), rows, expr.type)
        expected.append(values)
        usable.append(pa.array([not error for error in errors]))
    table = pa.table([*rows.columns, *usable], names=[*rows.schema.names, *(f"ok{i}" for i in range(len(exprs)))])
    frame = spark.createDataFrame(table)
    bad = []
    for start in range(0, len(exprs), 40):
        part = exprs[start : start + 40]
        texts = [f"CASE WHEN ok{start + i} THEN {to_spark_sql(expr)} END AS r{i}" for i, expr in enumerate(part)]
        result = frame.selectExpr(*texts).toArrow().combine_chunks()
        for i, expr in enumerate(part):
            theirs = result.column(i).combine_chunks()
            theirs = theirs if isinstance(theirs, pa.Array) else pa.concat_arrays(theirs.chunks)
            if theirs.type != expr.type.arrow:
                bad.append(f"{expr}: {theirs.type}, not {expr.type.arrow}: {to_spark_sql(expr)}")
                continue
            ours = expected[start + i]
            for j in range(len(ours)):
                if not same(ours.slice(j, 1), theirs.slice(j, 1), is_exact(expr)):
                    row = [str(column[j]) for column in rows.columns]
                    bad.append(f"{expr} of {row}: {ours[j]}, in Spark {theirs[j]}: {to_spark_sql(expr)}")
                    break
    assert not bad, "\n".join(bad)

"""Every function, operator and cast on the values where engines differ: Arrow and DuckDB agree row by row, errors too."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import BindError, DataError
from millstream.functions import cast, resolve
from millstream.physical.expressions import compile_arrow
from millstream.physical.expressions.duckdb_batch import DuckBatch
from millstream.plan.expr import Column, Expr, Literal
from millstream.schema import Field, Schema
from millstream.testing.expressions import CASTS, OPERATIONS, Constant, array_of, is_exact, same
from millstream.types import SqlType

EDGES: dict[str, list[Any]] = {
    "TINYINT": [None, 0, 1, -1, 127, -128, 3],
    "SMALLINT": [None, 0, 1, -1, 32767, -32768],
    "INTEGER": [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "BIGINT": [None, 0, 1, -1, 2, -7, 10, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)],
    "DOUBLE": [None, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1.005, 2.675, 1234.5, 0.49999999999999994, 1e15, 1e16,
               1e17, 2.0**53, 2.0**63, -(2.0**63), 1e300, 1e-5, 5e-324, math.nan, math.inf, -math.inf],
    "BOOLEAN": [None, True, False],
    "VARCHAR": [None, "", " ", "a", "A", "ab", "ba", "%a_", "été", "ß", "😀b", "e\u0301x", "12", " -7 ", "+3", "1.5", "1e5", "nan",
                "-inf", "true", "F", "yes", "a\nb", "x\\y", "0x1F", "1_0", "300", "2024-02-29", "2024-02-30", "2024-2-9",
                "2024-02-29 10", "2024-02-29 10:11", "2024-02-29T23:59:59.5", "2024-02-29 10:11:12.123456Z",
                "2024-02-29 10:11:12+02:00", "9223372036854775808", "it's", "aXbXc", "a,b,c", "-", ".", "5.", ".5", "12345678.905"],
    "TIMESTAMP": [None, 0, -1, 1, 1_704_622_272_500_000, -30_980_927_499_999, -62_135_596_800_000_000, 253_402_300_799_999_999,
                  1_709_164_800_000_000, 1_735_516_800_000_000],
    "DATE": [None, 0, -1, 1, 19_782, 20_088, -719_162, 2_932_896],
    "INTERVAL": [None, 0, 1, -1, 86_400_000_000, -3_600_000_001, 10**15, 999, -999, 1000],
    "DECIMAL": [None, *map(Decimal, ("0.00", "0.01", "-0.01", "1.25", "2.50", "-2.50", "0.05", "99999999.99", "-99999999.99"))],
}  # fmt: skip
EDGES["TIMESTAMPTZ"] = EDGES["TIMESTAMP"]
MOST_ROWS = 1500


def rows_of(types: list[SqlType]) -> pa.RecordBatch:
    """All combinations of edge values, or a fair sample of them."""
    combinations = list(itertools.product(*(EDGES[type_.name] for type_ in types)))
    if len(combinations) > MOST_ROWS:
        combinations = random.Random(7).sample(combinations, MOST_ROWS)
    arrays = [array_of([row[i] for row in combinations], type_) for i, type_ in enumerate(types)]
    return pa.record_batch(arrays, names=[f"x{i}" for i in range(len(types))])


def outcomes(evaluate: Any, rows: pa.RecordBatch, type_: SqlType) -> tuple[pa.Array, list[bool]]:
    """Values row by row, and which rows are errors (NULL among the values)."""
    try:
        (values,) = evaluate(rows)
        return values, [False] * rows.num_rows
    except DataError:
        if rows.num_rows == 1:
            return pa.nulls(1, type_.arrow), [True]
    half = rows.num_rows // 2
    parts = [outcomes(evaluate, part, type_) for part in (rows.slice(0, half), rows.slice(half))]
    return pa.concat_arrays([values for values, _ in parts]), parts[0][1] + parts[1][1]


def check(expr: Expr, rows: pa.RecordBatch, types: list[SqlType]) -> None:
    schema = Schema(tuple(Field(f"x{i}", type_) for i, type_ in enumerate(types)))
    evaluator = compile_arrow([expr], schema)
    ours, our_errors = outcomes(evaluator, rows, expr.type)
    assert ours.type == expr.type.arrow
    theirs, their_errors = outcomes(DuckBatch([expr]), rows, expr.type)
    bad = [
        (
            [str(column[i]) for column in rows.columns],
            "error" if our_errors[i] else str(ours[i]),
            "error" if their_errors[i] else str(theirs[i]),
        )
        for i in range(rows.num_rows)
        if our_errors[i] != their_errors[i] or not same(ours.slice(i, 1), theirs.slice(i, 1), is_exact(expr))
    ]
    assert not bad, f"{expr} ({evaluator.paths[0]}): row, ours, DuckDB's: {bad[:5]}"


@pytest.mark.parametrize("fn,params", OPERATIONS, ids=[f"{fn}-{i}" for i, (fn, _) in enumerate(OPERATIONS)])
def test_operation(fn: str, params: tuple[SqlType | Constant, ...]) -> None:
    types = [param for param in params if isinstance(param, SqlType)]
    rows = rows_of(types)
    numbers = iter(range(len(types)))
    choices = [
        param.samples if isinstance(param, Constant) else [Column(param, f"x{next(numbers)}")] for param in params
    ]
    tried = 0
    for args in itertools.product(*choices):
        try:
            expr = resolve(fn, args)
        except BindError:
            continue
        check(expr, rows, types)
        tried += 1
    assert tried


@pytest.mark.parametrize("safe", [False, True], ids=["cast", "try_cast"])
@pytest.mark.parametrize("source,target", CASTS, ids=[f"{a}-{b}" for a, b in CASTS])
def test_cast(source: SqlType, target: SqlType, safe: bool) -> None:
    check(cast(Column(source, "x0"), target, safe), rows_of([source]), [source])

"""Every function, operator and cast on the values where engines differ: Arrow and DuckDB agree, on errors too."""

from __future__ import annotations

import pytest
from expression_cases import calls, differences, outcomes, rows_of, schema_of

from millstream.expressions.duckdb_batch import DuckBatch
from millstream.expressions.evaluator import compile_arrow
from millstream.expressions.functions import cast
from millstream.expressions.nodes import Column, Expr
from millstream.types import SqlType
from tests.support.operations import CASTS, OPERATIONS, Param


def check(expr: Expr, types: list[SqlType]) -> None:
    rows, evaluator = rows_of(types), compile_arrow([expr], schema_of(types))
    ours = outcomes(evaluator, rows, expr.type)
    assert ours[0].type == expr.type.arrow
    bad = differences(expr, rows, ours, outcomes(DuckBatch([expr]), rows, expr.type))
    assert not bad, f"{expr} ({evaluator.paths[0]}) {bad[:5]}"


@pytest.mark.parametrize("fn,params", OPERATIONS, ids=[f"{fn}-{i}" for i, (fn, _) in enumerate(OPERATIONS)])
def test_operation(fn: str, params: tuple[Param, ...]) -> None:
    types = [param for param in params if isinstance(param, SqlType)]
    tried = [check(expr, types) for expr in calls(fn, params, lambda type_, i: Column(type_, f"x{i}"))]
    assert tried


@pytest.mark.parametrize("safe", [False, True], ids=["cast", "try_cast"])
@pytest.mark.parametrize("source,target", CASTS, ids=[f"{a}-{b}" for a, b in CASTS])
def test_cast(source: SqlType, target: SqlType, safe: bool) -> None:
    check(cast(Column(source, "x0"), target, safe), [source])

"""Kernel source of expressions gives what the Arrow path gives, as plain Python and compiled."""

from __future__ import annotations

import itertools

import pytest
from test_every_operation import outcomes, rows_of

from kernels import run, source_of
from millstream.errors import BindError
from millstream.functions import cast, resolve
from millstream.physical.expressions import compile_arrow
from millstream.plan.expr import Column, Expr
from millstream.schema import Field, Schema
from millstream.testing.expressions import CASTS, OPERATIONS, Constant, is_exact, same
from millstream.types import SqlType


def check(expr: Expr, types: list[SqlType]) -> bool:
    schema = Schema(tuple(Field(f"x{i}", type_) for i, type_ in enumerate(types)))
    kernel = source_of(expr, schema)
    if kernel is None:
        return False
    rows = rows_of(types)
    rows = rows.slice(0, min(400, rows.num_rows))
    theirs, their_errors = outcomes(compile_arrow([expr], schema), rows, expr.type)
    ours, our_errors = run(kernel, rows, schema)
    bad = [
        ([str(column[i]) for column in rows.columns], str(ours[i]), our_errors[i], str(theirs[i]), their_errors[i])
        for i in range(rows.num_rows)
        if our_errors[i] != their_errors[i] or not same(ours.slice(i, 1), theirs.slice(i, 1), is_exact(expr))
    ]
    assert not bad, f"{expr}\n{kernel.value}\n{kernel.null}\nrow, kernel, Arrow: {bad[:5]}"
    return True


@pytest.mark.parametrize("fn,params", OPERATIONS, ids=[f"{fn}-{i}" for i, (fn, _) in enumerate(OPERATIONS)])
def test_operation(fn: str, params: tuple[SqlType | Constant, ...]) -> None:
    types = [param for param in params if isinstance(param, SqlType)]
    numbers = iter(range(len(types)))
    choices = [
        param.samples if isinstance(param, Constant) else [Column(param, f"x{next(numbers)}")] for param in params
    ]
    for args in itertools.product(*choices):
        try:
            expr = resolve(fn, args)
        except BindError:
            continue
        check(expr, types)


@pytest.mark.parametrize("safe", [False, True], ids=["cast", "try_cast"])
@pytest.mark.parametrize("source,target", CASTS, ids=[f"{a}-{b}" for a, b in CASTS])
def test_cast(source: SqlType, target: SqlType, safe: bool) -> None:
    check(cast(Column(source, "x0"), target, safe), [source])

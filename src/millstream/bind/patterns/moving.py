"""Aggregates over the last rows of a run: `avg(Y.price) OVER (ROWS 2 PRECEDING)` in conditions and measures."""

from __future__ import annotations

from functools import reduce

from sqlglot import exp

from millstream.bind.aggregates.calls import WrittenCall
from millstream.bind.context import Context
from millstream.expressions import functions
from millstream.expressions.nodes import Case, Expr, Literal
from millstream.types import BIGINT, DOUBLE, SqlType

FUNCTIONS = ("count", "sum", "avg", "min", "max")
MOST_ROWS = 100
"""Each of them is looked up by itself."""


def rows_before(node: exp.Window, call: WrittenCall | None, context: Context) -> int:
    """How many rows before the current one a moving aggregate reads."""
    if call is None or call.is_own or call.fn not in FUNCTIONS or call.distinct or call.star is not None:
        context.refuse(
            "OVER in a pattern is for count, sum, avg, min and max of a value",
            node,
            hint="avg(Y.price) OVER (ROWS 2 PRECEDING)",
        )
    spec = node.args.get("spec")
    plain = not any(node.args.get(key) for key in ("partition_by", "order", "alias", "match"))
    start = None if spec is None else spec.args.get("start")
    ends_here = spec is not None and spec.args.get("end") in (None, "CURRENT ROW") and not spec.args.get("slide")
    if (
        not plain
        or not ends_here
        or spec is None
        or str(spec.args.get("kind") or "ROWS").upper() != "ROWS"
        or not (isinstance(start, exp.Literal) and str(start.this).isdigit())
        or str(spec.args.get("start_side")).upper() != "PRECEDING"
    ):
        context.refuse(
            "a moving aggregate in a pattern reads a number of rows",
            node,
            detail="they are the last rows of its variable, up to the current one",
            hint="avg(Y.price) OVER (ROWS 2 PRECEDING)",
        )
    rows = int(start.this)
    if rows > MOST_ROWS:
        context.refuse(f"a moving aggregate in a pattern reads at most {MOST_ROWS} rows before the current one", node)
    return rows


def moving(fn: str, type_: SqlType, values: list[Expr]) -> Expr:
    """The aggregate of these values, of which those that are NULL do not count."""
    if fn in ("min", "max"):
        least = "least" if fn == "min" else "greatest"
        return values[0] if len(values) == 1 else functions.resolve(least, tuple(values))
    ones: list[Expr] = [Case(BIGINT, ((_is_null(value), _int(0)),), _int(1)) for value in values]
    number = reduce(_plus, ones)
    if fn == "count":
        return number
    of = DOUBLE if fn == "avg" else type_
    zero = functions.cast(_int(0), of)
    addends: list[Expr] = [Case(of, ((_is_null(value), zero),), functions.cast(value, of)) for value in values]
    total = reduce(_plus, addends)
    result = total if fn == "sum" else functions.resolve("/", (total, functions.cast(number, DOUBLE)))
    result = functions.cast(result, type_)
    return Case(type_, ((functions.resolve(">", (number, _int(0))), result),), Literal(type_, None))


def _plus(one: Expr, two: Expr) -> Expr:
    return functions.cast(functions.resolve("+", (one, two)), one.type)


def _is_null(value: Expr) -> Expr:
    return functions.resolve("is_null", (value,))


def _int(value: int) -> Literal:
    return Literal(BIGINT, value)

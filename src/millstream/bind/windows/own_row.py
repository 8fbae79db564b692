"""Aggregates over some rows and one more: EXCLUDE TIES leaves the rows of earlier times, and the row itself."""

from __future__ import annotations

from collections.abc import Callable

from millstream.expressions import functions
from millstream.expressions.nodes import Expr, Literal
from millstream.types import BIGINT, DOUBLE

Before = Callable[[str, Expr | None], Expr]
"""an aggregate over the rows before"""

WITH_OWN = ("count", "sum", "avg", "min", "max", "first_value", "last_value")


def with_own(fn: str, arg: Expr | None, before: Before) -> Expr | None:
    """The aggregate `fn` over the rows before and a row that has the value `arg`; None if they do not tell it."""
    call = functions.resolve
    if arg is None:
        return call("+", (before("count", None), Literal(BIGINT, 1)))
    no_value, earlier = call("is_null", (arg,)), None if fn == "avg" else before(fn, arg)

    def with_value(first: Expr, other: Expr) -> Expr:
        """`other`, where there is a value before and here; else the one there is."""
        return functions.case(((no_value, first), (call("is_null", (first,)), arg)), other)

    match fn, earlier:
        case "count", Expr():
            return functions.case(((no_value, earlier),), call("+", (earlier, Literal(BIGINT, 1))))
        case "sum", Expr():
            return with_value(earlier, call("+", (earlier, arg)))
        case "avg", _:
            total, count = with_own("sum", arg, before), with_own("count", arg, before)
            assert total is not None and count is not None
            return call("/", (functions.cast(total, DOUBLE), functions.cast(count, DOUBLE)))
        case (("min" | "max"), Expr()):
            is_beyond = call("<" if fn == "min" else ">", (arg, earlier))
            return with_value(earlier, functions.case(((is_beyond, arg),), earlier))
        case "first_value", Expr():
            return functions.case(((call(">", (before("count", None), Literal(BIGINT, 0))), earlier),), arg)
        case "last_value", _:
            return arg
        case "first_known", Expr():
            return call("coalesce", (earlier, arg))
        case "last_known", Expr():
            return call("coalesce", (arg, earlier))
    return None

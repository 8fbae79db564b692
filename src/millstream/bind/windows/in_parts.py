"""Aggregates over a frame with a gap (EXCLUDE), from those over its parts: the rows before the gap, the row itself, and
the rows behind the gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from millstream.expressions import functions
from millstream.expressions.nodes import Expr, Literal
from millstream.types import BIGINT, DOUBLE

Part = Callable[[str, Expr | None], Expr]
"""an aggregate over the rows of one part"""

IN_PARTS = ("count", "sum", "avg", "min", "max", "first_value", "last_value")


def own_row(fn: str, arg: Expr | None) -> Expr:
    """An aggregate over the row itself."""
    if fn != "count":
        assert arg is not None
        return arg
    one = Literal(BIGINT, 1)
    return one if arg is None else functions.case(((functions.resolve("is_null", (arg,)), Literal(BIGINT, 0)),), one)


def over_parts(fn: str, arg: Expr | None, parts: Sequence[Part]) -> Expr | None:
    """The aggregate `fn` over all rows of some parts, which come one after the other; None if theirs do not tell it."""
    call = functions.resolve

    def known(one: Expr, other: Expr, both: Expr) -> Expr:
        """`both`, where both have a value; else the one there is."""
        return functions.case(((call("is_null", (one,)), other), (call("is_null", (other,)), one)), both)

    def join(one: Expr, other: Expr) -> Expr:
        match fn:
            case "count":
                return call("+", (one, other))
            case "sum":
                return known(one, other, call("+", (one, other)))
            case "min" | "max":
                is_beyond = call("<" if fn == "min" else ">", (other, one))
                return known(one, other, functions.case(((is_beyond, other),), one))
        return call("coalesce", (one, other))

    if fn == "avg":
        total, count = over_parts("sum", arg, parts), over_parts("count", arg, parts)
        assert total is not None and count is not None
        none = call("=", (count, Literal(BIGINT, 0)))
        mean = call("/", (functions.cast(total, DOUBLE), functions.cast(count, DOUBLE)))
        return functions.case(((none, Literal(DOUBLE, None)),), mean)
    if fn not in (*IN_PARTS, "first_known", "last_known"):
        return None
    in_turn = parts[::-1] if fn.startswith("last_") else parts
    if fn in ("first_value", "last_value"):
        *others, final = in_turn
        has_rows = [(call(">", (part("count", None), Literal(BIGINT, 0))), part(fn, arg)) for part in others]
        return functions.case(tuple(has_rows), final(fn, arg)) if has_rows else final(fn, arg)
    return reduce(join, (part(fn, arg) for part in in_turn))

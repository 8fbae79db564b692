"""Comparison, logic and choice in Arrow, with SQL's NULL and the order of NaN that DuckDB and Spark have."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.arrow.node import (
    Datum,
    InputRows,
    Node,
    as_array,
    boolean,
    constant,
    guarded,
    number,
    on_chosen,
)
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import DOUBLE

Compile = Callable[[Expr], Node | None]
Builder = Callable[[Call, Compile], Node | None]
Binary = Callable[[Datum, Datum], Datum]

_NONE, _TRUE, _FALSE, _ZERO = boolean(None), boolean(True), boolean(False), number(0.0)


def simple(function: Callable[..., Datum]) -> Builder:
    """A builder for a function of its arguments' values alone."""

    def build(call: Call, compile_: Compile) -> Node | None:
        compiled = [compile_(arg) for arg in call.args]
        nodes = [node for node in compiled if node is not None]
        if len(nodes) < len(compiled):
            return None
        if len(nodes) == 1:
            first = nodes[0]
            return lambda rows: function(first(rows))
        if len(nodes) == 2:
            left, right = nodes
            return lambda rows: function(left(rows), right(rows))
        return lambda rows: function(*(node(rows) for node in nodes))

    return build


def _le(x: Datum, y: Datum) -> Datum:
    """x <= y where NaN is the greatest number."""
    return pc.or_(pc.less_equal(x, y), pc.is_nan(y))


def _eq(x: Datum, y: Datum) -> Datum:
    return pc.or_(pc.equal(x, y), pc.and_(pc.is_nan(x), pc.is_nan(y)))


# How to compare DOUBLEs when either side may be NaN, and when one is a constant other than NaN (left, right).
_DOUBLES: dict[str, tuple[Binary, Binary, Binary]] = {
    "=": (_eq, pc.equal, pc.equal),
    "<>": (lambda x, y: pc.invert(_eq(x, y)), pc.not_equal, pc.not_equal),
    "<": (lambda x, y: pc.invert(_le(y, x)), lambda x, y: pc.invert(pc.less_equal(y, x)), pc.less),
    "<=": (_le, lambda x, y: pc.invert(pc.less(y, x)), pc.less_equal),
    ">": (lambda x, y: pc.invert(_le(x, y)), pc.greater, lambda x, y: pc.invert(pc.less_equal(x, y))),
    ">=": (lambda x, y: _le(y, x), pc.greater_equal, lambda x, y: pc.invert(pc.less(x, y))),
}
_OTHERS: dict[str, Binary] = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip


def comparison(symbol: str, left: Expr, right: Expr) -> Binary:
    """The function that compares values of two expressions of one type."""
    if left.type != DOUBLE:
        return _OTHERS[symbol]
    general, constant_left, constant_right = _DOUBLES[symbol]
    if _is_number(right):
        return constant_right
    return constant_left if _is_number(left) else general


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, float) and not math.isnan(expr.value)


def _compare(call: Call, compile_: Compile) -> Node | None:
    return simple(comparison(call.fn, *call.args))(call, compile_)


def _is_distinct(call: Call, compile_: Compile) -> Node | None:
    different = comparison("<>", *call.args)

    def distinct(x: Datum, y: Datum) -> Datum:
        # NULL beside a value is distinct from it, two NULLs are not.
        return pc.coalesce(different(x, y), pc.xor(pc.is_null(x), pc.is_null(y)))

    return simple(distinct)(call, compile_)


def _logic(kleene: Binary, decided: bool) -> Builder:
    def build(call: Call, compile_: Compile) -> Node | None:
        left, right = map(compile_, call.args)
        if left is None or right is None:
            return None
        first, second = left, right

        def eager(rows: InputRows) -> Datum:
            return kleene(first(rows), second(rows))

        def careful(rows: InputRows) -> Datum:
            known = as_array(first(rows), rows.num_rows)
            undecided = pc.fill_null(known if not decided else pc.invert(known), _TRUE)
            return kleene(known, on_chosen(second, rows, undecided, pa.bool_()))

        return guarded(eager, careful) if can_fail(call.args[1]) else eager

    return build


def _in(call: Call, compile_: Compile) -> Node | None:
    subject, *items = call.args
    first = compile_(subject)
    others = [(comparison("=", subject, item), compile_(item)) for item in items if not isinstance(item, Literal)]
    if first is None or any(node is None for _, node in others):
        return None
    constants = [item for item in items if isinstance(item, Literal)]
    arrays = [constant(item.value, item.type) for item in constants if item.value is not None]
    has_null = len(arrays) < len(constants)
    doubles = subject.type == DOUBLE
    # Adding zero makes -0.0 the 0.0 it equals: sets compare bits.
    plain: Callable[[Datum], Datum] = (lambda x: pc.add(x, _ZERO)) if doubles else (lambda x: x)
    values = plain(pa.concat_arrays(arrays)) if arrays else None

    def node(rows: InputRows) -> Datum:
        x = first(rows)
        found: Datum = _FALSE
        if values is not None:
            found = pc.is_in(plain(x), value_set=values)
        found = pc.if_else(pc.is_valid(x), found, _NONE)
        for same, item in others:
            found = pc.or_kleene(found, same(x, item(rows))) if item else found
        return pc.or_kleene(found, _NONE) if has_null else found

    return node


def _extreme(symbol: str) -> Builder:
    def build(call: Call, compile_: Compile) -> Node | None:
        better = comparison(symbol, call.args[0], call.args[0])

        def pick(best: Datum, *others: Datum) -> Datum:
            for other in others:
                # NULLs lose: an other wins over NULL, and NULL over nothing.
                wins = pc.coalesce(better(other, best), pc.is_null(best))
                best = pc.if_else(wins, other, best)
            return best

        return simple(pick)(call, compile_)

    return build


def _coalesce(call: Call, compile_: Compile) -> Node | None:
    nodes = [compile_(arg) for arg in call.args]
    present = [node for node in nodes if node is not None]
    if len(present) < len(nodes):
        return None
    arrow = call.type.arrow

    def careful(rows: InputRows) -> Datum:
        result = as_array(present[0](rows), rows.num_rows)
        for node in present[1:]:
            result = pc.coalesce(result, on_chosen(node, rows, result.is_null(), arrow))
        return result

    def eager(rows: InputRows) -> Datum:
        return pc.coalesce(*(node(rows) for node in present))

    return guarded(eager, careful) if any(map(can_fail, call.args[1:])) else eager


def _nullif(call: Call, compile_: Compile) -> Node | None:
    same = comparison("=", *call.args)
    nothing = constant(None, call.type)[0]

    def nullif(x: Datum, y: Datum) -> Datum:
        return pc.if_else(pc.coalesce(same(x, y), _FALSE), nothing, x)

    return simple(nullif)(call, compile_)


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(_OTHERS, _compare),
    "is_distinct": _is_distinct,
    "and": _logic(pc.and_kleene, decided=False),
    "or": _logic(pc.or_kleene, decided=True),
    "not": simple(pc.invert),
    "is_null": simple(pc.is_null),
    "in": _in,
    "greatest": _extreme(">"),
    "least": _extreme("<"),
    "coalesce": _coalesce,
    "nullif": _nullif,
}

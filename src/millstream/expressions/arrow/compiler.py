"""From an expression to a node, part by part."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.arrow import casts, conditional, nested, numeric, temporal, text, tried
from millstream.expressions.arrow.node import (
    Datum,
    InputRows,
    Node,
    as_array,
    boolean,
    chosen,
    failing,
    guarded,
    on_chosen,
    scalar_of,
)
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Call, Case, Cast, Column, Expr, Literal
from millstream.expressions.python_calls import ColumnCall, calls_python
from millstream.schema import Schema
from millstream.types import SqlType

Compile = Callable[[Expr], Node | None]
_TRUE, _FALSE = boolean(True), boolean(False)
Builder = Callable[[Call, Compile], Node | None]
_BUILDERS: dict[str, Builder] = {
    **conditional.BUILDERS,
    **numeric.BUILDERS,
    **text.BUILDERS,
    **temporal.BUILDERS,
    **nested.BUILDERS,
    "try": tried.build_try,
    "$passing": tried.build_try,
}


def compile_node(expr: Expr, schema: Schema) -> Node | None:
    """The expression as a node over batches of a schema; None if some part of it has no counterpart in Arrow."""

    def compile_(part: Expr) -> Node | None:
        match part:
            case Column():
                return _column(schema.index(part.name))
            case Literal():
                return _literal(part)
            case Cast():
                return casts.build(part, compile_)
            case Case():
                return _case(part, compile_)
            case ColumnCall():
                return tried.build_python(part, compile_)
            case Call():
                builder = _BUILDERS.get(part.fn)
                node = builder(part, compile_) if builder else None
                return failing(node, part) if node and can_fail(part) else node
        return None

    node = compile_(expr)
    return tried.around_python(expr, compile_) if node is None and calls_python(expr) else node


def _column(index: int) -> Node:
    return lambda rows: rows.column(index)


def _literal(literal: Literal) -> Node:
    scalar = scalar_of(literal)
    return lambda rows: scalar


def _case(expr: Case, compile_: Compile) -> Node | None:
    whens = [compile_(when) for when, _ in expr.whens]
    thens = [compile_(then) for _, then in expr.whens]
    default = compile_(expr.default)
    if default is None or None in whens or None in thens:
        return None
    arms = [(when, then) for when, then in zip(whens, thens, strict=True) if when is not None and then is not None]
    eager, careful = _eager_case(arms, default), _careful_case(arms, default, expr.type)
    # The first condition is evaluated on all rows in any case.
    return guarded(eager, careful) if any(map(can_fail, expr.children()[1:])) else eager


def _eager_case(arms: list[tuple[Node, Node]], default: Node) -> Node:
    def single(rows: InputRows) -> Datum:
        condition = when(rows)
        if isinstance(condition, pa.Scalar):
            return then(rows) if condition.as_py() else default(rows)
        if condition.null_count:
            condition = condition.fill_null(_FALSE)
        return pc.if_else(condition, then(rows), default(rows))

    def several(rows: InputRows) -> Datum:
        conditions = [as_array(when(rows), rows.num_rows) for when, _ in arms]
        return pc.case_when(pc.make_struct(*conditions), *(then(rows) for _, then in arms), default(rows))

    when, then = arms[0]
    return single if len(arms) == 1 else several


def _careful_case(arms: list[tuple[Node, Node]], default: Node, type_: SqlType) -> Node:
    arrow = type_.arrow

    def node(rows: InputRows) -> Datum:
        left = pa.repeat(_TRUE, rows.num_rows)
        result = pa.nulls(rows.num_rows, arrow)
        for when, then in arms:
            taken = chosen(on_chosen(when, rows, left, pa.bool_()), rows.num_rows)
            result = pc.if_else(taken, on_chosen(then, rows, taken, arrow), result)
            left = pc.and_not(left, taken)
        return pc.if_else(left, on_chosen(default, rows, left, arrow), result)

    return node

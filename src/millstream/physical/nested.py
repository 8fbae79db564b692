"""Which operators pass arrays, structs and maps on: no kernel looks at one. Those that compare values, or hold them by
column, get bytes instead (`nested_codes`): a projection below makes them, and one above turns them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from millstream.errors import UnsupportedError
from millstream.expressions.nested_codes import NestedCall, code_of, value_of
from millstream.expressions.nodes import Column, Expr
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import BESIDE
from millstream.plan.events.algebra import Times
from millstream.plan.node import Kind
from millstream.plan.patterns.search import Match
from millstream.plan.ties import Ties
from millstream.plan.unnest import Unnest
from millstream.schema import Schema
from millstream.types import BLOB

_BY_ROW = (P.Filter, P.Project, P.Union, P.JoinTable, P.AssignWindows, Unnest, Times)
"""operators that evaluate expressions, or keep nothing"""

_KEEPING_ROWS = (P.Over, P.Sessions, P.Aggregate, P.Group, P.Yield, P.RowSlots)
"""operators that keep rows as they are, and compare keys only"""

_WHOLE: dict[type[P.Node], str] = {
    P.Distinct: "UNION cannot compare",
    Match: "a pattern cannot hold",
    R.ToEvents: "a relation cannot hold",
    R.Validity: "a relation cannot hold",
}
"""operators that look at whole rows"""


class NestedError(UnsupportedError):
    """An array, struct or map where none can be; `column` is its name."""

    column = ""


def refuse_nested(node: P.Node) -> None:
    """NestedError if an operator would compare nested values, or hold them in a form that they do not have."""
    if isinstance(node, P.Filter | P.Project):
        return
    if node.kind is Kind.RELATION:
        _refuse(node.schema, "a relation cannot hold")
    elif isinstance(node, Ties):
        _refuse(node.input.schema, "ORDER BY cannot compare", node.reads)
    elif isinstance(node, _KEEPING_ROWS):
        place = "GROUP BY" if isinstance(node, P.Group) else "PARTITION BY"
        _refuse(node.input.schema, f"{place} cannot compare", frozenset(node.keys))
    elif not isinstance(node, _BY_ROW):
        for below in node.inputs:
            _refuse(below.schema, _WHOLE.get(type(node), "an operator on events cannot hold"))


def with_codes(node: P.Node) -> P.Node:
    """The plan with bytes for nested values where they are compared or held."""
    inputs = tuple(map(with_codes, node.inputs))
    if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
        node = node.with_inputs(inputs)
    names = frozenset(
        field.name for below in inputs for field in below.schema if field.type.is_nested and _is_coded(node, field.name)
    )
    if not names and not _makes_nested(node):
        return node
    below = {id(each): _encoded(each, names) for each in inputs}
    try:
        changed = {f.name: _changed(getattr(node, f.name), below, names) for f in fields(node)}
        if isinstance(node, R.Summarize):
            changed["calls"] = tuple(map(_in_bytes, node.calls))
        coded: P.Node = replace(node, **changed)
    except (ValueError, KeyError):
        return node  # it computes with such values, which is refused with a reason
    return _decoded(coded, node.schema)


def _makes_nested(node: P.Node) -> bool:
    """Whether aggregates over a relation make nested values: their results are compared."""
    return isinstance(node, R.Summarize) and any(type_.is_nested for call in node.calls for type_ in call.types)


def _is_coded(node: P.Node, name: str) -> bool:
    """Whether an operator gets bytes for a nested column."""
    if isinstance(node, _KEEPING_ROWS):
        return name in node.keys
    if isinstance(node, R.ToEvents | R.Validity | P.Distinct | Match):
        return True
    return node.kind is Kind.RELATION and not isinstance(node, P.Filter | P.Project)


def _changed(value: Any, below: Mapping[int, P.Node], names: frozenset[str]) -> Any:
    """Part of an operator with other inputs, and with expressions that read bytes."""
    if isinstance(value, P.Node):
        return below.get(id(value), value)
    if isinstance(value, tuple):
        return tuple(_changed(part, below, names) for part in value)
    if isinstance(value, AggregateCall) and value.fn in BESIDE:
        return _in_bytes(value)
    return _of_codes(value, names) if isinstance(value, Expr) else value


def _in_bytes(call: AggregateCall[str]) -> AggregateCall[str]:
    """An aggregate that gives bytes of nested values."""
    return replace(call, types=tuple(BLOB if type_.is_nested else type_ for type_ in call.types))


def _of_codes(expr: Expr, names: frozenset[str]) -> Expr:
    if isinstance(expr, Column) and expr.name in names:
        return value_of(Column(BLOB, expr.name), expr.type)
    children = tuple(_of_codes(child, names) for child in expr.children())
    if isinstance(expr, NestedCall) and expr.how == "code" and _is_value(children[0]):
        return children[0].children()[0]
    return expr if children == expr.children() else expr.with_children(children)


def _is_value(expr: Expr) -> bool:
    return isinstance(expr, NestedCall) and expr.how == "value"


def _encoded(node: P.Node, names: frozenset[str]) -> P.Node:
    if isinstance(node, P.Project) and any(_is_value(expr) for _, expr in node.columns):
        # it turns bytes back that are needed again
        columns = tuple(
            (name, expr.children()[0] if name in names and _is_value(expr) else expr) for name, expr in node.columns
        )
        rest = frozenset(name for name, expr in columns if name in names and expr.type.is_nested)
        node = replace(node, columns=columns)
        return _encoded(node, rest) if rest else node
    coded = [
        (field.name, code_of(own) if field.name in names and own.type.is_nested else own)
        for field in node.schema
        for own in (Column(field.type, field.name),)
    ]
    return P.Project(node, tuple(coded))


def _decoded(node: P.Node, schema: Schema) -> P.Node:
    if not any(field.type.is_nested and node.schema[field.name].type == BLOB for field in schema):
        return node
    columns: list[tuple[str, Expr]] = []
    for field in schema:
        own = Column(node.schema[field.name].type, field.name)
        columns.append((field.name, value_of(own, field.type) if own.type != field.type else own))
    return P.Project(node, tuple(columns))


def _refuse(schema: Schema, reason: str, compared: frozenset[str] | None = None) -> None:
    """NestedError if there are nested values, or some that are `compared`."""
    for field in schema:
        if field.type.is_nested and (compared is None or field.name in compared):
            name = field.name.rpartition(".")[2]
            what, apart = _APART[field.type.name]
            hint = f"leave {name} out in a subquery, or unnest it there: {apart.format(name)}"
            raise _fault(name, f"{name} is {what}, which {reason}", hint)


def _fault(column: str, message: str, hint: str) -> NestedError:
    error = NestedError(message, hint=hint)
    error.column = column
    return error


_APART = {
    "ARRAY": ("an array", "FROM …, UNNEST({0}) AS u(x)"),
    "STRUCT": ("a struct", "SELECT {0}.name"),
    "MAP": ("a map", "SELECT {0}['key'], or FROM …, UNNEST({0}) AS u(k, v)"),
}

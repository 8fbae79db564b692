"""Which operators pass arrays, structs and maps on: no kernel looks at one, and those that hold values by column cannot
hold any."""

from __future__ import annotations

from millstream.errors import UnsupportedError
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.node import Kind
from millstream.plan.patterns.search import Match
from millstream.plan.ties import Ties
from millstream.plan.unnest import Unnest
from millstream.schema import Schema

_BY_ROW = (P.Filter, P.Project, P.Union, P.JoinTable, P.AssignWindows, Unnest)
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


def _refuse(schema: Schema, reason: str, compared: frozenset[str] | None = None) -> None:
    """NestedError if there are nested values, or some that are `compared`."""
    for field in schema:
        if field.type.is_nested and (compared is None or field.name in compared):
            name = field.name.rpartition(".")[2]
            what, apart = _APART[field.type.name]
            hint = f"leave {name} out in a subquery, or take it apart there: {apart.format(name)}"
            error = NestedError(f"{name} is {what}, which {reason}", hint=hint)
            error.column = name
            raise error


_APART = {
    "ARRAY": ("an array", "FROM …, UNNEST({0}) AS u(x)"),
    "STRUCT": ("a struct", "SELECT {0}.name"),
    "MAP": ("a map", "SELECT {0}['key'], or FROM …, UNNEST({0}) AS u(k, v)"),
}

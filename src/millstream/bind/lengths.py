"""Lengths of windows that queries of a set have as constants: `$length` where a length stands."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.expressions.nodes import Parameter
from millstream.plan.lengths import RowLength
from millstream.sql import duration_us
from millstream.types import INTERVAL


def own_length(node: object, context: Context, *, counted: bool) -> RowLength | None:
    """The length that a parameter gives, as a number if lengths are counted, and else as an interval or a number of
    units; None if it is no parameter, or one of another type."""
    unit = 1
    if isinstance(node, exp.Interval) and not counted and node.args.get("unit") is not None:
        found = duration_us(exp.Interval(this=exp.Literal.string("1"), unit=node.args["unit"].copy()))
        if found is None:
            return None
        node, unit, counted = node.this, found, True
    if not isinstance(node, exp.Column) or node.table or not node.name.startswith("$"):
        return None
    name = node.name[1:]
    type_ = context.parameters.get(name)
    if type_ is None or not (type_.is_integer if counted else type_ == INTERVAL):
        return None
    return RowLength(Parameter(type_, name), unit)

"""Columns without a declared type: they are text, and each query infers the type from how it uses them."""

from __future__ import annotations

from sqlglot import exp

from millstream.catalog import StreamDef
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr
from millstream.plan import nodes as P
from millstream.types import BIGINT, DOUBLE, TIMESTAMP, SqlType

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.IntDiv)
_ORDERS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_EQUALITIES = (exp.EQ, exp.NEQ, exp.In)
_OF_NUMBERS = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop, exp.Abs)


def read_as_used(scan: P.Scan, stream: StreamDef, statement: exp.Expr) -> P.Node:
    """A stream's rows; columns without a type have the one that the statement shows: a column that is computed with,
    or compared with a number, is one."""
    types: dict[str, SqlType] = {}
    undeclared = {name.lower(): name for name in stream.undeclared}
    for column in statement.find_all(exp.Column, exp.Dot) if undeclared else ():
        name = undeclared.get(column.name.lower())
        found = None if name is None else _type_of(column)
        if name is not None and found is not None and types.get(name) != DOUBLE:
            types[name] = found
    if not types:
        return scan
    plain: list[tuple[str, Expr]] = [(field.name, Column(field.type, field.name)) for field in scan.schema]
    return P.Project(
        scan, tuple((name, functions.cast(value, types[name]) if name in types else value) for name, value in plain)
    )


def _type_of(column: exp.Expr) -> SqlType | None:
    """What a place says of the column that stands there."""
    place = column.parent
    while isinstance(place, exp.Paren | exp.Dot):
        place = place.parent
    if isinstance(place, _OF_NUMBERS):
        return DOUBLE
    if place is None or not isinstance(place, (*_ARITHMETIC, *_ORDERS, *_EQUALITIES)):
        return None
    others = [part for part in place.iter_expressions() if column not in part.find_all(type(column))]
    if any(part.find(exp.Interval) is not None for part in others):
        return TIMESTAMP
    if isinstance(place, _ARITHMETIC):
        return DOUBLE
    numbers = [part.this if isinstance(part, exp.Neg) else part for part in others]
    numbers = [part for part in numbers if isinstance(part, exp.Literal) and not part.is_string]
    if isinstance(place, _EQUALITIES):
        whole = all(str(number.this).isdigit() for number in numbers)
        return None if not numbers else BIGINT if whole else DOUBLE
    computed = any(isinstance(part, _ARITHMETIC) for part in others)
    return DOUBLE if numbers or computed else None

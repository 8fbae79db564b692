"""The shape of a query: its plan with constants as parameters, so that queries which differ only in these are equal.

A constant becomes a parameter where a column may stand as well. All others stay, as part of the shape: a plan is its
shape with its constants in place again, whatever was taken for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from millstream.expressions.nodes import Call, Case, Column, Expr, Literal, Parameter, conjunction, conjuncts, walk
from millstream.plan.events.algebra import DUR, Fold, Next
from millstream.plan.node import Node, rebuild
from millstream.plan.nodes import Filter, Project
from millstream.plan.patterns.search import Match
from millstream.plan.relations import Join
from millstream.records import dataclass
from millstream.types import SqlType

_OPEN = frozenset(
    ("=", "<>", "<", "<=", ">", ">=", "is_distinct", "in", "+", "-", "*", "/", "//", "%", "||", "coalesce")
)
"""functions whose arguments may as well be columns"""


@dataclass(frozen=True)
class QueryShape:
    """A plan with parameters by their numbers, and what these are for one query."""

    plan: Node
    values: tuple[Literal, ...]


def shape_of(plan: Node) -> QueryShape | None:
    """The shape of a query; None if it has no constants."""
    values: list[Literal] = []

    def parameter(literal: Literal) -> Expr:
        values.append(literal)
        return Parameter(literal.type, name_of(len(values) - 1))

    made = rebuild(plan, lambda node: _opened(node, parameter))
    return QueryShape(made, tuple(values)) if values else None


def in_shape(plan: Node, values: tuple[Literal, ...]) -> Node:
    """Another definition of a query whose constants are known: those of its constants that it had before become the
    same parameters, the others stay."""
    rest = list(enumerate(values))

    def parameter(literal: Literal) -> Expr:
        # equal constants keep their order, as far as that can be told
        known = next((each for each in rest if each[1] == literal), None)
        if known is None:
            return literal
        del rest[: rest.index(known) + 1]
        return Parameter(literal.type, name_of(known[0]))

    return rebuild(plan, lambda node: _opened(node, parameter))


def name_of(number: int) -> str:
    """The parameter of that number."""
    return f"c{number}"


Change = Callable[[Literal], Expr]


def _opened(node: Node, change: Change) -> Node:
    match node:
        case Filter(predicate=predicate):
            return _replaced(node, predicate=_inside(predicate, change))
        case Project(columns=columns):
            return _replaced(node, columns=tuple((name, _value(expr, change)) for name, expr in columns))
        case Join(residual=Expr() as residual):
            return _replaced(node, residual=_inside(residual, change))
        case Next(condition=Expr() as condition):
            return _replaced(node, condition=_inside(condition, change))
        case Fold():
            both = (node.condition, node.continues)
            conditions = tuple(None if each is None else _inside(each, change) for each in both)
            updates = tuple((name, _value(old, change), _value(new, change)) for name, old, new in node.updates)
            aggregates = tuple(
                replace(each, args=tuple(_value(arg, change) for arg in each.args)) for each in node.aggregates
            )
            return _replaced(
                node, condition=conditions[0], continues=conditions[1], updates=updates, aggregates=aggregates
            )
        case Match(search=search):
            defined = tuple((name, _inside(each, change)) for name, each in search.conditions)
            # what is only there to reason with, and is not true of all queries, is left out
            made = tuple(
                (name, below) for name, expr in search.made if (below := _as_below(node, name, expr)) is not None
            )
            holds = () if search.holds is None else conjuncts(search.holds)
            known = tuple(part for part in holds if not _has_constants(part))
            search = replace(search, conditions=defined, made=made, holds=conjunction(known) if known else None)
            return _replaced(node, search=search)
    return node


def _as_below(node: Match, name: str, expr: Expr) -> Expr | None:
    """What a column of the input is computed from, with parameters where it has them."""
    if not _has_constants(expr):
        return expr
    below = dict(node.input.columns).get(name) if isinstance(node.input, Project) else None
    return below if below is not None and _erased(below) == _erased(expr) else None


def _has_constants(expr: Expr) -> bool:
    return any(isinstance(part, Literal | Parameter) for part in walk(expr))


def _erased(expr: Expr) -> Expr:
    """An expression whose constants and parameters are not told apart."""
    if isinstance(expr, Parameter) or _constant(expr) is not None:
        return Parameter(expr.type, "")
    return expr.with_children(tuple(map(_erased, expr.children()))) if expr.children() else expr


def _replaced(node: Node, **parts: object) -> Node:
    changed = {name: part for name, part in parts.items() if part != getattr(node, name)}
    return replace(node, **changed) if changed else node


def _value(expr: Expr, change: Change) -> Expr:
    """An expression that is a value as a whole."""
    constant = _constant(expr)
    return _inside(expr, change) if constant is None else change(constant)


def _inside(expr: Expr, change: Change) -> Expr:
    children = expr.children()
    if not children or (isinstance(expr, Call) and _bounds_duration(expr)):
        return expr
    of = _value if isinstance(expr, Case) or (isinstance(expr, Call) and expr.fn in _OPEN) else _inside
    changed = tuple(of(child, change) for child in children)
    return expr if changed == children else expr.with_children(changed)


def _bounds_duration(expr: Call) -> bool:
    """How long an automaton waits is a part of it."""
    return any(isinstance(arg, Column) and arg.name == DUR for arg in expr.args)


def _constant(expr: Expr) -> Literal | None:
    match expr:
        case Literal(value=value) if value is not None and _is_plain(expr.type):
            return expr
        case Call(fn="neg", args=(Literal(value=int() | float() | Decimal() as value),)):
            # a negative number
            return Literal(expr.type, -value)
    return None


def _is_plain(type_: SqlType) -> bool:
    return type_.is_text or type_.is_temporal or type_.is_integer or type_.name in ("DOUBLE", "DECIMAL", "INTERVAL")

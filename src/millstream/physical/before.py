"""Columns computed below patterns, NEXT and FOLD: the parts of their conditions that read one row."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field, replace

from millstream.expressions.functions import can_fail, case
from millstream.expressions.nested_codes import NestedCall
from millstream.expressions.nodes import (
    CATCHING,
    Call,
    Case,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    told,
    walk,
)
from millstream.plan import nodes as P
from millstream.plan.events.algebra import Fold, Next
from millstream.plan.patterns.row_conditions import distance_of, is_null_of_nulls
from millstream.plan.patterns.search import CLASSIFIER, Match, Reach
from millstream.records import dataclass
from millstream.types import BIGINT

_GUARDING = CATCHING | {"and", "or", "coalesce", "if"}
"""functions that may not evaluate all of their arguments"""


@dataclass
class _Before:
    """Columns to compute before an operator: what its conditions compute of one row, where that is wanted.

    `place_of` says of a column of a condition which row it is read at (None: it is of several), and `at_row` what an
    expression over columns read there is over the columns of that row; None if it is not the same.
    """

    is_wanted: Callable[[Expr], bool]
    place_of: Callable[[str], Hashable | None]
    at_row: Callable[[Hashable, Expr], Expr | None]
    made: dict[tuple[Hashable, Expr], str] = field(default_factory=dict)

    def of(self, condition: Expr) -> Expr:
        """A condition that reads such columns. Those of the same row in front of a part guard it."""
        guards: dict[Hashable, tuple[Expr, ...]] = {}
        parts = []
        for part in conjuncts(condition):
            parts.append(self._changed(part, guards))
            place = self._place(part)
            if place is not None:
                guards[place] = (*guards.get(place, ()), part)
        return conjunction(tuple(parts))

    def _place(self, expr: Expr) -> Hashable | None:
        places = set(map(self.place_of, columns_of(expr)))
        return next(iter(places)) if len(places) == 1 else None

    def _changed(self, expr: Expr, guards: dict[Hashable, tuple[Expr, ...]]) -> Expr:
        if not self.is_wanted(expr):
            return expr
        place = self._place(expr)
        if place is not None and (own := self.at_row(place, expr)) is not None:
            guarding = tuple(self.at_row(place, guard) for guard in guards.get(place, ()))
            if can_fail(own) and guarding and None not in guarding:
                own = case(((conjunction(guarding), own),), Literal(own.type, None))  # type: ignore[arg-type]
            return Column(expr.type, self.made.setdefault((place, own), f"$before{len(self.made) + 1}"))
        if can_fail(expr) and (isinstance(expr, Case) or (isinstance(expr, Call) and expr.fn in _GUARDING)):
            return expr
        return expr.with_children(tuple(self._changed(child, guards) for child in expr.children()))

    def below(self, node: P.Node, *places: Hashable) -> P.Node:
        """The input of the operator, with the columns for these places."""
        made = {name: expr for (place, expr), name in self.made.items() if not places or place in places}
        return P.Project(node, (*P.passthrough(node.schema), *made.items())) if made else node


def computed_before(node: P.Node, lenient: bool) -> P.Node:
    """The plan in which these are columns: what orders nested values, for loops compare only bytes of a column; and if
    rows that cannot be computed are left out, what may fail, so that they are left out before."""

    def is_wanted(expr: Expr) -> bool:
        if lenient and can_fail(expr):
            return True
        return any(isinstance(part, NestedCall) and part.how == "order" for part in walk(expr))

    return _computed_before(node, is_wanted)


def _computed_before(node: P.Node, is_wanted: Callable[[Expr], bool]) -> P.Node:
    inputs = tuple(_computed_before(below, is_wanted) for below in node.inputs)
    if inputs != node.inputs:
        node = node.with_inputs(inputs)
    match node:
        case Match():
            made = _of_match(node, is_wanted)
        case Next() | Fold():
            made = _of_events(node, is_wanted)
        case _:
            return node
    return made if made.schema == node.schema else P.Project(made, P.passthrough(node.schema))


def _of_match(node: Match, is_wanted: Callable[[Expr], bool]) -> P.Node:
    search = node.search
    reaches = {reach.name: reach for reach in search.reaches if reach.column != CLASSIFIER}
    said = {name: told(expr) for name, expr in search.made}
    own: dict[str, Expr] = {
        name: Column(reach.type, reach.column, said.get(reach.column)) for name, reach in reaches.items()
    }
    variable = ""

    def place_of(name: str) -> Reach | None:
        return replace(reaches[name], name="", column="", type=BIGINT) if name in reaches else None

    def at_row(place: Hashable, expr: Expr) -> Expr | None:
        assert isinstance(place, Reach)
        if distance_of(place, variable, None) != 0 and not is_null_of_nulls(expr):
            return None  # there may be no such row
        return substitute(expr, own)

    before = _Before(is_wanted, place_of, at_row)
    conditions = []
    for variable, condition in search.conditions:
        conditions.append((variable, before.of(condition)))
    if not before.made:
        return node
    more = [
        replace(place, name=name, column=name, type=expr.type)
        for (place, expr), name in before.made.items()
        if isinstance(place, Reach)
    ]
    search = replace(search, conditions=tuple(conditions), reaches=(*search.reaches, *more))
    return Match(before.below(node.input), search)


def _of_events(node: Next | Fold, is_wanted: Callable[[Expr], bool]) -> P.Node:
    sides = {name: side for side, below in enumerate(node.inputs) for name in below.schema.names}
    before = _Before(is_wanted, sides.get, lambda _, expr: expr)
    condition = None if node.condition is None else before.of(node.condition)
    if isinstance(node, Next):
        left, right = (before.below(below, side) for side, below in enumerate(node.inputs))
        return replace(node, left=left, right=right, condition=condition)
    continues = None if node.continues is None else before.of(node.continues)
    updates = tuple((name, begin, before.of(becomes)) for name, begin, becomes in node.updates)
    aggregates = tuple(replace(each, args=tuple(map(before.of, each.args))) for each in node.aggregates)
    left, right = (before.below(below, side) for side, below in enumerate(node.inputs))
    return replace(
        node, left=left, right=right, condition=condition, continues=continues, updates=updates, aggregates=aggregates
    )

"""Conditions of a search as they look from the row under test: what is read at a fixed distance from it, and what
depends on how the match went before.

A value of the row itself, or of one so many rows before it, becomes a column named by the input's column and the
distance: the same name means the same value, whichever variable is tested and wherever the match began. Everything else
becomes a column with a name of its own, by which it is equal to itself as long as the match before the row is the same.
"""

from __future__ import annotations

from millstream.expressions.nested_codes import NestedCall
from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal, columns_of, transform, walk
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Reach, Search, spelled
from millstream.records import dataclass
from millstream.types import BOOLEAN, VARCHAR

_STRICT = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "neg", "/", "//", "%", "not"})


def at(column: str, distance: int) -> str:
    """The name of a column's value at a row so far from the row under test."""
    return f"{column} at {distance}"


@dataclass(frozen=True)
class Views:
    """The conditions of a search as seen from rows under test."""

    search: Search

    def seen(self, condition: Expr, variable: str, before: str | None = None, tag: str = "") -> Expr:
        """A condition on a row that would get the label `variable`; `before` is the label of the row before it, if that
        is known to be in the match. What depends on the match before it gets `tag` in its name."""

        def view(part: Expr) -> Expr:
            if not isinstance(part, Column) or part.name == MATCH_NUMBER:
                return part
            value = self.search.named.get(part.name)
            if isinstance(value, Reach):
                distance = distance_of(value, variable, before)
                if distance is not None:
                    return self._at(Column(part.type, value.column), distance, variable)
            return Column(part.type, tag + _name(value, part.name, variable))

        return transform(condition, view)

    def _at(self, column: Column, distance: int, variable: str) -> Expr:
        if column.name == CLASSIFIER:
            return Literal(VARCHAR, variable)
        made = dict(self.search.made).get(column.name)
        if made is None or (distance and not is_null_of_nulls(made)):
            return Column(column.type, at(column.name, distance))
        return self.shifted(made, distance)

    def shifted(self, row: Expr, distance: int) -> Expr:
        """An expression over the columns of the input, computed so far from the row under test."""

        def move(part: Expr) -> Expr:
            return Column(part.type, at(part.name, distance)) if isinstance(part, Column) else part

        return transform(row, move)

    def givens(self, distances: frozenset[int]) -> tuple[Expr, ...]:
        """What is true at any row of its own columns and of those at these distances, where there are such rows."""
        holds = self.search.holds
        if holds is None:
            return ()
        result = []
        for distance in sorted(distances):
            there = self.shifted(holds, distance)
            if distance:
                for part in sorted(columns_of(there)):
                    absent = Call(BOOLEAN, "is_null", (_column(there, part),))
                    there = Call(BOOLEAN, "or", (absent, there))
            result.append(there)
        return tuple(result)


def distance_of(reach: Reach, variable: str, before: str | None) -> int | None:
    """How far from the row under test a reach reads; None if that depends on how the match went before."""
    own = reach.variables is None or variable in reach.variables
    if reach.first or reach.final:
        return None
    if own and reach.offset == 0:
        # a label is known of the row under test alone
        return reach.shift if reach.column != CLASSIFIER or reach.shift == 0 else None
    previous = before is not None and (reach.variables is None or before in reach.variables)
    if reach.column != CLASSIFIER and previous and reach.offset == (1 if own else 0):
        return reach.shift - 1
    return None


def _name(value: Reach | AggregateCall[Expr] | None, name: str, variable: str) -> str:
    """A name for what depends on the match; different where the label of the row under test makes a difference."""
    if value is None or (isinstance(value, AggregateCall) and value.program is not None):
        return f"{name} with {variable}"
    if isinstance(value, AggregateCall):
        labelled = any(CLASSIFIER in columns_of(arg) for arg in value.args)
    else:
        labelled = value.column == CLASSIFIER
    is_other = labelled if value.variables is None else variable in value.variables
    return f"{spelled(value)} with {variable}" if is_other else spelled(value)


def _column(expr: Expr, name: str) -> Column:
    return next(part for part in walk(expr) if isinstance(part, Column) and part.name == name)


def is_null_of_nulls(expr: Expr) -> bool:
    """Whether an expression is NULL where there is no row."""
    strict = all(
        isinstance(part, Column | Literal | Cast | NestedCall) or (isinstance(part, Call) and part.fn in _STRICT)
        for part in walk(expr)
    )
    return strict and bool(columns_of(expr))

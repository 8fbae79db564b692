"""Conditions of a search: parts that read one row are computed below it, the others compare rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.bind.patterns.values import AT_HAND, MatchRow, MatchValues, is_null_of_nulls
from millstream.expressions.kernel.source import to_kernel_source
from millstream.expressions.nodes import (
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    may_fail,
    substitute,
    told,
    walk,
)
from millstream.plan.patterns.search import CLASSIFIER
from millstream.types import BOOLEAN


def condition_of(variable: str, condition: Expr, values: MatchValues) -> Expr | None:
    """The condition under which a row may be labelled with a variable; None if every row may."""
    return divided(values.settled(condition, variable), values)


def divided(condition: Expr, values: MatchValues) -> Expr | None:
    """A condition of which as much as possible is decided by columns of the rows; None if it always holds.

    What may fail on rows that are never tested stays, behind the rest.
    """
    parts = [part for part in conjuncts(condition) if part != Literal(BOOLEAN, True)]
    if not parts:
        return None
    own = [part for part in parts if _place(part, values) in (AT_HAND, None) and _is_of_rows(part, values)]
    alone = [part for part in own if not may_fail(part)]
    rest = [_reaching(part, values) for part in parts if part not in alone]
    if alone:
        row = _over_rows(conjunction(tuple(alone)), values)
        rest.insert(0, values.reach(row, AT_HAND))
    return conjunction(tuple(rest))


def _reaching(expr: Expr, values: MatchValues) -> Expr:
    """The expression with those parts read from columns of the rows that loops cannot compute."""
    if isinstance(expr, Column | Literal):
        return expr
    place = _place(expr, values)
    if place is not None and _is_of_rows(expr, values) and not may_fail(expr):
        row = _over_rows(expr, values)
        is_there = place.is_last() and not place.shift
        if (is_there or is_null_of_nulls(expr)) and (values.has_column(row) or not _is_loop(row)):
            return replace(values.reach(row, place), said=told(expr))
    return expr.with_children(tuple(_reaching(child, values) for child in expr.children()))


def _place(expr: Expr, values: MatchValues) -> MatchRow | None:
    """The one place that all columns of an expression are read at; None if there are none, or several."""
    places = {found and found[1] for found in map(values.place_of, columns_of(expr))}
    return places.pop() if len(places) == 1 else None


def _is_of_rows(expr: Expr, values: MatchValues) -> bool:
    """Whether an expression reads columns of rows of one place, and nothing else."""
    found = [values.place_of(name) for name in columns_of(expr)]
    return all(at is not None and at[0] != CLASSIFIER for at in found) and len({at and at[1] for at in found}) <= 1


def _over_rows(expr: Expr, values: MatchValues) -> Expr:
    """The expression over the columns of a row."""
    definitions = {name: defined for defined, name in values.added.items()}
    columns: dict[str, Expr] = {}
    for reach in values.reaches.values():
        columns[reach.name] = definitions.get(reach.column, Column(reach.type, reach.column))
    return substitute(expr, columns)


def _is_loop(row: Expr) -> bool:
    """Whether a loop can compute an expression over the columns of a row."""
    if any(part.type.name == "DECIMAL" for part in walk(row)):
        return False
    return to_kernel_source(row, {name: f"c{i}" for i, name in enumerate(sorted(columns_of(row)))}) is not None

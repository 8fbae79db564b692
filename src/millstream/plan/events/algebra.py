"""Logical nodes of the event algebra. Events last from a start to an end, and are ordered by their ends.

Conditions read the columns of the first input and of the second by their names, which differ; `$.x` is what `x` was
after the last iteration; and `$dur` is how long the event that would be made lasts.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import cached_property
from typing import Literal as OneOf

from millstream.expressions.nodes import Expr, columns_of
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.node import Binary, Kind, Node, Unary
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BOOLEAN, SqlType

DUR = "$dur"
LAST = "$."

Assignments = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class Times(Unary):
    """Events with some of their times as columns: when they started or ended, or how long they lasted."""

    columns: tuple[tuple[str, OneOf["start", "end", "duration"]], ...]
    type: SqlType
    works_by_row = gives_its_rows = True

    def __post_init__(self) -> None:
        _require_events(self.input, "times")
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *(Field(name, self.type) for name, _ in self.columns)))

    @property
    def lasts(self) -> bool:
        return self.input.lasts

    def narrowed(self, wanted: Set[str]) -> Node:
        columns = tuple(column for column in self.columns if column[0] in wanted)
        return replace(self, columns=columns) if columns else self.input

    def label(self) -> str:
        return "Times " + ", ".join(f"{name} := {what}" for name, what in self.columns)


@dataclass(frozen=True)
class Since(Unary):
    """Events that started at the value of a column."""

    start: str
    works_by_row = gives_its_rows = lasts = True

    def __post_init__(self) -> None:
        _require_events(self.input, "a start")
        if self.start not in self.input.schema:
            raise ValueError(f"no column {self.start} for the start of events")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset([self.start])

    def label(self) -> str:
        return f"Since {self.start}"


@dataclass(frozen=True)
class Next(Binary):
    """Each event of the first stream with the next of the second that meets a condition: of those that start after the
    first has ended, the one that ends first, or all that end then."""

    kind = Kind.EVENTS

    condition: Expr | None = None
    lasts = True

    def __post_init__(self) -> None:
        _require_events(self.left, "NEXT")
        _require_events(self.right, "NEXT")
        if self.condition is not None:
            _require(self.condition, {*self.schema.names, DUR})
            _require_condition(self.condition)

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def reads(self) -> frozenset[str]:
        return _read(self.condition) - {DUR}

    @property
    def sieves(self) -> frozenset[str]:
        # an event of the first stream looks for its next one whatever others there are
        return frozenset(self.left.schema.names)

    def label(self) -> str:
        return "Next" + ("" if self.condition is None else f" {self.condition}")


@dataclass(frozen=True)
class Fold(Binary):
    """Each event of the first stream with what follows it, again and again.

    The next event of the second stream is the first that meets `condition`, as for Next. If it `continues`, an event is
    given out and the next one is looked for; otherwise that was all. The columns of the second stream have the values
    of its last event; they `begin` with values of the first stream. `updates` are further columns: how they begin,
    and what they become with each event, which may read the `aggregates`.
    """

    kind = Kind.EVENTS

    begins: Assignments
    updates: tuple[tuple[str, Expr, Expr], ...] = ()
    condition: Expr | None = None
    continues: Expr | None = None
    aggregates: tuple[AggregateCall[Expr], ...] = ()
    lasts = True

    def __post_init__(self) -> None:
        _require_events(self.left, "FOLD")
        _require_events(self.right, "FOLD")
        for expr in (*(expr for _, expr in self.begins), *(begin for _, begin, _ in self.updates)):
            _require(expr, set(self.left.schema.names))
        known = {*self.schema.names, DUR, *(LAST + name for name in self.changing)}
        for condition in (self.condition, self.continues):
            if condition is not None:
                _require(condition, known)
                _require_condition(condition)
        for aggregate in self.aggregates:
            for arg in aggregate.args:
                _require(arg, known)
        known |= {aggregate.name for aggregate in self.aggregates}
        for name, begin, becomes in self.updates:
            _require(becomes, known)
            if begin.type != becomes.type:
                raise ValueError(f"{name} begins as {begin.type} and becomes {becomes.type}")
        for name, begin in self.begins:
            if begin.type != self.right.schema[name].type:
                raise ValueError(f"{name} begins as {begin.type}")

    @property
    def changing(self) -> tuple[str, ...]:
        """The columns that are other ones after each iteration and have a value before the first."""
        return (*(name for name, _ in self.begins), *(name for name, _, _ in self.updates))

    @cached_property
    def schema(self) -> Schema:
        made = tuple(Field(name, becomes.type) for name, _, becomes in self.updates)
        return Schema(self.left.schema.fields + self.right.schema.fields + made)

    @property
    def reads(self) -> frozenset[str]:
        conditions = _read(self.condition) | _read(self.continues)
        changed = frozenset().union(*(columns_of(becomes) for _, _, becomes in self.updates))
        begun = frozenset().union(*(columns_of(expr) for _, expr in self.begins))
        begun |= frozenset().union(*(columns_of(begin) for _, begin, _ in self.updates))
        read = conditions | changed | begun | _aggregated(self.aggregates)
        last = frozenset(name.removeprefix(LAST) for name in read if name.startswith(LAST))
        return frozenset(name for name in read | last if name in self.left.schema or name in self.right.schema)

    @property
    def sieves(self) -> frozenset[str]:
        return frozenset(self.left.schema.names)

    def narrowed(self, wanted: Set[str]) -> Node:
        """Without updates, and beginnings of columns, that nobody reads."""
        needed = set(wanted) | {name.removeprefix(LAST) for name in _read(self.condition) | _read(self.continues)}
        computed = [(name, becomes) for name, _, becomes in self.updates]
        computed += [(each.name, arg) for each in self.aggregates for arg in each.args]
        while True:
            more = needed | {
                part.removeprefix(LAST) for name, becomes in computed if name in needed for part in columns_of(becomes)
            }
            if more == needed:
                break
            needed = more
        last = _read(self.condition) | _read(self.continues)
        updates = tuple(update for update in self.updates if update[0] in needed)
        last |= frozenset().union(*(columns_of(becomes) for _, _, becomes in updates))
        aggregates = tuple(each for each in self.aggregates if each.name in needed)
        last |= _aggregated(aggregates)
        begins = tuple(begin for begin in self.begins if LAST + begin[0] in last)
        return replace(self, begins=begins, updates=updates, aggregates=aggregates)

    def label(self) -> str:
        parts = [] if self.condition is None else [str(self.condition)]
        parts += [] if self.continues is None else [f"while {self.continues}"]
        parts += [str(each) for each in self.aggregates]
        parts += [f"{name} := {becomes}" for name, _, becomes in self.updates]
        return " ".join(["Fold", "; ".join(parts)]).rstrip()


def _aggregated(aggregates: tuple[AggregateCall[Expr], ...]) -> frozenset[str]:
    return frozenset().union(*(columns_of(arg) for each in aggregates for arg in each.args))


def _read(condition: Expr | None) -> frozenset[str]:
    return frozenset() if condition is None else columns_of(condition)


def _require(expr: Expr, known: Set[str]) -> None:
    missing = columns_of(expr) - known
    if missing:
        raise ValueError(f"{expr} reads {', '.join(sorted(missing))}, which no input has")


def _require_condition(expr: Expr) -> None:
    if expr.type != BOOLEAN:
        raise ValueError(f"a condition is needed, not {expr.type}")


def _require_events(node: Node, what: str) -> None:
    if node.kind is not Kind.EVENTS:
        raise ValueError(f"{what} of {node.kind.value}")

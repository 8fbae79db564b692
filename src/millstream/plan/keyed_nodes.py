"""Logical plan nodes that work on each key apart: OVER, programs, and windows with their groups."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import cached_property
from typing import Literal as OneOf

from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.lengths import RowLength, length_told, own_reads
from millstream.plan.node import (
    Keyed,
    Node,
    Unary,
    by_told,
    listed,
    require_names,
)
from millstream.plan.programs.modes import Mode
from millstream.plan.programs.nodes import Program
from millstream.plan.window_tables import END, START, OwnWindows, Windows, length_text
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType


@dataclass(frozen=True)
class Calling(Keyed):
    """What operators have in common that compute aggregates over rows of each key. Results stand behind the columns of
    the input, or, where rows become groups, behind the keys."""

    calls: tuple[AggregateCall[str], ...]
    clause = "GROUP BY"

    def __post_init__(self) -> None:
        require_names((*self.keys, *self.args), self.input.schema, self.clause)
        self.schema  # noqa: B018 - refuses duplicate names

    @property
    def args(self) -> tuple[str, ...]:
        return tuple(arg for call in self.calls for arg in call.args)

    @cached_property
    def schema(self) -> Schema:
        below = self.input.schema
        kept = below.fields if self.passes_columns else tuple(below[key] for key in self.keys)
        return Schema((*kept, *(field for call in self.calls for field in call.fields)))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.keys, *self.args))


@dataclass(frozen=True)
class Over(Calling):
    """Aggregates over the rows before each row: one output row per input row, with `calls` added as columns."""

    ends: str | None = None
    """a key that is the time of the rows: once time has passed it, no row of that partition comes any more"""
    clause = "OVER"

    @property
    def reads(self) -> frozenset[str]:
        own = (call.frame.own for call in self.calls)
        return frozenset((*self.keys, *self.args)).union(*(length.reads for length in own if length is not None))

    def narrowed(self, wanted: Set[str]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        return replace(self, calls=calls) if calls else self.input

    def label(self) -> str:
        return f"Over{by_told(self.keys)}: {'; '.join(map(str, self.calls))}"


@dataclass(frozen=True)
class Aggregate(Keyed):
    """A program over the rows of each partition: for every row that it returns, the row that was worked on and what was
    returned.

    `base`, if there is one, is the version without a window of the aggregate that `program` is, for rules that compute
    its windows in another way.
    """

    program: Program
    args: tuple[str, ...]
    mode: Mode
    results: tuple[str, ...]
    base: Program | None = None

    def __post_init__(self) -> None:
        require_names((*self.keys, *self.args), self.input.schema, self.program.name)
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        results = zip(self.results, self.program.result, strict=True)
        return Schema((*self.input.schema.fields, *(Field(name, field.type) for name, field in results)))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.keys, *self.args))

    def label(self) -> str:
        call = f"{self.program.name}({listed(self.args)})"
        return f"Aggregate{by_told(self.keys)}: {listed(self.results)} := {call} {self.mode}"


@dataclass(frozen=True)
class Yield(Keyed):
    """Of each partition only the rows that yield: every `every`-th, or the last in each slot of `every` µs."""

    unit: OneOf["rows", "range"]
    every: int

    def __post_init__(self) -> None:
        require_names(self.keys, self.input.schema, "SLIDE")

    def label(self) -> str:
        every = f"{self.every} rows" if self.unit == "rows" else length_told(self.every)
        return f"Slide{by_told(self.keys)} {every}"


@dataclass(frozen=True)
class RowSlots(Calling):
    """Every `every`-th row of a partition, with aggregates over the last rows since the one before, as frames say."""

    every: int
    clause = "SLIDE"

    def narrowed(self, wanted: Set[str]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        return replace(self, calls=calls) if calls else Yield(self.input, self.keys, "rows", self.every)

    def label(self) -> str:
        return f"Slots{by_told(self.keys)} of {self.every} rows: {'; '.join(map(str, self.calls))}"


@dataclass(frozen=True)
class AssignWindows(Unary):
    """Each row once for every window that its time is in, with the window's bounds as columns of type `type`."""

    windows: Windows
    type: SqlType
    works_by_row = True

    def __post_init__(self) -> None:
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return _with_bounds(self.input.schema, self.type)

    @property
    def reads(self) -> frozenset[str]:
        return self.windows.reads if isinstance(self.windows, OwnWindows) else frozenset()

    def label(self) -> str:
        return f"Windows {self.windows.describe(self.type)}"


@dataclass(frozen=True)
class Sessions(Keyed):
    """Each row, once its session has ended, with the session's bounds: a session of a key ends when no row has come
    for `gap`. The rows' time is then the last instant of the session."""

    gap: RowLength | int
    type: SqlType

    def __post_init__(self) -> None:
        require_names(tuple(self.reads), self.input.schema, "SESSION")
        self.schema  # noqa: B018 - refuses duplicate names

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.keys) | own_reads(self.gap)

    @cached_property
    def schema(self) -> Schema:
        return _with_bounds(self.input.schema, self.type)

    def label(self) -> str:
        return f"Sessions{by_told(self.keys)} gap {length_text(self.gap, self.type)}"


@dataclass(frozen=True)
class Group(Calling):
    """Aggregates over the rows of each group, with the group's keys, when time has come to the value of the key `ends`,
    which is then the time of that row. One that is a program and stands alone may give any number of rows."""

    ends: str
    passes_columns = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ends not in self.keys:
            raise ValueError("groups end by one of their keys")

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(name for call in self.calls for name in call.names)

    def label(self) -> str:
        what = f"{listed(self.results)} := {', '.join(call.fn for call in self.calls)}({listed(self.args) or '*'})"
        return f"Group by {listed(self.keys)} until {self.ends}: {what}"


def _with_bounds(schema: Schema, type_: SqlType) -> Schema:
    return Schema((*schema.fields, Field(START, type_), Field(END, type_)))

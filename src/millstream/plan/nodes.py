"""Logical plan nodes: what a query means."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal as OneOf

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.lengths import length_told
from millstream.plan.node import (
    Keyed,
    Kind,
    Node,
    Pairs,
    Unary,
    condition_text,
    listed,
    read_by,
    rebuild,
    require,
    require_names,
    require_pairs,
    some,
    walk,
)
from millstream.plan.programs.modes import Mode
from millstream.plan.programs.nodes import Program
from millstream.plan.window_tables import END, START, Windows, length_text
from millstream.schema import Field, Schema
from millstream.types import BOOLEAN, SqlType

__all__ = [
    "MOST_INPUTS",
    "Aggregate",
    "AssignWindows",
    "Distinct",
    "Filter",
    "Group",
    "JoinTable",
    "Kind",
    "Node",
    "Over",
    "Project",
    "Scan",
    "Sessions",
    "TableHow",
    "TableQuery",
    "TableScan",
    "Unary",
    "Union",
    "RowSlots",
    "Yield",
    "passthrough",
    "rebuild",
    "table_join_schema",
    "walk",
]


MOST_INPUTS = 16
"""Streams that are merged at once: a few bits of a row's number tell which one it came from."""


@dataclass(frozen=True)
class Scan(Node):
    """A declared stream: its rows in order, or (`side`) those that came too late, or those that were refused."""

    stream: str
    columns: Schema
    side: OneOf["main", "late", "errors"] = "main"

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def kind(self) -> Kind:
        return Kind.EVENTS

    def narrowed(self, wanted: Set[str]) -> Node:
        return replace(self, columns=some(self.columns, wanted))

    def label(self) -> str:
        name = self.stream if self.side == "main" else f"{self.side.upper()}({self.stream})"
        return f"Scan {name} {', '.join(self.columns.names)}"


@dataclass(frozen=True)
class TableScan(Node):
    """A stored table as it is at the moment a row meets it."""

    table: str
    columns: Schema

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def kind(self) -> Kind:
        return Kind.TABLE

    def narrowed(self, wanted: Set[str]) -> Node:
        return replace(self, columns=some(self.columns, wanted))

    def label(self) -> str:
        return f"Table {self.table} {', '.join(self.columns.names)}"


@dataclass(frozen=True)
class TableQuery(Node):
    """The answer of a query over stored tables alone, as the table store gives it at the moment a row meets it."""

    sql: str
    tables: tuple[str, ...]
    columns: Schema

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def kind(self) -> Kind:
        return Kind.TABLE

    def narrowed(self, wanted: Set[str]) -> Node:
        return replace(self, columns=some(self.columns, wanted))

    def label(self) -> str:
        return f"TableQuery {self.sql}"


@dataclass(frozen=True)
class Filter(Unary):
    """The rows for which `predicate` is true (neither false nor NULL)."""

    predicate: Expr

    def __post_init__(self) -> None:
        if self.predicate.type != BOOLEAN:
            raise ValueError(f"a filter needs a condition, not {self.predicate.type}")
        require(self.predicate, self.input.schema)

    @property
    def reads(self) -> frozenset[str]:
        return columns_of(self.predicate)

    @property
    def lasts(self) -> bool:
        return self.input.lasts

    def apart(self, by: tuple[str, ...]) -> Node | None:
        return self

    def label(self) -> str:
        return f"Filter {self.predicate}"


@dataclass(frozen=True)
class Project(Unary):
    """New columns computed from each row."""

    columns: tuple[tuple[str, Expr], ...]
    passes_columns = False

    def __post_init__(self) -> None:
        for _, expr in self.columns:
            require(expr, self.input.schema)
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, expr.type) for name, expr in self.columns))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(columns_of(expr) for _, expr in self.columns))

    def narrowed(self, wanted: Set[str]) -> Node:
        kept = tuple(column for column in self.columns if column[0] in wanted)
        return replace(self, columns=kept or self.columns[:1])

    @property
    def lasts(self) -> bool:
        return self.input.lasts

    def apart(self, by: tuple[str, ...]) -> Node | None:
        return replace(
            self, columns=(*((name, Column(self.input.schema[name].type, name)) for name in by), *self.columns)
        )

    def label(self) -> str:
        return "Project " + ", ".join(name if _is(expr, name) else f"{name} := {expr}" for name, expr in self.columns)


@dataclass(frozen=True)
class Union(Node):
    """Several streams of the same columns merged in order of time (UNION ALL)."""

    branches: tuple[Node, ...]
    works_by_row = gives_its_rows = True

    def __post_init__(self) -> None:
        if len(self.branches) < 2:
            raise ValueError("a union needs two inputs")
        if any(branch.schema != self.branches[0].schema for branch in self.branches):
            raise ValueError("inputs of a union have the same columns")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, branches=inputs)

    @property
    def schema(self) -> Schema:
        return self.branches[0].schema

    @property
    def lasts(self) -> bool:
        return any(branch.lasts for branch in self.branches)

    def label(self) -> str:
        return "Union"


@dataclass(frozen=True)
class Distinct(Unary):
    """Of equal events at the same time only the first (what UNION without ALL removes)."""

    works_by_row = gives_its_rows = compares_rows = True

    def label(self) -> str:
        return "Distinct"


TableHow = OneOf["inner", "left", "single", "semi", "anti", "mark"]


@dataclass(frozen=True)
class JoinTable(Node):
    """Each row of a stream with the matching rows of a stored table.

    `pairs` are equalities (stream side, table side); `residual` is any further condition on both. With `left`, a row
    without a match appears once with NULLs; `single` is the same where more than one match is an error. `semi` and
    `anti` give the rows that have a match, or none; `mark` gives all, and tells which in a column named `mark`.
    """

    input: Node
    table: Node
    pairs: Pairs
    residual: Expr | None = None
    how: TableHow = "inner"
    mark: str = ""

    def __post_init__(self) -> None:
        if self.table.kind is not Kind.TABLE:
            raise ValueError("the right side of a table join is a stored table")
        require_pairs(self.pairs, self.input.schema, self.table.schema)
        if self.residual is not None:
            require(self.residual, self.both)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.table)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0], table=inputs[1])

    @cached_property
    def both(self) -> Schema:
        """The columns that conditions may read."""
        return Schema(self.input.schema.fields + self.table.schema.fields)

    @cached_property
    def schema(self) -> Schema:
        return table_join_schema(self.input.schema, self.table.schema, self.how, self.mark)

    @property
    def reads(self) -> frozenset[str]:
        return read_by(self.pairs, self.residual)

    @property
    def lasts(self) -> bool:
        return self.input.lasts

    def label(self) -> str:
        how = "" if self.how == "inner" else self.how.capitalize()
        return f"{how}JoinTable {condition_text(self.pairs, self.residual)}"


def table_join_schema(stream: Schema, table: Schema, how: TableHow, mark: str) -> Schema:
    """The columns of a join with a stored table."""
    match how:
        case "semi" | "anti":
            return stream
        case "mark":
            return Schema((*stream.fields, Field(mark, BOOLEAN)))
    return Schema(stream.fields + table.fields)


@dataclass(frozen=True)
class Over(Keyed):
    """Aggregates over the rows before each row: one output row per input row, with `calls` added as columns."""

    calls: tuple[AggregateCall, ...]
    ends: str | None = None
    """a key that is the time of the rows: once time has passed it, no row of that partition comes any more"""

    def __post_init__(self) -> None:
        arguments = (call.arg for call in self.calls if call.arg is not None)
        require_names((*self.keys, *arguments), self.input.schema, "OVER")
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.input.schema.fields + tuple(Field(call.name, call.type) for call in self.calls))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.keys, *(call.arg for call in self.calls if call.arg is not None)))

    def narrowed(self, wanted: Set[str]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        return replace(self, calls=calls) if calls else self.input

    def label(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"Over{by}: {'; '.join(map(str, self.calls))}"


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
        by = f" by {listed(self.keys)}" if self.keys else ""
        return f"Aggregate{by}: {listed(self.results)} := {self.program.name}({listed(self.args)}) {self.mode}"


@dataclass(frozen=True)
class Yield(Keyed):
    """Of each partition only the rows that yield: every `every`-th, or the last in each slot of `every` µs."""

    unit: OneOf["rows", "range"]
    every: int

    def __post_init__(self) -> None:
        require_names(self.keys, self.input.schema, "SLIDE")

    def label(self) -> str:
        by = f" by {listed(self.keys)}" if self.keys else ""
        every = f"{self.every} rows" if self.unit == "rows" else length_told(self.every)
        return f"Slide{by} {every}"


@dataclass(frozen=True)
class RowSlots(Keyed):
    """Every `every`-th row of a partition, with aggregates over the last rows since the one before, as frames say."""

    calls: tuple[AggregateCall, ...]
    every: int

    def __post_init__(self) -> None:
        require_names((*self.keys, *(arg for call in self.calls for arg in call.args)), self.input.schema, "SLIDE")
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *(field for call in self.calls for field in call.fields)))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.keys, *(arg for call in self.calls for arg in call.args)))

    def narrowed(self, wanted: Set[str]) -> Node:
        calls = tuple(call for call in self.calls if call.name in wanted)
        return replace(self, calls=calls) if calls else Yield(self.input, self.keys, "rows", self.every)

    def label(self) -> str:
        by = f" by {listed(self.keys)}" if self.keys else ""
        return f"Slots{by} of {self.every} rows: {'; '.join(map(str, self.calls))}"


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

    def label(self) -> str:
        return f"Windows {self.windows.describe(self.type)}"


@dataclass(frozen=True)
class Sessions(Keyed):
    """Each row, once its session has ended, with the session's bounds: a session of a key ends when no row has come
    for `gap`. The rows' time is then the last instant of the session."""

    gap: int
    type: SqlType

    def __post_init__(self) -> None:
        require_names(self.keys, self.input.schema, "SESSION")
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return _with_bounds(self.input.schema, self.type)

    def label(self) -> str:
        by = f" by {listed(self.keys)}" if self.keys else ""
        return f"Sessions{by} gap {length_text(self.gap, self.type)}"


@dataclass(frozen=True)
class Group(Keyed):
    """Aggregates over the rows of each group, with the group's keys, when time has come to the value of the key `ends`,
    which is then the time of that row. One that is a program and stands alone may give any number of rows."""

    ends: str
    calls: tuple[AggregateCall, ...]
    passes_columns = False

    def __post_init__(self) -> None:
        require_names((*self.keys, *self.args), self.input.schema, "GROUP BY")
        if self.ends not in self.keys:
            raise ValueError("groups end by one of their keys")
        self.schema  # noqa: B018 - refuses duplicate names

    @property
    def args(self) -> tuple[str, ...]:
        return tuple(arg for call in self.calls for arg in call.args)

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(name for call in self.calls for name in call.names)

    @cached_property
    def schema(self) -> Schema:
        keys = tuple(self.input.schema[key] for key in self.keys)
        return Schema((*keys, *(field for call in self.calls for field in call.fields)))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.keys, *self.args))

    def label(self) -> str:
        what = f"{listed(self.results)} := {', '.join(call.fn for call in self.calls)}({listed(self.args) or '*'})"
        return f"Group by {listed(self.keys)} until {self.ends}: {what}"


def passthrough(schema: Schema) -> tuple[tuple[str, Expr], ...]:
    """Columns of a projection that keeps `schema` as it is."""
    return tuple((field.name, Column(field.type, field.name)) for field in schema)


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, Column) and expr.name == name


def _with_bounds(schema: Schema, type_: SqlType) -> Schema:
    return Schema((*schema.fields, Field(START, type_), Field(END, type_)))

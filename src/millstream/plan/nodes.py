"""Logical plan nodes: what a query means."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import cached_property
from typing import Any
from typing import Literal as OneOf

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.plan.keyed_nodes import Aggregate, AssignWindows, Group, Over, RowSlots, Sessions, Yield
from millstream.plan.node import (
    Kind,
    Node,
    Pairs,
    Unary,
    condition_text,
    read_by,
    rebuild,
    require,
    require_pairs,
    some,
    walk,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import ARRAY, BOOLEAN

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


class Columned(Node):
    """What has columns of its own, as a field, and no input."""

    columns: Schema

    @property
    def schema(self) -> Schema:
        return self.columns

    def narrowed(self, wanted: Set[str]) -> Node:
        known: Any = self
        narrower: Node = replace(known, columns=some(self.columns, wanted))
        return narrower


@dataclass(frozen=True)
class Scan(Columned):
    """A declared stream: its rows in order, or (`side`) those that came too late, or those that were refused."""

    kind = Kind.EVENTS

    stream: str
    columns: Schema
    side: OneOf["main", "late", "errors"] = "main"
    key: tuple[str, ...] = ()
    """columns in which no two of its rows are equal, if that was declared"""

    def label(self) -> str:
        name = self.stream if self.side == "main" else f"{self.side.upper()}({self.stream})"
        return f"Scan {name} {', '.join(self.columns.names)}"


@dataclass(frozen=True)
class TableScan(Columned):
    """A stored table as it is at the moment a row meets it."""

    kind = Kind.TABLE

    table: str
    columns: Schema

    def label(self) -> str:
        return f"Table {self.table} {', '.join(self.columns.names)}"


@dataclass(frozen=True)
class TableQuery(Columned):
    """The answer of a query over stored tables alone, as the table store gives it at the moment a row meets it."""

    kind = Kind.TABLE

    sql: str
    tables: tuple[str, ...]
    columns: Schema

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


TableHow = OneOf["inner", "left", "single", "semi", "anti", "mark", "gather"]


@dataclass(frozen=True)
class JoinTable(Node):
    """Each row of a stream with the matching rows of a stored table.

    `pairs` are equalities (stream side, table side); `residual` is any further condition on both. With `left`, a row
    without a match appears once with NULLs; `single` is the same where more than one match is an error. `semi` and
    `anti` give the rows that have a match, or none; `mark` gives all, and tells which in a column named `mark`.
    `gather` gives the rows that have a match once each, with the columns of all matches as arrays.
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
        case "gather":
            return Schema((*stream.fields, *(Field(each.name, ARRAY(each.type)) for each in table)))
    return Schema(stream.fields + table.fields)


def passthrough(schema: Schema) -> tuple[tuple[str, Expr], ...]:
    """Columns of a projection that keeps `schema` as it is."""
    return tuple((field.name, Column(field.type, field.name)) for field in schema)


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, Column) and expr.name == name

"""Logical nodes of the snapshot algebra: tables that change with time, and the ways into and out of them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import cached_property
from typing import Literal as OneOf

from millstream.expressions.nodes import Expr
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.arrangements import Arrangement
from millstream.plan.keyed_nodes import Calling
from millstream.plan.lengths import RowLength, length_told, own_reads
from millstream.plan.node import (
    Binary,
    Keyed,
    Kind,
    Node,
    Pairs,
    Unary,
    by_told,
    condition_text,
    listed,
    read_by,
    require,
    require_names,
    require_pairs,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema, unique_names
from millstream.types import SqlType

Form = OneOf["intervals", "changes"]
"""How a relation runs: rows with intervals, or the changes from instant to instant."""

Forms = OneOf["auto", "intervals", "changes"]
"""auto: as the planner chooses"""

FROM = "valid_from"
TO = "valid_to"


@dataclass(frozen=True)
class RangeWindow:
    """Each row for `size` units of time from its own on (None is for ever), moving every `slide` units; 1 is NOW."""

    size: int | None
    slide: int = 1

    def __post_init__(self) -> None:
        if (self.size is not None and self.size <= 0) or self.slide <= 0:
            raise ValueError("a window and its slide are positive")

    def __str__(self) -> str:
        if self.size is None:
            return "RANGE UNBOUNDED"
        if self == RangeWindow(1):
            return "NOW"
        slide = f" SLIDE {length_told(self.slide)}" if self.slide > 1 else ""
        return f"RANGE {length_told(self.size)}{slide}"


@dataclass(frozen=True)
class RowsWindow:
    """The last `rows` rows (None is all) of each partition, moving every `slide` rows."""

    rows: RowLength | int | None
    by: tuple[str, ...] = ()
    slide: int = 1

    def __post_init__(self) -> None:
        if (isinstance(self.rows, int) and self.rows <= 0) or self.slide <= 0:
            raise ValueError("a window and its slide are positive")

    def __str__(self) -> str:
        by = f"PARTITION BY {listed(self.by)} " if self.by else ""
        slide = f" SLIDE {self.slide}" if self.slide > 1 else ""
        return f"{by}ROWS {'UNBOUNDED' if self.rows is None else self.rows}{slide}"


@dataclass(frozen=True)
class Periods:
    """Each row from its own time until that in a column, or for ever where that is NULL: rows bring their validity."""

    until: str
    slide = 1

    def __str__(self) -> str:
        return f"UNTIL {self.until}"


@dataclass(frozen=True)
class OwnRange:
    """Each row for so long as it says itself, from its own time on."""

    length: RowLength
    slide = 1

    def __str__(self) -> str:
        return f"RANGE {self.length}"


WindowKind = RangeWindow | RowsWindow | Periods | OwnRange


@dataclass(frozen=True)
class Window(Unary):
    """Events as a relation: each row is valid while the window holds it."""

    kind = Kind.RELATION

    window: WindowKind

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.EVENTS:
            raise ValueError("a window takes events")
        require_names(tuple(self.reads), self.input.schema, "WINDOW")

    @property
    def reads(self) -> frozenset[str]:
        match self.window:
            case RowsWindow(by=by, rows=rows):
                return frozenset(by) | own_reads(rows)
            case Periods(until=until):
                return frozenset([until])
            case OwnRange(length=length):
                return length.reads
        return frozenset()

    @property
    def sieves(self) -> frozenset[str]:
        # a window of time holds a row whatever other rows there are; one of rows would reach further back
        return self.reads if isinstance(self.window, RowsWindow) else frozenset(self.schema.names)

    @property
    def gives_its_rows(self) -> bool:
        return isinstance(self.window, RangeWindow) and self.window.slide == 1

    def apart(self, by: tuple[str, ...]) -> Node | None:
        if not isinstance(self.window, RowsWindow):
            return self
        return replace(self, window=replace(self.window, by=(by[0], *self.window.by)))

    def label(self) -> str:
        return f"Window {self.window}"


@dataclass(frozen=True)
class Coarsen(Unary):
    """A relation at instants that are multiples of `granule` (GRANULARITY)."""

    granule: int
    works_by_row = True

    def label(self) -> str:
        return f"Granularity {length_told(self.granule)}"


How = OneOf["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class Join(Binary):
    """Pairs of rows that are valid at the same time and match: `pairs` are equalities (left side, right side),
    `residual` is any further condition on both.

    Outer joins add, while a row matches nothing, that row with NULLs; semi and anti joins give rows of the left side
    while they match something, or nothing.
    """

    pairs: Pairs
    residual: Expr | None = None
    how: How = "inner"

    def __post_init__(self) -> None:
        require_pairs(self.pairs, self.left.schema, self.right.schema)
        if self.residual is not None:
            require(self.residual, self.both)
        if {self.left.kind, self.right.kind} != {Kind.RELATION}:
            raise ValueError("a join takes two relations")

    @cached_property
    def both(self) -> Schema:
        """The columns that conditions may read."""
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def schema(self) -> Schema:
        return self.left.schema if self.how in ("semi", "anti") else self.both

    @property
    def reads(self) -> frozenset[str]:
        return read_by(self.pairs, self.residual)

    def label(self) -> str:
        how = "" if self.how == "inner" else self.how.capitalize()
        return f"{how}Join {condition_text(self.pairs, self.residual)}"


@dataclass(frozen=True)
class Summarize(Calling):
    """At each instant one row for each group that has rows then: the keys, and aggregates over its rows."""

    passes_columns = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input.kind is not Kind.RELATION:
            raise ValueError("groups of an instant need a relation")

    def narrowed(self, wanted: Set[str]) -> Node:
        calls = tuple(call for call in self.calls if wanted & set(call.names))
        return replace(self, calls=calls or (() if self.keys else self.calls[:1]))

    def label(self) -> str:
        return f"Summarize{by_told(self.keys)}: {'; '.join(map(str, self.calls))}"


def arranged_call(schema: Schema, keys: tuple[str, ...], arrangement: Arrangement) -> AggregateCall[str]:
    """The aggregate that gives back the rows of a group, arranged; its results are all columns but the keys, and those
    that are added. Of the keys, it is given those that the arrangement reads, behind the others."""
    others = tuple(field for field in schema if field.name not in keys)
    made = (*others, *arrangement.fields)
    read = set(replace(arrangement, ties=()).reads)
    return AggregateCall(
        tuple(field.name for field in made),
        "arranged",
        (*(field.name for field in others), *(key for key in keys if key in read)),
        tuple(field.type for field in made),
        arrangement=arrangement,
    )


@dataclass(frozen=True)
class Arrange(Keyed):
    """At each instant, the rows of each partition that are valid then, arranged: what OVER and ORDER BY … LIMIT say of
    a table, of a relation. Rows of equal order are told apart by their values."""

    compares_rows = True

    arrangement: Arrangement

    def __post_init__(self) -> None:
        require_names((*self.keys, *self.arrangement.reads), self.input.schema, "OVER")
        if self.input.kind is not Kind.RELATION:
            raise ValueError("rows of an instant need a relation")
        self.schema  # noqa: B018 - refuses duplicate names

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *self.arrangement.fields))

    def label(self) -> str:
        return f"Arrange{by_told(self.keys)} {self.arrangement}"


@dataclass(frozen=True)
class SetOperation(Binary):
    """EXCEPT or INTERSECT of two relations of the same columns, as bags (`all`) or as sets."""

    op: OneOf["except", "intersect"]
    all: bool
    works_by_row = compares_rows = True

    def __post_init__(self) -> None:
        if self.left.schema != self.right.schema:
            raise ValueError(f"inputs of {self.op} have the same columns")

    @property
    def schema(self) -> Schema:
        return self.left.schema

    def label(self) -> str:
        return f"{self.op.capitalize()}{' all' if self.all else ''}"


@dataclass(frozen=True)
class ToEvents(Unary):
    """A relation as events: rows as they come to be valid (istream), as they cease to be (dstream), or at every
    multiple of `granule` at which they are (rstream)."""

    kind = Kind.EVENTS

    how: OneOf["istream", "dstream", "rstream"]
    granule: int = 1
    works_by_row = True

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.RELATION:
            raise ValueError(f"{self.how} takes a relation")

    @property
    def compares_rows(self) -> bool:
        return self.how != "rstream"

    def label(self) -> str:
        return f"{self.how.capitalize()}"


@dataclass(frozen=True)
class Validity(Unary):
    """A relation's rows with the bounds of their validity as columns: what a query delivers."""

    kind = Kind.EVENTS

    type: SqlType
    compares_rows = True

    @cached_property
    def schema(self) -> Schema:
        own = self.input.schema
        names = unique_names((*own.names, FROM, TO))[len(own) :]
        return Schema((*own.fields, *(Field(name, self.type) for name in names)))

    def apart(self, by: tuple[str, ...]) -> Node | None:
        return self

    def label(self) -> str:
        return "Validity"

"""Rows with the same time, sorted by further columns."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.node import Kind, Node, Unary, by_told, require_names
from millstream.records import dataclass


@dataclass(frozen=True)
class SortKey:
    """A column to sort by: upwards, or with `down` downwards; NULLs come last, or first."""

    column: str
    down: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return self.column + (" DESC" if self.down else "") + (" NULLS FIRST" if self.nulls_first else "")


@dataclass(frozen=True)
class Ties(Unary):
    """The rows of each partition that have equal times, sorted; those that are equal there, too, as they came."""

    keys: tuple[str, ...]
    by: tuple[SortKey, ...]
    works_by_row = True

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.EVENTS:
            raise ValueError("only events have ties")
        require_names((*self.keys, *(key.column for key in self.by)), self.input.schema, "ORDER BY")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((*self.keys, *(key.column for key in self.by)))

    def apart(self, by: tuple[str, ...]) -> Node | None:
        return replace(self, keys=(by[0], *self.keys))

    def label(self) -> str:
        return f"Ties{by_told(self.keys)} in order of {', '.join(map(str, self.by))}"

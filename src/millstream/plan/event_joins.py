"""Logical nodes of joins whose result is events: rows of two streams that happened near each other."""

from __future__ import annotations

from functools import cached_property
from typing import Literal as OneOf

from millstream.plan.node import Binary, Kind, Pairs, Unary, read_by, require_names, require_pairs
from millstream.records import dataclass
from millstream.schema import Schema

Comparison = OneOf[">=", ">", "<=", "<"]


@dataclass(frozen=True)
class AtWindowEnd(Unary):
    """Rows of a window table as a relation: each is valid for the last instant of its window, which ends at the value
    of `end`; or, `after` it, for the instant at which it has ended."""

    kind = Kind.RELATION

    end: str
    after: bool = False
    works_by_row = True

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.EVENTS:
            raise ValueError("the ends of windows are of events")
        require_names((self.end,), self.input.schema, "the end of windows")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset([self.end])

    def label(self) -> str:
        return f"{'After' if self.after else 'At'} {self.end}"


@dataclass(frozen=True)
class Lasting:
    """Rows whose column `match` is NULL (None: all rows) count only if they are valid for exactly `size`."""

    match: str | None
    size: int

    def __str__(self) -> str:
        return f"{'rows' if self.match is None else f'rows without {self.match}'} that last {self.size}"


@dataclass(frozen=True)
class Starts(Unary):
    """A relation's rows as events at their starts; what ends does not matter, nor what equals what.

    `times` are columns that hold this time. `lasting` leaves out rows without a match that had one at another time.
    """

    kind = Kind.EVENTS

    times: tuple[str, ...] = ()
    lasting: tuple[Lasting, ...] = ()
    works_by_row = True

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.RELATION:
            raise ValueError("starts are of a relation")
        require_names(tuple(sorted(self.reads)), self.input.schema, "starts")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(each.match for each in self.lasting if each.match is not None)

    def label(self) -> str:
        return "Starts" + (f" of {', '.join(map(str, self.lasting))}" if self.lasting else "")


@dataclass(frozen=True)
class AsofJoin(Binary):
    """Each event of the left side with one of the right side that is equal in `pairs`: the nearest in time for which
    left time `op` right time holds. With `outer`, an event without one appears with NULLs."""

    pairs: Pairs
    op: Comparison
    outer: bool = False
    times: tuple[str, ...] = ()
    """columns that hold the time of the result"""
    works_by_row = True

    def __post_init__(self) -> None:
        if {self.left.kind, self.right.kind} != {Kind.EVENTS}:
            raise ValueError("an ASOF join takes events")
        require_pairs(self.pairs, self.left.schema, self.right.schema)

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def reads(self) -> frozenset[str]:
        return read_by(self.pairs)

    def label(self) -> str:
        on = "".join(f" AND {mine} = {theirs}" for mine, theirs in self.pairs)
        return f"{'Left' if self.outer else ''}AsofJoin left time {self.op} right time{on}"

"""LATENESS: rows that were late for their stream and are not for a window that stays open longer."""

from __future__ import annotations

from millstream.plan.lengths import length_told
from millstream.plan.node import Binary, Kind
from millstream.records import dataclass
from millstream.schema import Schema


@dataclass(frozen=True)
class AdmitLate(Binary):
    """The rows of a stream (left) and those that were late for it (right) by at most `length`, in order of their times.
    All of them come by `length` later than those in time would."""

    gives_its_rows = True

    time: str
    """the column with the times"""
    length: int

    def __post_init__(self) -> None:
        if self.left.schema != self.right.schema or self.time not in self.left.schema:
            raise ValueError("late rows have the columns of the others")
        if self.kind is not Kind.EVENTS or self.length < 1:
            raise ValueError("events may be late by some time")

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((self.time,))

    def label(self) -> str:
        return f"Lateness {length_told(self.length)}"

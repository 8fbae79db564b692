"""Lengths of windows: those that each row has of its own, and how plans print them, as time or as numbers where streams
are ordered by numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.records import dataclass

_by_number = ContextVar("by_number", default=False)


@dataclass(frozen=True, slots=True)
class RowLength:
    """A length that each row has of its own: so many units of time, or an interval. It is the same for all rows of a
    query, which has it as a constant."""

    of: Expr
    unit: int = 1

    @property
    def column(self) -> str:
        """The column that has it, once constants are columns."""
        assert isinstance(self.of, Column)
        return self.of.name

    @property
    def reads(self) -> frozenset[str]:
        return columns_of(self.of)

    def __str__(self) -> str:
        return str(self.of) if self.unit == 1 else f"{self.of} * {length_told(self.unit)}"


def own_reads(length: object) -> frozenset[str]:
    """The columns that a length is read from, if rows have it of their own."""
    return length.reads if isinstance(length, RowLength) else frozenset()


def length_told(length: int) -> str:
    """A length of time in the words of the query that is printed."""
    return str(length) if _by_number.get() else f"[{timedelta(microseconds=length)}]"


@contextmanager
def lengths_told(*, by_number: bool) -> Iterator[None]:
    """Within, lengths are told as numbers or as time. Plans do not know: to them, time is a number always."""
    before = _by_number.set(by_number)
    try:
        yield
    finally:
        _by_number.reset(before)

"""Windows of TUMBLE, HOP and CUMULATE: which stretches of time a row belongs to."""

from __future__ import annotations

from datetime import timedelta

from millstream.plan.lengths import RowLength
from millstream.records import dataclass
from millstream.types import SqlType

START, END = "window_start", "window_end"
"""The columns that window tables add to their rows."""


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows [start, start + size): one begins every `slide`, counted from `offset`. If the slide is as long as the
    size, each row is in exactly one (TUMBLE)."""

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0:
            raise ValueError("a window has a positive length and moves on")

    @property
    def most(self) -> int:
        """In how many windows a row is, at most."""
        return -(-self.size // self.slide)

    def describe(self, type_: SqlType) -> str:
        """The windows on bounds of a type, for EXPLAIN."""
        size, slide = (length_text(length, type_) for length in (self.size, self.slide))
        shape = f"TUMBLE {size}" if self.size == self.slide else f"HOP {size} every {slide}"
        return shape + _offset(self.offset, type_)


@dataclass(frozen=True, slots=True)
class Cumulating:
    """Windows that begin every `size`, counted from `offset`, and grow by `step` until they are as long as that."""

    size: int
    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.step <= 0 or self.size % self.step:
            raise ValueError("a window grows by steps of which a whole number makes its size")

    @property
    def most(self) -> int:
        """In how many windows a row is, at most."""
        return self.size // self.step

    def describe(self, type_: SqlType) -> str:
        """The windows on bounds of a type, for EXPLAIN."""
        size, step = (length_text(length, type_) for length in (self.size, self.step))
        return f"CUMULATE {size} by {step}{_offset(self.offset, type_)}"


@dataclass(frozen=True, slots=True)
class OwnTumbling:
    """Windows that follow one another, of the length that each row says itself."""

    size: RowLength
    most = 1

    def describe(self, type_: SqlType) -> str:
        """The windows on bounds of a type, for EXPLAIN."""
        return f"TUMBLE {self.size}"


FixedWindows = Hopping | Cumulating
Windows = FixedWindows | OwnTumbling


def length_text(length: int, type_: SqlType) -> str:
    """A length between bounds of a type: a number, or a length of time."""
    return str(length) if type_.is_integer else str(timedelta(microseconds=length))


def _offset(offset: int, type_: SqlType) -> str:
    return f" from {length_text(offset, type_)}" if offset else ""

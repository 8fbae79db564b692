"""Windows of TUMBLE, HOP and CUMULATE: which stretches of time a row belongs to."""

from __future__ import annotations

from datetime import timedelta

from millstream.plan.lengths import RowLength, own_reads
from millstream.records import dataclass
from millstream.types import SqlType

START, END = "window_start", "window_end"
"""The columns that window tables add to their rows."""

MOST_WINDOWS = 10_000
"""In how many windows a row may be: so often it is copied."""


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows [start, start + size): one begins every `slide`, counted from `offset`. If the slide is as long as the
    size, each row is in exactly one (TUMBLE)."""

    size: int
    slide: int
    offset: int = 0
    grows = False

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
    grows = True

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
class OwnWindows:
    """Windows whose lengths each row says itself. One begins every `slide`, or where another one ends; if they grow,
    one begins every `size`, and they grow by `slide` until they are as long as that."""

    size: RowLength | int
    slide: RowLength | int | None = None
    grows: bool = False

    @property
    def most(self) -> int:
        """In how many windows a row is, at most."""
        return 1 if self.slide is None else MOST_WINDOWS

    @property
    def reads(self) -> frozenset[str]:
        return own_reads(self.size) | own_reads(self.slide)

    def describe(self, type_: SqlType) -> str:
        """The windows on bounds of a type, for EXPLAIN."""
        size = length_text(self.size, type_)
        if self.slide is None:
            return f"TUMBLE {size}"
        slide = length_text(self.slide, type_)
        return f"CUMULATE {size} by {slide}" if self.grows else f"HOP {size} every {slide}"


FixedWindows = Hopping | Cumulating
Windows = FixedWindows | OwnWindows


def length_text(length: RowLength | int, type_: SqlType) -> str:
    """A length between bounds of a type: a number, or a length of time."""
    if isinstance(length, RowLength) or type_.is_integer:
        return str(length)
    return str(timedelta(microseconds=length))


def _offset(offset: int, type_: SqlType) -> str:
    return f" from {length_text(offset, type_)}" if offset else ""

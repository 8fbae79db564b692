"""Frames of OVER: how far back a row's window reaches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from millstream.types import SqlType


@dataclass(frozen=True, slots=True)
class Frame:
    """ROWS: the row and `preceding` rows before it. RANGE: rows at most `preceding` µs older, peers included.

    None is UNBOUNDED. Only frames that end at the current row make sense on a stream.
    """

    unit: Literal["rows", "range"]
    preceding: int | None

    def __post_init__(self) -> None:
        if self.preceding is not None and self.preceding < 0:
            raise ValueError("a frame reaches back, not forward")

    def __str__(self) -> str:
        if self.preceding is None:
            reach = "UNBOUNDED"
        elif self.unit == "rows":
            reach = str(self.preceding)
        else:
            reach = f"[{timedelta(microseconds=self.preceding)}]"
        return f"{self.unit.upper()} {reach} PRECEDING"


@dataclass(frozen=True, slots=True)
class WindowCall:
    """An aggregate over a frame: `name` := fn([DISTINCT] arg) OVER (frame); `arg` is a column, None for count(*)."""

    name: str
    fn: str
    arg: str | None
    frame: Frame
    distinct: bool
    type: SqlType

    def __str__(self) -> str:
        arg = "*" if self.arg is None else self.arg
        return f"{self.name} := {self.fn}({'DISTINCT ' if self.distinct else ''}{arg}) {self.frame}"

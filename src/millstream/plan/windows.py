"""Frames of OVER: from where to where a row's window reaches."""

from __future__ import annotations

from typing import Literal

from millstream.plan.lengths import RowLength, length_told
from millstream.records import dataclass

Unit = Literal["rows", "range", "groups", "earlier", "later"]


@dataclass(frozen=True, slots=True)
class Between:
    """From `start` to `end` before the current row, or after it if they are negative; None is UNBOUNDED."""

    start: int | None
    end: int

    def __post_init__(self) -> None:
        if self.end == 0 or (self.start is not None and self.start < self.end):
            raise ValueError("a frame that does not end at the current row begins no later than it ends")


@dataclass(frozen=True, slots=True)
class Frame:
    """ROWS: the row and `preceding` rows before it. RANGE: rows at most `preceding` µs older, peers included.
    GROUPS: the rows of its time, and of the `preceding` times before it at which its partition has rows.
    EARLIER: the rows of ROWS that are of earlier times. LATER: those that are of later times than the row before them.

    None is UNBOUNDED; Between is a frame that ends before or after the current row; RowLength says how far back it
    begins for each row.
    """

    unit: Unit
    preceding: int | Between | RowLength | None

    def __post_init__(self) -> None:
        if self.unit not in ("rows", "range", "groups", "earlier", "later"):
            raise ValueError(f"a frame is in rows, range, groups, earlier or later rows, not {self.unit!r}")
        if self.unit == "earlier" and self.end < 1:
            raise ValueError("earlier rows are some of those before the current row")
        if self.unit == "later" and (self.start is None or self.end == 0):
            raise ValueError("later rows are counted from a row before them to one beside the current row")
        if self.own is not None and self.unit not in ("rows", "range"):
            raise ValueError(f"rows tell no length of {self.unit}")
        if isinstance(self.preceding, int) and self.preceding < 0:
            raise ValueError("a frame that ends at the current row begins before it")
        if not -(2**62) < (self.start or 0) < 2**62 or not -(2**62) < self.end < 2**62:
            raise ValueError(f"a frame cannot begin {self.start} and end {self.end} before the current row")

    @property
    def start(self) -> int | None:
        """How far back it begins, negative if after the current row; None is UNBOUNDED, or what each row tells."""
        match self.preceding:
            case Between(start=start):
                return start
            case RowLength():
                return None
        return self.preceding

    @property
    def own(self) -> RowLength | None:
        """How far back it begins, if each row tells."""
        return self.preceding if isinstance(self.preceding, RowLength) else None

    @property
    def end(self) -> int:
        """How far back it ends; 0 is the current row, and what is negative comes after it."""
        return self.preceding.end if isinstance(self.preceding, Between) else 0

    @property
    def has_peers(self) -> bool:
        """Whether rows of the same time see each other, so that results wait until all of them have come."""
        return self.unit in ("range", "groups")

    def __str__(self) -> str:
        by_time = self.unit in ("earlier", "later")
        unit, excluded = ("ROWS", " EXCLUDE GROUP") if by_time else (self.unit.upper(), "")
        start = f"{unit} {self._bound(self.start) if self.own is None else f'{self.own} PRECEDING'}"
        return (f"{start} TO {self._bound(self.end)}" if self.end else start) + excluded

    def _bound(self, distance: int | None) -> str:
        if distance is None:
            return "UNBOUNDED PRECEDING"
        length = length_told(abs(distance)) if self.unit == "range" else abs(distance)
        return f"{length} {'PRECEDING' if distance >= 0 else 'FOLLOWING'}"

"""When the states of a program run: without a window, over sliding and tumbling ones, until a group ends."""

from __future__ import annotations

from typing import Literal

from millstream.plan.lengths import length_told
from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class Running:
    """No window: INITIALIZE at a group's first tuple, ITERATE at the others; with `total`, TERMINATE after each tuple
    (the group goes on), which is the `UNBOUNDED PRECEDING` version of an aggregate."""

    total: bool = False

    def __str__(self) -> str:
        return "ROWS UNBOUNDED PRECEDING" if self.total else "as rows come"


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window. At a tuple: EXPIRE for every tuple that has left the window, oldest first, each removed from `inwindow`
    afterwards; then the new tuple enters `inwindow` (even the first), then INITIALIZE or ITERATE.

    ROWS: the window holds the last `size` tuples of the group, so a tuple leaves when the `size`-th tuple after it
    comes; tuples that statements deleted from `inwindow` count all the same (only their EXPIRE does not run). RANGE: a
    tuple leaves when the current time exceeds its own by more than `size` µs. With `every`, rows are returned
    only while every `every`-th tuple of the group is worked on (EXPIRE before it included); in a RANGE window, the last
    one of the group in each slot of `every` µs, which the kernel finds out before an engine sees it. With `active`
    (RANGE only), EXPIRE runs once time has passed the tuple's time plus `size`, for all groups in order of time, tuples
    of equal time in order of arrival; what it returns has that time.

    `shorter` are the sizes of further windows over the same tuples, the longest first (neither `every` nor `active`):
    a tuple leaves each of them as it would leave a window of its own, and stays for the longer ones.
    """

    unit: Literal["rows", "range"]
    size: int
    every: int | None = None
    active: bool = False
    shorter: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of all windows over these tuples; the first one holds them."""
        return (self.size, *self.shorter)

    def __str__(self) -> str:
        if self.unit == "rows":
            lengths = " and ".join(str(size - 1) for size in self.sizes)
            return f"ROWS {lengths} PRECEDING" + ("" if self.every is None else f" SLIDE {self.every}")
        lengths = " and ".join(length_told(size) for size in self.sizes)
        slide = "" if self.every is None else f" SLIDE {length_told(self.every)}"
        return f"RANGE {lengths} PRECEDING{slide}" + (" ACTIVE EXPIRATION" if self.active else "")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Slots of `every` tuples per group, of which the last `size` count: INITIALIZE at the first of these with fresh
    tables, ITERATE at the others, TERMINATE after the last, when the tables are dropped. Only what TERMINATE returns
    counts, or whatever is returned at the last tuple of a slot if the program has no TERMINATE."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"{self.size} of every {self.every} rows"


@dataclass(frozen=True, slots=True)
class Closing:
    """No window; a group ends when the kernel says so (`Engine.close`): TERMINATE, and its tables are dropped. Only
    what TERMINATE returns counts."""

    def __str__(self) -> str:
        return "until its group ends"


Mode = Running | Sliding | Tumbling | Closing

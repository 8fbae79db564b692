"""What each search writes for itself into the source of `thread_loops`, here for one that looks for any row."""

from __future__ import annotations

from typing import Any

LANES = 2
"""The width of a thread: its place in the program, its newest cell, and what conditions have to know."""
SHARED = True
"""Whether threads at the same place of the program have the same future."""
TOGETHER = False
"""Whether attempts that begin at different rows run at the same time: then a thread also knows where it began."""
CELLS = True
"""Whether labels of rows that have been taken are wanted."""
AHEAD = False
"""Whether some row behind a row must be there before it is tried."""
BOUNDED = False
"""Whether there is a deadline."""
TIMEOUTS = False
UNMATCHED = False
EMPTY = True
EACH = False
SEEK = False
REPORTS = False
"""Whether conditions that cannot be computed are reported: then whoever is asked wants to know the time."""
SKIP = 0
"""0: behind the last row, 1: to the next row, 2: to the first of some variables, 3: to the last of them."""


ENV = ("next_", "prev", "far", "codes", "whole", "real", "cols", "ask")
"""What conditions read besides what threads know: links between rows, near and far, codes of labels, constants, columns
with their validity, and whom to ask for what has no compiled form."""


def take(
    v: int, now: Any, fnow: Any, o: int, rec: Any, frec: Any, p: int, start: int, number: int, low: int, high: int,
    cells: Any, env: Any,
) -> bool:  # fmt: skip
    """Whether the row p may be taken as the variable v by the thread at now[o]; what it knows then is in rec.
    Rows before `low` and behind `high` are not seen."""
    return True


def check(
    c: int, rec: Any, frec: Any, o: int, start: int, number: int, low: int, high: int, cells: Any, env: Any
) -> bool:
    """Whether the condition of a check holds for the thread at rec[o]."""
    return True


def is_target(v: int) -> bool:
    """Whether the search goes on at a row of the variable v."""
    return False

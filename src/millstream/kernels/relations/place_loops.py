"""Kernel source: a queue of rows whose ends come to be known later than their starts.

A row of the output takes a place when it opens, so places are in order of start; it closes when its end is known, and
leaves when all before it have closed. `places` has one row of lanes for each place, `marks` says which ones are in use.
"""

from __future__ import annotations

from typing import Any

START, END, OWNER, LINK, FIRST_VALUE = 0, 1, 2, 3, 4
"""Lanes of a place; what lies behind them, and LINK, belongs to the operator."""
TAIL, BASE = 0, 1
"""Lanes of `marks`: the number that the next place gets, and that of the first one in `places`."""
OPEN = -0x8000_0000_0000_0000
"""The end of a place that is open."""


def open_place(places: Any, marks: Any, start: Any, owner: Any) -> Any:
    """Take the next place for a row that begins at `start`; its number. There must be room for it."""
    place = marks[TAIL]
    at = place - marks[BASE]
    places[at, START] = start
    places[at, END] = OPEN
    places[at, OWNER] = owner
    marks[TAIL] = place + 1
    return place


def close_place(places: Any, marks: Any, place: Any, end: Any) -> None:
    """The row of a place ends; one that ends where it began will not be given."""
    places[place - marks[BASE], END] = end


def first_open(places: Any, start: Any, stop: Any) -> Any:
    """Where the first open place lies from `start` on; `stop` if there is none before it."""
    for at in range(start, stop):
        if places[at, END] == OPEN:
            return at
    return stop


def unpack(places: Any, start: Any, stop: Any, every: Any, columns: Any) -> Any:
    """Write places as columns, unless `every` but for those that end where they began; how many there are."""
    count = 0
    for at in range(start, stop):
        for lane in range(places.shape[1]):
            columns[lane, count] = places[at, lane]
        if every or places[at, END] > places[at, START]:
            count += 1
    return count

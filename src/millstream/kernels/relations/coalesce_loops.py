"""Kernel source: rows that go on where equal ones end, as one row."""

from __future__ import annotations

from typing import Any

from millstream.kernels.relations.place_loops import (
    BASE,
    END,
    FIRST_VALUE,
    LINK,
    OPEN,
    OWNER,
    START,
    close_place,
    open_place,
)


def coalesce(slots: Any, starts: Any, ends: Any, longest: Any, first: Any, last: Any, places: Any, marks: Any) -> None:
    """Let rows come, in order of start. The open places of a value are a chain; a place's own lane tells until when
    it is known to last."""
    for r in range(len(slots)):
        slot = slots[r]
        start = starts[r]
        end = ends[r]
        found = -1
        before = -1
        place = first[slot]
        while place >= 0:
            at = place - marks[BASE]
            after = places[at, LINK]
            until = places[at, FIRST_VALUE]
            if until < start:
                close_place(places, marks, place, until)
                unlink(slot, before, after, first, last, places, marks)
            elif until == start:
                found = place
                if is_long(places[at, START], end, longest):
                    close_place(places, marks, place, end)
                    unlink(slot, before, after, first, last, places, marks)
                else:
                    places[at, FIRST_VALUE] = end
                break
            else:
                before = place
            place = after
        if found >= 0:
            continue
        place = open_place(places, marks, start, slot)
        at = place - marks[BASE]
        places[at, FIRST_VALUE] = end
        places[at, LINK] = -1
        if is_long(start, end, longest):
            close_place(places, marks, place, end)
        else:
            link(slot, place, first, last, places, marks)


def is_long(start: Any, end: Any, longest: Any) -> Any:
    """Whether nothing is waited for to go on from there."""
    return end == 9223372036854775807 or end - start >= longest


def link(slot: Any, place: Any, first: Any, last: Any, places: Any, marks: Any) -> None:
    """Put a place at the end of its value's chain."""
    if first[slot] < 0:
        first[slot] = place
    else:
        places[last[slot] - marks[BASE], LINK] = place
    last[slot] = place


def unlink(slot: Any, before: Any, after: Any, first: Any, last: Any, places: Any, marks: Any) -> None:
    """Take the place between two others out of its value's chain."""
    if before < 0:
        first[slot] = after
    else:
        places[before - marks[BASE], LINK] = after
    if after < 0:
        last[slot] = before


def expire(place: Any, upto: Any, first: Any, last: Any, places: Any, marks: Any) -> None:
    """Close the places, from `place` on, that nothing can continue any more, up to the first that something can."""
    while place < marks[0]:
        at = place - marks[BASE]
        if places[at, END] == OPEN:
            if places[at, FIRST_VALUE] >= upto:
                return
            slot = places[at, OWNER]
            close_place(places, marks, place, places[at, FIRST_VALUE])
            unlink(slot, -1, places[at, LINK], first, last, places, marks)
        place += 1


def link_all(first: Any, last: Any, places: Any, marks: Any) -> None:
    """Make the chains of all open places."""
    for place in range(marks[BASE], marks[0]):
        at = place - marks[BASE]
        places[at, LINK] = -1
        if places[at, END] == OPEN:
            link(places[at, OWNER], place, first, last, places, marks)

"""Loops over the rows that a search may still look at; kernel source, see `jit`."""

from __future__ import annotations

from typing import Any


def link(slot: Any, since: int, stop: int, last: Any, next_: Any, prev: Any) -> None:
    """Chain new rows to those of their partitions."""
    for i in range(since, stop):
        s = slot[i]
        before = last[s]
        prev[i] = before
        next_[i] = -1
        if before >= 0:
            next_[before] = i
        last[s] = i


def count(slot: Any, since: int, stop: int, held: Any, oldest: Any, before: Any) -> None:
    """How many rows of its partition lie before each new row, and the oldest row of each partition."""
    for i in range(since, stop):
        s = slot[i]
        if held[s] == 0:
            oldest[s] = i
        before[i - since] = held[s]
        held[s] += 1


def link_far(
    distance: int, slot: Any, since: int, stop: int, oldest: Any, before: Any, next_: Any, prev: Any, back: Any,
    ahead: Any,
) -> None:  # fmt: skip
    """Link new rows with the rows some way before them in their partitions: those of neighbours are neighbours."""
    for i in range(since, stop):
        back[i] = -1
        ahead[i] = -1
        if before[i - since] >= distance:
            far = oldest[slot[i]] if before[i - since] == distance else next_[back[prev[i]]]
            back[i] = far
            ahead[far] = i


def choose(last: Any, floors: Any, prev: Any, cut: Any, chosen: Any) -> int:
    """Note the rows at or above the floors of their partitions, from the newest back, and which partitions have older
    ones; the number of rows."""
    count = 0
    for s in range(len(last)):
        i = last[s]
        while i >= 0 and i >= floors[s]:
            chosen[count] = i
            count += 1
            i = prev[i]
        cut[s] = i >= 0
    return count

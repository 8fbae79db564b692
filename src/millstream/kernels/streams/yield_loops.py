"""Kernel source: counting the rows of each key."""

from __future__ import annotations

from typing import Any


def mark_every(slots: Any, counts: Any, every: Any, kept: Any) -> None:
    """Mark each `every`-th row of a key, counting on from `counts`."""
    for r in range(len(slots)):
        slot = slots[r]
        counts[slot] += 1
        if counts[slot] == every:
            counts[slot] = 0
            kept[r] = True
        else:
            kept[r] = False


def find_slots(
    keys: Any, counts: Any, newest: Any, every: Any, entries: Any, places: Any, owners: Any, last: Any
) -> Any:
    """The slot of rows that each row is in, and its place there. Slots are numbered as they begin or go on in a batch,
    which `newest` tells by key, -1 before; `owners` tells their keys, `last` their last row, -1 while they go on. The
    number of slots."""
    made = 0
    for i in range(len(keys)):
        key = keys[i]
        if newest[key] < 0:
            newest[key] = made
            owners[made] = key
            last[made] = -1
            made += 1
        entries[i] = newest[key]
        places[i] = counts[key]
        counts[key] += 1
        if counts[key] == every:
            counts[key] = 0
            last[newest[key]] = i
            newest[key] = -1
    return made

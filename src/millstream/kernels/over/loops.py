"""Kernel source that generated OVER loops call: rings, and rows dealt out to shards."""

from __future__ import annotations

from typing import Any

FIRST_CAPACITY = 4
BASE, CAPACITY = 0, 1


def resize(slots: Any, s: Any, cells: Any, regions: Any, shape: Any, oldest: Any, tail: Any, wanted: Any) -> bool:
    """Move a ring to a larger or smaller region; false if there is no room. `shape` tells the width of a cell and, for
    each queue in it, the lanes of its head and tail in the record and of its entries in the cells."""
    base = slots[s + BASE]
    capacity = slots[s + CAPACITY]
    width = shape[0]
    # Regions that were given up wait in lists, one for each size, for the next that needs theirs.
    kind = 1
    old_kind = 1
    size = FIRST_CAPACITY
    while size < wanted or size < capacity:
        size *= 2
        if size <= wanted:
            kind += 1
        if size <= capacity:
            old_kind += 1
    place = regions[kind] - 1
    if place >= 0:
        regions[kind] = cells[place]
    else:
        place = regions[0]
        if place + wanted * width > len(cells):
            return False
        regions[0] = place + wanted * width
    for p in range(oldest, tail):
        for lane in range(width):
            cells[place + (p & (wanted - 1)) * width + lane] = cells[base + (p & (capacity - 1)) * width + lane]
    for queue in range(1, len(shape), 3):
        lane = shape[queue + 2]
        for p in range(slots[s + shape[queue]], slots[s + shape[queue + 1]]):
            cells[place + (p & (wanted - 1)) * width + lane] = cells[base + (p & (capacity - 1)) * width + lane]
    if capacity > 0:
        cells[base] = regions[old_kind]
        regions[old_kind] = base + 1
    slots[s + BASE] = place
    slots[s + CAPACITY] = wanted
    return True


def deal(slots: Any, shards: Any, shift: Any, me: Any, width: Any, rows: Any, at: Any) -> int:
    """The rows of one shard, and where the records of their slots begin."""
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        rows[count] = i
        at[count] = (slot >> shift) * width
        if slot & (shards - 1) == me:
            count += 1
    return count

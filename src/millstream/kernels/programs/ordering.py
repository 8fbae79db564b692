"""Loops over the cells of a table in the order of a column; this module is itself kernel source.

A group's order is a ring of cell numbers in a region of `order`, whose size `room` is a power of two: the places from
`first` to before `end` are in use. Cells with equal values lie in the order they entered. `order[0]` tells how much of
the array is used.
"""

from __future__ import annotations

from typing import Any


def position(
    order: Any, base: Any, room: Any, first: Any, end: Any, cells: Any, width: Any, lane: Any, value: Any, after: Any
) -> Any:
    """The first place whose cell has a value that is not less, or greater if `after` is true; NaN is the greatest."""
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        there = cells[order[base + (middle & (room - 1))] * width + lane]
        if after:
            is_before = not (value < there or (value == value and there != there))
        else:
            is_before = there < value or (there == there and value != value)
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


def place_of_new(
    order: Any, base: Any, room: Any, first: Any, end: Any, cells: Any, width: Any, lane: Any, value: Any
) -> Any:
    """Where a value comes behind those that are not greater; what grows with time comes last."""
    if first == end:
        return end
    last = cells[order[base + ((end - 1) & (room - 1))] * width + lane]
    if last <= value:
        return end
    return position(order, base, room, first, end, cells, width, lane, value, True)


def grow(order: Any, base: Any, room: Any, first: Any, end: Any) -> Any:
    """A region of twice the size, for which there is room, if the ring is full: where it begins, and its size."""
    if end - first < room:
        return base, room
    larger = max(4, 2 * room)
    moved = order[0]
    for i in range(first, end):
        order[moved + (i & (larger - 1))] = order[base + (i & (room - 1))]
    order[0] = moved + larger
    return moved, larger


def enter(order: Any, base: Any, room: Any, first: Any, end: Any, place: Any, cell: Any) -> Any:
    """Put a cell at a place: the shorter side gives way. Returns where the ring begins and ends then."""
    mask = room - 1
    if place - first < end - place:
        for i in range(first, place):
            order[base + ((i - 1) & mask)] = order[base + (i & mask)]
        order[base + ((place - 1) & mask)] = cell
        return first - 1, end
    for i in range(end, place, -1):
        order[base + (i & mask)] = order[base + ((i - 1) & mask)]
    order[base + (place & mask)] = cell
    return first, end + 1


def leave(order: Any, base: Any, room: Any, first: Any, end: Any, cells: Any, width: Any, lane: Any, cell: Any) -> Any:
    """Take a cell out: the shorter side closes up. Returns where the ring begins and ends then."""
    mask = room - 1
    place = first
    if order[base + (place & mask)] != cell:
        place = position(order, base, room, first, end, cells, width, lane, cells[cell * width + lane], False)
    while order[base + (place & mask)] != cell:
        place += 1
    if place - first < end - place:
        for i in range(place, first, -1):
            order[base + (i & mask)] = order[base + ((i - 1) & mask)]
        return first + 1, end
    for i in range(place, end - 1):
        order[base + (i & mask)] = order[base + ((i + 1) & mask)]
    return first, end - 1

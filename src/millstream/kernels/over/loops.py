"""Kernel source that generated OVER loops call: exact sums, counted values, the order of strings, rings.

A sum is three floats: high and low, together more than twice as precise as one float, and error. Every addition is
exact as long as the values differ by less than some fifty binary digits; what does not fit is added up as the error.
Exact sums do not depend on the order of additions, so taking a value away leaves no trace of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

NULL_FLOAT = 0x7FF8_6D69_6C6C_0001
NULL_INT = -0x8000_0000_0000_0000
LOW_HALF = 0xFFFF_FFFF
MULTIPLIER = -7046029254386353131
SPLITTER = 134217729.0
FIRST_CAPACITY = 4
BASE, CAPACITY = 0, 1


def exact_add(sums: Any, at: Any, value: Any) -> None:
    """Add to the sum whose lanes begin at `at`."""
    high = sums[at]
    low = sums[at + 1]
    total = high + value
    back = total - high
    rest = (high - (total - back)) + (value - back)
    lower = low + rest
    back = lower - low
    lost = (low - (lower - back)) + (rest - back)
    if total - total == 0.0:
        high = total + lower
        sums[at] = high
        sums[at + 1] = lower - (high - total)
        if lost != 0.0:
            sums[at + 2] += abs(lost)
    else:
        sums[at] = total
        sums[at + 1] = 0.0
        sums[at + 2] = math.inf


def product_error(left: Any, right: Any, product: Any) -> Any:
    """What rounding took from a product."""
    scaled = SPLITTER * left
    left_high = scaled - (scaled - left)
    left_low = left - left_high
    scaled = SPLITTER * right
    right_high = scaled - (scaled - right)
    right_low = right - right_high
    return ((left_high * right_high - product) + left_high * right_low + left_low * right_high) + left_low * right_low


def add_square(sums: Any, at: Any, value: Any, sign: Any) -> None:
    """Add a square to a sum, or take it away."""
    square = value * value
    exact_add(sums, at, sign * square)
    exact_add(sums, at, sign * product_error(value, value, square))


def unsure(sums: Any, at: Any) -> Any:
    """Whether so much was lost from a sum that it may show in a result."""
    return sums[at + 2] != 0.0 and not sums[at + 2] < abs(sums[at]) * 2.0**-85


def float_sum(slots: Any, sums: Any, at: Any) -> Any:
    """A sum of floats some of which may be infinite or no number; after its lanes lie two that count these: the NaNs
    and, shifted, the infinities; and the positive less the negative infinities."""
    odd = slots[at + 3]
    if odd == 0:
        return sums[at]
    net = slots[at + 4]
    if odd & LOW_HALF != 0 or abs(net) != odd >> 32:
        return math.nan
    return math.inf if net > 0 else -math.inf


def spread(sums: Any, at: Any, squares_at: Any, count: Any) -> Any:
    """The sum of squared distances from the mean, from the exact sums of values and of squares."""
    number = float(count)
    high = sums[at]
    square = high * high
    square_low = product_error(high, high, square) + 2.0 * high * sums[at + 1]
    part = square / number
    whole = part * number
    part_low = (((square - whole) - product_error(part, number, whole)) + square_low) / number
    high = sums[squares_at]
    total = high - part
    back = total - high
    rest = (high - (total - back)) - (part + back)
    result = total + (rest + sums[squares_at + 1] - part_low)
    # Below this only rounding is left, or what larger values that are gone left behind: equal values have no spread.
    return 0.0 if result < high * 2.0**-95 + sums[squares_at + 2] else result


def text_before(left: Any, right: Any, starts: Any, lengths: Any, arena: Any) -> Any:
    """The order of strings by their codes: that of their bytes, which for UTF-8 is that of the characters."""
    left_at = starts[left]
    right_at = starts[right]
    for i in range(min(lengths[left], lengths[right])):
        if arena[left_at + i] != arena[right_at + i]:
            return arena[left_at + i] < arena[right_at + i]
    return lengths[left] < lengths[right]


def word_of(bits: Any) -> Any:
    """The bits of a float such that equal values have equal words: one zero, one NaN."""
    if bits == NULL_INT:
        return np.int64(0)
    if bits & 0x7FFF_FFFF_FFFF_FFFF > 0x7FF0_0000_0000_0000:
        return np.int64(0x7FF8_0000_0000_0000)
    return bits


def entry_of(table: Any, owner: Any, word: Any) -> Any:
    """Where a key's value lies in a table of counted values, or would lie.

    An entry is three lanes: the offset of the key's record + 1, the value's word, its count.
    """
    mask = len(table) // 3 - 1
    hashed = (word * MULTIPLIER) ^ owner
    hashed = (hashed ^ ((hashed >> 32) & LOW_HALF)) * MULTIPLIER
    place = ((hashed >> 32) & LOW_HALF) & mask
    while table[3 * place] != 0 and (table[3 * place] != owner + 1 or table[3 * place + 1] != word):
        place = (place + 1) & mask
    return 3 * place


def count_in(table: Any, state: Any, used: Any, owner: Any, word: Any) -> bool:
    """Count one more of a value; whether it is the first."""
    entry = entry_of(table, owner, word)
    table[entry + 2] += 1
    if table[entry] != 0:
        return False
    table[entry] = owner + 1
    table[entry + 1] = word
    state[used] += 1
    return True


def count_out(table: Any, state: Any, used: Any, owner: Any, word: Any) -> bool:
    """Count one less of a value; whether it was the last."""
    entry = entry_of(table, owner, word)
    table[entry + 2] -= 1
    if table[entry + 2] != 0:
        return False
    state[used] -= 1
    table[entry] = 0
    # Entries behind the hole that would no longer be found move into it.
    entry = (entry + 3) % len(table)
    while table[entry] != 0:
        owner = table[entry] - 1
        word = table[entry + 1]
        count = table[entry + 2]
        table[entry] = 0
        table[entry + 2] = 0
        there = entry_of(table, owner, word)
        table[there] = owner + 1
        table[there + 1] = word
        table[there + 2] = count
        entry = (entry + 3) % len(table)
    return True


def refill(entries: Any, table: Any) -> None:
    """Enter counted values into an empty table."""
    for i in range(len(entries)):
        there = entry_of(table, entries[i, 0] - 1, entries[i, 1])
        table[there] = entries[i, 0]
        table[there + 1] = entries[i, 1]
        table[there + 2] = entries[i, 2]


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

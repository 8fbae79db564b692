"""Kernel source that generated OVER loops draw on: exact sums, regions of cells, counted values, order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

NULL_FLOAT = 0x7FF8_6D69_6C6C_0001
NULL_INT = -0x8000_0000_0000_0000
LOW_HALF = 0xFFFF_FFFF
LARGEST_SQUARED = 1e140
SPLITTER = 134217729.0
MULTIPLIER = -7046029254386353131
FIRST_CAPACITY = 4


def exact_add(sums: Any, at: int, value: float) -> None:
    """Add to a sum held as high and low part; what even the low part cannot hold is noted as its error."""
    high = sums[at]
    low = sums[at + 1]
    total = high + value
    back = total - high
    rest = (high - (total - back)) + (value - back)
    lower = low + rest
    back = lower - low
    lost = (low - (lower - back)) + (rest - back)
    if total - total != 0.0:
        sums[at] = total
        sums[at + 1] = 0.0
        sums[at + 2] = math.inf
        return
    high = total + lower
    sums[at] = high
    sums[at + 1] = lower - (high - total)
    if lost != 0.0:
        sums[at + 2] += abs(lost)


def product_error(left: float, right: float, product: float) -> float:
    """What rounding took from a product."""
    scaled = SPLITTER * left
    left_high = scaled - (scaled - left)
    left_low = left - left_high
    scaled = SPLITTER * right
    right_high = scaled - (scaled - right)
    right_low = right - right_high
    return ((left_high * right_high - product) + left_high * right_low + left_low * right_high) + left_low * right_low


def add_square(sums: Any, at: int, value: float, sign: float) -> None:
    """Add or take away a square, exactly."""
    square = value * value
    exact_add(sums, at, sign * square)
    exact_add(sums, at, sign * product_error(value, value, square))


def spread(sums: Any, at: int, squares_at: int, count: int) -> Any:
    """The sum of squared distances from the mean, from the exact sums of values and of squares."""
    high = sums[at]
    low = sums[at + 1]
    number = float(count)
    square = high * high
    square_low = product_error(high, high, square) + 2.0 * high * low
    part = square / number
    whole = part * number
    part_low = (((square - whole) - product_error(part, number, whole)) + square_low) / number
    total = sums[squares_at] - part
    back = total - sums[squares_at]
    rest = (sums[squares_at] - (total - back)) - (part + back)
    result = total + (rest + sums[squares_at + 1] - part_low)
    # Below this only rounding is left: equal values have no spread.
    if result < sums[squares_at] * 2.0**-95:
        return 0.0
    return result


def odd_sum(odd: int, net: int) -> float:
    """The sum of values some of which are infinite or no number."""
    infinite = odd >> 32
    if odd & LOW_HALF != 0 or (net != infinite and net != -infinite):
        return math.nan
    return math.inf if net > 0 else -math.inf


def float_sum(slots: Any, sums: Any, at: int) -> Any:
    """The sum whose lanes are high, low, error, odd, net."""
    odd = slots[at + 3]
    if odd == 0:
        return sums[at]
    return odd_sum(odd, slots[at + 4])


def unsure(sums: Any, at: int) -> bool:
    """Whether so much was lost from a sum that it shows in its result."""
    return sums[at + 2] != 0.0 and not sums[at + 2] < abs(sums[at]) * 2.0**-85


def take_region(cells: Any, regions: Any, capacity: int, width: int) -> Any:
    """Room for `capacity` cells, used before or new; -1 if there is none."""
    kind = 1
    size = FIRST_CAPACITY
    while size < capacity:
        size *= 2
        kind += 1
    if regions[kind] != 0:
        place = regions[kind] - 1
        regions[kind] = cells[place]
        return place
    place = regions[0]
    if place + capacity * width > len(cells):
        return -1
    regions[0] = place + capacity * width
    return place


def give_region(cells: Any, regions: Any, place: int, capacity: int) -> None:
    """Keep a region for the next that needs one of its size."""
    kind = 1
    size = FIRST_CAPACITY
    while size < capacity:
        size *= 2
        kind += 1
    cells[place] = regions[kind]
    regions[kind] = place + 1


def word_of(bits: Any) -> Any:
    """The bits of a float such that equal values have equal words: one zero, one NaN."""
    if bits == NULL_INT:
        return np.int64(0)
    if bits & 0x7FFF_FFFF_FFFF_FFFF > 0x7FF0_0000_0000_0000:
        return np.int64(0x7FF8_0000_0000_0000)
    return bits


def place_of(table: Any, slot: int, word: int) -> int:
    """Where a value of a slot lies in a table of counted values, or would lie."""
    mask = len(table) // 3 - 1
    hashed = (word * MULTIPLIER) ^ slot
    hashed = (hashed ^ ((hashed >> 32) & LOW_HALF)) * MULTIPLIER
    at = ((hashed >> 32) & LOW_HALF) & mask
    while table[3 * at] != 0 and (table[3 * at] != slot + 1 or table[3 * at + 1] != word):
        at = (at + 1) & mask
    return at


def count_in(table: Any, used: Any, which: int, slot: int, word: int) -> bool:
    """Count one more of a value; whether it is the first."""
    at = 3 * place_of(table, slot, word)
    table[at + 2] += 1
    if table[at] != 0:
        return False
    table[at] = slot + 1
    table[at + 1] = word
    used[which] += 1
    return True


def count_out(table: Any, used: Any, which: int, slot: int, word: int) -> bool:
    """Count one less of a value; whether it was the last."""
    mask = len(table) // 3 - 1
    hole = place_of(table, slot, word)
    table[3 * hole + 2] -= 1
    if table[3 * hole + 2] != 0:
        return False
    used[which] -= 1
    at = hole
    table[3 * hole] = 0
    # Entries behind the hole that would no longer be found move into it.
    while True:
        at = (at + 1) & mask
        if table[3 * at] == 0:
            return True
        slot = table[3 * at] - 1
        word = table[3 * at + 1]
        count = table[3 * at + 2]
        table[3 * at] = 0
        table[3 * at + 2] = 0
        there = place_of(table, slot, word)
        table[3 * there] = slot + 1
        table[3 * there + 1] = word
        table[3 * there + 2] = count


def refill(entries: Any, table: Any) -> None:
    """Enter counted values into an empty table."""
    for i in range(len(entries)):
        at = 3 * place_of(table, entries[i, 0] - 1, entries[i, 1])
        table[at] = entries[i, 0]
        table[at + 1] = entries[i, 1]
        table[at + 2] = entries[i, 2]


def float_before(left: float, right: float) -> bool:
    """The order of floats: NaN comes last."""
    return left < right or (right != right and left == left)


def text_before(left: int, right: int, starts: Any, lengths: Any, arena: Any) -> Any:
    """The order of strings by their codes: that of their bytes, which for UTF-8 is that of the characters."""
    left_at = starts[left]
    right_at = starts[right]
    for i in range(min(lengths[left], lengths[right])):
        if arena[left_at + i] != arena[right_at + i]:
            return arena[left_at + i] < arena[right_at + i]
    return lengths[left] < lengths[right]


def deal(slots: Any, shards: int, shift: int, me: int, width: int, rows: Any, at: Any) -> int:
    """The rows of one shard, and where the records of their slots begin."""
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        rows[count] = i
        at[count] = (slot >> shift) * width
        if slot & (shards - 1) == me:
            count += 1
    return count

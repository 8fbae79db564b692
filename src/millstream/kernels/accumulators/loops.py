"""Kernel source that the text of accumulators calls: exact sums, the order of strings, counted values.

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
LARGEST_SQUARED = 1e140
MULTIPLIER = -7046029254386353131
SPLITTER = 134217729.0
NEAR = 2.0**-48


def added(high: Any, low: Any, error: Any, value: Any) -> Any:
    """A sum with one more value."""
    total = high + value
    back = total - high
    rest = (high - (total - back)) + (value - back)
    lower = low + rest
    back = lower - low
    lost = (low - (lower - back)) + (rest - back)
    # High and low are put in order only where that keeps more: doing it every time would make each addition wait for
    # the one before.
    if lost == 0.0:
        return total, lower, error
    if abs(lower) <= abs(total) * NEAR:
        return total, lower, error + abs(lost)
    return added_closely(high, low, error, value)


def added_closely(high: Any, low: Any, error: Any, value: Any) -> Any:
    """The same for a value that does not fit between high and low: these are put in order first."""
    high, low = ordered(high, low)
    total = high + value
    if total - total != 0.0:
        return total, 0.0, math.inf
    back = total - high
    rest = (high - (total - back)) + (value - back)
    lower = low + rest
    back = lower - low
    lost = (low - (lower - back)) + (rest - back)
    high, low = ordered(total, lower)
    return high, low, error + abs(lost)


def ordered(high: Any, low: Any) -> Any:
    """A sum whose high part is what is nearest to it."""
    total = high + low
    back = total - high
    return total, (high - (total - back)) + (low - back)


def merged(high: Any, low: Any, error: Any, other_high: Any, other_low: Any, other_error: Any) -> Any:
    """The sum of two sums."""
    total = high + other_high
    back = total - high
    rest = (high - (total - back)) + (other_high - back)
    lower = low + other_low
    back = lower - low
    lost = (low - (lower - back)) + (other_low - back)
    lowest = lower + rest
    back = lowest - lower
    lost = abs(lost) + abs((lower - (lowest - back)) + (rest - back))
    if lost == 0.0 or abs(lowest) <= abs(total) * NEAR:
        return total, lowest, error + other_error + lost
    high, low, error = added_closely(high, low, error + other_error, other_high)
    return added_closely(high, low, error, other_low)


def product_error(left: Any, right: Any, product: Any) -> Any:
    """What rounding took from a product."""
    scaled = SPLITTER * left
    left_high = scaled - (scaled - left)
    left_low = left - left_high
    scaled = SPLITTER * right
    right_high = scaled - (scaled - right)
    right_low = right - right_high
    return ((left_high * right_high - product) + left_high * right_low + left_low * right_high) + left_low * right_low


def with_square(high: Any, low: Any, error: Any, value: Any, sign: Any) -> Any:
    """A sum with one more square, or without it."""
    square = value * value
    scaled = SPLITTER * value
    upper = scaled - (scaled - value)
    under = value - upper
    rest = ((upper * upper - square) + 2.0 * upper * under) + under * under
    return merged(high, low, error, sign * square, sign * rest, 0.0)


def unsure(high: Any, low: Any, error: Any) -> Any:
    """Whether so much was lost from a sum that it may show in a result."""
    return error != 0.0 and not error < abs(high + low) * 2.0**-85


def float_sum(high: Any, low: Any, odd: Any, net: Any) -> Any:
    """A sum of floats some of which may be infinite or no number: `odd` counts the NaNs and, shifted, the infinities,
    `net` the positive less the negative infinities."""
    if odd == 0:
        return high + low
    if odd & LOW_HALF != 0 or abs(net) != odd >> 32:
        return math.nan
    return math.inf if net > 0 else -math.inf


def spread(high: Any, low: Any, squares: Any, squares_low: Any, squares_error: Any, count: Any) -> Any:
    """The sum of squared distances from the mean, from the exact sums of values and of squares."""
    number = float(count)
    high, low = ordered(high, low)
    square = high * high
    square_low = product_error(high, high, square) + 2.0 * high * low
    part = square / number
    whole = part * number
    part_low = (((square - whole) - product_error(part, number, whole)) + square_low) / number
    high, low = ordered(squares, squares_low)
    total = high - part
    back = total - high
    rest = (high - (total - back)) - (part + back)
    result = total + (rest + low - part_low)
    # Below this only rounding is left, or what larger values that are gone left behind: equal values have no spread.
    return 0.0 if result <= high * 2.0**-95 + squares_error * (1.0 + 2.0**-40) else result


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

"""Pieces of generated source: sums that lose nothing, and what is computed from them.

A sum is two floats, high and low, together more than twice as precise as one. Every addition is exact as long as the
values differ by less than some fifty binary digits; what does not fit is added up as the sum's error. As exact sums do
not depend on the order of additions, taking a value away leaves no trace of it.
"""

from __future__ import annotations

LARGEST_SQUARED = "1e140"
SPLITTER = "134217729.0"


def exact_add(at: str, value: str) -> list[str]:
    """Add a value to the sum whose lanes begin at `at`: high, low, error."""
    return [
        f"addend = {value}",
        f"high = sums[{at}]",
        f"low = sums[{at} + 1]",
        "total = high + addend",
        "back = total - high",
        "rest = (high - (total - back)) + (addend - back)",
        "lower = low + rest",
        "back = lower - low",
        "lost = (low - (lower - back)) + (rest - back)",
        "if total - total == 0.0:",
        "    high = total + lower",
        f"    sums[{at}] = high",
        f"    sums[{at} + 1] = lower - (high - total)",
        "    if lost != 0.0:",
        f"        sums[{at} + 2] += abs(lost)",
        "else:",
        f"    sums[{at}] = total",
        f"    sums[{at} + 1] = 0.0",
        f"    sums[{at} + 2] = math.inf",
    ]


def product_error(left: str, right: str, product: str, result: str) -> list[str]:
    """What rounding took from a product."""
    return [
        f"split = {SPLITTER} * {left}",
        f"left_high = split - (split - {left})",
        f"left_low = {left} - left_high",
        f"split = {SPLITTER} * {right}",
        f"right_high = split - (split - {right})",
        f"right_low = {right} - right_high",
        f"{result} = left_high * right_high - {product}",
        f"{result} = ({result} + left_high * right_low + left_low * right_high) + left_low * right_low",
    ]


def add_square(at: str, value: str, sign: str) -> list[str]:
    """Add a square to a sum, or take it away."""
    return [
        f"square = {value} * {value}",
        *product_error(value, value, "square", "square_low"),
        *exact_add(at, f"{sign}square"),
        *exact_add(at, f"{sign}square_low"),
    ]


def unsure(at: str) -> str:
    """Whether so much was lost from a sum that it may show in a result."""
    return f"(sums[{at} + 2] != 0.0 and not sums[{at} + 2] < abs(sums[{at}]) * 2.0**-85)"


def reset(at: str) -> list[str]:
    return [f"sums[{at} + {lane}] = 0.0" for lane in range(3)]


def spread(at: str, squares_at: str) -> list[str]:
    """`result`: the sum of squared distances from the mean of n values, from their exact sum and that of squares."""
    return [
        f"high = sums[{at}]",
        "number = float(n)",
        "square = high * high",
        *product_error("high", "high", "square", "square_low"),
        f"square_low += 2.0 * high * sums[{at} + 1]",
        "part = square / number",
        "whole = part * number",
        *product_error("part", "number", "whole", "whole_low"),
        "part_low = (((square - whole) - whole_low) + square_low) / number",
        f"high = sums[{squares_at}]",
        "total = high - part",
        "back = total - high",
        "rest = (high - (total - back)) - (part + back)",
        f"result = total + (rest + sums[{squares_at} + 1] - part_low)",
        "# Below this only rounding is left: equal values have no spread.",
        "if result < high * 2.0**-95:",
        "    result = 0.0",
    ]


def float_sum(at: str, odd_at: str, net_at: str) -> list[str]:
    """`result`: a sum of floats, some of which may be infinite or no number."""
    return [
        f"odd = slots[{odd_at}]",
        f"result = sums[{at}]",
        "if odd != 0:",
        f"    net = slots[{net_at}]",
        "    result = math.nan",
        "    if odd & LOW_HALF == 0 and abs(net) == odd >> 32:",
        "        result = math.inf if net > 0 else -math.inf",
    ]

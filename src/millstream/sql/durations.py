"""Time spans: the units of the language and the microseconds of a constant interval."""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot import exp

MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
# Months and years have no fixed length: they are legal in INTERVAL literals and never a constant duration.
UNITS = {spelling: unit for unit in (*MICROSECONDS, "MONTH", "YEAR") for spelling in (unit, unit + "S")}

AMOUNT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_PART = re.compile(rf"\s*({AMOUNT.pattern})\s*([A-Za-z]+)\s*")
CLOCK = re.compile(r"(-?)(\d+):(\d\d)(?::(\d\d(?:\.\d*)?))?")
_WHOLE, _SECONDS = r"\d+", r"\d+(?:\.\d*)?"
_LARGEST_EXPONENT = 30

# The fields of `INTERVAL '1:30' MINUTE TO SECOND`: units, what stands before each of them, and how many of it the one
# before has.
_FIELDS = (
    (("YEAR", "", 0), ("MONTH", "-", 12)),
    (("DAY", "", 0), ("HOUR", " ", 24), ("MINUTE", ":", 60), ("SECOND", ":", 60)),
)


def parts_of(text: str) -> list[tuple[str, str]] | None:
    """The (amount, unit) pairs of an interval's string; None if it is not made of such pairs.

    >>> parts_of("1 day 30 minutes")
    [('1', 'DAY'), ('30', 'MINUTE')]
    """
    parts: list[tuple[str, str]] = []
    position = 0
    while match := _PART.match(text, position):
        unit = UNITS.get(match[2].upper())
        if unit is None:
            return None
        parts.append((match[1], unit))
        position = match.end()
    return parts if parts and position == len(text) else None


def fields_from(first: str, last: str) -> list[tuple[str, str, int]] | None:
    """The fields of `INTERVAL '…' first TO last`; None if there is no such interval."""
    for fields in _FIELDS:
        units = [unit for unit, _, _ in fields]
        if first in units and last in units[units.index(first) + 1 :]:
            return list(fields[units.index(first) : units.index(last) + 1])
    return None


def parts_of_fields(text: str, fields: list[tuple[str, str, int]]) -> list[tuple[str, str]] | None:
    """The (amount, unit) pairs of a two-field interval's string; None if it is not one.

    >>> parts_of_fields("-1:30.5", fields_from("MINUTE", "SECOND"))
    [('-1', 'MINUTE'), ('-30.5', 'SECOND')]
    """
    others = fields[1:]
    more = "".join(f"{mark.replace(' ', ' +')}({_SECONDS if unit == 'SECOND' else _WHOLE})" for unit, mark, _ in others)
    match = re.fullmatch(rf"\s*([+-]?)\s*(\d+){more}\s*", text)
    if match is None or any(Fraction(match[place]) >= most for place, (_, _, most) in enumerate(others, 3)):
        return None
    sign = match[1].replace("+", "")
    return [(sign + match[place], unit) for place, (unit, _, _) in enumerate(fields, 2)]


def example_of_fields(fields: list[tuple[str, str, int]]) -> str:
    """How the string of a two-field interval is written.

    >>> example_of_fields(fields_from("DAY", "SECOND"))
    '3 02:02:02'
    """
    return "3" + "".join(mark + "02" for _, mark, _ in fields[1:])


def duration_us(node: exp.Expr) -> int | None:
    """Microseconds of a constant time span; None if it is not constant or counts months or years."""
    if isinstance(node, exp.Paren):
        return duration_us(node.this)
    if isinstance(node, exp.Neg):
        inner = duration_us(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Add | exp.Sub):
        left, right = duration_us(node.this), duration_us(node.expression)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    if isinstance(node, exp.Cast) and node.to.is_type(exp.DType.INTERVAL) and node.this.is_string:
        return parse_duration(node.this.name)
    if isinstance(node, exp.Interval):
        return _interval_us(node)
    return None


def _interval_us(node: exp.Interval) -> int | None:
    amount, unit = node.this, node.args.get("unit")
    if unit is None:
        return parse_duration(amount.name) if amount is not None and amount.is_string else None
    sign = 1
    while isinstance(amount, exp.Neg | exp.Paren):
        sign = -sign if isinstance(amount, exp.Neg) else sign
        amount = amount.this
    if not isinstance(amount, exp.Literal):
        return None
    magnitude = _amount_us(amount.name, UNITS.get(unit.name.upper(), ""))
    return None if magnitude is None else sign * magnitude


def months_and_us(node: exp.Expr) -> tuple[int, int] | None:
    """The months and the microseconds of a constant interval that counts months or years; None for other nodes."""
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = node.args.get("unit")
    parts = parts_of(node.this.name if unit is None else f"{node.this.name} {unit.name}") or []
    if not any(unit in _MONTHS for _, unit in parts):
        return None
    months, micros = Fraction(0), 0
    for amount, unit in parts:
        if (
            unit in _MONTHS
            and AMOUNT.fullmatch(amount)
            and len(amount) < _LARGEST_EXPONENT
            and "e" not in amount.lower()
        ):
            months += Fraction(amount) * _MONTHS[unit]
        elif (part := _amount_us(amount, unit)) is not None:
            micros += part
        else:
            return None
    return (sign * int(months), sign * micros) if months.denominator == 1 else None


_MONTHS = {"MONTH": 1, "YEAR": 12}


def parse_duration(text: str) -> int | None:
    """Microseconds of a length of time written out, like 5 seconds or 01:30:00; None if it has no fixed length."""
    if clock := CLOCK.fullmatch(text.strip()):
        seconds = (int(clock[2]) * 60 + int(clock[3])) * 60 + Fraction(clock[4] or 0)
        return round(seconds * MICROSECONDS["SECOND"]) * (-1 if clock[1] else 1)
    total = 0
    for amount, unit in parts_of(text) or [("", "")]:
        part = _amount_us(amount, unit)
        if part is None:
            return None
        total += part
    return total


def _amount_us(amount: str, unit: str) -> int | None:
    text = amount.strip()
    if unit not in MICROSECONDS or not AMOUNT.fullmatch(text):
        return None
    # An exponent is bounded before it is computed: 1e999999999 would take all memory.
    exponent = re.search(r"[eE]([+-]?\d+)", text)
    if exponent and abs(int(exponent[1])) > _LARGEST_EXPONENT:
        return None
    return round(Fraction(text) * MICROSECONDS[unit])

"""Text to constants: how a literal is read when the type it must have is known.

The grammar is the part of it that DuckDB, Spark and we read alike; `expressions` guards casts at run time by
the same patterns, so that a cast of text accepts the same input wherever it runs.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation

from millstream.errors import BindError
from millstream.expressions.nodes import Literal
from millstream.types import INTERVAL, SqlType, integer_bounds

_CLOCK = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_DAY = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_INTEGER = r"\s*[+-]?[0-9]+\s*"

TEXT_FORMS: dict[str, str] = {
    "TINYINT": _INTEGER,
    "SMALLINT": _INTEGER,
    "INTEGER": _INTEGER,
    "BIGINT": _INTEGER,
    "DOUBLE": r"\s*([+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf(inity)?))|(?i:nan))\s*",
    "DECIMAL": r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)\s*",
    "BOOLEAN": r"(?i:t(rue)?|f(alse)?|y(es)?|no?|1|0)",
    "DATE": rf"\s*{_DAY}\s*",
    "TIME": rf"\s*{_CLOCK}\s*",
    "TIMESTAMP": rf"\s*{_DAY}([ T]{_CLOCK}( ?(Z|UTC))?)?\s*",
    "TIMESTAMPTZ": rf"\s*{_DAY}([ T]{_CLOCK}( ?(Z|UTC|[+-][0-9]{{2}}(:[0-9]{{2}})?))?)?\s*",
    "UUID": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}  # fmt: skip
"""What text may look like to become a value of a type: a regular expression for the whole text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {
    "microsecond": 1, "us": 1, "millisecond": 1_000, "ms": 1_000, "second": 1_000_000, "sec": 1_000_000,
    "s": 1_000_000, "minute": 60_000_000, "min": 60_000_000, "m": 60_000_000, "hour": 3_600_000_000,
    "h": 3_600_000_000, "day": 86_400_000_000, "d": 86_400_000_000, "week": 604_800_000_000, "w": 604_800_000_000,
}  # fmt: skip


def literal(text: str, type_: SqlType) -> Literal:
    """The constant of a type that `text` stands for.

    >>> print(literal("2024-01-07T10:00Z", SqlType("TIMESTAMP")))
    TIMESTAMP '2024-01-07 10:00:00'
    """
    if type_.domain:
        return Literal(type_, of_domain(literal(text, type_.base).value, type_))
    if type_.is_text:
        return Literal(type_, text)
    if type_.name == "BLOB":
        return Literal(type_, text.encode())
    if type_ == INTERVAL:
        return Literal(type_, _interval_text(text))
    form = TEXT_FORMS.get(type_.name)
    if form is None or re.fullmatch(form, text) is None:
        raise _unreadable(text, type_)
    try:
        return Literal(type_, _read(text.strip(), type_))
    except (ValueError, OverflowError, InvalidOperation):
        raise _unreadable(text, type_) from None


def interval(amount: int | float | str | Decimal, unit: str) -> Literal:
    """The INTERVAL constant of an amount of a unit, as in `INTERVAL 10 MINUTES`.

    >>> interval("1.5", "seconds").value
    1500000
    """
    try:
        micros = Decimal(str(amount).strip()) * _micros_per(unit)
        if micros != micros.to_integral_value() or not -(2**63) <= micros < 2**63:
            raise BindError(f"{amount} {unit.lower()} is not a whole number of microseconds that fits 64 bits")
    except InvalidOperation:
        raise BindError(f"'{amount}' is not a number of {unit.lower()}") from None
    return Literal(INTERVAL, int(micros))


def fits(value: int, type_: SqlType) -> bool:
    """Whether an integer is in the range of an integer type."""
    bounds = integer_bounds(type_)
    return bounds is not None and bounds[0] <= value <= bounds[1]


def of_domain(value: object, type_: SqlType) -> object:
    """A value of a domain's base as one of the domain; BindError if it is none."""
    if isinstance(value, str):
        if type_.domain == "JSON" and is_json(value):
            return value
        if type_.domain == "UUID" and re.fullmatch(TEXT_FORMS["UUID"], value):
            return value.lower()
        raise _unreadable(value, type_)
    if value is not None and not fits(int(value), type_):  # type: ignore[call-overload]
        raise BindError(f"{value} does not fit {type_}")
    return value


def is_json(text: str) -> bool:
    """Whether text is a JSON document."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(text: str) -> object:
    raise ValueError(text)  # Python takes NaN and Infinity for JSON


def _read(text: str, type_: SqlType) -> object:
    match type_.name:
        case "BOOLEAN":
            return text.lower() in ("true", "t", "yes", "y", "1")
        case "DOUBLE":
            return float(text)
        case "DECIMAL":
            return decimal_value(Decimal(text), type_)
        case "DATE":
            return _date(text).toordinal() - 719163
        case "TIME":
            return _clock(text)
        case "TIMESTAMP" | "TIMESTAMPTZ":
            return _instant(text, type_)
    value = int(text)
    if not fits(value, type_):
        raise ValueError
    return value


def decimal_value(value: Decimal, type_: SqlType) -> Decimal:
    """A number rounded to the scale of a DECIMAL, halves away from zero; ValueError if it has too many digits."""
    from decimal import ROUND_HALF_UP, localcontext

    with localcontext(prec=100):
        rounded = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
        if abs(rounded) >= Decimal(10) ** (type_.precision - type_.scale):
            raise ValueError
    return rounded


def _date(text: str) -> date:
    year, month, day = text.split("-")
    return date(int(year), int(month), int(day))


def _clock(text: str) -> int:
    whole, _, fraction = text.partition(".")
    hour, minute, second = ([int(part) for part in whole.split(":")] + [0])[:3]
    time(hour, minute, second)  # refuses what is not a time of day
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6].ljust(6, "0") or 0)


def _instant(text: str, type_: SqlType) -> int:
    found = re.fullmatch(rf"({_DAY})(?:[ T]({_CLOCK}))? ?(Z|UTC|[+-][0-9:]+)?", text)
    assert found is not None, text  # the caller has checked the form
    day, clock, zone = found[1], found[2], found[5]
    start = datetime.combine(_date(day), time(), UTC) - _EPOCH
    offset = 0
    if zone and zone not in ("Z", "UTC"):
        hours, _, minutes = zone[1:].partition(":")
        offset = (int(hours) * 60 + int(minutes or 0)) * 60_000_000 * (-1 if zone[0] == "-" else 1)
    micros = start // _MICROSECOND + (_clock(clock) if clock else 0) - offset
    if zone or type_.name == "TIMESTAMP":
        return micros
    from millstream.expressions.functions.zones import since_utc

    return since_utc(micros)


def _interval_text(text: str) -> int:
    """µs of '10 seconds', '1 day 02:00:00' or '01:30:00'."""
    total, rest = 0, text.strip()
    while rest:
        if found := re.match(rf"([+-]?)({_CLOCK})\s*$", rest):
            total += _clock(found[2]) * (-1 if found[1] == "-" else 1)
        elif found := re.match(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]+)\s*", rest):
            value = interval(found[1], found[2]).value
            assert isinstance(value, int)
            total += value
        else:
            raise BindError(f"'{text}' is not a valid INTERVAL", hint="write it as '10 seconds' or '1 day 02:30:00'")
        rest = rest[found.end() :]
    if not -(2**63) <= total < 2**63:
        raise BindError(f"'{text}' is longer than an INTERVAL can be", hint="the longest is about 292,000 years")
    return total


def _micros_per(unit: str) -> int:
    name = unit.lower()
    micros = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
    if micros is None:
        if name.removesuffix("s") in ("month", "quarter", "year", "decade", "century"):
            raise BindError(
                f"an INTERVAL in {name} is not supported",
                detail="intervals have a fixed length, and months and years do not",
                hint="use days, as in INTERVAL 30 DAYS",
            )
        raise BindError(f"unknown unit of time {unit}", hint="units are microseconds to weeks")
    return micros


def _unreadable(text: str, type_: SqlType) -> BindError:
    hint = None
    if type_.name == "TIMESTAMP" and re.fullmatch(TEXT_FORMS["TIMESTAMPTZ"], text):
        hint = "a TIMESTAMP has no time zone; use TIMESTAMPTZ for text with an offset"
    elif type_.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        hint = "write it as 'YYYY-MM-DD hh:mm:ss'"
    return BindError(f"'{text}' is not a valid {type_}", hint=hint)

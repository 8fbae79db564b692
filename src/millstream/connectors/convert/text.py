"""Text to declared types, a whole column at a time; what cannot be read is NULL and has a reason."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.convert.common import (
    DAYS_MAX,
    DAYS_MIN,
    MICROS_MAX,
    MICROS_MIN,
    Reasons,
    Rules,
    cast_each,
    not_a,
    null_out,
    out_of_range,
)
from millstream.connectors.convert.domains import within
from millstream.types import SqlType

TRUE_TEXTS = ("true", "True", "TRUE", "t", "T", "1")
FALSE_TEXTS = ("false", "False", "FALSE", "f", "F", "0")

_EPOCH = datetime(1970, 1, 1)
_ZONE = r"\s?(?:Z|z|UTC|[+-]\d{2}(?::?\d{2})?)"
_ISO = (
    r"^(?P<date>\d{4}-\d{2}-\d{2})"
    rf"(?:[T ](?P<clock>\d{{2}}(?::\d{{2}}(?::\d{{2}}(?:[.,](?P<fraction>\d+))?)?)?)(?P<zone>{_ZONE})?)?$"
)
# A necessary condition, so that columns of plain nonsense need not be halved down to single values.
_PLAUSIBLE = {
    "integer": r"^-?(?:\d+|0[xX][0-9a-fA-F]+)$",
    "DOUBLE": r"(?i)\d|nan|inf",
    "DECIMAL": r"\d",
    "DATE": r"^\d{4}-\d{2}-\d{2}$",
}


def parse_text(texts: pa.Array, type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """The texts as values of the type, with the reasons of those that are not."""
    if type_.domain:
        values, reasons = parse_text(texts, type_.base, rules)
        values, wrong = within(values, type_)
        return values, {row: not_a(texts[row].as_py(), type_) for row in sorted({*reasons, *wrong})}
    if type_.name == "VARCHAR":
        return texts, {}
    if type_.is_nested:
        return _nested(texts, type_, rules)
    failed: Iterable[int]
    if type_.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        values, failed = _timestamps(texts, rules)
        values = values if type_.name == "TIMESTAMP" else values.view(type_.arrow)
    elif type_.name == "BOOLEAN":
        values, failed = _booleans(texts)
    elif type_.name == "TIME":
        values, failed = _times(texts)
    elif type_.name in ("INTERVAL", "BLOB"):
        values, failed = _by_value(texts, type_, parse_interval if type_.name == "INTERVAL" else _blob)
    elif type_.name == "NULL":
        values, failed = pa.nulls(len(texts)), _rows(texts.is_valid())
    else:
        values, failed = _cast(texts, type_)
    return values, {row: not_a(texts[row].as_py(), type_) for row in map(int, failed)}


def read_column(column: pa.Array, type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """A column that is text, or has been read as the type already, as values of the type."""
    return within(column, type_) if column.type == type_.arrow else parse_text(column, type_, rules)


def parse_interval(text: str) -> timedelta:
    """A length of time: `PT1.5S`, `2 seconds`, `1 day 02:03:04.5` or `02:03:04`."""
    text = text.strip()
    if match := re.fullmatch(r"(-?)PT(\d+(?:\.\d+)?)S", text, re.IGNORECASE):
        length = _seconds(match[2])
        return -length if match[1] else length
    match = re.fullmatch(
        r"(?:(-?\d+(?:\.\d+)?)\s*([A-Za-z]+))?(?:(?:^|\s+)(-?)(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?)?", text
    )
    if match is None or not text:
        raise ValueError("not an interval")
    total = timedelta()
    if match[1]:
        name = match[2].lower()
        unit = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
        if unit is None:
            raise ValueError("not a unit of time")
        total += _seconds(match[1]) * unit if unit >= 1 else _seconds(match[1]) / round(1 / unit)
    if match[4]:
        clock = timedelta(hours=int(match[4]), minutes=int(match[5])) + _seconds(match[6] or "0")
        total += -clock if match[3] else clock
    return total


def fits_interval(length: timedelta) -> bool:
    """Whether a length of time fits 64 bits of microseconds, which Python's own need not."""
    return abs(length // timedelta(microseconds=1)) < 2**63


_UNITS = {
    "microsecond": 1e-6, "us": 1e-6, "millisecond": 1e-3, "ms": 1e-3, "second": 1, "sec": 1, "s": 1,
    "minute": 60, "min": 60, "m": 60, "hour": 3600, "h": 3600, "day": 86400, "d": 86400, "week": 604800,
}  # fmt: skip


def _seconds(digits: str) -> timedelta:
    whole, _, fraction = digits.partition(".")
    micros = timedelta(microseconds=int((fraction + "000000")[:6]))
    return timedelta(seconds=int(whole)) - micros if whole.startswith("-") else timedelta(seconds=int(whole)) + micros


def _nested(texts: pa.Array, type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Arrays, structs and maps as JSON."""
    # values are read with the help of texts, and here it is the other way round
    from millstream.connectors.convert.values import values_to_column

    values: list[object] = []
    wrong: Reasons = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            value = None if text is None else json.loads(text)
            if not isinstance(value, (list if type_.is_array else dict) | None):
                raise ValueError
            values.append(value)
        except (ValueError, RecursionError):
            values.append(None)
            wrong[row] = not_a(text, type_)
    column, reasons = values_to_column(values, type_, replace(rules, json=True))
    return column, dict(sorted((wrong | reasons).items()))


def _blob(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _rows(mask: pa.Array) -> np.ndarray[Any, Any]:
    return np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))


def _trim(texts: pa.Array) -> pa.Array:
    return pc.ascii_trim(texts, characters=" \t")


def _cast(texts: pa.Array, type_: SqlType) -> tuple[pa.Array, list[int]]:
    trimmed = _trim(texts)
    target = type_.arrow
    try:
        values: pa.Array = pc.cast(trimmed, target)
        failed: list[int] = []
    except pa.ArrowInvalid:
        pattern = _PLAUSIBLE["integer" if type_.is_integer else type_.name]
        hopeless = _rows(pc.invert(pc.match_substring_regex(trimmed, pattern)))
        values, failed = cast_each(null_out(trimmed, hopeless), target, lambda part: pc.cast(part, target))
        failed = sorted({*failed, *hopeless.tolist()})
    if type_.name == "DATE":
        beyond = out_of_range(values, DAYS_MIN, DAYS_MAX)
        if len(beyond):
            values, failed = null_out(values, beyond), sorted({*failed, *beyond.tolist()})
    return values, failed


def _booleans(texts: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    trimmed = _trim(texts)
    true = pc.is_in(trimmed, pa.array(TRUE_TEXTS))
    known = pc.or_(true, pc.is_in(trimmed, pa.array(FALSE_TEXTS)))
    return pc.if_else(known, true, pa.scalar(None, pa.bool_())), _rows(pc.and_(texts.is_valid(), pc.invert(known)))


def _times(texts: pa.Array) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    looks = pc.match_substring_regex(texts, r"^\s*\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?\s*$")
    dated = pc.binary_join_element_wise(pa.scalar("1970-01-01"), _trim(texts), "T")
    values, failed = _timestamps(pc.if_else(looks, dated, pa.scalar(None, pa.string())), Rules())
    wrong = np.union1d(failed, _rows(pc.invert(looks)))
    return values.view(pa.int64()).view(pa.time64("us")), wrong


def _by_value(texts: pa.Array, type_: SqlType, parse: Callable[[str], timedelta | bytes]) -> tuple[pa.Array, list[int]]:
    values: list[timedelta | bytes | None] = []
    failed = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else parse(text))
            if isinstance(values[-1], timedelta) and not fits_interval(values[-1]):
                raise OverflowError
        except (ValueError, OverflowError):
            values[row:] = [None]
            failed.append(row)
    return pa.array(values, type_.arrow), failed


def _timestamps(texts: pa.Array, rules: Rules) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    if rules.timestamp_format is not None:
        values = _by_format(texts, rules.timestamp_format)
    else:
        values = _uniform_iso(texts)
        values = _iso(texts) if values is None else values
    if rules.timestamp_unit is not None and values.null_count > texts.null_count:
        values = pc.coalesce(values, _epochs(texts, rules.micros_per_unit))
    beyond = out_of_range(values, MICROS_MIN, MICROS_MAX)
    values = null_out(values, beyond) if len(beyond) else values
    if values.null_count == texts.null_count:
        return values, np.empty(0, dtype=np.int64)
    return values, _rows(pc.and_(texts.is_valid(), values.is_null()))


def _uniform_iso(texts: pa.Array) -> pa.Array | None:
    """ISO 8601 when all texts or none have a zone and no fraction is finer than a microsecond; None otherwise."""
    # A cast that fails costs more than one that works, so the first text decides which one is tried.
    first = next((text for text in texts.slice(0, 16).to_pylist() if text is not None), "")
    zoned = re.search(_ZONE + "$", first[10:]) is not None
    try:
        return pc.cast(texts, pa.timestamp("us", "UTC" if zoned else None)).view(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None


def _iso(texts: pa.Array) -> pa.Array:
    """ISO 8601 with zones and any number of fraction digits; NULL where the text is something else."""
    parts = pc.extract_regex(_trim(texts), _ISO)
    matched = parts.is_valid()
    date, clock, fraction, zone = (pc.if_else(matched, parts.field(i), pa.scalar(None, pa.string())) for i in range(4))
    clock = pc.if_else(pc.equal(clock, ""), "00", pc.replace_substring_regex(clock, r"[.,]\d+$", ""))
    target = pa.timestamp("s")
    joined = pc.binary_join_element_wise(date, clock, "T")
    instants, _ = cast_each(joined, target, lambda part: pc.cast(part, target))
    micros = pc.cast(pc.utf8_rpad(pc.utf8_slice_codeunits(fraction, 0, 6), width=6, padding="0"), pa.int64())
    zones = zone.dictionary_encode()
    shifts = pa.array([_shift(text) for text in zones.dictionary.to_pylist()], pa.int64()).take(zones.indices)
    seconds = pc.subtract(instants.view(pa.int64()), shifts)
    return pc.add(pc.multiply(seconds, 1_000_000), micros).view(pa.timestamp("us"))


def _shift(zone: str) -> int | None:
    digits = zone.strip().lstrip("+-").replace(":", "")
    if not digits or digits in ("Z", "z", "UTC"):
        return 0
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        return None
    return (-1 if "-" in zone else 1) * (hours * 3600 + minutes * 60)


def _epochs(texts: pa.Array, scale: int) -> pa.Array:
    """Whole or fractional numbers since 1970 in units of `scale` µs; NULL where the text is no number."""
    numeric = pc.match_substring_regex(_trim(texts), r"^-?\d{1,19}(?:\.\d+)?$")
    chosen = pc.if_else(numeric, _trim(texts), pa.scalar(None, pa.string()))
    exact = pa.decimal128(38, 9)
    short = pc.replace_substring_regex(chosen, r"(\.\d{9})\d+$", r"\1")
    numbers, _ = cast_each(short, exact, lambda part: pc.cast(part, exact))
    scaled = pc.floor(pc.multiply(pc.cast(numbers, pa.decimal128(28, 9)), pa.scalar(scale, pa.decimal128(7, 0))))
    target = pa.int64()
    micros, _ = cast_each(scaled, target, lambda part: pc.cast(part, target))
    return micros.view(pa.timestamp("us"))


def _by_format(texts: pa.Array, form: str) -> pa.Array:
    if "%f" not in form and "%z" not in form and "%Z" not in form:
        return pc.strptime(texts, format=form, unit="us", error_is_null=True)
    # Arrow knows neither fractions nor zones in formats; Python does, at a price paid only by those who ask for it.
    return pa.array([_python_time(text, form) for text in texts.to_pylist()], pa.int64()).view(pa.timestamp("us"))


def _python_time(text: str | None, form: str) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.strptime(text.strip(), form)
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)

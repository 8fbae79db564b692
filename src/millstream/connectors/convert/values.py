"""Python values to declared types: a column of values at once where its Python types allow, else value by value."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.arrays import from_values, to_numpy
from millstream.connectors.convert.common import CAST_ERRORS, Reasons, Rules, not_a
from millstream.connectors.convert.domains import within
from millstream.connectors.convert.text import fits_interval, parse_text
from millstream.expressions.functions.literals import fits
from millstream.types import JSON, UUID, SqlType

# Columns that hold only these exact Python types go to Arrow as they are: it converts them without loss or complains.
# Subclasses (bool is an int, datetime is a date) must not slip through, and Arrow truncates floats for integers.
_EXACT: dict[str, frozenset[type]] = {
    "BOOLEAN": frozenset({bool}),
    "TINYINT": frozenset({int}),
    "SMALLINT": frozenset({int}),
    "INTEGER": frozenset({int}),
    "BIGINT": frozenset({int}),
    "DOUBLE": frozenset({float, int}),
    "DECIMAL": frozenset({Decimal, int}),
    "VARCHAR": frozenset({str}),
    "BLOB": frozenset({bytes}),
    "TIMESTAMP": frozenset({dt.datetime}),
    "TIMESTAMPTZ": frozenset({dt.datetime}),
    "DATE": frozenset({dt.date}),
    "TIME": frozenset(),
    "INTERVAL": frozenset({dt.timedelta}),
    "NULL": frozenset(),
}
_FROM_TEXT = ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "TIME", "INTERVAL", "DECIMAL")
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def values_to_column(values: list[Any], type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """The values as an Arrow column, NULL where a value does not fit, with the reasons."""
    if type_.element is not None:
        return _arrays(values, type_, type_.element, rules)
    if type_.is_map:
        return _maps(values, type_, rules)
    if type_.is_struct:
        return _structs(values, type_, rules)
    if type_.domain:
        return _of_domain(values, type_, rules)
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= _EXACT[type_.name]:
        try:
            return from_values(values, type_.arrow), {}
        except (*CAST_ERRORS, UnicodeEncodeError, ValueError):
            pass
    if kinds == {str} and type_.name in _FROM_TEXT:
        try:
            return parse_text(from_values(values, pa.string()), type_, rules)
        except UnicodeEncodeError:
            pass
    return _value_by_value(values, type_, rules)


def _of_domain(values: list[Any], type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Values of a domain: UUIDs are Python's own or text, and JSON is text or any value that it can write."""
    given = values
    if type_ == UUID:
        given = [str(value) if isinstance(value, uuid.UUID) else value for value in values]
    elif type_ == JSON:
        given = [value if value is None or isinstance(value, str) else _document(value) for value in values]
    column, reasons = values_to_column(given, type_.base, rules)
    column, wrong = within(column, type_)
    return column, {row: not_a(values[row], type_) for row in sorted({*reasons, *wrong})}


def _document(value: Any) -> Any:
    try:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, default=_number)
    except (TypeError, ValueError, RecursionError):
        return value


def _number(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError


def _arrays(values: list[Any], type_: SqlType, element: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Lists as arrays: all their elements are one column of the elements' type."""
    given = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    fits = [isinstance(value, list | tuple) for value in given]
    lists = [value if fit else () for value, fit in zip(given, fits, strict=True)]
    elements, wrong = values_to_column(list(chain.from_iterable(lists)), element, rules)
    ends = np.cumsum([0, *map(len, lists)])
    reasons = {
        row: not_a(value, type_)
        for row, (value, fit) in enumerate(zip(given, fits, strict=True))
        if not fit and value is not None and not _is_missing(value)
    }
    for place, reason in wrong.items():
        reasons.setdefault(int(np.searchsorted(ends, place, side="right")) - 1, f"in an array: {reason}")
    offsets = pa.array(ends.astype(np.int32))
    column = pa.ListArray.from_arrays(
        offsets, elements, type_.arrow, mask=pa.array([not fit for fit in fits], pa.bool_())
    )
    return column, dict(sorted(reasons.items()))


def _maps(values: list[Any], type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Dicts as maps: all their keys are one column, and all their values another. Pairs, as Arrow gives maps, too."""
    given = [value if isinstance(value, Mapping) else _of_pairs(value) for value in values]
    dicts = [value or {} for value in given]
    parts = [list(chain.from_iterable(part(each) for each in dicts)) for part in (Mapping.keys, Mapping.values)]
    columns = [values_to_column(part, inner, rules) for part, inner in zip(parts, type_.parts, strict=True)]
    ends = np.cumsum([0, *map(len, dicts)])
    reasons = _misfits(values, given, type_)
    for _, wrong in columns:
        for place, reason in wrong.items():
            reasons.setdefault(int(np.searchsorted(ends, place, side="right")) - 1, f"in a map: {reason}")
    keys = columns[0][0]
    for missing in np.flatnonzero(to_numpy(keys.is_null())):
        reasons.setdefault(int(np.searchsorted(ends, missing, side="right")) - 1, "in a map: a key is NULL")
    if keys.null_count:
        # a map cannot have such keys, not even in a row that is left out
        rest = _maps([None if row in reasons else value for row, value in enumerate(values)], type_, rules)
        return rest[0], dict(sorted(reasons.items()))
    offsets = pa.array([None if value is None else end for value, end in zip(given, ends, strict=False)] + [ends[-1]])
    column = pa.MapArray.from_arrays(offsets.cast(pa.int32()), keys, columns[1][0], type=type_.arrow)
    return column, dict(sorted(reasons.items()))


def _of_pairs(value: Any) -> dict[Any, Any] | None:
    try:
        return dict(value) if isinstance(value, list) else None
    except (TypeError, ValueError):
        return None


def _structs(values: list[Any], type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Dicts as structs, by the names of their keys, and tuples in the order of the fields."""
    names = [name for name, _ in type_.fields]
    given = [_of_fields(value, names, rules) for value in values]
    reasons = _misfits(values, given, type_)
    columns = []
    for place, (name, inner) in enumerate(type_.fields):
        column, wrong = values_to_column([None if row is None else row[place] for row in given], inner, rules)
        columns.append(column)
        for row, reason in wrong.items():
            reasons.setdefault(row, f"{name}: {reason}")
    mask = pa.array([row is None for row in given], pa.bool_())
    column = pa.StructArray.from_arrays(columns, fields=list(type_.arrow), mask=mask)
    return column, dict(sorted(reasons.items()))


def _of_fields(value: Any, names: list[str], rules: Rules) -> list[Any] | None:
    """The values of a struct's fields; None if it is no such struct. In JSON, other names are left out."""
    if isinstance(value, Mapping):
        lower = {str(key).lower(): each for key, each in value.items()}
        known = {name.lower() for name in names}
        return [lower.get(name.lower()) for name in names] if rules.json or lower.keys() <= known else None
    return list(value) if isinstance(value, tuple) and len(value) == len(names) else None


def _misfits(values: list[Any], fitted: list[Any], type_: SqlType) -> Reasons:
    """The reasons of values that are there and do not fit."""
    return {
        row: not_a(value, type_)
        for row, (value, fit) in enumerate(zip(values, fitted, strict=True))
        if fit is None and value is not None and not _is_missing(value)
    }


def _value_by_value(values: list[Any], type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    convert = _CONVERT[type_.name]
    converted: list[Any] = [None] * len(values)
    reasons: Reasons = {}
    texts: dict[int, str] = {}
    for row, given in enumerate(values):
        value = _plain(given)
        if value is None or _is_missing(value):
            continue
        if isinstance(value, str) and type_.name in _FROM_TEXT:
            texts[row] = str(value)
            continue
        try:
            converted[row] = convert(value, type_, rules)
        except (TypeError, ValueError, OverflowError, InvalidOperation) as error:
            reasons[row] = str(error) if isinstance(error, _Misfit) else not_a(given, type_)
    if texts:
        clean = [text if _encodable(text) else "\N{REPLACEMENT CHARACTER}" for text in texts.values()]
        parsed, wrong = parse_text(pa.array(clean, pa.string()), type_, rules)
        for place, (row, value) in enumerate(zip(texts, parsed.to_pylist(), strict=True)):
            converted[row] = value
            if place in wrong:
                reasons[row] = not_a(texts[row], type_)
    return pa.array(converted, type_.arrow), dict(sorted(reasons.items()))


class _Misfit(ValueError):
    """A reason that says more than that the value is not of the type."""


def _plain(value: Any) -> Any:
    """A NumPy scalar as the Python value it stands for; anything else as it is."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return value.astype(f"{type(value).__name__}[us]").item()
    return value.item() if isinstance(value, np.generic) else value


def _is_missing(value: object) -> bool:
    """pandas' markers for a missing value, recognised without importing pandas."""
    return type(value).__name__ in ("NAType", "NaTType")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boolean(value: Any, type_: SqlType, rules: Rules) -> bool:
    if isinstance(value, bool) or (rules.json and value in (0, 1) and isinstance(value, int)):
        return bool(value)
    raise TypeError


def _integer(value: Any, type_: SqlType, rules: Rules) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError
    whole = int(value)
    if whole != value:
        raise _Misfit(f"{value} has a fraction, which {type_} cannot hold")
    if not fits(whole, type_):
        raise _Misfit(f"{value} is out of range for {type_}")
    return whole


def _double(value: Any, type_: SqlType, rules: Rules) -> float:
    if isinstance(value, str) and rules.json and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError
    number = float(value)
    if math.isinf(number) and not (isinstance(value, float) or (isinstance(value, Decimal) and value.is_infinite())):
        raise _Misfit(f"{not_a(value, type_)}: out of range")
    if isinstance(value, int) and not rules.json and int(number) != value:
        raise _Misfit(f"{value} cannot be held exactly by {type_}")
    return number


def _decimal(value: Any, type_: SqlType, rules: Rules) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        raise ValueError
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    while exponent < -type_.scale and digits and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    if exponent < -type_.scale:
        raise _Misfit(f"{value} has more than {type_.scale} decimal places")
    whole_digits = len(digits) + exponent if any(digits) else 0
    if whole_digits > type_.precision - type_.scale:
        raise _Misfit(f"{value} is out of range for {type_}")
    return Decimal((sign, digits, exponent))


def _varchar(value: Any, type_: SqlType, rules: Rules) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not _encodable(value):
        raise _Misfit(f"{value!r} is not valid Unicode text")
    return str(value)


def _blob(value: Any, type_: SqlType, rules: Rules) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str) and rules.json:
        parsed, wrong = parse_text(pa.array([value]), type_, rules)
        if not wrong:
            return bytes(parsed[0].as_py())
    raise TypeError


def _timestamp(value: Any, type_: SqlType, rules: Rules) -> int | dt.datetime:
    if isinstance(value, dt.datetime):
        plain = dt.datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond,
            value.tzinfo, fold=value.fold,
        )  # fmt: skip
        return plain.astimezone(dt.UTC).replace(tzinfo=None) if plain.tzinfo is not None else plain
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        if rules.timestamp_unit is None:
            raise _Misfit(f"{value} is a number, not a {type_}: give text or a datetime, or set timestamp_unit")
        # Floats carry about 16 digits: the shortest text that means the same float is what its writer had in mind.
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        micros = math.floor(exact * rules.micros_per_unit)
        return _EPOCH + micros * _MICROSECOND
    raise TypeError


def _date(value: Any, type_: SqlType, rules: Rules) -> dt.date:
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None or value.time() != dt.time():
            raise _Misfit(f"{value} has a time of day, which {type_} cannot hold")
        return value.date()
    if isinstance(value, dt.date):
        return value
    raise TypeError


def _time(value: Any, type_: SqlType, rules: Rules) -> dt.time:
    if isinstance(value, dt.time) and value.tzinfo is None:
        return value
    raise TypeError


def _interval(value: Any, type_: SqlType, rules: Rules) -> dt.timedelta:
    if isinstance(value, dt.timedelta) and fits_interval(value):
        return value
    raise TypeError


def _null(value: Any, type_: SqlType, rules: Rules) -> None:
    raise TypeError


_CONVERT: dict[str, Callable[[Any, SqlType, Rules], Any]] = {
    "BOOLEAN": _boolean, "TINYINT": _integer, "SMALLINT": _integer, "INTEGER": _integer, "BIGINT": _integer,
    "DOUBLE": _double, "DECIMAL": _decimal, "VARCHAR": _varchar, "BLOB": _blob, "TIMESTAMP": _timestamp,
    "TIMESTAMPTZ": _timestamp, "DATE": _date, "TIME": _time, "INTERVAL": _interval, "NULL": _null,
}  # fmt: skip

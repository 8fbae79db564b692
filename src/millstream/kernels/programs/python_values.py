"""Values of SQL as the user's Python has them, and back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from millstream.expressions.functions.literals import decimal_value
from millstream.expressions.object_functions import bounds
from millstream.types import SqlType

_EPOCH = dt.datetime(1970, 1, 1)
_UTC_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_ZERO = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)

PLAIN = {"BOOLEAN": bool, "DOUBLE": float, "VARCHAR": str, "BLOB": bytes}
"""Types whose values are just those of a Python type."""


def to_python(type_: SqlType) -> Callable[[Any], Any] | None:
    """What turns a value into Python's; None if it is already."""
    return _TO_PYTHON.get(type_.name)


def from_python(value: Any, type_: SqlType) -> Any:
    """A value that the user's code gave, as one of the type; TypeError or ValueError if it is none."""
    if isinstance(value, np.generic):
        value = value.item()
    elif hasattr(value, "as_py"):
        value = value.as_py()
    if value is None:
        return None
    if type_.is_integer:
        return _integer(value, type_)
    return _FROM_PYTHON[type_.name](value, type_)


def _integer(value: Any, type_: SqlType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("an int is expected")
    low, high = bounds(type_)
    if not low <= value <= high:
        raise ValueError("it does not fit")
    return value


def _double(value: Any, _: SqlType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError("a float is expected")
    return float(value)


def _decimal(value: Any, type_: SqlType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError("a Decimal or an int is expected")
    return decimal_value(Decimal(value), type_)


def _exactly(kind: type, word: str) -> Callable[[Any, SqlType], Any]:
    def check(value: Any, _: SqlType) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{word} is expected")
        return value

    return check


def _timestamp(value: Any, _: SqlType) -> int:
    if not isinstance(value, dt.datetime):
        raise TypeError("a datetime is expected")
    # one without a zone is UTC
    return (value - (_EPOCH if value.tzinfo is None else _UTC_EPOCH)) // _MICROSECOND


def _date(value: Any, _: SqlType) -> int:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise TypeError("a date is expected")
    return (value - _DAY_ZERO).days


def _time(value: Any, _: SqlType) -> int:
    if not isinstance(value, dt.time):
        raise TypeError("a time is expected")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _interval(value: Any, _: SqlType) -> int:
    if not isinstance(value, dt.timedelta):
        raise TypeError("a timedelta is expected")
    return value // _MICROSECOND


_FROM_PYTHON: dict[str, Callable[[Any, SqlType], Any]] = {
    "BOOLEAN": _exactly(bool, "a bool"),
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "VARCHAR": _exactly(str, "a str"),
    "BLOB": _exactly(bytes, "bytes"),
    "TIMESTAMP": _timestamp,
    "TIMESTAMPTZ": _timestamp,
    "DATE": _date,
    "TIME": _time,
    "INTERVAL": _interval,
}

_TO_PYTHON: dict[str, Callable[[Any], Any]] = {
    "TIMESTAMP": lambda value: _EPOCH + dt.timedelta(microseconds=value),
    "TIMESTAMPTZ": lambda value: _UTC_EPOCH + dt.timedelta(microseconds=value),
    "DATE": lambda value: _DAY_ZERO + dt.timedelta(days=value),
    "TIME": lambda value: (_EPOCH + dt.timedelta(microseconds=value)).time(),
    "INTERVAL": lambda value: dt.timedelta(microseconds=value),
}

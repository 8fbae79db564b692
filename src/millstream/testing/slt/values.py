"""Values in golden files: SQL-like literals, read from pushed rows and written in results, in one spelling."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

DAY = dt.date(2020, 1, 1)
"""Where a time without a date belongs: `10:00:05` is 2020-01-01 10:00:05."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<typed>(?P<type>TIME|DECIMAL|INTERVAL)\s*'(?P<text>[^']*)')
    | (?P<blob>x'(?P<hex>[0-9a-fA-F]*)')
    | (?P<string>'(?:[^']|'')*')
    | (?P<timestamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)
    | (?P<date>\d{4}-\d\d-\d\d)
    | (?P<time>\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?(?P<zone>Z)?)
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[+-]?[A-Za-z]+)
    )\s*""",
    re.VERBOSE,
)
_WORDS: dict[str, Any] = {
    "null": None, "true": True, "false": False, "nan": float("nan"),
    "inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"),
}  # fmt: skip


def parse_row(line: str) -> tuple[Any, ...] | dict[str, Any]:
    """The values of one pushed row: literals separated by commas, or a JSON object.

    >>> parse_row("7, 'it''s', NULL, 1.5")
    (7, "it's", None, 1.5)
    >>> parse_row("1, ['a', NULL], [], {'x': [1], 'y': {'z': 2}}")
    (1, ['a', None], [], {'x': [1], 'y': {'z': 2}})
    >>> parse_row("10:00:05")
    (datetime.datetime(2020, 1, 1, 10, 0, 5),)
    """
    if line.lstrip().startswith("{"):
        return dict(json.loads(line))
    values, _ = _list(line, 0, "")
    return tuple(values)


def _list(line: str, position: int, closing: str) -> tuple[list[Any], int]:
    """The literals from a position on, up to a sign or the end, and where that is; `a: b` is a pair."""
    values: list[Any] = []
    while not _is_at(line, position, closing):
        value, position = _literal(line, position)
        if _is_at(line, position, ":"):
            second, position = _literal(line, line.index(":", position) + 1)
            value = (value, second)
        values.append(value)
        if _is_at(line, position, ","):
            position = line.index(",", position) + 1
        elif not _is_at(line, position, closing):
            raise ValueError(f"no comma at {line[position:]!r}")
    return values, len(line) if not closing else line.index(closing, position) + 1


def _literal(line: str, position: int) -> tuple[Any, int]:
    for signs, made in (("[]", list), ("{}", dict)):
        if _is_at(line, position, signs[0]):
            inside, end = _list(line, line.index(signs[0], position) + 1, signs[1])
            return made(inside), end
    match = _TOKEN.match(line, position)
    if match is None:
        raise ValueError(f"no literal at {line[position:]!r}")
    return _value(match), match.end()


def _is_at(line: str, position: int, sign: str) -> bool:
    rest = line[position:].lstrip()
    return rest.startswith(sign) if sign else not rest


def parse_time(text: str) -> dt.datetime | int:
    """A point in time as `advance` and `clock` take it; a number is a tick of a stream ordered by an integer."""
    row = parse_row(text)
    if isinstance(row, tuple) and len(row) == 1 and isinstance(row[0], dt.datetime | int):
        return row[0]
    raise ValueError(f"{text!r} is not a time")


def _value(match: re.Match[str]) -> Any:
    if match["typed"]:
        return _TYPED[match["type"]](match["text"])
    if match["blob"]:
        return bytes.fromhex(match["hex"])
    if match["string"]:
        return match["string"][1:-1].replace("''", "'")
    if match["timestamp"]:
        return dt.datetime.fromisoformat(match["timestamp"])
    if match["date"]:
        return dt.date.fromisoformat(match["date"])
    if match["time"]:
        moment = dt.datetime.combine(DAY, dt.time.fromisoformat(match["time"].removesuffix("Z").zfill(5)))
        return moment.replace(tzinfo=dt.UTC) if match["zone"] else moment
    if match["number"]:
        text = match["number"]
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    word = match["word"].lower()
    if word not in _WORDS:
        raise ValueError(f"{match['word']} is not a literal; strings stand in quotes")
    return _WORDS[word]


def _span(text: str) -> dt.timedelta:
    match = re.fullmatch(r"(-?)(?:(\d+) days? )?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?", text)
    if match is None:
        raise ValueError(f"INTERVAL {text!r} is not like '1 day 02:03:04'")
    days, hours, minutes, seconds = (int(match[i] or 0) for i in (2, 3, 4, 5))
    micros = int((match[6] or "").ljust(6, "0"))
    span = dt.timedelta(days, seconds, micros, minutes=minutes, hours=hours)
    return -span if match[1] else span


_TYPED: dict[str, Callable[[str], Any]] = {"TIME": dt.time.fromisoformat, "DECIMAL": Decimal, "INTERVAL": _span}


def format_rows(table: pa.Table) -> list[str]:
    """The rows of a result, one line each."""
    columns = [_python_values(column) for column in table.columns]
    return [", ".join(map(format_value, row)) for row in zip(*columns, strict=True)]


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    # pyarrow gives pandas' types for nanoseconds; the engine's times are µs, whoever made the column
    if pa.types.is_timestamp(column.type) and column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz))
    return list(column.to_pylist(maps_as_pydicts="strict"))


def format_value(value: Any) -> str:
    """A value as `parse_row` reads it: floats in their shortest form, times of `DAY` without the date.

    >>> format_value(dt.datetime(2020, 1, 1, 10)), format_value(dt.datetime(2021, 1, 1)), format_value(0.1)
    ('10:00:00', '2021-01-01T00:00:00', '0.1')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case list():
            return f"[{', '.join(map(format_value, value))}]"
        case dict():
            parts = (f"{format_value(key)}: {format_value(part)}" for key, part in value.items())
            return f"{{{', '.join(parts)}}}"
        case str():
            return "'" + value.replace("'", "''").replace("\n", "\\n") + "'"
        case bytes():
            return f"x'{value.hex()}'"
        case Decimal():
            return f"DECIMAL '{value}'"
        case dt.datetime():
            zone = "" if value.tzinfo is None else "Z"
            moment = value.astimezone(dt.UTC).replace(tzinfo=None) if zone else value
            return (moment.time().isoformat() if moment.date() == DAY else moment.isoformat()) + zone
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case dt.timedelta():
            return f"INTERVAL '{_format_span(value)}'"
    return str(value)


def _format_span(span: dt.timedelta) -> str:
    if span < dt.timedelta():
        return "-" + _format_span(-span)
    clock = (dt.datetime.min + dt.timedelta(seconds=span.seconds, microseconds=span.microseconds)).time().isoformat()
    return f"{span.days} day {clock}" if span.days else clock

"""Times and durations as users give them, in µs."""

from __future__ import annotations

import datetime as dt
import time as wall

from millstream import sql
from millstream.catalog import Clock, StreamDef
from millstream.errors import CatalogError, DataError
from millstream.hosts.contract import Coverage
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import DATE, TIMESTAMP, TIMESTAMPTZ, SqlType

Moment = dt.datetime | dt.date | str | int
"""A point in time as users give it: text is ISO 8601, a number is µs since the epoch."""


def to_micros(time: Moment) -> int:
    """A point in time as µs since the epoch; one without a zone is UTC."""
    if isinstance(time, str):
        try:
            time = dt.datetime.fromisoformat(time)
        except ValueError:
            raise DataError(f"{time!r} is not a time", hint="write it like '2026-01-31 12:00:00'") from None
    if isinstance(time, int) and not isinstance(time, bool):
        if not -(2**63) <= time < 2**63:
            raise DataError(f"{time} is out of range", hint="times are 64-bit integers")
        return time
    if isinstance(time, dt.datetime):
        moment = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
        return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(time, dt.date):
        return (time - dt.date(1970, 1, 1)).days * 86_400_000_000
    raise DataError(f"a time is expected, not {time!r}", hint="pass a datetime, ISO text, or int µs since the epoch")


def instant_of(stream: StreamDef, time: Moment) -> int:
    """A point in the time of a stream: µs, or a number where it is ordered by one."""
    if stream.is_by_number and not isinstance(time, int):
        raise DataError(f"stream {stream.name} is ordered by a number, not {time!r}", hint="use an integer")
    return to_micros(time)


@dataclass(frozen=True)
class Completeness:
    """From when on a query has seen all rows (`since`), and from when on its answers are complete (`complete_from`), in
    the time of its streams. None: from the first row on if `is_complete`, otherwise never for certain."""

    since: dt.datetime | int | None
    complete_from: dt.datetime | int | None
    is_complete: bool


def completeness(known: Coverage, stream: StreamDef) -> Completeness:
    """What a host knows, in the time of a stream."""

    return Completeness(told(known.since, stream), told(known.complete_from, stream), known.is_complete)


def told(instant: int | None, stream: StreamDef) -> dt.datetime | int | None:
    """An instant in the time of a stream."""
    if instant is None or stream.is_by_number or stream.clock is Clock.LATENT:
        return instant
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=instant)


def ordered_stream(name: str, schema: Schema, time: str, slack: str | dt.timedelta | int | None) -> StreamDef:
    """The declaration of data that is registered as a stream ordered by a column."""
    if time not in schema:
        raise CatalogError(f"no column {time} in {name}", hint="available: " + ", ".join(schema.names))
    column = schema[time]
    if not (column.type.is_integer or column.type in (TIMESTAMP, TIMESTAMPTZ, DATE)):
        raise CatalogError(
            f"{time} is {column.type}, which cannot order a stream", hint="use a timestamp, a date or an integer column"
        )
    length = to_slack(slack, column.type)
    if length < 0:
        raise DataError("slack cannot be negative", hint="slack is how far out of order rows may arrive")
    return StreamDef(name, schema, Clock.EXTERNAL, column.name, length)


def to_slack(slack: str | dt.timedelta | int | None, time: SqlType) -> int:
    """How much out of order rows may be by a column of this type: µs, or a number where that is one.

    None is 0; text is like '5 seconds'.
    """
    if slack is None:
        return 0
    if time.is_integer and not isinstance(slack, int):
        raise DataError("the stream is ordered by a number, so slack takes a number", hint="slack=5")
    if isinstance(slack, dt.timedelta):
        return slack // dt.timedelta(microseconds=1)
    if isinstance(slack, int):
        return slack
    length = sql.parse_duration(slack)
    if length is None:
        raise DataError(f"{slack!r} is not a duration", hint="write it like '5 seconds'")
    return length


def wall_clock() -> int:
    """µs since the epoch now."""
    return wall.time_ns() // 1000

"""Text to values: what is accepted, what is refused, and that a bad neighbour changes nothing."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.convert.common import Rules
from millstream.connectors.convert.text import parse_interval, parse_text
from millstream.types import BLOB, BOOLEAN, DATE, DECIMAL, DOUBLE, INTEGER, TIME, TIMESTAMP, TIMESTAMPTZ, TINYINT


def parse(texts, type_, **rules):
    values, reasons = parse_text(pa.array(texts, pa.string()), type_, Rules(**rules))
    assert values.type == type_.arrow
    return values.to_pylist(), sorted(reasons)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01T10:20:30", dt.datetime(2024, 3, 1, 10, 20, 30)),
        ("2024-03-01 10:20:30.5", dt.datetime(2024, 3, 1, 10, 20, 30, 500000)),
        ("2024-03-01T10:20:30.123456789", dt.datetime(2024, 3, 1, 10, 20, 30, 123456)),
        ("2024-03-01T10:20:30Z", dt.datetime(2024, 3, 1, 10, 20, 30)),
        ("2024-03-01T10:20:30.000001+02:00", dt.datetime(2024, 3, 1, 8, 20, 30, 1)),
        ("2024-03-01 10:20:30-0530", dt.datetime(2024, 3, 1, 15, 50, 30)),
        ("2024-03-01 10:20 +01", dt.datetime(2024, 3, 1, 9, 20)),
        (" 2024-03-01 ", dt.datetime(2024, 3, 1)),
        ("1969-12-31T23:59:59.999999", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_timestamps_that_are_read(text, expected):
    assert parse([text], TIMESTAMP) == ([expected], [])
    assert parse(["nonsense", text, None], TIMESTAMP) == ([None, expected, None], [0])
    assert parse([text], TIMESTAMPTZ) == ([expected.replace(tzinfo=dt.UTC)], [])


@pytest.mark.parametrize(
    "text",
    ["", "2024-13-01", "2024-02-30T00:00:00", "2024-03-01T25:00:00", "2024-03-01T10:20:61", "1700000000", "yesterday",
     "2024-03-01T10:20:30+99:00", "0000-01-01", "20240301", "2024-03-01T10:20:30.", "0001-01-01T00:00:00+01:00"],
)  # fmt: skip
def test_timestamps_that_are_refused(text):
    assert parse([text, "2024-01-01"], TIMESTAMP) == ([None, dt.datetime(2024, 1, 1)], [0])


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        ("s", "1700000000", dt.datetime(2023, 11, 14, 22, 13, 20)),
        ("s", "1700000000.25", dt.datetime(2023, 11, 14, 22, 13, 20, 250000)),
        ("ms", "1700000000123", dt.datetime(2023, 11, 14, 22, 13, 20, 123000)),
        ("us", "1700000000123456", dt.datetime(2023, 11, 14, 22, 13, 20, 123456)),
        ("us", "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_numbers_are_times_only_when_a_unit_is_set(unit, text, expected):
    assert parse([text], TIMESTAMP, timestamp_unit=unit) == ([expected], [])
    assert parse([text, "2024-01-01"], TIMESTAMP, timestamp_unit=unit)[1] == []
    assert parse([text], TIMESTAMP)[1] == [0]


def test_timestamp_formats():
    assert parse(["01/02/2024 10:11"], TIMESTAMP, timestamp_format="%d/%m/%Y %H:%M") == (
        [dt.datetime(2024, 2, 1, 10, 11)], [],
    )  # fmt: skip
    fine = parse(["1.2.2024 10:11:12.5 +0200", "x"], TIMESTAMP, timestamp_format="%d.%m.%Y %H:%M:%S.%f %z")
    assert fine == ([dt.datetime(2024, 2, 1, 8, 11, 12, 500000), None], [1])


def test_numbers_booleans_dates_and_times():
    assert parse(["1", " 2\t", "x", "300", None, "1.0"], TINYINT) == ([1, 2, None, None, None, None], [2, 3, 5])
    assert parse(["1", "1e3", "-.5", "abc", "inf", ""], DOUBLE) == (
        [1.0, 1000.0, -0.5, None, float("inf"), None],
        [3, 5],
    )
    money = parse(["1.25", "1.250", "1.255", "12345678901234", "x"], DECIMAL(10, 2))
    assert money == ([Decimal("1.25"), Decimal("1.25"), None, None, None], [2, 3, 4])
    assert parse(["true", "F", "1", "0", "t", "yes", None], BOOLEAN) == (
        [True, False, True, False, True, None, None],
        [5],
    )
    assert parse(["2024-02-29", "2023-02-29", "0000-01-01"], DATE) == ([dt.date(2024, 2, 29), None, None], [1, 2])
    assert parse(["12:30", "12:30:01.5", "24:00", "noon"], TIME) == (
        [dt.time(12, 30), dt.time(12, 30, 1, 500000), None, None], [2, 3],
    )  # fmt: skip
    assert parse(["QUI=", "?"], BLOB) == ([b"AB", None], [1])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2 seconds", 2), ("500 ms", 0.5), ("1.5 min", 90), ("PT0.25S", 0.25), ("-PT2S", -2), ("1 day 00:00:01", 86401),
     ("02:03:04.5", 7384.5), ("100 us", 0.0001), ("2 m", 120)],
)  # fmt: skip
def test_intervals(text, seconds):
    assert parse_interval(text) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "seconds", "5 parsecs", "1:2"])
def test_what_is_no_interval(text):
    with pytest.raises(ValueError):
        parse_interval(text)


MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(
    lambda moment: (moment.isoformat(), moment)
) | st.datetimes(
    dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.timezone(dt.timedelta(hours=3)))
).map(lambda moment: (moment.isoformat(), moment.astimezone(dt.UTC).replace(tzinfo=None)))


@given(st.lists(MOMENTS | st.tuples(st.sampled_from(["x", "2024-99-01", ""]), st.none()), max_size=30))
def test_any_mix_of_zoned_plain_and_wrong_times(pairs):
    values, wrong = parse([text for text, _ in pairs], TIMESTAMP)
    assert values == [moment for _, moment in pairs]
    assert wrong == [row for row, (_, moment) in enumerate(pairs) if moment is None]


@given(st.lists(st.integers(-(2**40), 2**40).map(str) | st.sampled_from(["", "a", "1.5", " 7 ", "+3"]), max_size=40))
def test_integers_are_read_one_by_one_or_together(column):
    together, wrong = parse(column, INTEGER)
    apart = [parse([text], INTEGER) for text in column]
    assert together == [values[0] for values, _ in apart]
    assert wrong == [row for row, (_, bad) in enumerate(apart) if bad]

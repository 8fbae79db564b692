"""Rows that users push: every accepted shape, every reason for rejection."""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from connector_data import EVERY_TYPE, QUOTES, plain, rows_of_every_type, to_record_batch
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.rows import to_batch
from millstream.errors import DataError
from millstream.schema import Schema
from millstream.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
)

T = dt.datetime(2024, 1, 1, 12)
GOOD = [("IBM", 1.5, 10, T), ("SUN", None, 20, T)]
PAIR = Schema.of(a=INTEGER, b=VARCHAR)


def push(data, schema=QUOTES):
    batch, rejected = to_batch(data, schema, "push")
    assert batch.schema == schema.arrow
    batch.validate(full=True)
    return plain(batch), rejected


@dataclass
class Quote:
    symbol: str
    price: float
    size: int
    ts: dt.datetime


NamedQuote = namedtuple("NamedQuote", "symbol price size ts")


def test_every_shape_gives_the_same_rows():
    expected = plain(to_record_batch(GOOD, QUOTES))
    names = list(QUOTES.names)
    dicts = [dict(zip(names, row, strict=True)) for row in GOOD]
    table = pa.Table.from_batches([to_record_batch(GOOD, QUOTES)])
    shapes = [
        GOOD, tuple(GOOD), [list(row) for row in GOOD], iter(GOOD), dicts,
        [{key.upper(): value for key, value in row.items()} for row in dicts],
        [GOOD[0], dicts[1]], [NamedQuote(*row) for row in GOOD], [Quote(*row) for row in GOOD],
        table, table.to_batches()[0], table.to_reader(), table.select(names[::-1]),
        pd.DataFrame(dicts), pl.DataFrame(dicts), pd.DataFrame(dicts, index=["x", "y"]),
    ]  # fmt: skip
    for shape in shapes:
        assert push(shape) == (expected, ())


def test_nothing_pushed():
    for data in ([], (), pa.table({"symbol": pa.array([], pa.string())}), pd.DataFrame({"symbol": []}, dtype=object)):
        assert push(data) == ([], ())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (("IBM", 1.5, 10, T), "single row"),
        (["IBM", 1.5, 10, T], "single row"),
        ({"symbol": "IBM"}, "single row"),
        (Quote(*GOOD[0]), "single row"),
        ("IBM", "str is not rows"),
        (5, "int is not rows"),
        (None, "NoneType is not rows"),
        ([1, 2, 3, 4, 5], "not int"),
        (pa.table({"colour": [1]}), "no column colour"),
        (pa.table({"prise": [1.0]}), "did you mean price"),
        (pa.table({"price": [[1.0]]}), "column price is list"),
        (pa.table({"size": ["1"]}), "column size is string"),
        (pd.DataFrame({"symbl": ["x"]}), "did you mean symbol"),
    ],
)
def test_what_is_no_rows_at_all(data, message):
    with pytest.raises(DataError, match=message) as caught:
        push(data)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("IBM", 1.5, 10), "3 values for the 4 columns"),
        (("IBM", 1.5, 10, T, 1), "5 values for the 4 columns"),
        ({"symbol": "IBM", "prise": 1}, "unknown column 'prise' (did you mean price?)"),
        ({"price": 1.0, "PRICE": 2.0}, "column price is given twice"),
        ({1: 2}, "unknown column 1"),
        ("IBM", "a row must be a tuple, list or dict, not str"),
        (None, "a row must be a tuple, list or dict, not NoneType"),
        ((5, 1.5, 10, T), "symbol: 5 is not a valid VARCHAR"),
        (("IBM", "1.5", 10, T), "price: '1.5' is not a valid DOUBLE"),
        (("IBM", True, 10, T), "price: True is not a valid DOUBLE"),
        (("IBM", 2**60 + 1, 10, T), "price: 1152921504606846977 cannot be held exactly by DOUBLE"),
        (("IBM", 1.5, 10.5, T), "size: 10.5 has a fraction, which INTEGER cannot hold"),
        (("IBM", 1.5, True, T), "size: True is not a valid INTEGER"),
        (("IBM", 1.5, 2**31, T), "size: 2147483648 is out of range for INTEGER"),
        (("IBM", 1.5, float("nan"), T), "size: nan is not a valid INTEGER"),
        (("IBM", 1.5, 10, "noon"), "ts: 'noon' is not a valid TIMESTAMP"),
        (("IBM", 1.5, 10, 1700000000), "ts: 1700000000 is a number, not a TIMESTAMP"),
        (("\ud800", 1.5, 10, T), "symbol: '\\ud800' is not valid Unicode text"),
        (("IBM", 1.5, 10, "\ud800"), "ts: '\\ud800' is not a valid TIMESTAMP"),
    ],
)
def test_reasons(row, reason):
    rows, rejected = push([GOOD[0], row, GOOD[1]])
    assert rows == plain(to_record_batch(GOOD, QUOTES))
    assert len(rejected) == 1 and rejected[0].error.startswith(reason)
    assert rejected[0].row == repr(row) and rejected[0].origin == "push:2"


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (np.int64(5), INTEGER, 5),
        (5.0, INTEGER, 5),
        (Decimal(5), TINYINT, 5),
        (np.float32(0.5), DOUBLE, 0.5),
        (5, DOUBLE, 5.0),
        (Decimal("0.5"), DOUBLE, 0.5),
        (np.bool_(True), BOOLEAN, True),
        (np.str_("x"), VARCHAR, "x"),
        (1.25, DECIMAL(10, 2), Decimal("1.25")),
        (7, DECIMAL(10, 2), Decimal("7.00")),
        ("1.5", DECIMAL(10, 2), Decimal("1.50")),
        (Decimal("1.500"), DECIMAL(10, 2), Decimal("1.50")),
        (bytearray(b"x"), BLOB, b"x"),
        ("2024-01-01T12:00:00+02:00", TIMESTAMP, dt.datetime(2024, 1, 1, 10)),
        (T.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))), TIMESTAMP, dt.datetime(2024, 1, 1, 10)),
        (T, TIMESTAMPTZ, T.replace(tzinfo=dt.UTC)),
        (dt.date(2024, 1, 1), TIMESTAMP, dt.datetime(2024, 1, 1)),
        (np.datetime64("2024-01-01T12:00:00.123456789"), TIMESTAMP, T.replace(microsecond=123456)),
        (pd.Timestamp("2024-01-01T12:00:00.123456789"), TIMESTAMP, T.replace(microsecond=123456)),
        (pd.NaT, TIMESTAMP, None),
        (pd.NA, INTEGER, None),
        (dt.datetime(2024, 1, 1), DATE, dt.date(2024, 1, 1)),
        ("2024-01-01", DATE, dt.date(2024, 1, 1)),
        ("12:30", TIME, dt.time(12, 30)),
        (np.timedelta64(5, "s"), INTERVAL, dt.timedelta(seconds=5)),
        ("5 seconds", INTERVAL, dt.timedelta(seconds=5)),
    ],
)
def test_values_that_convert(value, type_, expected):
    schema = Schema.of(x=type_)
    for rows in ([(value,)], [(value,), (None,)], [(object(),), (value,)]):
        batch, rejected = to_batch(rows, schema, "push")
        assert expected in batch.column(0).to_pylist()
        assert len(rejected) == len(rows) - batch.num_rows


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1.255, DECIMAL(10, 2)), (10**9, DECIMAL(10, 2)), (Decimal("NaN"), DECIMAL(10, 2)), (True, DECIMAL(10, 2)),
        (1, BOOLEAN), ("true", BOOLEAN), (b"x", VARCHAR), ("x", BLOB), (T, DATE), (200, TINYINT), (2**63, BIGINT),
        (dt.time(1, tzinfo=dt.UTC), TIME), (5, INTERVAL), (dt.timedelta.max, INTERVAL),
        ("999999999 days", INTERVAL), (10**400, DOUBLE), (T, TIME), (np.int64(2**40), INTEGER),
    ],
)  # fmt: skip
def test_values_that_do_not(value, type_):
    batch, rejected = to_batch([(value,), (None,)], Schema.of(x=type_), "push")
    assert batch.num_rows == 1 and len(rejected) == 1


def test_arrow_values_are_judged_row_by_row():
    table = pa.table({
        "symbol": ["a", "b", "c"], "price": [1, 2**60 + 1, 3], "size": [1.0, 2.0, 3.5],
        "ts": pa.array(["2024-01-01", "2024-01-01", "2024-01-01"]),
    })  # fmt: skip
    rows, rejected = push(table)
    assert [row[0] for row in rows] == ["a"]
    assert [entry.origin for entry in rejected] == ["push:2", "push:3"]
    assert rejected[1].error == "size: 3.5 is not a valid INTEGER" and "'symbol': 'c'" in rejected[1].row


def test_a_frame_with_a_column_of_mixed_objects():
    frame = pd.DataFrame({"a": [1, "x", None], "b": ["p", "q", "r"]}, dtype=object)
    batch, rejected = to_batch(frame, PAIR, "push")
    assert batch.to_pylist() == [{"a": 1, "b": "p"}, {"a": None, "b": "r"}]
    assert len(rejected) == 1


def test_frames_of_polars_and_pandas_with_their_own_types():
    schema = Schema.of(n=BIGINT, s=VARCHAR, t=TIMESTAMP, z=TIMESTAMPTZ)
    moment = pd.Timestamp("2024-01-01 12:00", tz="Europe/Berlin")
    frame = pd.DataFrame(
        {"n": pd.array([1, None], dtype="Int64"), "s": pd.Categorical(["a", "b"]), "t": [T, T], "z": [moment] * 2}
    )
    expected = [
        {"n": 1, "s": "a", "t": T, "z": moment.tz_convert("UTC").to_pydatetime()},
        {"n": None, "s": "b", "t": T, "z": moment.tz_convert("UTC").to_pydatetime()},
    ]
    assert to_batch(frame, schema, "p")[0].to_pylist() == expected
    assert to_batch(pl.from_pandas(frame), schema, "p")[0].to_pylist() == expected


@given(rows_of_every_type(), st.booleans())
def test_any_rows_convert_as_they_are(rows, as_dicts):
    shaped = [dict(zip(EVERY_TYPE.names, row, strict=True)) for row in rows] if as_dicts else rows
    assert push(shaped, EVERY_TYPE) == (plain(to_record_batch(rows, EVERY_TYPE)), ())


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3), st.decimals(),
    st.dates(), st.times(), st.datetimes(), st.timedeltas(), st.lists(st.integers(), max_size=2), st.just(object()),
)  # fmt: skip


@given(st.lists(st.tuples(*[JUNK] * len(EVERY_TYPE)) | st.tuples(JUNK) | JUNK, min_size=1, max_size=8))
def test_any_junk_is_a_row_or_rejected(rows):
    """Each row is judged by itself: together with others the verdict is the same as alone."""
    rows = [(0,), *rows]
    good, rejected = push(rows, EVERY_TYPE)
    assert len(good) + len(rejected) == len(rows)
    wrong = {int(entry.origin.split(":")[1]) - 1 for entry in rejected}
    for number, row in enumerate(rows):
        alone, refused = to_batch([row, (0,)], EVERY_TYPE, "push")
        assert (len(refused) == 2) == (number in wrong)
        assert number in wrong or plain(alone)[0] in good


def test_pushing_is_columnar():
    from time import perf_counter

    rows = [("IBM", 1.5, n, T) for n in range(100_000)]
    started = perf_counter()
    to_batch(rows, QUOTES, "push")
    assert perf_counter() - started < 2

"""Schemas, random rows and small readers that the connector tests share."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

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

EVERY_TYPE = Schema.of(
    flag=BOOLEAN,
    tiny=TINYINT,
    number=INTEGER,
    big=BIGINT,
    real=DOUBLE,
    money=DECIMAL(12, 2),
    word=VARCHAR,
    raw=BLOB,
    at=TIMESTAMP,
    zoned=TIMESTAMPTZ,
    day=DATE,
    clock=TIME,
    length=INTERVAL,
)
QUOTES = Schema.of(symbol=VARCHAR, price=DOUBLE, size=INTEGER, ts=TIMESTAMP)


def never() -> bool:
    return False


def texts() -> st.SearchStrategy[str]:
    """Text with everything that formats trip over."""
    nasty = st.sampled_from(
        ["", " ", '"', '""', ",", "\n", "\r\n", "a\rb", "naïve ☃ 漢字", "\\", "\t", "null", "NaN", "'"]
    )
    letters = st.characters(exclude_categories=("Cs",))
    return st.one_of(nasty, st.text(letters, max_size=8), st.lists(nasty, max_size=3).map("".join))


def values() -> dict[str, st.SearchStrategy]:
    moments = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
    return {
        "flag": st.booleans(),
        "tiny": st.integers(-128, 127),
        "number": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**63), 2**63 - 1),
        "real": st.floats(allow_nan=False),
        "money": st.decimals(-(10**9), 10**9, places=2, allow_nan=False),
        "word": texts(),
        "raw": st.binary(max_size=5),
        "at": moments,
        "zoned": moments.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
        "day": st.dates(),
        "clock": st.times(),
        "length": st.timedeltas(dt.timedelta(days=-999), dt.timedelta(days=999)),
    }


def rows_of_every_type(max_size: int = 20) -> st.SearchStrategy[list[tuple]]:
    row = st.tuples(*(st.none() | strategy for strategy in values().values()))
    return st.lists(row, max_size=max_size)


def to_record_batch(rows: list[tuple], schema: Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    arrays = [pa.array(list(column), field.type.arrow) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def plain(rows: list[dict] | pa.Table | pa.RecordBatch) -> list[tuple]:
    """Rows as tuples of values that compare equal whatever their spelling (Decimal scale, NaN, zones)."""
    listed = rows if isinstance(rows, list) else rows.to_pylist()
    return [tuple(_plain(value) for value in row.values()) for row in listed]


def _plain(value: object) -> object:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, float):
        return repr(value)
    return value


def read_all(source, offset=None, limit=None):
    """All rows (as tuples) and all rejections from an offset on, and the chunks they came in."""
    rows, rejected, chunks = [], [], []
    for chunk in source.read(offset or {}, never, limit):
        assert limit is None or chunk.rows.num_rows <= limit
        chunk.rows.validate(full=True)
        rows += plain(chunk.rows)
        rejected += chunk.rejected
        chunks.append(chunk)
    return rows, rejected, chunks


def decode_piecemeal(form, data: bytes, step: int, limit: int = 10**6):
    """Rows and rejections when the bytes come a few at a time, as from a slow writer."""
    rows, bad = [], []
    begun, buffer, line, received = None, b"", 0, 0
    while True:
        ended = received >= len(data)
        buffer += data[received : received + step]
        received += step
        if begun is None:
            begun = form.begin(buffer, ended)
            if begun is None:
                continue
            line, buffer = buffer.count(b"\n", 0, begun[1]), buffer[begun[1] :]
        while buffer and (decoded := begun[0].decode(buffer, ended, limit)).consumed:
            rows += plain(decoded.rows)
            bad += [(line + entry.line, entry.text) for entry in decoded.bad]
            line, buffer = line + decoded.lines, buffer[decoded.consumed :]
        if ended:
            assert buffer == b""
            return rows, bad

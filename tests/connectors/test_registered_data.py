"""Tables, frames, datasets and paths registered as bounded sources."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from connector_data import read_all

from millstream.connectors.rows import to_batches
from millstream.errors import ConnectorError, DataError
from millstream.schema import Schema
from millstream.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
)

T = dt.datetime(2024, 1, 1)
TABLE = pa.table({
    "k": pa.array(["a", "b", "a"]).dictionary_encode(),
    "u": pa.array([1, 2, 3], pa.uint64()),
    "f": pa.array([0.5, None, 1.5], pa.float32()),
    "t": pa.array([T, T, None], pa.timestamp("ms")),
    "z": pa.array([T, T, T], pa.timestamp("ns", "Asia/Tokyo")),
})  # fmt: skip


def test_tables_frames_and_datasets_give_the_same(tmp_path):
    pq.write_table(TABLE, tmp_path / "x.parquet")
    expected = Schema.of(k=VARCHAR, u=BIGINT, f=DOUBLE, t=TIMESTAMP, z=TIMESTAMPTZ)
    first = None
    sources = [
        TABLE, TABLE.combine_chunks().to_batches()[0], TABLE.to_reader(), ds.dataset(tmp_path / "x.parquet"),
        pl.from_arrow(TABLE), tmp_path / "x.parquet", str(tmp_path / "*.parquet"),
    ]  # fmt: skip
    for given in sources:
        schema, source = to_batches(given, None)
        assert schema == expected and source.bounded and source.replayable and source.size() == 3
        rows, rejected, chunks = read_all(source, limit=1)
        first = first or rows
        assert rows == first and rejected == [] and len(chunks) == 3
        assert read_all(source, chunks[0].offset)[0] == rows[1:]
        assert read_all(source)[0] == rows


def test_a_pandas_frame():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "t": pd.to_datetime(["2024-01-01", None])})
    schema, source = to_batches(frame, None)
    assert schema == Schema.of(a=BIGINT, b=VARCHAR, t=TIMESTAMP)
    assert read_all(source)[0] == [(1, "x", T), (2, None, None)]


def test_a_declared_schema_is_used():
    schema, source = to_batches(pa.table({"A": [1, 2**40], "x": ["drop", "me"]}), Schema.of(a=INTEGER, b=VARCHAR))
    rows, rejected, _ = read_all(source)
    assert rows == [(1, None)] and rejected[0].origin == "data:2" and schema.names == ("a", "b")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.table({"n": pa.array([1], pa.decimal256(50, 2))}), "column n has the Arrow type decimal256"),
        (pa.table({"u": pa.array([2**63], pa.uint64())}), "column u holds 9223372036854775808"),
        (pa.table({"a": [1], "A": [2]}), "duplicate column names"),
        (42, "int is not a source"),
        ([(1, 2)], "list is not a source"),
    ],
)
def test_what_cannot_be_registered(given, message):
    with pytest.raises(DataError, match=message) as caught:
        to_batches(given, None)
    assert caught.value.hint
    with pytest.raises(ConnectorError, match="no file"):
        to_batches("/nowhere/at/all.csv", None)


def test_schemas_of_text_files(tmp_path):
    (tmp_path / "a.csv").write_text(
        "n,x,s,t,d,b,nothing,z\n1,1.5,abc,2024-01-01T10:00:00.5,2024-01-01,true,,2024-01-01T00:00:00Z\n"
    )
    schema, source = to_batches(tmp_path / "a.csv", None)
    assert schema == Schema.of(
        n=BIGINT, x=DOUBLE, s=VARCHAR, t=TIMESTAMP, d=DATE, b=BOOLEAN, nothing=VARCHAR, z=TIMESTAMPTZ
    )
    assert read_all(source)[1] == []
    (tmp_path / "b.jsonl").write_text('{"n": 1, "t": "2024-01-01T10:00:00.25Z"}\nbroken\n{"n": 2, "s": "x"}\n')
    schema, source = to_batches(tmp_path / "b.jsonl", None)
    assert schema == Schema.of(n=BIGINT, t=TIMESTAMP, s=VARCHAR)
    rows, rejected, _ = read_all(source)
    assert len(rows) == 2 and [entry.row for entry in rejected] == ["broken"]
    (tmp_path / "c.csv").write_text("")
    with pytest.raises(DataError, match="is empty"):
        to_batches(tmp_path / "c.csv", None)


def test_a_large_table_comes_in_chunks():
    schema, source = to_batches(pa.table({"n": np.arange(200_000)}), None)
    assert schema.names == ("n",)
    _, _, chunks = read_all(source)
    assert [chunk.rows.num_rows for chunk in chunks] == [65_536, 65_536, 65_536, 3392]

"""Files: every format read back, resumed at every offset, followed as they grow."""

from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_data import EVERY_TYPE, QUOTES, never, plain, read_all, rows_of_every_type, to_record_batch
from hypothesis import given, settings

from millstream.connectors.registry import make_source
from millstream.connectors.sinks.writers import SUFFIXES, open_writer
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, INTEGER, TIMESTAMP, VARCHAR
from tiers import examples

PAIR = Schema.of(a=INTEGER, b=VARCHAR)


def source(path: Path, schema: Schema = PAIR, **options):
    return make_source({"connector": "file", "path": str(path), **options}, schema, "s")


def write(path: Path, batch: pa.RecordBatch, schema: Schema) -> None:
    form = next(form for form, suffix in SUFFIXES.items() if suffix == path.suffix)
    with path.open("wb") as file:
        writer = open_writer(form, file, schema)
        half = batch.num_rows // 2
        for part in (batch.slice(0, half), batch.slice(half)):
            writer.write(part)
        writer.finish()


@pytest.mark.parametrize("suffix", SUFFIXES.values())
@given(rows=rows_of_every_type())
@settings(max_examples=examples(25))
def test_every_format_round_trips(tmp_path_factory, suffix, rows):
    path = tmp_path_factory.mktemp("files") / f"rows{suffix}"
    batch = to_record_batch(rows, EVERY_TYPE)
    write(path, batch, EVERY_TYPE)
    reader = source(path, EVERY_TYPE)
    assert read_all(reader)[:2] == (plain(batch), [])
    assert reader.warnings == []


def mixed_directory(directory: Path) -> None:
    """Files of all formats, with bad rows in the text ones."""
    (directory / "a.csv").write_text('a,b\n1,x\noops,y\n2,"two\nlines"\n\n3\n4,z\n')
    (directory / "b.jsonl").write_text('{"a":5,"b":"x"}\n{"a":\n{"a":6}\n[7,"y"]\n')
    (directory / "c.csv.gz").write_bytes(gzip.compress(b"8,p\n9,q\nbad\n10,r\n"))
    write(directory / "d.parquet", to_record_batch([(n, f"w{n}") for n in range(11, 18)], PAIR), PAIR)
    write(directory / "e.arrow", to_record_batch([(n, None) for n in range(18, 23)], PAIR), PAIR)
    (directory / "f.csv").write_text("")
    (directory / "g.csv").write_text("a,b\n")
    (directory / "notes.txt").write_text("not data")
    (directory / ".hidden.csv").write_text("99,hidden\n")


def test_a_directory_is_read_in_order_of_names(tmp_path):
    mixed_directory(tmp_path)
    rows, rejected, _ = read_all(source(tmp_path))
    assert [row[0] for row in rows] == [1, 2, 4, 5, 6, 7, 8, 9, 10, *range(11, 23)]
    assert [entry.row for entry in rejected] == ["oops,y", "3", '{"a":', "bad"]
    assert [Path(entry.origin).name for entry in rejected] == ["a.csv:3", "a.csv:7", "b.jsonl:2", "c.csv.gz:3"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, None])
def test_reading_resumes_exactly_at_every_offset(tmp_path, limit):
    mixed_directory(tmp_path)
    rows, rejected, chunks = read_all(source(tmp_path), limit=limit)
    seen_rows = seen_rejected = 0
    for chunk in chunks:
        seen_rows += chunk.rows.num_rows
        seen_rejected += len(chunk.rejected)
        offset = json.loads(json.dumps(chunk.offset))
        rest_rows, rest_rejected, _ = read_all(source(tmp_path), offset, limit=2)
        assert rest_rows == rows[seen_rows:]
        assert rest_rejected == rejected[seen_rejected:]
    assert len(rows) == 21 and len(rejected) == 4


def test_stop_ends_reading(tmp_path):
    (tmp_path / "a.csv").write_text("".join(f"{n},x\n" for n in range(100)))
    seen = []
    for chunk in source(tmp_path).read({}, lambda: len(seen) >= 3, limit=5):
        seen.append(chunk)
    assert len(seen) == 3


def test_blocks_smaller_and_larger_than_rows(tmp_path, monkeypatch):
    import millstream.connectors.files.text_file as text_file

    (tmp_path / "a.csv").write_text("".join(f'{n},"{"y" * (n % 50)}\n"\n' for n in range(500)))
    expected = read_all(source(tmp_path))[:2]
    assert len(expected[0]) == 500
    for block in (7, 64, 1000):
        monkeypatch.setattr(text_file, "_BLOCK", block)
        assert read_all(source(tmp_path))[:2] == expected


def test_a_row_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    import millstream.connectors.files.text_file as text_file
    import millstream.connectors.text.csv_format as csv_format
    import millstream.connectors.text.csv_records as csv_records
    import millstream.connectors.text.decoder as decoder
    import millstream.connectors.text.json_format as json_format

    for module in (text_file, csv_format, csv_records, decoder, json_format):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 1000)
    monkeypatch.setattr(text_file, "_BLOCK", 300)
    long = "x" * 5000
    (tmp_path / "a.csv").write_text(f"1,a\n2,{long}\n3,c\n4,{long[:1500]}\n5,{long}")
    (tmp_path / "b.jsonl").write_text(f'{{"a":6}}\n{{"a":7,"b":"{long}"}}\n{{"a":8}}\n{{"a":9,"b":"{long[:1100]}"}}\n')
    for limit in (None, 1):
        rows, rejected, _ = read_all(source(tmp_path), limit=limit)
        assert [row[0] for row in rows] == [1, 3, 6, 8]
        assert all("longer than" in entry.error and len(entry.row) < 300 for entry in rejected)
        assert [Path(entry.origin).name for entry in rejected] == [
            "a.csv:2", "a.csv:4", "a.csv:5", "b.jsonl:2", "b.jsonl:4"
        ]  # fmt: skip


def test_schema_drift_is_warned_of_once(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"a": 3}\n{"A": 4, "new": true}\n')
    pq.write_table(pa.table({"A": [5]}), tmp_path / "c.parquet")
    reader = source(tmp_path)
    assert read_all(reader)[:2] == ([(3, None), (4, None), (5, None)], [])
    assert [warning.split("/")[-1] for warning in reader.warnings] == [
        f"{name} has no column b: it is read as NULL" for name in ("b.jsonl", "c.parquet")
    ]
    read_all(reader)
    assert len(reader.warnings) == 2


def test_a_csv_header_without_a_declared_column_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("extra,A\n9,1\n8,2\n")
    with pytest.raises(ConnectorError, match=r"a\.csv has no column b"):
        read_all(source(tmp_path, header=True))


def test_a_csv_header_with_few_of_the_declared_columns_is_an_error(tmp_path):
    schema = Schema.of(a=INTEGER, b=INTEGER, c=INTEGER, d=VARCHAR, e=INTEGER)
    (tmp_path / "a.csv").write_text("a,x,y\n9,1,3\n")
    with pytest.raises(ConnectorError, match=r"a\.csv has no column b, c, d, e"):
        read_all(source(tmp_path, schema=schema))
    # a value that fits its column is a sign of a row
    (tmp_path / "a.csv").write_text("9,a,a,a,a\n1,2,3,x,5\n")
    rows, rejected, *_ = read_all(source(tmp_path, schema=schema))
    assert rows == [(1, 2, 3, "x", 5)] and len(rejected) == 1


def test_parquet_of_other_types_is_fitted_row_by_row(tmp_path):
    table = pa.table({
        "symbol": pa.array(["A", "B", "C"]).dictionary_encode(),
        "price": pa.array([1.5, 2.5, 3.5], pa.float32()),
        "size": pa.array([1, 2**40, 3]),
        "ts": pa.array([0, 1_500_000_123, None], pa.timestamp("ns", "Europe/Berlin")),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    rows, rejected, _ = read_all(source(tmp_path / "x.parquet", QUOTES))
    assert [(row[0], row[2]) for row in rows] == [("A", 1), ("C", 3)]
    assert len(rejected) == 1 and "size: 1099511627776" in rejected[0].error and rejected[0].origin.endswith(":2")


def test_a_column_that_can_never_fit_rejects_the_rows_it_stands_for(tmp_path):
    pq.write_table(pa.table({"a": [[1], [2], [3]], "b": ["x", "y", "z"]}), tmp_path / "x.parquet")
    rows, rejected, _ = read_all(source(tmp_path / "x.parquet"))
    assert rows == [] and sum(entry.count for entry in rejected) == 3
    assert "column a is list" in rejected[0].error


def test_text_options(tmp_path):
    (tmp_path / "x.data").write_text("7|-|1700000000\n")
    schema = Schema.of(a=INTEGER, b=VARCHAR, ts=TIMESTAMP)
    reader = source(
        tmp_path / "x.data", schema, format="csv", delimiter="|", null_value="-", timestamp_unit="s", header=False
    )
    rows, rejected, _ = read_all(reader)
    assert rows[0][:2] == (7, None) and rows[0][2].year == 2023 and rejected == []
    (tmp_path / "x.tsv").write_text("a\tb\n1\tx,y\n")
    assert read_all(source(tmp_path / "x.tsv"))[0] == [(1, "x,y")]


def test_globs_sizes_and_missing_files(tmp_path):
    for name in ("b", "a"):
        write(tmp_path / f"{name}.parquet", to_record_batch([(1, name)] * 3, PAIR), PAIR)
    reader = source(tmp_path / "*.parquet")
    assert [row[1] for row in read_all(reader)[0]] == ["a"] * 3 + ["b"] * 3
    assert reader.size() == 6 and reader.bounded and reader.replayable
    (tmp_path / "c.csv").write_text("1,x\n" * 50_000)
    assert abs(source(tmp_path / "c.csv").size() - 50_000) < 1000
    with pytest.raises(ConnectorError, match="no file at"):
        source(tmp_path / "*.csvx")
    with pytest.raises(ConnectorError, match=r"format of .* cannot be inferred"):
        (tmp_path / "odd").write_text("1,x\n")
        source(tmp_path / "odd")


def follow_until(reader, offset, done, limit=None):
    """Follow until the predicate on (rows, rejected) holds; returns rows, rejected and the last offset."""
    rows, rejected = [], []
    deadline = time.monotonic() + 20

    def stop():
        return time.monotonic() > deadline or done(rows, rejected)

    for chunk in reader.read(offset, stop, limit):
        rows.extend(plain(chunk.rows))
        rejected.extend(chunk.rejected)
        offset = chunk.offset
    return rows, rejected, offset


def test_following_sees_appended_lines_and_new_files(tmp_path):
    log = tmp_path / "b.csv"
    log.write_text("a,b\n1,x\n2,")

    def grow():
        with log.open("a") as file:
            for piece in ("y\n3", ",z\n", "oops\n"):
                time.sleep(0.05)
                file.write(piece)
                file.flush()
        (tmp_path / "a.jsonl").write_text('{"a": 4}\n')
        write(tmp_path / "c.parquet", to_record_batch([(5, "p")], PAIR), PAIR)

    writer = threading.Thread(target=grow)
    reader = source(tmp_path, follow=True, poll_ms=10)
    assert not reader.bounded and reader.size() is None
    writer.start()
    rows, rejected, offset = follow_until(reader, {}, lambda rows, rejected: len(rows) + len(rejected) >= 6)
    writer.join()
    assert sorted(row[0] for row in rows) == [1, 2, 3, 4, 5]
    assert [entry.row for entry in rejected] == ["oops"]
    with log.open("a") as file:
        file.write("6,w\n")
    again = follow_until(
        source(tmp_path, follow=True, poll_ms=10), json.loads(json.dumps(offset)), lambda r, _: len(r) >= 1
    )
    assert again[0] == [(6, "w")]


def test_following_a_file_that_is_replaced_by_a_shorter_one(tmp_path):
    log = tmp_path / "a.csv"
    log.write_text("1,x\n2,y\n")
    reader = source(tmp_path, follow=True, poll_ms=10)
    _, _, offset = follow_until(reader, {}, lambda rows, _: len(rows) >= 2)
    log.write_text("3,z\n")
    rows, _, _ = follow_until(reader, offset, lambda rows, _: len(rows) >= 1)
    assert rows == [(3, "z")] and "was replaced" in reader.warnings[0]


def test_an_idle_follower_yields_empty_chunks(tmp_path):
    started = time.monotonic()
    chunks = list(source(tmp_path, follow=True).read({}, lambda: time.monotonic() - started > 0.2))
    assert chunks and all(chunk.rows.num_rows == 0 and chunk.rows.schema == PAIR.arrow for chunk in chunks)


def test_large_integers_and_reals_survive(tmp_path):
    schema = Schema.of(n=BIGINT, x=DOUBLE)
    rows = [(2**63 - 1, 0.1), (-(2**63), 1e-300), (0, -0.0)]
    for suffix in SUFFIXES.values():
        write(tmp_path / f"x{suffix}", to_record_batch(rows, schema), schema)
        assert read_all(source(tmp_path / f"x{suffix}", schema))[0] == [(n, repr(x)) for n, x in rows]
    assert next(source(tmp_path / "x.csv", schema).read({}, never)).rows.schema == schema.arrow

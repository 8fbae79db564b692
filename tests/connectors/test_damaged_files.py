"""Damaged files: what can be read is read, what cannot is named, and reading goes on with the next file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_data import plain, read_all, to_record_batch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.connectors.registry import make_source
from millstream.connectors.sinks.writers import open_writer
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR
from tiers import examples

PAIR = Schema.of(a=INTEGER, b=VARCHAR)
ROWS = [(n, f"word{n % 7}") for n in range(400)]
TEXT = "".join(f"{a},{b}\n" for a, b in ROWS).encode()


def source(path: Path):
    return make_source({"connector": "file", "path": str(path)}, PAIR, "s")


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, PAIR.arrow, write_page_checksum=True, use_dictionary=False) as writer:
        for start in range(0, len(ROWS), 100):
            writer.write_batch(to_record_batch(ROWS[start : start + 100], PAIR))
    return sink.getvalue().to_pybytes()


def arrow_bytes(tmp: Path) -> bytes:
    path = tmp / "whole.arrow"
    with path.open("wb") as file:
        writer = open_writer("arrow", file, PAIR)
        for start in range(0, len(ROWS), 100):
            writer.write(to_record_batch(ROWS[start : start + 100], PAIR))
        writer.finish()
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@given(share=st.floats(0, 0.999))
@settings(max_examples=examples(15))
def test_a_truncated_compressed_file_gives_all_rows_before_the_cut(tmp_path_factory, compression, share):
    tmp_path = tmp_path_factory.mktemp("cut")
    whole = gzip.compress(TEXT) if compression == "gzip" else pa.compress(TEXT, codec="zstd", asbytes=True)
    cut = whole[: int(len(whole) * share)]
    path = tmp_path / ("a.csv.gz" if compression == "gzip" else "a.csv.zst")
    path.write_bytes(cut)
    (tmp_path / "b.csv").write_text("1000,next\n")
    rows, rejected, chunks = read_all(source(tmp_path))
    assert rows[-1] == (1000, "next")
    assert rows[:-1] == ROWS[: len(rows) - 1]
    if cut:
        assert len(rejected) == 1 and "cannot be decompressed" in rejected[0].error
        lost = ROWS[len(rows) - 1 :]
        if lost:
            assert f"{lost[0][0]},{lost[0][1]}".startswith(rejected[0].row)
    again = read_all(source(tmp_path), chunks[0].offset, limit=50)
    assert again[0] == rows[chunks[0].rows.num_rows :]


def test_every_decompressible_byte_is_used(tmp_path):
    whole = gzip.compress(TEXT)
    (tmp_path / "a.csv.gz").write_bytes(whole[:-4])
    rows, rejected, _ = read_all(source(tmp_path))
    assert rows == ROWS and len(rejected) == 1


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8), st.booleans())
@example(600, b"\x01", False)
@settings(max_examples=examples(60))
def test_a_corrupted_parquet_file_loses_nothing_silently(tmp_path_factory, place, noise, cut):
    """Row groups that read are right, the others are named with the rows they held."""
    tmp_path = tmp_path_factory.mktemp("parquet")
    whole = parquet_bytes()
    place %= len(whole)
    broken = whole[:place] if cut else whole[:place] + noise + whole[place + len(noise) :]
    (tmp_path / "a.parquet").write_bytes(broken)
    (tmp_path / "b.csv").write_text("1000,next\n")
    rows, rejected, _ = read_all(source(tmp_path))
    assert rows[-1] == (1000, "next")
    if any("not a readable" in entry.error for entry in rejected):
        return
    footer = pq.ParquetFile(tmp_path / "a.parquet").metadata.num_rows
    assert len(rows) - 1 + sum(entry.count for entry in rejected) == footer


def test_a_damaged_row_group_is_named_and_the_others_are_read(tmp_path):
    whole = bytearray(parquet_bytes())
    group = pq.ParquetFile(pa.BufferReader(bytes(whole))).metadata.row_group(2).column(0)
    place = group.data_page_offset + group.total_compressed_size - 20
    whole[place : place + 4] = bytes(255 - byte for byte in whole[place : place + 4])
    (tmp_path / "a.parquet").write_bytes(whole)
    rows, rejected, chunks = read_all(source(tmp_path))
    assert rows == ROWS[:200] + ROWS[300:]
    assert [(entry.count, entry.row) for entry in rejected] == [(100, "rows 201 to 300")]
    for chunk in chunks:
        rest = read_all(source(tmp_path), chunk.offset)
        assert chunk.offset["at"] + len(rest[0]) + sum(entry.count for entry in rest[1]) == 400


@given(st.floats(0, 0.999))
@settings(max_examples=examples(30))
def test_a_truncated_arrow_file_gives_its_complete_batches(tmp_path_factory, share):
    tmp_path = tmp_path_factory.mktemp("arrow")
    whole = arrow_bytes(tmp_path)
    (tmp_path / "a.arrow").write_bytes(whole[: int(len(whole) * share)])
    (tmp_path / "b.csv").write_text("1000,next\n")
    rows, rejected, _ = read_all(source(tmp_path))
    assert rows[-1] == (1000, "next")
    assert rows[:-1] == ROWS[: len(rows) - 1] and (len(rows) - 1) % 100 == 0
    assert len(rows) == 401 or len(rejected) == 1


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=20), st.integers(0, 20)), max_size=6), st.booleans()
)
@settings(max_examples=examples(60))
def test_corrupted_text_files_keep_every_untouched_line(tmp_path_factory, wounds, as_json):
    """Lines that no corruption touched are rows or, within a quote that corruption opened, in a rejected text."""
    tmp_path = tmp_path_factory.mktemp("text")
    lines = [f'{{"a":{a},"b":"{b}"}}' if as_json else f"{a},{b}" for a, b in ROWS]
    data = ("\n".join(lines) + "\n").encode()
    broken = data
    for place, noise, removed in wounds:
        place %= len(data)
        broken = broken[:place] + noise + broken[place + removed :]
    path = tmp_path / ("a.jsonl" if as_json else "a.csv")
    path.write_bytes(broken)
    rows, rejected, _ = read_all(source(path))
    texts = "\n".join(entry.row for entry in rejected)
    survivors = set(broken.decode(errors="replace").replace("\r", "\n").split("\n"))
    swallowed = "\n".join(str(row[1]) for row in rows)
    for line, row in zip(lines, ROWS, strict=True):
        if line in survivors:
            assert row in rows or line in texts or line in swallowed
    if as_json:
        start = 3 if broken.startswith(b"\xef\xbb\xbf") else 0
        assert len(rows) + len(rejected) == sum(bool(line.strip()) for line in broken[start:].split(b"\n"))


def test_an_arrow_file_cut_just_between_two_batches(tmp_path):
    whole = arrow_bytes(tmp_path)
    path = tmp_path / "a.arrow"
    for length in range(0, len(whole), 8):
        path.write_bytes(whole[:length])
        rows, rejected, _ = read_all(source(path))
        assert rows == ROWS[: len(rows)] and len(rejected) == 1


def test_a_missing_footer_and_an_empty_parquet_file(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes()[:-10])
    (tmp_path / "b.parquet").write_bytes(b"")
    (tmp_path / "c.arrow").write_bytes(b"junk" * 10)
    rows, rejected, chunks = read_all(source(tmp_path))
    assert rows == [] and len(rejected) == 3
    assert read_all(source(tmp_path), chunks[-1].offset) == ([], [], [])
    assert plain(chunks[0].rows) == []

"""CSV: the grammar, headers, NULLs, and that the fast and the exact way agree on every text."""

from __future__ import annotations

import pytest
from connector_data import EVERY_TYPE, QUOTES, decode_piecemeal, plain, rows_of_every_type, texts, to_record_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.sinks.writers import open_writer
from millstream.connectors.text.csv_format import CsvFormat
from millstream.schema import Schema
from millstream.types import DOUBLE, INTEGER, TIMESTAMP, VARCHAR
from tiers import examples

PAIR = Schema.of(a=INTEGER, b=VARCHAR)


def decode(data: bytes, schema: Schema = PAIR, limit: int = 10**6, **options):
    """All rows and rejections of a complete text."""
    decoder, position = CsvFormat(schema, **options).begin(data, True)
    rows, bad = [], []
    line = data.count(b"\n", 0, position)
    while position < len(data):
        decoded = decoder.decode(data[position:], True, limit)
        assert decoded.consumed > 0
        rows += plain(decoded.rows)
        bad += [(line + entry.line, entry.text) for entry in decoded.bad]
        position += decoded.consumed
        line += decoded.lines
    return rows, bad


def exactly(data: bytes, schema: Schema = PAIR, **options):
    """The same by the slow way alone."""
    decoder, position = CsvFormat(schema, **options).begin(data, True)
    decoded = decoder._one_by_one(data[position:], True, 10**6)
    assert decoded.consumed == len(data) - position
    line = data.count(b"\n", 0, position)
    return plain(decoded.rows), [(line + entry.line, entry.text) for entry in decoded.bad]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b"a,b", []),
        (b"1,x\n2,y\n", [(1, "x"), (2, "y")]),
        (b"1,x\r\n2,y\r\n", [(1, "x"), (2, "y")]),
        (b"1,x\n2,y", [(1, "x"), (2, "y")]),
        (b"\xef\xbb\xbfB,A\nx,1\n", [(1, "x")]),
        (b"\xef\xbb\xbf1,x\n", [(1, "x")]),
        (b"A,extra,B\n1,9,x\n", [(1, "x")]),
        (b'1,\n,y\n2,""\n', [(1, None), (None, "y"), (2, "")]),
        (b'1,"x, ""y""\nz"\n2,w\n', [(1, 'x, "y"\nz'), (2, "w")]),
        (b'1,"x\r\ny"\r\n', [(1, "x\r\ny")]),
        (b'1,"x\r"\n', [(1, "x\r")]),
        (b"\n\n1,x\n\n2,y\n", [(1, "x"), (2, "y")]),
        (b'"1","x"y\n', [(1, "xy")]),
        ("1,naïve ☃\n".encode(), [(1, "naïve ☃")]),
    ],
)
def test_what_csv_means(data, rows):
    assert decode(data) == (rows, [])
    assert exactly(data) == (rows, [])


@pytest.mark.parametrize(
    ("data", "rows", "bad"),
    [
        (b"x,y\n1,z\n", [(1, "z")], [(0, "x,y")]),
        (b"1,x,9\n2,y\n", [(2, "y")], [(0, "1,x,9")]),
        (b"1\n2,y\n", [(2, "y")], [(0, "1")]),
        (b"1,\xff\n2,y\n", [(2, "y")], [(0, "1,\\xff")]),
        (b'1,"x\n2,y\n3,z\n', [(2, "y"), (3, "z")], [(0, '1,"x')]),
        (b'1,x\n2,"y\n', [(1, "x")], [(1, '2,"y')]),
        (b"1.5,x\n99999999999,y\n3,z\n", [(3, "z")], [(0, "1.5,x"), (1, "99999999999,y")]),
        (b'"",x\n', [], [(0, '"",x')]),
        (b"a,b\n\nx,1\n2,y", [(2, "y")], [(2, "x,1")]),
    ],
)
def test_what_csv_does_not_mean(data, rows, bad):
    assert decode(data) == (rows, bad)
    assert exactly(data) == (rows, bad)


def test_one_column_keeps_its_nulls():
    assert decode(b'x\n\n""\n', Schema.of(only=VARCHAR)) == ([("x",), (None,), ("",)], [])


def test_delimiter_and_null_value():
    assert decode(b"1;NA\nNA;x,y\n", delimiter=";", null_value="NA") == ([(1, None), (None, "x,y")], [])
    assert decode(b'1,"NA"\n', null_value="NA") == ([(1, "NA")], [])


def test_header_can_be_forced_or_forbidden():
    assert decode(b"a,b\n1,x\n", header=False) == ([(1, "x")], [(0, "a,b")])
    assert decode(b"q,B\n1,x\n", header=True) == ([(None, "x")], [])
    decoder, _ = CsvFormat(PAIR, header=True).begin(b"q,B\n", True)
    assert decoder.missing() == ["a"]


def test_lines_are_rows_when_quotes_may_not_span_them():
    data = b'1,"x\ny",2\n3,"z"\n'
    assert decode(data, multiline=False) == ([(3, "z")], [(0, '1,"x'), (1, 'y",2')])


def test_good_rows_of_a_block_with_bad_ones_all_survive():
    lines = [f"{n},word{n}" for n in range(5000)]
    lines[17], lines[1234], lines[4999] = "oops", "x,y,z", "12x,y"
    rows, bad = decode("\n".join(lines).encode() + b"\n", header=False)
    assert len(rows) == 4997
    assert bad == [(17, "oops"), (1234, "x,y,z"), (4999, "12x,y")]


FIELDS = st.one_of(
    st.sampled_from(
        ["1", "2", "", "x", '"x"', '"', '""', '"a""b"', '"a\nb"', '"a', 'a"b', "\r", "☃", " 3", '"4"', "NaN"]
    ),
    texts(),
)
WILD = st.lists(st.lists(FIELDS, min_size=1, max_size=3).map(",".join), max_size=12).map("\n".join)


@given(WILD, st.integers(1, 4), st.booleans())
@settings(max_examples=examples(200))
def test_the_fast_way_and_the_exact_way_agree(text, limit, cut):
    data = text.encode()
    if cut:
        data += b"\xff\n1,x"
    for options in ({}, {"header": False}, {"multiline": False}):
        expected = exactly(data, **options)
        assert decode(data, **options) == expected
        assert decode(data, limit=limit, **options) == expected


@given(WILD, st.integers(1, 40), st.integers(1, 5))
def test_the_pieces_in_which_bytes_come_change_nothing(text, step, limit):
    data = text.encode()
    for options in ({}, {"multiline": False}):
        assert decode_piecemeal(CsvFormat(PAIR, **options), data, step, limit) == exactly(data, **options)


@given(rows_of_every_type())
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    batch = to_record_batch(rows, EVERY_TYPE)
    with path.open("wb") as file:
        writer = open_writer("csv", file, EVERY_TYPE)
        writer.write(batch)
        writer.finish()
    assert decode(path.read_bytes(), EVERY_TYPE) == (plain(batch), [])


@given(st.binary(max_size=60), st.integers(0, 200), st.data())
def test_every_line_of_a_corrupted_text_is_a_row_or_rejected(noise, place, data):
    """No line is lost: output rows and rejected texts together account for all of them."""
    good = "".join(f"{n},{n}.5,s{n},2024-01-01T00:00:{n:02d}\n" for n in range(10)).encode()
    place = min(place, len(good))
    broken = good[:place] + noise + good[place + data.draw(st.integers(0, 30)) :]
    schema = Schema.of(a=INTEGER, x=DOUBLE, s=VARCHAR, ts=TIMESTAMP)
    decoder, start = CsvFormat(schema, header=False).begin(broken, True)
    decoded = decoder.decode(broken[start:], True, 10**6)
    records, malformed, consumed, _ = _records(decoder, broken[start:])
    filled = [line for line in broken[start:].split(b"\n") if line not in (b"", b"\r")]
    accounted = sum(record.raw.strip(b"\n").count(b"\n") + 1 for record in records) + len(malformed)
    blank_inside = sum(line in (b"", b"\r") for record in records for line in record.raw.strip(b"\n").split(b"\n"))
    assert consumed == len(broken) - start == decoded.consumed
    assert accounted - blank_inside == len(filled)
    assert decoded.rows.num_rows + len(decoded.bad) == len(records) + len(malformed)


def _records(decoder, data):
    from millstream.connectors.text.csv_records import read_records

    return read_records(data, True, 10**6, decoder._width, decoder._dialect)


def test_symbols_and_times_are_read_by_position_without_header():
    rows, bad = decode(b"IBM,1.5,100,2024-01-01T00:00:00Z\n", QUOTES)
    assert len(rows) == 1 and not bad

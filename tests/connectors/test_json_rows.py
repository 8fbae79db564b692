"""JSON lines: objects and arrays, drifting schemas, malformed lines, and that Arrow's and Python's reading agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from connector_data import EVERY_TYPE, decode_piecemeal, plain, rows_of_every_type, to_record_batch
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.connectors.convert.common import Rules
from millstream.connectors.sinks.writers import open_writer
from millstream.connectors.text.json_format import JsonFormat
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DECIMAL, DOUBLE, INTEGER, TIMESTAMP, VARCHAR
from tiers import examples

PAIR = Schema.of(a=INTEGER, b=VARCHAR)


def decode(data: bytes, schema: Schema = PAIR, limit: int = 10**6, rules: Rules = Rules()):
    decoder, position = JsonFormat(schema, rules).begin(data, True)
    rows, bad, line = [], [], 0
    while position < len(data):
        decoded = decoder.decode(data[position:], True, limit)
        assert decoded.consumed > 0
        rows += plain(decoded.rows)
        bad += [(line + entry.line, entry.text) for entry in decoded.bad]
        position, line = position + decoded.consumed, line + decoded.lines
    return rows, bad


def by_python(data: bytes, schema: Schema = PAIR):
    """The same, line by line through Python alone."""
    rows, bad = [], []
    decoder, start = JsonFormat(schema).begin(data, True)
    for number, line in enumerate(data[start:].split(b"\n")):
        if line.strip():
            fitted = decoder._by_python([line])
            rows += plain(fitted.rows)
            bad += [(number, line.decode(errors="backslashreplace").rstrip("\r")) for _ in fitted.bad]
    return rows, bad


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"", []),
        (b"\n \n\r\n", []),
        (b'{"a": 1, "b": "x"}\n{"b": "y"}\n{}\n', [(1, "x"), (None, "y"), (None, None)]),
        (b'{"a": 1, "b": "x"}', [(1, "x")]),
        (b'\xef\xbb\xbf{"a": 1}\r\n', [(1, None)]),
        (b'{"A": 1, "B": "x"}\n{"a": 2, "b": "y"}\n', [(1, "x"), (2, "y")]),
        (b'{"a": 1, "zzz": [1, {"q": 2}], "b": null}\n', [(1, None)]),
        (b'[1, "x"]\n[2, null]\n{"a": 3}\n', [(1, "x"), (2, None), (3, None)]),
        (b'{"a": 1.0}\n', [(1, None)]),
        ('{"b": "☃ \\u2603 \\n"}\n'.encode(), [(None, "☃ ☃ \n")]),
    ],
)
def test_what_json_lines_mean(data, rows):
    assert decode(data) == (rows, [])


@pytest.mark.parametrize(
    "line",
    ['{"a": 1', '{"a": "x"}', '{"a": 1.5}', '{"a": 99999999999}', '{"a": true}', "[1]", '[1, "x", 2]', "5", "null",
     '"x"', '{"b": 7}', '{"a": 1} {"a": 2}', '{"a": 1}x', "{", '{"b": "\\ud800"}', '{"b": {"c": 1}}', '{"a":1}{"a":2}'],
)  # fmt: skip
def test_what_is_rejected_while_its_neighbours_stay(line):
    data = f'{{"a": 1}}\n{line}\n{{"a": 2}}\n'.encode()
    assert decode(data) == ([(1, None), (2, None)], [(1, line)])


def test_invalid_utf8_is_rejected():
    assert decode(b'{"b": "\xff"}\n{"a": 1}\n') == ([(1, None)], [(0, '{"b": "\\xff"}')])


def test_an_object_over_two_lines_is_no_row():
    assert decode(b'{"a": 1,\n"b": "x"}\n{"a": 2}\n') == ([(2, None)], [(0, '{"a": 1,'), (1, '"b": "x"}')])


def test_numbers_and_booleans():
    schema = Schema.of(x=DOUBLE, d=DECIMAL(10, 2), t=BOOLEAN)
    lines = (
        b'{"x": 1, "d": 1.5, "t": true}\n{"x": "NaN", "d": "2.50", "t": 0}\n{"d": 0.125}\n{"x": 1e999}\n{"t": "true"}\n'
    )
    rows, bad = decode(lines, schema)
    assert [row[0] for row in rows] == ["1.0", "nan"]
    assert [row[2] for row in rows] == [True, False]
    assert [line for line, _ in bad] == [2, 3, 4]


def test_epochs_need_a_unit():
    schema = Schema.of(ts=TIMESTAMP)
    lines = b'{"ts": 1700000000123}\n{"ts": "2023-11-14T22:13:20Z"}\n'
    assert len(decode(lines, schema)[1]) == 1
    rows, bad = decode(lines, schema, rules=Rules(timestamp_unit="ms"))
    assert [row[0].isoformat() for row in rows] == ["2023-11-14T22:13:20.123000", "2023-11-14T22:13:20"]
    assert bad == []
    rows, bad = decode(b'{"ts": 1700000000.5}\n', schema, rules=Rules(timestamp_unit="s"))
    assert rows[0][0].isoformat() == "2023-11-14T22:13:20.500000" and bad == []


def test_missing_columns_are_known_at_the_end():
    decoder, _ = JsonFormat(Schema.of(a=INTEGER, b=VARCHAR, c=DOUBLE)).begin(b"", True)
    decoder.decode(b'{"a": 1, "b": null}\n', True, 100)
    assert decoder.missing() == ["c"]


def test_one_bad_line_in_a_large_block():
    lines = [json.dumps({"a": n, "b": f"w{n}"}) for n in range(3000)]
    lines[777] = '{"a": '
    rows, bad = decode("\n".join(lines).encode())
    assert len(rows) == 2999 and bad == [(777, '{"a": ')]


KEYS = st.sampled_from(["a", "A", "b", "B", "c"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4), st.sampled_from(["NaN", "2024-01-01"]), st.lists(st.integers(), max_size=2),
)  # fmt: skip
LINES = st.one_of(
    st.dictionaries(KEYS, VALUES, max_size=3).map(json.dumps),
    st.lists(VALUES, max_size=3).map(json.dumps),
    VALUES.map(json.dumps),
    st.sampled_from(["", " ", "{", "}", '{"a":1}{"a":2}', '{"a":', "]", '{"a":1,"a":2}', "nul"]),
)


@given(st.lists(LINES, max_size=12), st.integers(1, 3))
@settings(max_examples=examples(150))
def test_arrow_and_python_agree(lines, limit):
    data = "\n".join(lines).encode()
    schema = Schema.of(a=BIGINT, b=VARCHAR)
    expected = by_python(data, schema)
    assert decode(data, schema) == expected
    assert decode(data, schema, limit=limit) == expected


@given(st.lists(LINES, max_size=12), st.integers(1, 40), st.integers(1, 5))
def test_the_pieces_in_which_bytes_come_change_nothing(lines, step, limit):
    data = "\n".join(lines).encode()
    assert decode_piecemeal(JsonFormat(PAIR), data, step, limit) == by_python(data)


@given(rows_of_every_type())
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("json") / "rows.jsonl"
    batch = to_record_batch(rows, EVERY_TYPE)
    with path.open("wb") as file:
        open_writer("jsonl", file, EVERY_TYPE).write(batch)
    for line in path.read_text("utf-8").split("\n"):
        assert line == "" or isinstance(json.loads(line), dict)
    assert decode(path.read_bytes(), EVERY_TYPE) == (plain(batch), [])


@given(st.binary(max_size=40), st.integers(0, 200), st.integers(0, 30))
def test_every_line_of_a_corrupted_text_is_a_row_or_rejected(noise, place, removed):
    good = "".join(f'{{"a":{n},"b":"s{n}"}}\n' for n in range(10)).encode()
    place = min(place, len(good))
    broken = good[:place] + noise + good[place + removed :]
    rows, bad = decode(broken)
    start = 3 if broken.startswith(b"\xef\xbb\xbf") else 0
    assert len(rows) + len(bad) == sum(bool(line.strip()) for line in broken[start:].split(b"\n"))


def test_documents_inside_rows_go_in_and_out(tmp_path: Path) -> None:
    db = ms.connect()
    (tmp_path / "in.jsonl").write_text(
        '{"id": 1, "doc": {"a": [1, 2.5, "x\\ny"]}}\n{"id": 2, "doc": "[1,\\n2]"}\n{"id": 3, "doc": "no"}\n{"id": 4}\n'
    )
    source = f"connector = 'file', path = '{tmp_path / 'in.jsonl'}'"
    db.execute(f"CREATE STREAM s (id INT, doc JSON) WITH ({source})")
    db.execute(f"CREATE SINK out WITH (connector = 'file', path = '{tmp_path / 'out'}', format = 'jsonl')")
    bad = db.sql("SELECT error FROM ERRORS(s)")
    db.execute("INSERT INTO out SELECT id, doc FROM s")
    db.run()
    db.finish()
    assert bad.fetch().to_pylist() == [{"error": "doc: 'no' is not valid JSON"}]
    (part,) = (tmp_path / "out").glob("part-*")
    rows = [json.loads(line) for line in part.read_text().splitlines()]
    assert rows == [{"id": 1, "doc": {"a": [1, 2.5, "x\ny"]}}, {"id": 2, "doc": [1, 2]}, {"id": 4, "doc": None}]

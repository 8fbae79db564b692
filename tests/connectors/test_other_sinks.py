"""The terminal, memory and blackhole sinks."""

from __future__ import annotations

import datetime as dt
import io
import json

from connector_data import QUOTES, to_record_batch

from millstream.connectors.registry import make_sink
from millstream.connectors.sinks.terminal import TerminalSink

ROWS = [
    ("IBM", 1.5, 10, dt.datetime(2024, 1, 1)),
    ("漢字", None, -7, dt.datetime(2024, 1, 1, 0, 0, 0, 5)),
    ("a\nb", 2.0, 1, None),
]


def test_a_table_on_the_terminal():
    out = io.StringIO()
    sink = TerminalSink("q", limit=3, out=out)
    sink.open(QUOTES, {})
    sink.write(to_record_batch(ROWS, QUOTES))
    sink.write(to_record_batch(ROWS, QUOTES))
    assert sink.commit() == {"rows": 6}
    sink.close()
    assert out.getvalue().splitlines() == [
        "symbol | price | size | ts",
        "-------+-------+------+---------------------------",
        "IBM    |   1.5 |   10 | 2024-01-01T00:00:00",
        "漢字   |  NULL |   -7 | 2024-01-01T00:00:00.000005",
        "a\\nb   |   2.0 |    1 | NULL",
        "... and 3 more rows of q",
    ]


def test_json_on_the_terminal(capsys):
    sink = make_sink({"connector": "terminal", "format": "json", "limit": 2}, "q")
    sink.open(QUOTES, {})
    sink.write(to_record_batch(ROWS, QUOTES))
    sink.close()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["symbol"] for line in lines] == ["IBM", "漢字"]


def test_memory_keeps_what_was_committed():
    sink = make_sink({"connector": "memory"}, "m")
    sink.open(QUOTES, {})
    sink.write(to_record_batch(ROWS, QUOTES))
    offset = sink.commit()
    sink.write(to_record_batch(ROWS[:1], QUOTES))
    assert sink.table().num_rows == 4
    sink.open(QUOTES, offset)
    assert sink.table().to_pylist() == to_record_batch(ROWS, QUOTES).to_pylist()


def test_the_blackhole_counts():
    sink = make_sink({"connector": "blackhole"}, "b")
    sink.open(QUOTES, {"rows": 2})
    sink.write(to_record_batch(ROWS, QUOTES))
    sink.close()
    assert sink.commit() == {"rows": 5}

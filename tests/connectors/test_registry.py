"""Options to connectors: names, aliases, values, and errors that help."""

from __future__ import annotations

import pytest

from millstream.connectors.files.source import FileSource
from millstream.connectors.generators.source import GeneratorSource
from millstream.connectors.ports.source import PortSource
from millstream.connectors.registry import make_sink, make_source, parse_source_clause
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import DOUBLE, VARCHAR

SCHEMA = Schema.of(symbol=VARCHAR, price=DOUBLE)


def test_names_and_aliases(tmp_path):
    (tmp_path / "x.csv").write_text("a,1\n")
    assert isinstance(make_source({"CONNECTOR": "File", "Path": str(tmp_path)}, SCHEMA, "s"), FileSource)
    assert isinstance(make_source({"connector": "socket", "port": "4445"}, SCHEMA, "s"), PortSource)
    assert isinstance(make_source({"connector": "quotes"}, SCHEMA, "s"), GeneratorSource)
    assert make_source({"connector": "memory"}, SCHEMA, "s") is None
    for name in ("terminal", "print", "memory", "blackhole", "null"):
        assert make_sink({"connector": name}, "out") is not None


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({}, "stream s has no connector", "file, port"),
        ({"connector": "fil"}, "unknown connector fil", "did you mean file"),
        ({"connector": "kafka"}, "needs the option topic", "topic ="),
        ({"connector": "port"}, "needs the option port", "port = 4445"),
        ({"connector": "port", "port": 70000}, "port = 70000", "0 to 65535"),
        ({"connector": "port", "port": "x"}, "port = 'x'", "whole number"),
        ({"connector": "port", "port": 1, "formt": "csv"}, "no option formt", "did you mean format"),
        ({"connector": "port", "port": 1, "format": "xml"}, "format = 'xml'", "json, jsonl, csv, auto"),
        ({"connector": "port", "port": 1, "until": "noon"}, "until = 'noon'", "disconnect"),
        ({"connector": "file"}, "needs the option path", "path ="),
        ({"connector": "file", "path": "x.csv", "follow": "maybe"}, "follow = 'maybe'", "true or false"),
        ({"connector": "file", "path": "x.csv", "delimiter": "ab"}, "delimiter = 'ab'", "one ASCII character"),
        ({"connector": "file", "path": "x.csv", "timestamp_unit": "days"}, "timestamp_unit", "s, ms, us"),
        ({"connector": "file", "path": "/nowhere/x.csv"}, "no file at /nowhere/x.csv", "glob"),
        ({"connector": "memory", "rows": 3}, "no option rows", "its options are"),
        ({"connector": "quotes", "rows": -1}, "rows = -1", "whole number"),
        ({"connector": "quotes", "rate": "fast"}, "rate = 'fast'", "positive number"),
    ],
)
def test_wrong_sources(options, message, hint):
    with pytest.raises(ConnectorError) as caught:
        make_source(options, SCHEMA, "s")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_wrong_sinks():
    for options, message in (
        ({"connector": "port"}, "unknown connector port"),
        ({"connector": "terminal", "limit": "x"}, "limit"),
    ):
        with pytest.raises(ConnectorError, match=message) as caught:
            make_sink(options, "out")
        assert caught.value.hint


@pytest.mark.parametrize(
    ("clause", "options"),
    [
        ("port4445", {"connector": "port", "port": 4445}),
        ("PORT 4445", {"connector": "port", "port": 4445}),
        ("data/bids.csv", {"connector": "file", "path": "data/bids.csv"}),
        (("establishConnection", ["port34100", "converter"]), {"connector": "port", "port": 34100, "format": "json"}),
        (("f", ["port1", "CSV"]), {"connector": "port", "port": 1, "format": "csv"}),
        (("f", ["port1"]), {"connector": "port", "port": 1, "format": "json"}),
    ],
)
def test_source_clauses(clause, options):
    assert parse_source_clause(clause) == options


@pytest.mark.parametrize("clause", ["somewhere", "", ("f", []), ("f", ["kafka://x"]), ("f", ["port1", "a", "b"])])
def test_wrong_source_clauses(clause):
    with pytest.raises(ConnectorError) as caught:
        parse_source_clause(clause)
    assert "WITH (connector" in (caught.value.hint or "")

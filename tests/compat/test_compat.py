"""Checkpoints that earlier versions left are opened and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compat_cases import CURRENT, HERE, NOTED, QUERIES, ROWS, outcome, put, run_on_spark, start, unpack

import millstream as ms

VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "embedded.zip").exists())


def test_the_formats_of_this_version_are_kept() -> None:
    assert CURRENT in VERSIONS, "a format has a new number: run tests/compat/make_checkpoints.py"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_goes_on(version: str, tmp_path: Path) -> None:
    unpack(HERE / version / "embedded.zip", tmp_path, tmp_path)
    with start() as db:
        db.push("s", ROWS)
        held = db.query("held").snapshot()
        db.finish()
        expected = outcome(db)
    with ms.connect(tmp_path) as db:
        assert {query.name for query in db.queries()} == {*QUERIES, "held"}
        db.push("s", ROWS[NOTED:])
        assert db.query("held").snapshot() == held
        db.sql("SELECT twice(v) AS v FROM few", name="new")
        db.finish()
        assert outcome(db) == expected


@pytest.mark.spark
@pytest.mark.parametrize("version", VERSIONS)
def test_a_streaming_query_goes_on(version: str, spark: Any, tmp_path: Path) -> None:
    unpack(HERE / version / "spark.zip", tmp_path / "old", tmp_path / "in")
    put(tmp_path / "in", "1", 1, 20)
    put(tmp_path / "in", "2", 20, 50)
    rows = run_on_spark(spark, tmp_path / "in", tmp_path / "old")
    put(tmp_path / "all", "1", 1, 50)
    expected = run_on_spark(spark, tmp_path / "all", tmp_path / "new")
    before = json.loads((HERE / version / "delivered.json").read_text())
    assert 0 < before < len(expected)
    assert rows == expected[before:]

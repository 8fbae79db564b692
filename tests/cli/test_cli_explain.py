"""`millstream explain`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import ROOT, Invoke

TEXT = "CREATE STREAM s (a INT, b INT); CREATE STREAM d AS SELECT a, b FROM s WHERE b > 1; SELECT a + 1 AS c FROM d"


def test_every_query_of_a_pipeline_is_explained_and_none_is_run(invoke: Invoke, tmp_path: Path) -> None:
    invoke("generate", "nexmark", "--rows", 100, "--out", "data")
    result = invoke("explain", ROOT / "examples/auctions/pipeline.sql", "--var", "data=data", "--var", "out=out")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("logical plan:") == result.stdout.count("physical plan:") == 3
    assert "-- INSERT INTO seller_activity" in result.stdout
    assert not (tmp_path / "out").exists()


def test_sql_on_the_command_line_or_from_standard_input(invoke: Invoke) -> None:
    given = invoke("explain", TEXT)
    assert given.exit_code == 0, given.stderr
    assert "rules applied:" in given.stdout
    assert invoke("explain", "-", input=TEXT).stdout == given.stdout


def test_modes(invoke: Invoke) -> None:
    assert "after " in invoke("explain", TEXT, "--verbose").stdout
    rules = invoke("explain", TEXT, "--rules").stdout
    assert "x push_down_filter:" in rules or "x merge_projects:" in rules


def test_statements_that_are_no_queries_take_effect(invoke: Invoke) -> None:
    text = TEXT + "; EXPLAIN RULES SELECT b FROM d; CREATE TABLE t (k INT); INSERT INTO t VALUES (1); SELECT * FROM t"
    result = invoke("explain", text)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("physical plan:") == 2


@pytest.mark.parametrize("text", ["CREATE STREAM s (a INT); SELECT x FROM s", "SELECT FROM WHERE"])
def test_bad_sql_is_underlined(invoke: Invoke, text: str) -> None:
    result = invoke("explain", text)
    assert result.exit_code == 1
    assert "^" in result.stderr
    assert "Traceback" not in result.stderr

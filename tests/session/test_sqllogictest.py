"""The program that runs sqllogictest files as continuous queries, on a sample of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sqllogictest import main, play, read

SAMPLE = Path(__file__).parent.parent / "sqllogictest" / "sample.test"


@pytest.mark.parametrize("seed", range(3))
def test_all_queries_give_the_same_but_for_decisions(seed: int) -> None:
    answers = list(play(SAMPLE.read_text(), seed))
    assert len(answers) == 16
    others = [(answer.record.sql, answer.verdict) for answer in answers if answer.verdict != "same"]
    assert others == [("SELECT count(*) FROM t2 WHERE a > 1000", "decided")]


def test_what_differs_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wrong.test"
    file.write_text(
        "statement ok\nCREATE TABLE t(a INTEGER)\n\nstatement ok\nINSERT INTO t VALUES (1), (2)\n\n"
        "query I rowsort\nSELECT a FROM t\n----\n1\n3\n\nquery I rowsort\nSELECT a FROM t\n----\n"
        "2 values hashing to 00000000000000000000000000000000\n"
    )
    assert [record.line for record in read(file.read_text())] == [1, 4, 7, 13]
    monkeypatch.setattr("sys.argv", ["sqllogictest", str(file)])
    assert main() == 1
    told = capsys.readouterr().out
    assert f"{file}:7: different: ['1', '2'] for ('1', '3')" in told
    assert "0 same, 2 different, 0 refused, 0 decided" in told

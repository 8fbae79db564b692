"""Generated source has nothing of the text of statements in it: no name, no literal, no comment."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.kernels.jit import compiled

MARK = "zq_mark"
TEXTS = [
    f"SELECT sum(v) OVER (PARTITION BY \"{MARK} k\" ROWS 2 PRECEDING) AS {MARK} FROM s -- {MARK}",
    f"SELECT \"{MARK} k\" AS {MARK}, sum(v) AS n FROM TUMBLE(s, t, 10) GROUP BY window_start, window_end, \"{MARK} k\"",
    f"SELECT a.v FROM s [RANGE 5] AS {MARK}, s [ROWS 3] AS a WHERE a.w = '{MARK}' AND {MARK}.v < a.v /* {MARK} */",
    f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {MARK}.v AS {MARK}_m PATTERN ({MARK} B+) DEFINE"
    f" {MARK} AS w = '{MARK}', B AS v > {MARK}.v AND w <> '{MARK}2')",
    f"SELECT * FROM FILTER{{w = '{MARK}'}}(s) FOLD{{$1.w = $2.w AND $2.w <> '{MARK}', TRUE, $2.v AS {MARK}_f}} s",
    f"SELECT {MARK}_agg(v) OVER (ROWS 3 PRECEDING) AS {MARK} FROM s",
]  # fmt: skip


def test_no_text_of_a_statement_is_in_generated_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    make = compiled.kernel_module

    def noting(source: str) -> compiled.KernelModule:
        sources.append(source)
        return make(source)

    monkeypatch.setattr(compiled, "kernel_module", noting)
    with ms.connect() as db:
        db.execute(
            f'CREATE STREAM s ("{MARK} k" INT, w VARCHAR, v INT, t BIGINT) ORDER BY t;'
            f"CREATE AGGREGATE {MARK}_agg(x INT) : INT {{ TABLE {MARK}_t({MARK}_c INT);"
            f" INITIALIZE: {{ INSERT INTO {MARK}_t VALUES (x); INSERT INTO RETURN VALUES (x); }}"
            f" ITERATE: {{ UPDATE {MARK}_t SET {MARK}_c = {MARK}_c + x;"
            f" INSERT INTO RETURN SELECT {MARK}_c FROM {MARK}_t; }}"
            " }"
        )
        for text in TEXTS:
            before = len(sources)
            db.sql(text)
            db.push("s", [(1, MARK, 1, 10 * before + 1), (1, MARK, 2, 10 * before + 2)])
            assert len(sources) > before, text
    assert [source for source in sources if MARK in source] == []

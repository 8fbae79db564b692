"""Words of other stream engines get a hint that says what to write here."""

from __future__ import annotations

import pytest

import millstream as ms

CASES = [
    ("CREATE STREAM a (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)", "SLACK 5 SECONDS"),
    ("SELECT k FROM s EMIT CHANGES", "leave EMIT out"),
    ("SELECT k FROM s EMIT FINAL", "leave EMIT out"),
    ("CREATE MATERIALIZED VIEW m AS SELECT k FROM s", "CREATE VIEW"),
    ("CREATE SOURCE x (k INT)", "CREATE STREAM"),
    ("SELECT k FROM s WINDOW TUMBLING (SIZE 1 HOUR)", "FROM TUMBLE"),
    ("SELECT k FROM s LIMIT 3", "STOP name"),
    ("SELECT to_char(ts, 'YYYY') FROM s", "strftime"),
    ("SELECT date_trunc(ts, 'hour') FROM s", "date_trunc('hour', ts)"),
    ("SELECT window(ts, '10 seconds') FROM s", "FROM TUMBLE"),
]


@pytest.mark.parametrize(("text", "hint"), CASES, ids=[text for text, _ in CASES])
def test_hints(text: str, hint: str) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, ts TIMESTAMP) ORDER BY ts")
        with pytest.raises(ms.MillstreamError) as caught:
            db.execute(text)
    assert hint in (caught.value.hint or "")


def test_a_typing_mistake_keeps_its_own_hint() -> None:
    with ms.connect() as db, pytest.raises(ms.ParseError) as caught:
        db.execute("SELEC 1")
    assert caught.value.hint == "did you mean SELECT?"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "SELECT k FROM s MATCH_RECOGNIZE (MEASURES A.k AS v PATTERN (A B) DEFINE B AS k > PREV(k, -1))",
            "PREV takes a number of rows from 0",
            "NEXT(…, 1) looks the other way",
        ),
        (
            "SELECT sum(k) OVER (ROWS BETWEEN 1 PRECEDING AND k FOLLOWING) FROM s",
            "ROWS takes a constant number of rows, not a column",
            "ROWS 10 PRECEDING",
        ),
    ],
)
def test_mistakes_are_named(text: str, message: str, hint: str) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, ts TIMESTAMP) ORDER BY ts")
        with pytest.raises(ms.BindError) as caught:
            db.execute(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)

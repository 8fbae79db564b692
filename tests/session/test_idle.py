"""A stream that brings nothing for long does not hold back the others of a query, if the session says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millstream as ms

SECOND = 1_000_000
UNION = "SELECT v, t FROM a UNION ALL SELECT v, t FROM b"


def opened(path: Path | None, now: list[int], **settings: Any) -> ms.Database:
    db = ms.connect(path, clock=lambda: now[0], **settings)
    for name in ("a", "b"):
        db.execute(f"CREATE STREAM IF NOT EXISTS {name} (v INT, t INT) ORDER BY t")
    return db


def values(query: ms.Query) -> list[int]:
    return [int(v) for v in query.fetch()["v"].to_pylist()]


def test_an_idle_stream_follows_and_its_old_rows_are_late() -> None:
    now = [0]
    db = opened(None, now, idle_timeout=30)
    q, late = db.sql(UNION, name="q"), db.sql("SELECT v FROM LATE(b)", name="late")
    db.push("b", [(1, 1)])
    db.push("a", [(2, 5), (3, 6)])
    assert values(q) == [1]
    now[0] += 29 * SECOND
    db.push("a", [(4, 7)])
    assert values(q) == []
    now[0] += 2 * SECOND
    assert values(q) == [2, 3, 4]
    assert db.push("b", [(5, 3), (6, 9)]).late == 1
    assert values(late) == [5]
    db.push("a", [(7, 10)])
    assert values(q) == [6]


def test_nobody_is_idle_while_all_are_silent_or_nobody_asked() -> None:
    now = [0]
    for settings, expected in (({"idle_timeout": 30}, []), ({}, [])):
        db = opened(None, now, **settings)
        q = db.sql(UNION, name="q")
        db.push("a", [(2, 5), (3, 6)])
        assert values(q) == []
        now[0] += 100 * SECOND
        assert values(q) == expected


def test_a_push_lets_readers_see_and_a_restart_keeps_it(tmp_path: Path) -> None:
    now = [0]
    with opened(tmp_path, now, idle_timeout=30) as db:
        q = db.sql(UNION, name="q")
        db.push("b", [(1, 1)])
        reader = q.subscribe()
        now[0] += 31 * SECOND
        db.push("a", [(2, 5), (3, 6)])
        batch = reader.next(timeout=5.0)
        assert batch is not None
        assert batch.column("v").to_pylist() == [1, 2, 3]
    with opened(tmp_path, now, idle_timeout=30) as db:
        assert db.push("b", [(9, 4)]).late == 1

"""Streams stamped by the clock: looking at a query moves their time, without a push."""

from __future__ import annotations

from pathlib import Path

import millstream as ms

SECOND = 1_000_000
DECLARED = "CREATE STREAM s (k INT, current_time TIMESTAMP) ORDER BY current_time"


def test_a_window_empties_as_the_clock_goes() -> None:
    now = [100 * SECOND]
    with ms.connect(clock=lambda: now[0]) as db:
        db.execute(DECLARED)
        held = db.sql("SELECT k FROM s [RANGE 10 SECONDS]", name="held")
        db.push("s", [(1,)])
        assert held.snapshot().to_pylist() == [{"k": 1}]
        now[0] += 5 * SECOND
        assert held.snapshot().to_pylist() == [{"k": 1}]
        now[0] += 6 * SECOND
        assert held.snapshot().to_pylist() == []


def test_a_row_that_waits_for_its_peers_is_fetched_when_the_clock_has_gone_on() -> None:
    now = [100 * SECOND]
    with ms.connect(clock=lambda: now[0]) as db:
        db.execute(DECLARED)
        query = db.sql("SELECT k, count(*) OVER (RANGE 10 SECONDS PRECEDING) AS n FROM s", name="q")
        db.push("s", [(1,)])
        assert query.fetch().num_rows == 0
        now[0] += 1
        assert query.fetch().to_pylist() == [{"k": 1, "n": 1}]


def test_a_restart_knows_how_far_the_clock_had_come(tmp_path: Path) -> None:
    now = [100 * SECOND]
    with ms.connect(tmp_path, clock=lambda: now[0]) as db:
        db.execute(DECLARED)
        query = db.sql("SELECT k, count(*) OVER (RANGE 10 SECONDS PRECEDING) AS n FROM s", name="q")
        db.push("s", [(1,)])
        now[0] += SECOND
        assert query.fetch().num_rows == 1
    with ms.connect(tmp_path, clock=lambda: now[0]) as db:
        assert db.query("q").fetch().num_rows == 0
        db.push("s", [(2,)])
        now[0] += SECOND
        assert db.query("q").fetch()["n"].to_pylist() == [2]

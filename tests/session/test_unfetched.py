"""Rows that nobody fetches are bounded, and never lost without a word."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.hosts import results


def started(db: ms.Database) -> tuple[ms.Query, ms.Query]:
    db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
    return db.sql("SELECT v FROM s", name="q"), db.sql("SELECT v FROM s WHERE v > 8", name="few")


def push(db: ms.Database, *values: int) -> None:
    db.push("s", [(v, v) for v in values])


def test_a_query_that_nobody_fetches_stops() -> None:
    with ms.connect(max_unfetched_rows=5) as db:
        query, few = started(db)
        push(db, *range(5))
        assert query.fetch().num_rows == 5
        push(db, 5, 6, 7, 8, 9)
        push(db, 10)
        with pytest.raises(ms.LimitError, match="more than 5 rows wait") as raised:
            query.fetch()
        assert "when_unfetched = 'drop'" in str(raised.value)
        shown = {row["name"]: row["status"] for row in db.sql("SHOW QUERIES").fetch().to_pylist()}
        assert shown["few"] == "running" and "rows wait" in shown["q"]
        assert few.fetch()["v"].to_pylist() == [9, 10]


def test_or_the_oldest_rows_go_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with ms.connect(max_unfetched_rows=5, when_unfetched="drop") as db:
        query, few = started(db)
        push(db, *range(4))
        push(db, *range(4, 10))
        assert query.fetch()["v"].to_pylist() == [5, 6, 7, 8, 9]
        assert (query.dropped, few.dropped) == (5, 0)
        push(db, 10)
        assert query.fetch()["v"].to_pylist() == [10]
    assert caplog.text.count("query q: dropping the oldest rows that were not fetched") == 1


def test_a_query_with_readers_goes_on() -> None:
    with ms.connect(max_unfetched_rows=3) as db:
        query, _ = started(db)
        reader = query.subscribe()
        push(db, *range(10))
        assert reader.next(timeout=1.0)["v"].to_pylist() == list(range(10))
        assert query.fetch()["v"].to_pylist() == [7, 8, 9]
        assert query.dropped == 7


def test_the_limit_is_a_setting() -> None:
    with ms.connect() as db:
        query, _ = started(db)
        push(db, *range(10))
        db.execute("SET max_unfetched_rows = 12; SET when_unfetched = drop")
        push(db, 10, 11, 12)
        assert query.fetch().num_rows == 12 and query.dropped == 1
        for wrong in ("SET max_unfetched_rows = -1", "SET when_unfetched = 'wait'"):
            with pytest.raises(ms.BindError):
                db.execute(wrong)
    with ms.connect(profile="untrusted") as db:
        assert (db.config.max_unfetched_rows, db.config.when_unfetched) == (1_000_000, "drop")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_was_dropped_stays_dropped(tmp_path: Path, checkpoint: bool) -> None:
    db = ms.connect(tmp_path / "home", max_unfetched_rows=5, when_unfetched="drop", checkpoint_seconds=3600)
    started(db)
    push(db, *range(12))
    if checkpoint:
        db.checkpoint()
    db.listener._journal.close()  # type: ignore[union-attr,attr-defined]  # gone without closing
    with ms.connect(tmp_path / "home", max_unfetched_rows=5, when_unfetched="drop") as again:
        query = again.query("q")
        assert query.dropped == 7
        push(again, 12)
        assert query.fetch()["v"].to_pylist() == [8, 9, 10, 11, 12]
        assert query.dropped == 8


def test_a_query_that_stopped_stays_so(tmp_path: Path) -> None:
    with ms.connect(tmp_path / "home", max_unfetched_rows=5) as db:
        started(db)
        push(db, *range(12))
    with ms.connect(tmp_path / "home") as db:
        with pytest.raises(ms.MillstreamError, match="more than 5 rows wait"):
            db.query("q").fetch()
        assert db.query("few").fetch().num_rows == 3


@pytest.mark.parametrize("settings", [{}, {"max_unfetched_rows": 500}])
def test_iterating_slowly_loses_nothing(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    """The source is read only as fast as its rows are taken."""
    monkeypatch.setattr(results, "UNFETCHED", 1_000)
    with ms.connect(batch_rows=200, **settings) as db:
        numbers = list(range(10_000))
        db.register("r", pa.table({"v": numbers, "t": numbers}), time="t")
        query = db.sql("SELECT v FROM r", name="q")
        found: list[int] = []
        most = 0
        for batch in query:
            found += batch["v"].to_pylist()
            time.sleep(0.002)
            most = max(most, db._host.results("q").end - len(found))
        assert found == numbers and query.dropped == 0
        assert most <= 2_500


def test_an_iteration_that_is_left_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "UNFETCHED", 100)
    with ms.connect() as db:
        query, few = started(db)
        push(db, 1)
        for _ in query:
            break
        push(db, *range(2, 500))
        push(db, *range(500, 502))
        assert query.fetch().num_rows == 500 and few.fetch().num_rows == 493

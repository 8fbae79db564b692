"""Streams that keep their past, queries that begin with it, and queries that change while they run."""

from __future__ import annotations

import datetime as dt
import random
import re
import shutil
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.hosts import history
from millstream.hosts.embedded import starting
from tests.support.histories import FAMILIES, declared, late_case, random_life
from tiers import examples

STREAM = "CREATE STREAM s (v INT, t INT) ORDER BY t KEEP ALL"


def rows(first: int, last: int) -> list[tuple[int, int]]:
    return [(t, t) for t in range(first, last)]


def content(query: ms.Query) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query.snapshot().to_pylist()]


def test_late_queries_give_what_early_ones_give() -> None:
    met = {late_case(seed).rpartition(", ")[2] for seed in range(examples(60))}
    assert {"complete", "covered relation"} <= met


@pytest.mark.parametrize("seed", range(examples(5)))
def test_lives_of_queries(seed: int) -> None:
    assert random_life(seed, 20)


def test_history_is_a_stored_table() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        db.push("s", rows(0, 10))
        db.execute("CREATE TABLE names (v INT, name VARCHAR); INSERT INTO names VALUES (3, 'three')")
        found = db.sql("SELECT s.v, name FROM HISTORY(s) JOIN names ON s.v = names.v WHERE t BETWEEN 2 AND 5")
        assert found.fetch().to_pylist() == [{"v": 3, "name": "three"}]
        db.execute("CREATE TABLE copied AS SELECT * FROM HISTORY(s) WHERE v > 7")
        assert db.sql("SELECT count(*) AS n FROM copied").fetch().to_pylist() == [{"n": 2}]


def test_segments_are_files_that_conditions_on_time_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SEGMENT_ROWS", 100)
    day = dt.datetime(2026, 1, 1)
    with ms.connect(tmp_path / "kept") as db:
        db.execute("CREATE STREAM s (v INT, ts TIMESTAMP) ORDER BY ts KEEP ALL")
        for start in range(0, 500, 50):
            db.push("s", [(v, day + dt.timedelta(hours=v)) for v in range(start, start + 50)])
            db.checkpoint()
        files = sorted((tmp_path / "kept" / "history" / "s-s").iterdir())
        assert len(files) == 5
        for file in files[:-1]:
            file.write_bytes(b"not looked at")
        count = "SELECT count(*) AS n FROM HISTORY(s) WHERE ts >= "
        assert db.sql(f"{count} TIMESTAMP '2026-01-18'").fetch().to_pylist() == [{"n": 92}]
        with pytest.raises(ms.MillstreamError):
            db.sql(f"{count} TIMESTAMP '2026-01-02'").fetch()


def test_files_are_sorted_by_a_storage_key_and_conditions_on_it_skip_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "SEGMENT_ROWS", 100)
    monkeypatch.setattr(history, "CHUNK_ROWS", 10)
    given = [(v * 37 % 100 // 5 + 100 * (v >= 300), f"n{v % 7}", v // 3) for v in range(500)]
    with ms.connect(tmp_path / "kept") as db:
        db.execute("CREATE STREAM s (k INT, name VARCHAR, t INT) ORDER BY t KEEP ALL BY k")
        before = db.sql("SELECT name, t, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s WHERE k = 107")
        for start in range(0, 500, 50):
            db.push("s", given[start : start + 50])
            db.checkpoint()
        first, *files = sorted((tmp_path / "kept" / "history" / "s-s").iterdir())
        assert len(files) == 4
        assert pq.read_table(files[0])["k"].to_pylist() == sorted(k for k, _, _ in given[100:200])
        late = db.sql("SELECT k, name, t FROM s WITH HISTORY").fetch().to_pylist()
        assert [tuple(row.values()) for row in late] == given
        expected = before.fetch().to_pylist()
        assert len(expected) == 10
    with ms.connect(tmp_path / "kept") as db:
        # rows of the other files have smaller keys
        for file in (first, *files[:2]):
            file.write_bytes(b"not looked at")
        wanted = "SELECT count(*) AS n FROM HISTORY(s) WHERE k = "
        assert db.sql(f"{wanted} 107").fetch().to_pylist() == [{"n": 10}]
        text = "SELECT name, t, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s WHERE k = 107 WITH HISTORY"
        assert "in Parquet files by k" in str(db.sql(f"EXPLAIN {text}").fetch()["plan"].to_pylist())
        assert db.sql(text).fetch().to_pylist() == expected
        # and few row groups of these files
        read = []
        monkeypatch.setattr(pq.ParquetFile, "read_row_groups", _noting(pq.ParquetFile.read_row_groups, read))
        assert db.sql("SELECT t FROM s WHERE k IN (107, 300) WITH HISTORY").fetch().num_rows == 10
        assert 2 <= sum(map(len, read)) <= 4
        with pytest.raises(ms.MillstreamError):
            db.sql(f"{wanted} 7").fetch()
        with pytest.raises(ms.MillstreamError):
            db.sql("SELECT t FROM s WHERE k = 7 OR t = 3 WITH HISTORY")
        db.execute("ALTER STREAM s KEEP 1000 ROWS BY name")
        db.push("s", [(1, f"n{v}", 200 + v) for v in range(30)])
        db.checkpoint()
        last = sorted((tmp_path / "kept" / "history" / "s-s").iterdir())[-1]
        assert pq.read_table(last)["name"].to_pylist() == sorted(f"n{v}" for v in range(30))
        assert db.sql("SELECT t FROM HISTORY(s) WHERE name = 'n12' AND t >= 200").fetch().num_rows == 1
        with pytest.raises(ms.BindError, match="no column nme"):
            db.execute("ALTER STREAM s KEEP ALL BY nme")
        with pytest.raises(ms.BindError, match="cannot be a storage key"):
            db.execute("CREATE STREAM z (v DOUBLE, t INT) ORDER BY t KEEP ALL BY v")


def _noting(read: Any, noted: list[Any]) -> Any:
    def reading(self: Any, groups: Any, **more: Any) -> Any:
        noted.append(groups)
        return read(self, groups, **more)

    return reading


def test_values_of_all_types_come_back_from_files(tmp_path: Path) -> None:
    day, noon = dt.date(2026, 1, 31), dt.datetime(2026, 1, 31, 12)
    numbers = (noon, 1, -(2**63), 2**64 - 1, 1.5, True, Decimal("1.25"))
    row = (*numbers, "x", b"\x00", day, dt.time(1, 2), [1, None], {"a": 1})
    types = "ts TIMESTAMP, a TINYINT, b BIGINT, c UBIGINT, d DOUBLE, e BOOLEAN, f DECIMAL(9, 2), g VARCHAR, h BLOB"
    types += ", i DATE, j TIME, l INT[], m STRUCT(a INT)"
    with ms.connect(str(tmp_path)) as db:
        db.execute(f"CREATE STREAM s ({types}) ORDER BY ts KEEP ALL")
        db.push("s", [row, (noon, *[None] * 12)])
    with ms.connect(str(tmp_path)) as db:
        found = [tuple(each.values()) for each in db.sql("SELECT * FROM s WITH HISTORY").fetch().to_pylist()]
        assert found == [row, (noon, *[None] * 12)]
        # the column that orders the stream is read, also for queries that do not
        assert db.sql("SELECT g FROM s [ROWS 1] WITH HISTORY").snapshot().to_pylist() == [{"g": None}]


def test_small_files_are_written_together_and_old_ones_go(tmp_path: Path) -> None:
    home = tmp_path / "kept" / "history" / "s-s"
    with ms.connect(tmp_path / "kept") as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t KEEP 60 ROWS")
        for start in range(0, 160, 5):
            db.push("s", rows(start, start + 5))
            db.checkpoint()
            assert len(list(home.iterdir())) <= 8
        kept = db.sql("SELECT min(v) AS first, max(v) AS last FROM HISTORY(s)").fetch().to_pylist()[0]
        assert kept["last"] == 159
        assert 0 < kept["first"] <= 100
        late = db.sql("SELECT count(*) AS n FROM s [RANGE 20] WITH HISTORY")
        assert late.coverage.since == kept["first"]
        assert late.coverage.complete_from == kept["first"] + 19
        db.execute("DROP QUERY " + late.name)
        db.execute("DROP STREAM s")
        db.checkpoint()
        assert not home.exists()


def test_a_stream_keeps_more_from_now_on() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.push("s", rows(0, 5))
        with pytest.raises(ms.MillstreamError, match="keeps no history"):
            db.sql("SELECT * FROM HISTORY(s)")
        db.execute("ALTER STREAM s KEEP ALL")
        db.push("s", rows(5, 9))
        late = db.sql("SELECT v FROM s WITH HISTORY")
        assert late.coverage.since == 5
        assert late.fetch()["v"].to_pylist() == [5, 6, 7, 8]
        db.execute("ALTER STREAM s NO HISTORY")
        assert db.sql("SELECT v FROM s WITH HISTORY").fetch().num_rows == 0


def test_an_altered_query_keeps_readers_sink_and_results(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ms.connect(tmp_path / "kept") as db:
        db.execute(STREAM)
        db.execute(f"CREATE SINK w WITH (connector = 'file', path = '{out}', format = 'jsonl')")
        stored = db.sql("INSERT INTO w SELECT v FROM s WHERE v % 2 = 0", name="stored")
        q = db.sql("SELECT v FROM s WHERE v < 3", name="q")
        reader = q.subscribe()
        db.push("s", rows(0, 5))
        db.execute("ALTER QUERY q AS SELECT v FROM s WHERE v > 5")
        db.execute("ALTER QUERY stored AS SELECT v FROM s WHERE v % 2 = 1")
        db.push("s", rows(5, 9))
        assert q.fetch()["v"].to_pylist() == [0, 1, 2, 6, 7, 8]
        batch = reader.next(timeout=1)
        assert batch is not None
        assert batch["v"].to_pylist() == [0, 1, 2, 6, 7, 8]
        with pytest.raises(ms.StateError, match="cannot change its columns"):
            db.execute("ALTER QUERY q AS SELECT v, t FROM s")
        assert stored.state == "running"
    text = "".join(part.read_text() for part in sorted(out.glob("part-*")))
    assert text.split() == ['{"v":0}', '{"v":2}', '{"v":4}', '{"v":5}', '{"v":7}']


@pytest.mark.parametrize("seed", range(examples(6)))
def test_a_replaced_query_loses_and_doubles_no_row(seed: int, tmp_path: Path) -> None:
    """Definitions that answer a row at once, when time has passed it, or when later rows have come, in turn."""
    by_key = "PARTITION BY k ORDER BY t"
    frames = (
        f"{by_key} ROWS 2 PRECEDING",
        f"{by_key} RANGE 3 PRECEDING",
        "ORDER BY t RANGE UNBOUNDED PRECEDING",
        f"{by_key} RANGE BETWEEN 2 PRECEDING AND 4 FOLLOWING",
        f"{by_key} ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    )
    texts = [f"SELECT n, sum(n) OVER ({frame}) AS x FROM s" for frame in frames]
    chance = random.Random(seed)
    directory = str(tmp_path / "session") if seed % 2 else None
    declared = f"CREATE STREAM s (n INT, k INT, t INT) ORDER BY t SLACK {chance.choice((0, 2))} KEEP ALL"
    with ms.connect(jit="off") as alone:
        alone.execute(declared)
        each = [alone.sql(text) for text in texts]
        db = ms.connect(directory, jit="off") if directory else ms.connect(jit="off")
        db.execute(declared)
        db.execute(f"CREATE SINK o WITH (connector = 'file', path = '{tmp_path / 'out'}', format = 'csv')")
        db.sql(f"INSERT INTO o {chance.choice(texts)}", name="q")
        time, rows = 0, 0
        for _ in range(40):
            if chance.random() < 0.3:
                db.execute(f"ALTER QUERY q AS {chance.choice(texts)}")
            elif directory is not None and chance.random() < 0.2:
                db.close()
                db = ms.connect(directory, jit="off")
            else:
                made = []
                for _ in range(chance.randint(1, 4)):
                    time += chance.choice((0, 0, 1, 3))
                    made.append((rows + len(made), chance.randrange(2), time))
                rows += len(made)
                db.push("s", made)
                alone.push("s", made)
        for session in (db, alone):
            session.finish()
        db.close()
        known = {tuple(row.values()) for query in each for row in query.fetch().to_pylist()}
    lines = [line for path in (tmp_path / "out").rglob("*.csv") for line in path.read_text().splitlines()[1:]]
    given = [tuple(map(int, line.split(","))) for line in lines]
    assert sorted(n for n, _ in given) == list(range(rows))
    assert set(given) <= known


def test_what_is_reused_is_told_before() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        q = db.sql("SELECT v, x FROM (SELECT v, sum(v) OVER (ROWS 2 PRECEDING) AS x FROM s) WHERE x > 1", name="q")
        db.push("s", rows(0, 4))
        other = "ALTER QUERY q AS SELECT v, x FROM (SELECT v, sum(v) OVER (ROWS {} PRECEDING) AS x FROM s) WHERE x > 8"
        dry = db.sql("EXPLAIN " + other.format(2)).fetch()["plan"].to_pylist()
        assert "continues with its state" in dry[1]
        assert "starts empty" in db.sql("EXPLAIN " + other.format(1)).fetch()["plan"].to_pylist()[1]
        q.fetch()
        db.execute(other.format(2))
        db.push("s", rows(4, 6))
        assert q.fetch()["x"].to_pylist() == [9, 12]
        assert q.coverage.is_complete
        db.execute(other.format(1))
        assert not q.coverage.is_complete


def test_windows_grow_shrink_and_slide_differently() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        q = db.sql("SELECT count(*) AS n FROM s [RANGE 3]", name="q")
        db.push("s", rows(0, 20))
        for window, expected in (("RANGE 10", 10), ("RANGE 2", 2), ("[ROWS 7]", 7), ("RANGE 6 SLIDE 4", 6)):
            db.execute(f"ALTER QUERY q SET WINDOW ON s {window}")
            assert content(q) == [(expected,)]


def test_a_window_without_a_store_shrinks_to_what_it_holds_itself() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        q = db.sql("SELECT count(*) AS n FROM s [RANGE 8]", name="q")
        db.push("s", rows(0, 20))
        db.execute("ALTER QUERY q SET WINDOW RANGE 3")
        assert content(q) == [(3,)]


def test_a_large_push_leaves_no_more_than_the_buffer_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.hosts.embedded.kept.WINDOW_ROWS", 100)
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.sql("SELECT count(*) AS n FROM s [RANGE 1000]")
        db.push("s", rows(0, 5_000))
        late = db.sql("SELECT count(*) AS n FROM s [RANGE 1000] WITH HISTORY")
        assert late.coverage.since == 4_900
        assert content(late) == [(100,)]


def test_a_paused_query_catches_up_with_what_is_kept() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        db.execute("CREATE STREAM r (v INT, t INT) ORDER BY t")
        kept, skipped = (db.sql(f"SELECT v FROM {stream} WHERE v % 2 = 0") for stream in "sr")
        for query in (kept, skipped):
            query.pause()
            assert query.state == "paused"
        for stream in "sr":
            db.push(stream, rows(0, 4))
        assert kept.fetch().num_rows == 0
        for query in (kept, skipped):
            query.resume()
        for stream in "sr":
            db.push(stream, rows(4, 6))
        assert kept.fetch()["v"].to_pylist() == [0, 2, 4]
        assert skipped.fetch()["v"].to_pylist() == [4]
        assert skipped.coverage.since == 4


def test_pushes_go_on_while_a_query_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come while history passes through a new query are seen once, too; and how far it has come is known."""
    monkeypatch.setattr(history, "CHUNK_ROWS", 4_000)
    with ms.connect(jit="off") as db:
        db.execute(STREAM)
        for first in range(0, 40_000, 4_000):
            db.push("s", rows(first, first + 4_000))
        done = threading.Event()
        pushed, shares = [40_000], []

        def push() -> None:
            while not done.is_set():
                db.push("s", rows(pushed[0], pushed[0] + 7))
                pushed[0] += 7
                shares.extend(db.progress().backfilling.items())

        thread = threading.Thread(target=push)
        thread.start()
        late = db.sql("SELECT v, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s WITH HISTORY", name="late")
        done.set()
        thread.join()
        found = late.fetch()
        assert pushed[0] > 40_000
        assert any(name == "late" and 0 < share < 1 for name, share in shares) and not db.progress().backfilling
        assert found["v"].to_pylist() == list(range(pushed[0]))
        assert found["n"].to_pylist() == list(range(1, pushed[0] + 1))


@pytest.mark.parametrize("keeps_files", [False, True])
def test_past_contents_are_computed_from_kept_rows(keeps_files: bool, tmp_path: Path) -> None:
    """What each relation held at each instant, as it was seen then and as it is asked for later."""
    with declared(ms.connect(tmp_path / "kept", jit="off") if keeps_files else ms.connect(jit="off"), "ALL") as db:
        queries = [db.sql(text, name=family.replace(" ", "_")) for family, text in FAMILIES.items()]
        queries = [query for query in queries if "valid_from" in query.schema.names]
        seen: dict[tuple[str, int], list[str]] = {}
        chance = random.Random(7)
        for t in range(0, 30, 2):
            for stream in "sr":
                db.push(stream, [(chance.randrange(3), chance.randrange(8), t) for _ in range(chance.randint(1, 3))])
                db.advance(stream, t + 1)
            for query in queries:
                seen[query.name, t] = sorted(map(repr, query.snapshot(t).to_pylist()))
            if keeps_files and t == 14:
                db.checkpoint()
        assert len(queries) > 8 and any(seen.values())
        for (name, t), content in seen.items():
            assert sorted(map(repr, db.query(name).snapshot(t).to_pylist())) == content, (name, t)


def test_a_past_content_that_kept_rows_do_not_cover_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHUNK_ROWS", 4)
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t KEEP 10")
        query = db.sql("SELECT count(*) AS n, max(v) AS top FROM s [RANGE 3]")
        endless = db.sql("SELECT count(*) AS n FROM s [UNBOUNDED]")
        for t in range(50):
            db.push("s", [(t, t)])
            db.advance("s", t)
        assert query.snapshot(45).to_pylist() == [{"n": 3, "top": 45}]
        for unknown in (lambda: query.snapshot(20), lambda: endless.snapshot(45)):
            with pytest.raises(ms.MillstreamError, match="no longer known"):
                unknown()


CONNECTED = "CREATE STREAM d KEEP ALL AS SELECT v, t, sum(v) OVER (ROWS 1 PRECEDING) AS two FROM s WHERE v <> 2"


def test_queries_attach_to_a_derived_stream_that_keeps_its_rows(tmp_path: Path) -> None:
    """A connection point: its branches come and go, and begin with what it has kept; the stream below keeps nothing."""
    with ms.connect(tmp_path / "kept") as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.execute(CONNECTED)
        db.push("s", rows(0, 5))
        late = db.sql("SELECT two FROM d WITH HISTORY", name="late")
        assert late.fetch()["two"].to_pylist() == [0, 1, 4, 7]
        assert late.coverage.is_complete
        db.push("s", rows(5, 6))
        db.checkpoint()
        db.push("s", rows(6, 7))
    with ms.connect(tmp_path / "kept") as db:
        db.push("s", rows(7, 8))
        assert db.query("late").fetch()["two"].to_pylist() == [9, 11, 13]
        held = db.sql("SELECT count(*) AS n, max(two) AS two FROM d [RANGE 3] WITH HISTORY", name="held")
        assert content(held) == [(3, 13)]
        kept = db.sql("SELECT v, two FROM HISTORY(d) WHERE t BETWEEN 3 AND 5 ORDER BY t").fetch().to_pylist()
        assert kept == [{"v": 3, "two": 4}, {"v": 4, "two": 7}, {"v": 5, "two": 9}]
        with pytest.raises(ms.MillstreamError, match="d is used by held, late"):
            db.execute("DROP STREAM d")
        with pytest.raises(ms.MillstreamError, match="s is used by d"):
            db.execute("DROP STREAM s")
        for name in ("late", "held"):
            db.stop(name)
        db.execute("ALTER STREAM d KEEP 2 ROWS; DROP STREAM d; DROP STREAM s")
    with ms.connect(tmp_path / "kept") as db:
        assert not db.queries()
        assert not list((tmp_path / "kept" / "history").iterdir())


def test_a_derived_stream_that_keeps_rows_is_not_pushed_to() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.execute(CONNECTED)
        refused = "stream d gets its rows from a query"
        with pytest.raises(ms.MillstreamError, match=refused):
            db.push("d", [(1, 1, 1)])
        with pytest.raises(ms.MillstreamError, match=refused):
            db.advance("d", 5)
        with pytest.raises(ms.MillstreamError, match=refused):
            db.execute("INSERT INTO d VALUES (1, 1, 1)")
        with pytest.raises(ms.MillstreamError, match="d is a stream\nhint: DROP STREAM d"):
            db.stop("d")
        with pytest.raises(ms.MillstreamError, match="d is not a declared stream"):
            db.sql("SELECT v FROM LATE(d)")
        db.execute("CREATE OR REPLACE STREAM d AS SELECT v, t FROM s")
        assert not db.queries()


def test_who_reads_a_derived_stream_fails_with_its_query() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v VARCHAR, t INT) ORDER BY t")
        db.execute("CREATE STREAM d KEEP ALL AS SELECT t, CAST(v AS INT) AS x FROM s")
        reader, other = db.sql("SELECT x FROM d"), db.sql("SELECT v FROM s")
        db.push("s", [("1", 1), ("two", 2)])
        assert other.fetch()["v"].to_pylist() == ["1", "two"]
        assert reader.fetch()["x"].to_pylist() == [1]
        with pytest.raises(ms.MillstreamError, match="two"):
            reader.fetch()


def test_files_below_a_derived_stream_are_read_for_its_queries(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("v,t\n1,1\n2,2\n3,3\n")
    with ms.connect() as db:
        path = tmp_path / "rows.csv"
        db.execute(
            f"CREATE STREAM s (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{path}', format = 'csv')"
        )
        db.execute(CONNECTED)
        found = db.sql("SELECT two FROM d", name="found")
        db.run("found")
        assert found.fetch()["two"].to_pylist() == [1, 4]


def test_a_view_begins_with_history() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        db.push("s", rows(0, 9))
        db.execute("CREATE VIEW latest AS SELECT count(*) AS n FROM s [RANGE 4] WITH HISTORY")
        assert db.sql("SELECT n FROM latest").fetch().to_pylist() == [{"n": 4}]


def test_what_uses_a_replaced_stream_follows_it_also_after_a_crash(tmp_path: Path) -> None:
    with ms.connect(tmp_path / "kept") as db:
        db.execute("""
            CREATE STREAM s (v INT, t INT) ORDER BY t;
            CREATE STREAM d AS SELECT v, t FROM s;
            CREATE VIEW top AS SELECT max(v) AS v FROM d [RANGE 100]
        """)
        db.sql("SELECT v, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM d", name="q")
        reader = db.query("q").subscribe()
        db.push("s", [(1, 1), (2, 2)])
        db.execute("CREATE OR REPLACE STREAM d AS SELECT CAST(v * 10 AS INT) AS v, t FROM s")
        db.push("s", [(3, 3)])
        shutil.copytree(tmp_path / "kept", tmp_path / "crashed")
        with pytest.raises(ms.MillstreamError, match="uses stream d, and cannot use its new definition"):
            db.execute("CREATE OR REPLACE STREAM d AS SELECT v AS other, t FROM s")
        shutil.copytree(tmp_path / "kept", tmp_path / "refused")
        seen = []
        while (batch := reader.next(timeout=0)) is not None:
            seen += batch["v"].to_pylist()
        assert seen == [1, 2, 30]
    for name in ("kept", "crashed", "refused"):
        with ms.connect(tmp_path / name) as db:
            db.push("s", [(4, 4)])
            assert db.query("q").fetch().to_pylist()[-1] == {"v": 40, "n": 2}
            assert db.sql("SELECT v FROM top").fetch()["v"].to_pylist() == [40]
            db.execute("CREATE OR REPLACE STREAM d AS SELECT CAST(v + 1 AS INT) AS v, t FROM s")
            db.push("s", [(5, 5)])
            assert db.query("q").fetch()["v"].to_pylist() == [6]


def test_kept_rows_answer_any_window_that_they_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one window holds answers shorter ones, without a query for each; only rows of the window asked for pass."""
    monkeypatch.setattr(history, "CHUNK_ROWS", 50)
    given = [(v * 7 % 10, v, v // 2) for v in range(1000)]
    passed: list[int] = []
    give = starting.CatchUp._give

    def noting(self: Any, stream: str, batch: Any) -> None:
        passed.append(len(batch))
        give(self, stream, batch)

    monkeypatch.setattr(starting.CatchUp, "_give", noting)
    text = "SELECT k, count(*) AS n, max(v) AS top FROM s [RANGE {}] GROUP BY k"
    with ms.connect(jit="off") as db, ms.connect(jit="off") as kept:
        for session, keep in ((db, ""), (kept, " KEEP ALL")):
            session.execute(f"CREATE STREAM s (k INT, v INT, t INT) ORDER BY t{keep}")
        query, past = db.sql(text.format(100)), kept.sql(text.format(100))
        for first in range(0, 1000, 50):
            db.push("s", given[first : first + 50])
            kept.push("s", given[first : first + 50])

        def expected(size: int, at: int) -> list[tuple[int, ...]]:
            held: dict[int, list[int]] = {}
            for k, v, t in given:
                if at - size < t <= at:
                    held.setdefault(k, []).append(v)
            return sorted((k, len(values), max(values)) for k, values in held.items())

        def found(table: Any) -> list[tuple[int, ...]]:
            return sorted(tuple(row.values()) for row in table.to_pylist())

        for size in (1, 2, 17, 60, 100):
            passed.clear()
            assert found(query.snapshot(window=f"RANGE {size}")) == expected(size, 499)
            assert sum(passed) <= 2 * size + 4
            assert found(past.snapshot(321, window=f"ON s RANGE {size}")) == expected(size, 321)
        passed.clear()
        assert found(past.snapshot(200)) == expected(100, 200)
        assert sum(passed) <= 204
        assert found(past.snapshot(450, "RANGE 300")) == expected(300, 450)
        plan = kept.sql(f"EXPLAIN CREATE VIEW v AS {text.format(30)} WITH HISTORY").fetch()["plan"].to_pylist()
        assert "1000 rows from its store" in plan[-1] and "of which 100 are read: those in its windows now" in plan[-1]
        assert re.search(r"push: 1000 rows, about [\d.]+ .s; pull: 100 rows, about [\d.]+ .s; pull$", plan[-2])
        # where the windows hold all that is kept, pulling is no cheaper
        plan = kept.sql(f"EXPLAIN CREATE VIEW v AS {text.format(900)} WITH HISTORY").fetch()["plan"].to_pylist()
        assert plan[-1].endswith("pushed through the query") and plan[-2].endswith("; push")
        plan = kept.sql(f"EXPLAIN {text.format(30)} WITH HISTORY").fetch()["plan"].to_pylist()
        assert plan[-1].endswith("pushed through the query")
        assert plan[-2].endswith("no pull, past results are emitted, too")
        # windows of separate queries look at one buffer, which also fills further ones
        shorter = db.sql(text.format(40) + " WITH HISTORY", name="shorter")
        assert found(shorter.snapshot()) == expected(40, 499)
        [shared] = [row for row in db.sql("SHOW SHARING").fetch().to_pylist() if row["operator"] == "rows of s"]
        assert shared["names"] == f"{query.name}, shorter"
        shorter.stop()
        # of a view nobody sees what it was before, and a query gives that, too
        for what, most in (
            ("CREATE VIEW v AS", 64),
            ("CREATE SINK o WITH (connector = 'memory'); INSERT INTO o", 1000),
        ):
            passed.clear()
            kept.execute(f"{what} {text.format(30)} WITH HISTORY")
            assert 60 <= sum(passed) <= most and (most < 1000 or sum(passed) == 1000)
        assert found(kept.sql("SELECT * FROM v").fetch()) == expected(30, 499)
        kept.push("s", [(1, 5000, 520)])
        given.append((1, 5000, 520))
        assert found(kept.sql("SELECT * FROM v").fetch()) == expected(30, 520)
        with pytest.raises(ms.DataError, match="no longer known"):
            query.snapshot(window="RANGE 400")
        for wrong in ("ROWS", "RANGE 3; SELECT 1", "5 MINUTES"):
            with pytest.raises(ms.MillstreamError):
                query.snapshot(window=wrong)
        assert db.queries() == [query]


def test_an_altered_query_is_computed_from_rows_that_still_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHUNK_ROWS", 50)
    text = "SELECT v, sum(v) OVER (PARTITION BY v % 3 RANGE {} PRECEDING) AS x FROM s"
    changed = f"ALTER QUERY q AS {text.format(40)}"
    with ms.connect(jit="off") as db:
        db.execute(STREAM)
        query = db.sql(text.format(20), name="q")
        for first in range(0, 1000, 50):
            db.push("s", rows(first, first + 50))
        assert "the last 50 of 1000 kept rows" in str(db.sql(f"EXPLAIN {changed}").fetch()["plan"].to_pylist())
        db.execute(changed)
        db.push("s", rows(1000, 1060))
        # the last row is final with the next one: the old definition had not answered row 999
        for row, v in zip(query.fetch().to_pylist(), range(1059), strict=True):
            size = 20 if v < 999 else 40
            assert row == {"v": v, "x": sum(u for u in range(max(0, v - size), v + 1) if u % 3 == v % 3)}
        assert query.coverage.is_complete
        everything = "ALTER QUERY q AS SELECT v, sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS x FROM s"
        assert "computed again from 1060 kept rows" in str(db.sql(f"EXPLAIN {everything}").fetch()["plan"].to_pylist())


def test_states_of_a_query_that_starts_or_changes_are_shown_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's SHOW QUERIES waits for no statement and no lock."""
    monkeypatch.setattr(history, "CHUNK_ROWS", 10)
    shown: list[str] = []

    def looking(method: Any) -> Any:
        def look() -> None:
            found = db.sql("SHOW QUERIES").fetch().to_pylist()
            shown.extend(row["status"] for row in found if row["name"] == "late")

        def called(*args: Any) -> Any:
            thread = threading.Thread(target=look)
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
            return method(*args)

        return called

    with ms.connect(jit="off") as db:
        db.execute(STREAM)
        db.push("s", rows(0, 20))
        db.push("s", rows(20, 40))
        monkeypatch.setattr(db._host.graph, "make_ready", looking(db._host.graph.make_ready))
        monkeypatch.setattr(starting.CatchUp, "_give", looking(starting.CatchUp._give))
        feed = starting.CatchUp.feed

        def feeding(self: Any) -> None:
            feed(self)
            if not self._joins:
                db.push("s", rows(40, 41))

        monkeypatch.setattr(starting.CatchUp, "feed", feeding)
        db.sql("SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS x FROM s WITH HISTORY", name="late")
        assert shown == ["planning", "backfilling 50 %", "backfilling 100 %", "synchronising"]
        shown.clear()
        db.execute("ALTER QUERY late AS SELECT sum(v + 1) OVER (ROWS UNBOUNDED PRECEDING) AS x FROM s")
        assert shown[:2] == ["running, change: planning", "running, change: backfilling 49 %"]
        assert shown[-1] == "running, change: synchronising"
        assert db.sql("SHOW QUERIES").fetch()["status"].to_pylist() == ["running"]


def test_windows_of_over_are_set() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        text = "SELECT v, sum(v) OVER (ROWS 1 PRECEDING) AS x, count(*) OVER (ROWS 1 PRECEDING) AS n FROM s"
        q = db.sql(text, name="q")
        db.push("s", rows(0, 5))
        for window, expected in (
            ("ROWS 2 PRECEDING", (4 + 5 + 6, 3)),
            ("ON s RANGE 4 PRECEDING", (4 + 5 + 6 + 7 + 8, 5)),
            ("RANGE UNBOUNDED PRECEDING", (sum(range(11)), 11)),
            ("ROWS 3 PRECEDING SLIDE 2", (8 + 9 + 10 + 11, 4)),
        ):
            db.execute(f"ALTER QUERY q SET WINDOW {window}")
            following = db.sql("SELECT max(v) AS v FROM HISTORY(s)").arrow()["v"][0].as_py() + 1
            db.push("s", rows(following, following + 2))
            db.advance("s", following + 2)
            found = q.fetch().to_pylist()
            assert (found[-1]["x"], found[-1]["n"]) == expected, window
        with pytest.raises(ms.MillstreamError, match="does not count its row"):
            db.execute("ALTER QUERY q SET WINDOW ROWS 3")
        with pytest.raises(ms.MillstreamError, match="no window on r"):
            db.execute("ALTER QUERY q SET WINDOW ON r RANGE 3")


def test_window_tables_are_set() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        q = db.sql(
            "SELECT window_start AS a, count(*) AS n FROM TUMBLE(s, t, 5) GROUP BY window_start, window_end", name="q"
        )
        db.push("s", rows(0, 8))
        assert [tuple(row.values()) for row in q.fetch().to_pylist()] == [(0, 5)]
        db.execute("ALTER QUERY q SET WINDOW ON s RANGE 4")
        db.push("s", rows(8, 13))
        assert [tuple(row.values()) for row in q.fetch().to_pylist()] == [(4, 4), (8, 4)]
        db.execute("ALTER QUERY q SET WINDOW RANGE 4 SLIDE 2")
        db.push("s", rows(13, 15))
        assert [tuple(row.values()) for row in q.fetch().to_pylist()] == [(10, 4)]
        with pytest.raises(ms.MillstreamError, match="windows of HOP have a length of time"):
            db.execute("ALTER QUERY q SET WINDOW ROWS 3")
        with pytest.raises(ms.MillstreamError, match="several windows"):
            db.sql("SELECT a.v FROM s [RANGE 5] AS a JOIN s [RANGE 3] AS b ON a.v = b.v", name="two")
            db.execute("ALTER QUERY two SET WINDOW ON s RANGE 3")


def test_no_part_of_a_file_sorted_by_a_key_may_have_rows_that_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "SEGMENT_ROWS", 100)
    monkeypatch.setattr(history, "CHUNK_ROWS", 10)
    with ms.connect(tmp_path / "kept") as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t KEEP ALL BY v")
        db.push("s", [(10 * v, v) for v in range(200)])
        db.checkpoint()
        q = db.sql("SELECT v FROM s WHERE v = 395 WITH HISTORY")
        db.push("s", [(395, 300)])
        assert q.fetch().to_pylist() == [{"v": 395}]

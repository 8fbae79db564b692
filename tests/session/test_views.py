"""The content of a relation at an instant: views, snapshot(at), and both after a session was closed or crashed."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms

STREAM = "CREATE STREAM s (k INT, x INT, t INT) ORDER BY t"


@pytest.fixture
def db() -> Iterator[ms.Database]:
    with ms.connect() as database:
        database.execute(STREAM)
        yield database


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def asked(db: ms.Database, text: str) -> list[tuple[object, ...]]:
    return rows(db.sql(text).fetch())


# -- snapshot(at) ------------------------------------------------------------------------------------------------------


def test_now_and_later(db: ms.Database) -> None:
    q = db.sql("SELECT k, sum(x) AS total FROM s [RANGE 5] GROUP BY k")
    assert rows(q.snapshot()) == []
    db.push("s", [(1, 1, 0), (2, 5, 1), (1, 2, 3)])
    assert rows(q.snapshot()) == rows(q.snapshot(3)) == [(1, 3), (2, 5)]
    assert rows(q.snapshot(0)) == [(1, 1)]
    assert rows(q.snapshot(5)) == [(1, 2), (2, 5)]
    assert rows(q.snapshot(6)) == [(1, 2)]
    assert rows(q.snapshot(8)) == []
    assert q.snapshot().schema.names == ["k", "total"]


def test_a_heartbeat_is_now(db: ms.Database) -> None:
    q = db.sql("SELECT k FROM s [RANGE 5]")
    db.push("s", [(1, 1, 0), (2, 5, 3)])
    db.advance("s", 6)
    assert rows(q.snapshot()) == [(2,)]


def test_looking_changes_nothing(db: ms.Database) -> None:
    text = "SELECT a.k, count(*) AS n FROM s [RANGE 9] a JOIN s [PARTITION BY k ROWS 1] b ON a.k = b.k GROUP BY a.k"
    looked, calm = db.sql(text), db.sql(text)
    for t in range(12):
        db.push("s", [(t % 3, t, t)])
        looked.snapshot()
        looked.snapshot(t + 4)
    db.finish()
    assert rows(looked.fetch()) == rows(calm.fetch())


def test_instants_that_are_gone(db: ms.Database) -> None:
    q = db.sql("SELECT k FROM s [ROWS 1]")
    db.push("s", [(1, 1, 0), (2, 5, 20)])
    with pytest.raises(ms.MillstreamError, match="no longer known"):
        q.snapshot(3)
    assert rows(q.snapshot(20)) == [(2,)]


def test_after_the_end(db: ms.Database) -> None:
    q = db.sql("SELECT k FROM s [PARTITION BY k ROWS 1]")
    db.push("s", [(1, 1, 0), (1, 5, 20), (2, 0, 21)])
    db.finish()
    assert rows(q.snapshot()) == rows(q.snapshot(1000)) == [(1,), (2,)]
    assert q.fetch().num_rows == 3


def test_rows_that_wait_for_their_order_count() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, ts TIMESTAMP) ORDER BY ts SLACK 10 SECONDS")
        q = db.sql("SELECT k FROM s [RANGE 5 SECONDS]")
        day = "2026-01-01 00:00:"
        db.push("s", [(1, day + "00"), (2, day + "04"), (3, day + "02")])
        assert rows(q.snapshot()) == [(1,), (2,), (3,)]
        assert q.fetch().num_rows == 0
        at = dt.datetime(2026, 1, 1, 0, 0, 2)
        zoned = dt.datetime(2026, 1, 1, 1, 0, 2, tzinfo=dt.timezone(dt.timedelta(hours=1)))
        for moment in (at, day + "02", zoned, round(at.replace(tzinfo=dt.UTC).timestamp()) * 1_000_000):
            assert rows(q.snapshot(moment)) == [(1,), (3,)]
        with pytest.raises(ms.MillstreamError, match="'noon' is not a time"):
            q.snapshot("noon")


def test_several_streams_are_as_late_as_the_latest(db: ms.Database) -> None:
    db.execute("CREATE STREAM r (k INT, t INT) ORDER BY t")
    q = db.sql("SELECT s.k FROM s [RANGE 5] JOIN r [RANGE 5] ON s.k = r.k")
    db.push("s", [(1, 0, 0)])
    db.push("r", [(1, 3)])
    assert rows(q.snapshot()) == [(1,)]
    db.advance("s", 5)
    assert rows(q.snapshot()) == []


def test_events_have_no_content(db: ms.Database) -> None:
    q = db.sql("SELECT ISTREAM(k) FROM s [RANGE 5]")
    with pytest.raises(ms.MillstreamError, match="only a relation has a snapshot"):
        q.snapshot()


def test_a_failed_query_says_so(db: ms.Database) -> None:
    q = db.sql("SELECT CAST('x' || k AS INT) AS z FROM s [RANGE 5]")
    db.push("s", [(1, 0, 0)])
    with pytest.raises(ms.MillstreamError, match="cannot evaluate"):
        q.snapshot()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_snapshots_agree_with_what_is_delivered(seed: int, form: str) -> None:
    """At every instant that is still held, the content is what the rows delivered in the end say."""
    rng = random.Random(seed)
    with ms.connect(relations=form) as db:
        db.execute(STREAM)
        queries = [
            db.sql("SELECT k, x FROM s [RANGE 7 SLIDE 2]"),
            db.sql("SELECT k, count(*) AS n, max(x) AS m FROM s [RANGE 6] GROUP BY k"),
            db.sql("SELECT DISTINCT x FROM s [PARTITION BY k ROWS 2]"),
            db.sql("SELECT a.k, b.x FROM s [RANGE 4] a LEFT JOIN s [ROWS 2] b ON a.k = b.k AND b.x > a.x"),
            db.sql("SELECT k FROM s [RANGE 6] EXCEPT ALL SELECT k FROM s [RANGE 3] WHERE x > 2"),
        ]
        seen: list[tuple[int, int, list[tuple[object, ...]]]] = []
        t = 0
        for _ in range(12):
            db.push("s", [(rng.randint(1, 2), rng.randint(0, 4), t) for _ in range(rng.randint(1, 2))])
            db.advance("s", t := t + rng.randint(1, 3))
            # no row comes at that very instant: then it would not be known yet
            seen += [(i, t, rows(q.snapshot())) for i, q in enumerate(queries)]
            t += 1
        db.finish()
        delivered = [q.fetch().to_pylist() for q in queries]
        for i, at, found in seen:
            valid = [
                tuple(row.values())[:-2]
                for row in delivered[i]
                if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
            ]
            assert found == sorted(valid, key=repr), (i, at)
        assert {i for i, _, found in seen if found} == set(range(len(queries)))


# -- views -------------------------------------------------------------------------------------------------------------


def test_ad_hoc_queries_on_views_and_tables(db: ms.Database) -> None:
    db.execute("""
        CREATE TABLE names (k INT, name VARCHAR);
        INSERT INTO names VALUES (1, 'one'), (2, 'two');
        CREATE VIEW v (k, n) AS SELECT k, count(*) FROM s [RANGE 10] GROUP BY k;
        CREATE VIEW busy AS SELECT k FROM v WHERE n > 1
    """)
    db.push("s", [(1, 1, 0), (2, 5, 1), (1, 2, 3)])
    assert asked(db, "SELECT name, n FROM v JOIN names USING (k)") == [("one", 2), ("two", 1)]
    assert asked(db, "SELECT k FROM busy") == [(1,)]
    assert asked(db, "SELECT v.k FROM v WHERE k NOT IN (SELECT k FROM busy)") == [(2,)]
    db.execute("CREATE TABLE noted AS SELECT * FROM v; INSERT INTO noted SELECT k + 10, n FROM v")
    db.advance("s", 20)
    assert asked(db, "SELECT count(*) AS n FROM v") == [(0,)]
    assert asked(db, "SELECT k, n FROM noted") == [(1, 2), (11, 2), (12, 1), (2, 1)]


def test_a_view_is_a_query(db: ms.Database) -> None:
    db.execute("CREATE VIEW v AS SELECT k FROM s [RANGE 10]")
    db.push("s", [(1, 1, 0)])
    view = db.query("v")
    assert rows(view.snapshot(9)) == [(1,)]
    assert view.fetch().num_rows == 0
    assert "Window RANGE" in view.explain()
    with pytest.raises(ms.MillstreamError, match="v is a view\nhint: DROP VIEW v"):
        view.stop()
    with pytest.raises(ms.MillstreamError, match="query v is already running"):
        db.sql("SELECT k FROM s", name="v")


def test_a_view_that_cannot_start_is_not_there(db: ms.Database) -> None:
    db.sql("SELECT k FROM s", name="v")
    with pytest.raises(ms.MillstreamError, match="query v is already running"):
        db.execute("CREATE VIEW v AS SELECT k FROM s [RANGE 10]")
    assert asked(db, "SHOW VIEWS") == []
    assert [query.name for query in db.queries()] == ["v"]


def test_replacing(db: ms.Database) -> None:
    db.execute("CREATE VIEW v AS SELECT k FROM s [RANGE 10]")
    db.push("s", [(1, 1, 0)])
    db.execute("CREATE VIEW IF NOT EXISTS v AS SELECT x FROM s [RANGE 1]")
    assert asked(db, "SELECT * FROM v") == [(1,)]
    db.execute("CREATE OR REPLACE VIEW v AS SELECT k, x FROM s [RANGE 10]")
    assert asked(db, "SELECT * FROM v") == [], "a new query sees no history"
    db.push("s", [(2, 7, 1)])
    assert asked(db, "SELECT * FROM v") == [(2, 7)]
    db.execute("DROP VIEW v")
    with pytest.raises(ms.MillstreamError, match="no stream or table v"):
        db.sql("SELECT * FROM v")


# -- closing, crashing, going on ---------------------------------------------------------------------------------------

DECLARED = f"""
    {STREAM};
    CREATE TABLE names (k INT, name VARCHAR);
    INSERT INTO names VALUES (1, 'one'), (2, 'two');
    CREATE VIEW v AS SELECT k, count(*) AS n FROM s [RANGE 10] GROUP BY k;
"""
QUERIES = {
    "totals": "SELECT k, sum(x) AS total FROM s [RANGE 5] GROUP BY k",
    "last": "SELECT k, x FROM s [PARTITION BY k ROWS 1]",
    "named": "SELECT s.k, name FROM s [RANGE 4] JOIN names ON s.k = names.k",
    "pairs": "SELECT a.x, b.x AS y FROM s [RANGE 6] a JOIN s [RANGE 6] b ON a.k = b.k AND a.x < b.x",
    "came": "SELECT ISTREAM(k, n) FROM v",
    "went": "DSTREAM(SELECT DISTINCT k FROM s [RANGE 5])",
}
ROWS = [(1, 1, 0), (2, 5, 1), (1, 2, 3), (1, 9, 7), (2, 1, 8), (1, 4, 8), (2, 2, 30)]


def test_going_on(tmp_path: Path) -> None:
    """A session that is closed, or crashes, at any point gives what one gives that lives through it all."""
    with ms.connect() as whole:
        whole.execute(DECLARED)
        for name, text in QUERIES.items():
            whole.sql(text, name=name)
        contents = []
        for row in ROWS:
            whole.push("s", [row])
            contents.append(looks(whole))
        whole.finish()
        expected = {name: whole.query(name).fetch().to_pylist() for name in QUERIES}
    for how in ("close", "crash"):
        got: dict[str, list[dict[str, object]]] = {name: [] for name in QUERIES}
        home = tmp_path / how
        with ms.connect(home) as db:
            db.execute(DECLARED)
            for name, text in QUERIES.items():
                db.sql(text, name=name)
        for i, row in enumerate(ROWS):
            with ms.connect(home) as db:
                db.push("s", [row])
                assert looks(db) == contents[i], (how, i)
                if i % 2:
                    for name in QUERIES:
                        got[name] += db.query(name).fetch().to_pylist()
                if how == "crash":
                    shutil.copytree(home, tmp_path / f"crash{i}")
            home = tmp_path / f"crash{i}" if how == "crash" else home
            with ms.connect(home) as db:
                assert looks(db) == contents[i], (how, i)
        with ms.connect(home) as db:
            db.finish()
            for name in QUERIES:
                got[name] += db.query(name).fetch().to_pylist()
        assert got == expected


def looks(db: ms.Database) -> list[list[tuple[object, ...]]]:
    """What can be seen of a session without changing it."""
    relations = [name for name in QUERIES if name not in ("came", "went")]
    now = [rows(db.query(name).snapshot()) for name in relations]
    ahead = [rows(db.query(name).snapshot(40)) for name in relations]
    return [*now, *ahead, asked(db, "SELECT * FROM v"), asked(db, "SHOW VIEWS")]


def test_views_that_were_replaced_or_dropped(tmp_path: Path) -> None:
    home = tmp_path / "kept"
    with ms.connect(home) as db:
        db.execute(f"""
            {STREAM};
            CREATE VIEW v AS SELECT k FROM s [RANGE 10];
            CREATE VIEW gone AS SELECT k FROM s [RANGE 10];
            CREATE STREAM r (j INT, t INT) ORDER BY t;
            CREATE OR REPLACE VIEW v AS SELECT j FROM r [RANGE 10];
            CREATE VIEW w AS SELECT count(*) AS n FROM v;
            DROP VIEW gone;
            DROP VIEW IF EXISTS never
        """)
        db.push("r", [(3, 0), (4, 1)])
        shutil.copytree(home, tmp_path / "crashed")
    for directory in (home, tmp_path / "crashed"):
        for _ in range(2):
            with ms.connect(directory) as db:
                assert asked(db, "SELECT j FROM v") == [(3,), (4,)]
                assert asked(db, "SELECT n FROM w") == [(2,)]
                assert [query.name for query in db.queries()] == ["v", "w"]
                with pytest.raises(ms.MillstreamError, match="v is used by w"):
                    db.execute("DROP VIEW v")


def test_what_is_made_of_registered_data_is_not_kept(tmp_path: Path) -> None:
    home = tmp_path / "kept"
    with ms.connect(home) as db:
        db.execute(f"{STREAM}; CREATE VIEW v AS SELECT k FROM s [ROWS 1]")
        db.register("given", pa.table({"x": [1, 2], "t": [0, 5]}), time="t")
        db.execute("""
            CREATE STREAM derived AS SELECT x FROM given;
            CREATE VIEW held AS SELECT x FROM given [RANGE 9];
            CREATE OR REPLACE VIEW v AS SELECT x FROM derived [ROWS 1]
        """)
        query = db.sql("SELECT * FROM derived", name="q")
        assert query.arrow().num_rows == 2
        assert asked(db, "SELECT x FROM held") == [(1,), (2,)]
        db.execute("STOP q; DROP VIEW held")
        shutil.copytree(home, tmp_path / "crashed")
    for directory in (home, tmp_path / "crashed"):
        with ms.connect(directory) as db:
            assert asked(db, "SHOW VIEWS") == []
            assert [row[0] for row in asked(db, "SHOW STREAMS")] == ["s"]
            assert db.queries() == []


def test_a_view_that_is_replaced_by_itself_goes_on(tmp_path: Path) -> None:
    home, replace = tmp_path / "kept", "CREATE OR REPLACE VIEW v AS SELECT count(*) AS n FROM s [RANGE 10]"
    with ms.connect(home) as db:
        db.execute(STREAM)
        db.execute(replace)
        db.push("s", [(1, 1, 1), (2, 2, 2), (3, 3, 3)])
        db.execute(replace.replace("count", "COUNT").replace("FROM", "from"))
        assert asked(db, "SELECT n FROM v") == [(3,)]
        shutil.copytree(home, tmp_path / "crashed")
    for directory in (home, tmp_path / "crashed"):
        with ms.connect(directory) as db:
            db.execute(replace)
            assert asked(db, "SELECT n FROM v") == [(3,)]
            db.execute(replace.replace("count(*)", "max(k)"))
            assert asked(db, "SELECT n FROM v") == []

"""Sinks of upserts and stored tables: rows that replace each other by key, and keys that are deleted."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import millstream as ms

STREAM = "CREATE STREAM s (id INT, v INT, op VARCHAR, t INT) ORDER BY t"
CONTENT = "s [PARTITION BY id ROWS 1 DELETE WHEN op = 'd']"


def sink(path: Path, key: str = "k") -> str:
    options = f"connector = 'file', path = '{path}', format = 'jsonl', mode = 'upsert', key = '{key}'"
    return f"CREATE SINK {path.name} WITH ({options})"


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(path.glob("part-*")) for line in part.read_text().splitlines()]


def applied(changes: list[dict[str, Any]], keys: tuple[str, ...] = ("k",)) -> dict[Any, dict[str, Any]]:
    """What a reader of a changelog holds at its end."""
    held: dict[Any, dict[str, Any]] = {}
    for change in changes:
        key = tuple(change[name] for name in keys)
        if change["op"] == "d":
            assert key in held, "only what is there is deleted"
            assert all(value is None for name, value in change.items() if name not in (*keys, "op"))
            del held[key]
        else:
            held[key] = {name: value for name, value in change.items() if name != "op"}
    return held


def random_rows(count: int, seed: int) -> list[tuple[int, int, str, int]]:
    draw = random.Random(seed)
    return [(draw.randrange(6), draw.randrange(3), draw.choice("uuud"), time // 2) for time in range(count)]


def test_groups_without_end_and_deletions(tmp_path: Path) -> None:
    db = ms.connect()
    db.execute(STREAM)
    db.execute(f"{sink(tmp_path / 'latest')}; {sink(tmp_path / 'groups')}; {sink(tmp_path / 'pairs', 'k, v')}")
    db.execute(f"INSERT INTO latest SELECT id AS k, v FROM {CONTENT}")
    db.execute(f"INSERT INTO groups SELECT v AS k, count(*) AS n, sum(id) AS total FROM {CONTENT} GROUP BY v")
    db.execute(f"INSERT INTO pairs SELECT DISTINCT id AS k, v FROM {CONTENT}")
    wanted = {
        "latest": db.sql(f"SELECT id AS k, v FROM {CONTENT}"),
        "groups": db.sql(f"SELECT v AS k, count(*) AS n, sum(id) AS total FROM {CONTENT} GROUP BY v"),
        "pairs": db.sql(f"SELECT DISTINCT id AS k, v FROM {CONTENT}"),
    }
    rows = random_rows(200, 1)
    for start in range(0, len(rows), 7):
        db.push("s", rows[start : start + 7])
    db.advance("s", 1000)
    content = {name: query.snapshot().to_pylist() for name, query in wanted.items()}
    db.finish()
    for name, expected in content.items():
        keys = ("k", "v") if name == "pairs" else ("k",)
        held = applied(written(tmp_path / name), keys)
        assert held == {tuple(row[key] for key in keys): row for row in expected}, name
    assert {change["op"] for change in written(tmp_path / "groups")} == {"u", "d"}


def test_an_update_is_one_change(tmp_path: Path) -> None:
    db = ms.connect()
    db.execute(STREAM)
    db.execute(sink(tmp_path / "latest"))
    db.execute(f"INSERT INTO latest SELECT id AS k, v FROM {CONTENT}")
    db.push("s", [(1, 10, "u", 1), (1, 20, "u", 2), (1, 20, "u", 3), (1, 0, "d", 4), (1, 30, "u", 5)])
    db.finish()
    assert written(tmp_path / "latest") == [
        {"k": 1, "v": 10, "op": "u"}, {"k": 1, "v": 20, "op": "u"},
        {"k": 1, "v": None, "op": "d"}, {"k": 1, "v": 30, "op": "u"},
    ]  # fmt: skip


def test_a_restart_writes_each_change_once(tmp_path: Path) -> None:
    rows = random_rows(60, 2)

    def open_again() -> ms.Database:
        return ms.connect(tmp_path / "session")

    db = open_again()
    db.execute(STREAM)
    db.execute(sink(tmp_path / "groups"))
    db.execute(f"INSERT INTO groups SELECT v AS k, count(*) AS n FROM {CONTENT} GROUP BY v")
    for start in range(0, 60, 20):
        db.push("s", rows[start : start + 20])
        db.close()
        db = open_again()
    db.finish()
    db.close()

    whole = ms.connect()
    whole.execute(STREAM)
    whole.execute(sink(tmp_path / "whole"))
    whole.execute(f"INSERT INTO whole SELECT v AS k, count(*) AS n FROM {CONTENT} GROUP BY v")
    whole.push("s", rows)
    whole.finish()
    assert written(tmp_path / "groups") == written(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "query", "message"),
    [
        ("mode = 'upsert'", "SELECT id FROM s [ROWS 1]", "a sink of upserts needs the option key"),
        ("mode = 'merge', key = 'id'", "SELECT id FROM s [ROWS 1]", "mode = 'merge' is not valid"),
        ("mode = 'upsert', key = 'x'", "SELECT id FROM s [ROWS 1]", "the key x of the sink is not a column"),
        ("mode = 'upsert', key = 'id'", "SELECT id, op FROM s [ROWS 1]", "the sink adds a column op"),
    ],
)
def test_what_is_wrong_is_told(options: str, query: str, message: str) -> None:
    db = ms.connect()
    db.execute(STREAM)
    with pytest.raises(ms.MillstreamError, match=message):
        db.execute(f"CREATE SINK o WITH (connector = 'memory', {options}); INSERT INTO o {query}")


def test_events_are_upserts_all_of_them(tmp_path: Path) -> None:
    db = ms.connect()
    db.execute(STREAM)
    db.execute(sink(tmp_path / "last"))
    db.execute("INSERT INTO last SELECT id AS k, v FROM s WHERE v > 1")
    db.push("s", [(1, 1, "u", 1), (1, 2, "u", 2), (1, 3, "u", 3)])
    db.finish()
    assert written(tmp_path / "last") == [{"k": 1, "v": 2, "op": "u"}, {"k": 1, "v": 3, "op": "u"}]


def test_a_table_takes_the_rows_of_a_query_once_whatever_happens(tmp_path: Path) -> None:
    rows = random_rows(120, 3)
    db = ms.connect(tmp_path / "0", checkpoint_seconds=3600)
    db.execute(STREAM)
    db.execute("CREATE TABLE seen (id INT, v INT, t INT); CREATE TABLE held (id INT PRIMARY KEY, v INT)")
    db.execute("INSERT INTO seen SELECT id, v, t FROM s")
    db.execute(f"INSERT OR REPLACE INTO held SELECT id, v FROM {CONTENT}")
    assert [query.name for query in db.queries()] == ["q1", "q2"]
    for turn in range(6):
        db.push("s", rows[20 * turn : 20 * turn + 10])
        if turn % 2:
            db.checkpoint()
            assert db.sql("SELECT count(*) AS n FROM seen").fetch()["n"].to_pylist()[0] >= 10 * turn
        db.push("s", rows[20 * turn + 10 : 20 * turn + 20])
        # the process dies here: what it has on disk is all that is left
        shutil.copytree(tmp_path / str(turn), tmp_path / str(turn + 1))
        dead, db = db, ms.connect(tmp_path / str(turn + 1), checkpoint_seconds=3600)
        dead.close()
    db.finish()
    db.checkpoint()
    seen = db.sql("SELECT t, id, v FROM seen").fetch().to_pylist()
    assert sorted(tuple(row.values()) for row in seen) == sorted((t, i, v) for i, v, _, t in rows)
    latest: dict[int, int] = {}
    for i, v, op, _ in rows:
        latest.pop(i, None)
        if op != "d":
            latest[i] = v
    assert {row["id"]: row["v"] for row in db.sql("SELECT * FROM held").fetch().to_pylist()} == latest
    db.stop("q1")
    db.close()

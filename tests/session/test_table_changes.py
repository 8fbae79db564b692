"""Changes of stored tables as events: none is lost or comes twice, whenever the session dies."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.hosts.embedded.host import EmbeddedHost
from millstream.hosts.tables import TableStore
from millstream.session.journal import Journal

STATEMENTS = [
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'b')",
    "UPDATE t SET name = 'c' WHERE k = 2",
    "DELETE FROM t WHERE k = 1",
    "INSERT INTO t VALUES (3, 'd')",
]


def test_changes_come_once_whenever_the_session_dies(tmp_path: Path) -> None:
    """A copy of the directory at each step is what a crash leaves."""
    home, crashes = tmp_path / "home", []

    def crashing(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            crashes.append(tmp_path / f"crash-{len(crashes)}")
            shutil.copytree(home, crashes[-1])
            return result

        return step

    with pytest.MonkeyPatch.context() as patch, ms.connect(home, checkpoint_seconds=3600) as db:
        db.execute("CREATE TABLE t (k INT, name VARCHAR)")
        db.sql("SELECT k, name FROM ISTREAM(t)", name="came")
        db.sql("SELECT k, name FROM DSTREAM(t)", name="gone")
        for owner, name in (
            (TableStore, "change"),
            (TableStore, "take_aside"),
            (Journal, "note"),
            (EmbeddedHost, "push"),
        ):
            patch.setattr(owner, name, crashing(getattr(owner, name)))
        for statement in STATEMENTS:
            db.execute(statement)
    assert len(crashes) > 12
    seen = set()
    for crash in crashes:
        with ms.connect(crash) as db:
            changed = Counter(_rows(db.query("came").fetch()))
            changed.subtract(_rows(db.query("gone").fetch()))
        with ms.connect(crash) as db:
            held = Counter(_rows(db.sql("SELECT k, name FROM t").arrow()))
            assert +changed == held and not -changed, crash
            assert db.query("came").fetch().num_rows == db.query("gone").fetch().num_rows == 0
            assert db.tables.aside("__changes_") == []
        seen.add(tuple(sorted(held.items())))
    assert len(seen) == len(STATEMENTS)


def _rows(rows: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_what_is_refused() -> None:
    with ms.connect() as db:
        db.execute("CREATE TABLE t (k INT); CREATE TABLE u (current_time TIMESTAMP); CREATE STREAM s (k INT)")
        db.execute("INSERT INTO t SELECT k FROM s")
        with pytest.raises(ms.UnsupportedError, match="a query inserts into table t"):
            db.sql("SELECT * FROM ISTREAM(t)")
        with pytest.raises(ms.BindError, match="a column current_time"):
            db.sql("SELECT * FROM ISTREAM(u)")
        with pytest.raises(ms.BindError, match="RSTREAM takes a relation, not a stored table"):
            db.sql("SELECT * FROM RSTREAM(t)")
        with pytest.raises(ms.DataError, match="has the changes of a table"):
            db.push("istream(t)", [(1,)])


def test_a_table_that_is_replaced_has_changes_of_its_new_columns() -> None:
    with ms.connect(max_output_rows=1) as db:
        for columns, row in (("k INT", "1"), ("k INT, name VARCHAR", "2, 'b'")):
            db.execute(f"CREATE OR REPLACE TABLE t ({columns})")
            query = db.sql("SELECT * EXCLUDE (current_time) FROM ISTREAM(t)", name="q")
            db.execute(f"INSERT INTO t VALUES ({row})")
            rows = query.fetch().to_pylist()
            db.stop("q")
            db.execute("INSERT INTO t SELECT * FROM t")
        assert rows == [{"k": 2, "name": "b"}]
        query = db.sql("SELECT k FROM ISTREAM(t)")
        db.execute("INSERT INTO t VALUES (3, 'c'), (4, 'd')")
        assert db.tables.aside("__changes_") == []

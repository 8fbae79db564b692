"""Backups of a session that goes on meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import millstream as ms
from tests.server.conftest import ServerProcess

STREAM = "CREATE STREAM s (v INT, t INT) ORDER BY t KEEP ALL"
TOTAL = "SELECT v, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s"


def check(directory: Path) -> int:
    """The copy is of one instant: what was kept, what was emitted and what was stored tell the same; and it goes on."""
    with ms.connect(directory) as db:
        emitted = db.query("q").fetch()["n"].to_pylist()
        kept = db.sql("SELECT count(*) AS n FROM HISTORY(s)").fetch()["n"][0].as_py()
        assert emitted == list(range(1, kept + 1))
        # a table is changed after each push
        stored = db.sql("SELECT max(n) AS n FROM done").fetch()["n"][0].as_py()
        assert stored in (kept, kept - 10)
        db.push("s", [(0, 1_000_000)])
        assert db.query("q").fetch()["n"].to_pylist() == [kept + 1]
        return int(kept)


def test_rows_are_pushed_meanwhile(tmp_path: Path) -> None:
    with ms.connect(tmp_path / "kept") as db:
        db.execute(f"{STREAM}; CREATE TABLE done (n INT); INSERT INTO done VALUES (0)")
        db.sql(TOTAL, name="q")
        ended = threading.Event()

        def push() -> None:
            n = 0
            while not ended.is_set():
                db.push("s", [(v, n + v) for v in range(10)])
                n += 10
                db.execute(f"INSERT INTO done VALUES ({n})")

        pushing = threading.Thread(target=push)
        pushing.start()
        for turn in range(3):
            db.backup(tmp_path / f"copy{turn}")
        ended.set()
        pushing.join()
        assert not (tmp_path / "kept" / ".backup").exists()
        with pytest.raises(ms.StateError, match="already"):
            db.backup(tmp_path / "copy0")
        with pytest.raises(ms.StateError, match="inside"):
            db.backup(tmp_path / "kept" / "copy")
        with pytest.raises(ms.StateError, match="no directory"):
            db.backup(tmp_path / "none" / "copy")
    sizes = [check(tmp_path / f"copy{turn}") for turn in range(3)]
    assert sizes == sorted(sizes)
    with ms.connect() as db, pytest.raises(ms.StateError, match="not persistent"):
        db.backup(tmp_path / "copy")


def test_an_admin_backs_a_server_up(server: ServerProcess) -> None:
    db = server.client()
    db.execute(f"{STREAM}; CREATE TABLE done (n INT); INSERT INTO done VALUES (2)")
    db.sql(TOTAL, name="q")
    db.push("s", [(1, 1), (2, 2)])
    db.backup("backups/monday")
    assert check(server.backups / "monday") == 2
    for target in ("monday", "elsewhere/x", "backups/../x", "/tmp/x", "backups/", "backups//tmp/x"):
        with pytest.raises(ms.MillstreamError):
            db.backup(target)
    db.execute("BACKUP TO 'backups/sunday'")
    assert check(server.backups / "sunday") == 2
    for statement, wrong in (("BACKUP TO '/tmp/x'", "location"), ("BACKUP TO x", "quotes"), ("BACKUP 'x'", "TO")):
        with pytest.raises(ms.MillstreamError, match=wrong):
            db.execute(statement)
    from millstream.server.accounts import Accounts

    secret = Accounts(server.directory).add("will", "writer")
    with pytest.raises(ms.MillstreamError, match="writer"):
        ms.connect(server.address, token=secret).backup("backups/tuesday")
    with pytest.raises(ms.MillstreamError, match="writer"):
        ms.connect(server.address, token=secret).execute("BACKUP TO 'backups/tuesday'")
    assert sorted(path.name for path in server.backups.iterdir()) == ["monday", "sunday"]

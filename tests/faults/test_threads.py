"""Any number of threads may use a session: calls take effect one after another, in the order in which they are kept."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.session.frames import FrameFile
from tests.faults.thread_stress import run
from tiers import examples


@pytest.mark.parametrize("seed", range(examples(2)))
def test_threads_get_what_one_thread_gets(tmp_path: Path, seed: int) -> None:
    stress = run(tmp_path / "home", seed, rounds=2, calls=15)
    assert stress.compared > 0


def until(true: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_port_that_is_taken_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    home = tmp_path / "home"
    with ms.connect(home) as db:
        db.execute(
            f"CREATE STREAM p (v INT, t INT) ORDER BY t WITH (connector = 'port', port = {port});"
            "CREATE STREAM s (v INT, t INT) ORDER BY t"
        )
        db.sql("SELECT v FROM p", name="q")
        db.sql("SELECT v FROM s", name="r")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with ms.connect(home) as db:
            until(lambda: "no longer read" in caplog.text)
            assert f"stream p is no longer read: cannot listen on 127.0.0.1:{port}" in caplog.text
            with pytest.raises(ms.ConnectorError, match="cannot listen"):
                db.query("q").fetch()
            db.push("s", [(1, 1)])
            assert db.query("r").fetch().num_rows == 1
            shown = {row["name"]: row["status"] for row in db.sql("SHOW STREAMS").fetch().to_pylist()}
            assert shown["s"] == "ready" and shown["p"].startswith("cannot listen")


def test_a_failed_query_is_shown(tmp_path: Path) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.sql("SELECT CAST(v AS TINYINT) AS w FROM s", name="bad")
        db.sql("SELECT v FROM s", name="good")
        db.push("s", [(1000, 1)])
        shown = {row["name"]: row["status"] for row in db.sql("SHOW QUERIES").fetch().to_pylist()}
        assert shown["good"] == "running" and shown["bad"] != "running"


def test_a_fault_of_ours_ends_one_query_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All queries see a push or none: an error that nobody expected stops its own query."""
    from millstream.hosts.embedded.operators import ComputeColumns

    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        queries = [db.sql(f"SELECT v + {i} AS v FROM s", name=f"q{i}") for i in range(3)]
        step, calls = ComputeColumns.step, 0

        def failing(self: Any, batch: Any) -> Any:
            nonlocal calls
            calls += len(batch) > 0
            if calls == 2:
                raise ZeroDivisionError("a fault")
            return step(self, batch)

        monkeypatch.setattr(ComputeColumns, "step", failing)
        db.push("s", [(1, 1)])
        db.push("s", [(2, 2)])
        found = []
        for query in queries:
            try:
                found.append(query.fetch().num_rows)
            except ms.EngineError as error:
                assert "ZeroDivisionError: a fault" in str(error)
        assert found == [2, 2]


STATEMENTS = {
    "start": ("SELECT v + 1 AS v FROM s", "q2"),
    "stop": ("STOP q", None),
    "declare": ("CREATE STREAM x (v INT, t INT) ORDER BY t", None),
    "derive": ("CREATE STREAM y AS SELECT v FROM s", None),
    "view": ("CREATE VIEW w AS SELECT v, count(*) AS n FROM s [RANGE 5] GROUP BY v", None),
    "table": ("CREATE TABLE names (k INT)", None),
    "drop": ("DROP STREAM spare", None),
    "set": ("SET batch_rows = 77", None),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_cannot_be_noted_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    text, name = STATEMENTS[statement]

    def listed(db: ms.Database) -> list[Any]:
        return [
            *(db.sql(f"SHOW {kind}").fetch().to_pylist() for kind in ("STREAMS", "TABLES", "VIEWS", "QUERIES")),
            db.config.batch_rows,
        ]

    def issue(db: ms.Database) -> None:
        if name is None:
            db.execute(text)
        else:
            db.sql(text, name=name)

    home = tmp_path / "home"
    with ms.connect(home) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t; CREATE STREAM spare (v INT, t INT) ORDER BY t")
        db.sql("SELECT v FROM s", name="q")
        before = listed(db)
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise ms.StateError("No space left on device")

            patch.setattr(FrameFile, "append", full)
            with pytest.raises(ms.StateError, match="No space"):
                issue(db)
        assert listed(db) == before
        issue(db)
        after = listed(db)
        assert after != before
    with ms.connect(home) as db:
        assert listed(db) == after


def test_a_statement_that_fails_is_not_kept(tmp_path: Path) -> None:
    """What was noted before it failed is taken back."""
    with ms.connect(tmp_path / "home", checkpoint_seconds=3600) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.sql("SELECT v FROM s", name="q")
        listener: Any = db.listener
        size = listener._journal.size()
        for wrong in ("DROP STREAM s", "CREATE STREAM s (v INT, t INT) ORDER BY t", "SET batch_rows = 'x'"):
            with pytest.raises(ms.MillstreamError):
                db.execute(wrong)
        assert listener._journal.size() == size
        db.push("s", [(1, 1)])
    with ms.connect(tmp_path / "home") as db:
        assert db.query("q").fetch().num_rows == 1


def test_settings_are_kept_unless_others_are_given(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with ms.connect(home, threads=1) as db:
        db.execute("SET batch_rows = 500; SET durability = 'disk'; SET jit = 'off'; RESET jit")
        listener: Any = db.listener
        assert listener._journal.durable
    with ms.connect(home) as db:
        assert (db.config.batch_rows, db.config.durability, db.config.jit) == (500, "disk", ms.connect().config.jit)
        listener = db.listener
        assert listener._journal.durable
    with ms.connect(home, batch_rows=7) as db:
        assert db.config.batch_rows == 7
    with ms.connect(home) as db:
        assert db.config.batch_rows == 500


def test_a_failed_close_releases_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    db = ms.connect(home, checkpoint_seconds=3600)
    db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
    db.sql("SELECT v FROM s", name="q")
    db.push("s", [(1, 1)])
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("millstream.session.journal.write_durably", full)
        with pytest.raises(ms.StateError, match="No space left"):
            db.close()
    with pytest.raises(ms.StateError, match="closed"):
        db.push("s", [(2, 2)])
    with ms.connect(home) as db:
        assert db.query("q").fetch()["v"].to_pylist() == [1]


def test_rows_are_taken_while_checkpoints_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    with ms.connect(home, checkpoint_seconds=0) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.sql("SELECT v FROM s", name="q")
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr("millstream.session.journal.write_durably", full)
            db.push("s", [(1, 1)])
            assert "cannot save a checkpoint" in caplog.text
        db.push("s", [(2, 2)])
    with ms.connect(home) as db:
        assert db.query("q").fetch()["v"].to_pylist() == [1, 2]

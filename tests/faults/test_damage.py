"""Damaged session directories: a wrong answer is never given silently, and repair keeps what is whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.session.frames import DamagedError, FrameFile, salvage
from millstream.session.journal import entries_of
from millstream.session.repair import repair
from tests.faults.damage import DIE, QUERIES, answers, damage
from tiers import examples


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("crashed") / "home"
    subprocess.run([sys.executable, "-c", DIE, str(home), repr(QUERIES)], check=True)
    return home


@pytest.fixture(scope="module")
def expected(crashed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    copy = tmp_path_factory.mktemp("expected") / "home"
    shutil.copytree(crashed, copy)
    return answers(copy)


def test_damage_is_noticed_or_harmless(crashed: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    """Any damage to any file: the session is refused with the file's name, or answers as if nothing had happened; only
    what the journal's end lacks may lack in the answers, as after a crash."""
    rng = random.Random(7)
    refused = sum(damage(crashed, expected, tmp_path / str(trial), rng) for trial in range(examples(150)))
    assert refused > examples(150) // 2


def test_repair_keeps_the_notes_before_the_damage(crashed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(crashed, home)
    (journal,) = home.glob("journal-*")
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 4
    journal.write_bytes(bytes(data))
    with pytest.raises(DamagedError, match="is damaged at byte"):
        ms.connect(home)
    report = "\n".join(repair(home))
    assert "are kept" in report and "whole notes" in report
    with ms.connect(home) as db:
        values = [row["v"] for row in db.query("plain").fetch().to_pylist()]
    assert values == list(range(len(values))) and 10 <= len(values) < 25
    assert (home / "damaged").is_dir()
    assert repair(home) == ["nothing is damaged"]


def test_repair_removes_a_query_whose_state_is_damaged_and_tells_its_sql(crashed: Path, tmp_path: Path) -> None:
    (manifest,) = crashed.glob("checkpoint-*/manifest.json")
    gone = set()
    for name, entry in entries_of(json.loads(manifest.read_text())).items():
        home = tmp_path / name.replace("/", "-")
        shutil.copytree(crashed, home)
        (path,) = home.glob(f"checkpoint-*/{entry.file}")
        data = bytearray(path.read_bytes())
        data[entry.start + entry.size // 2] ^= 1
        path.write_bytes(bytes(data))
        report = "\n".join(repair(home))
        assert f"is damaged at byte {entry.start}" in report
        with ms.connect(home) as db:
            running = {query.name for query in db.queries()}
        for name in set(QUERIES) - running:
            assert f"query {name} is lost with its state: {QUERIES[name]}" in report
            gone.add(name)
    assert gone == set(QUERIES)


def test_a_lost_current_is_not_an_empty_session(crashed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(crashed, home)
    (home / "CURRENT").unlink()
    with pytest.raises(DamagedError, match="CURRENT is damaged"):
        ms.connect(home)
    repair(home)
    with ms.connect(home) as db:
        assert {query.name for query in db.queries()} == set(QUERIES)


def test_what_a_crash_left_of_checkpoints_is_removed(crashed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(crashed, home)
    number = int((home / "CURRENT").read_text().split()[1])
    shutil.copytree(home / f"checkpoint-{number}", home / f"checkpoint-{number + 1}")
    (home / "journal-77").write_bytes(b"left")
    ms.connect(home).close()
    left = sorted(path.name for path in home.iterdir() if path.name.startswith(("checkpoint-", "journal-")))
    assert left == [f"checkpoint-{number + 1}", f"journal-{number + 1}"]


def test_a_checkpoint_writes_what_changed(tmp_path: Path) -> None:
    def written() -> tuple[int, int]:
        """Bytes of the newest states, and of all that the checkpoint has."""
        (place,) = tmp_path.glob("home/checkpoint-*")
        sizes = {int(path.name.removeprefix("states-")): path.stat().st_size for path in place.glob("states-*")}
        return sizes[max(sizes)], sum(sizes.values())

    with ms.connect(tmp_path / "home", checkpoint_seconds=3600) as db:
        db.execute("CREATE STREAM s (k BIGINT, t BIGINT) ORDER BY t")
        db.sql("SELECT k, sum(k) OVER (PARTITION BY k ROWS 3 PRECEDING) AS n FROM s WHERE t < 0 OR k >= 0", name="q")
        db.push("s", pa.table({"k": range(20_000), "t": range(20_000)}))
        db.query("q").fetch()
        db.checkpoint()
        first, _ = written()
        for turn in range(3):
            db.push("s", [(k, 20_000 + turn) for k in range(10)])
            db.query("q").fetch()
            db.checkpoint()
            newest, whole = written()
            assert newest < first / 5, (newest, first)
            assert whole >= first * 0.9


def test_files_are_private(crashed: Path) -> None:
    assert crashed.stat().st_mode & 0o777 == 0o700
    found = [path for path in crashed.rglob("*") if path.is_file()]
    assert {"tables.duckdb", "CURRENT"} <= {path.name for path in found}
    for path in found:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_failed_append_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FrameFile(tmp_path / "log", 3)
    log.append(b"one")
    real = os.write
    room = 10

    def full(handle: int, data: Any) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(28, "No space left on device")
        written = real(handle, bytes(data)[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ms.StateError, match="No space left"):
        log.append(b"two" * 100)
    monkeypatch.undo()
    log.append(b"three", b"rows")
    log.close()
    again = FrameFile(tmp_path / "log", 3)
    assert again.take() == [(b"one", b""), (b"three", b"rows")]
    again.close()


def test_every_bit_of_a_log_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = FrameFile(path, 1)
    for word in (b"a", b"bc", b""):
        log.append(word, word * 2)
    log.close()
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[at] ^= 1 << bit
            path.write_bytes(bytes(data))
            with pytest.raises(DamagedError):
                FrameFile(path, 1)
    path.write_bytes(whole)
    assert salvage(path, 1) == ([(b"a", b"aa"), (b"bc", b"bcbc"), (b"", b"")], None, 0)


def test_durable_appends_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda handle: synced.append(handle))
    with ms.connect(tmp_path / "disk", durability="disk") as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        before = len(synced)
        db.push("s", [(1, 1)])
        assert len(synced) > before
    synced.clear()
    with ms.connect(tmp_path / "process") as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.push("s", [(1, 1)])
    assert synced == []


def test_a_note_that_cannot_be_replayed_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-c", DIE, str(home), repr(QUERIES)], check=True)
    from millstream.session import persistent

    real = persistent.replay

    def failing(host: Any, note: dict[str, Any], rows: Any) -> None:
        if rows is not None and rows.column("v")[0].as_py() == 17:
            raise ValueError("cannot be")
        real(host, note, rows)

    monkeypatch.setattr(persistent, "replay", failing)
    with ms.connect(home) as db:
        assert [row["v"] for row in db.query("plain").fetch().to_pylist()] == [*range(17), *range(18, 25)]
    assert "push s could not be replayed (cannot be)" in caplog.text
    monkeypatch.undo()
    assert sorted(path.name for path in (home / "quarantine").iterdir()) == ["note-1.arrows", "note-1.json"]
    with ms.connect(home) as db:
        assert db.query("plain").fetch().num_rows == 0


def test_foreign_data_that_are_not_valid_are_refused_before_they_are_noted(tmp_path: Path) -> None:
    wrong = pa.table({"v": pa.array([b"\xff"]).view(pa.string()), "t": pa.array([2], pa.int32())})
    with ms.connect(tmp_path / "home") as db:
        db.execute("CREATE STREAM s (v VARCHAR, t INT) ORDER BY t")
        db.sql("SELECT v FROM s", name="q")
        db.push("s", [("a", 1)])
        with pytest.raises(ms.DataError, match="not valid Arrow data"):
            db.push("s", wrong)
        db.push("s", [("c", 3)])
        db.finish()
        assert db.query("q").fetch()["v"].to_pylist() == ["a", "c"]

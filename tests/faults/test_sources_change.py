"""Files that change, go or are replaced while a session is closed: noticed, or of no matter."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.connectors.files.marks import FileMarker, is_same


def lines(numbers: range) -> str:
    """Rows of a hundred bytes, so that what was read has a middle."""
    return "".join(f'{{"v": {i}, "t": {i}, "note": "{"-" * 75}"}}\n' for i in numbers)


def declare(db: ms.Database, data: Path, more: str = "") -> None:
    db.execute(f"CREATE STREAM s (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{data}'{more})")
    db.sql("SELECT v FROM s", name="q")


def values(db: ms.Database) -> list[int]:
    return db.query("q").fetch()["v"].to_pylist()


def half_read(home: Path, data: Path, crash: bool) -> None:
    """A session that has read some rows, closed or dead."""
    data.write_text(lines(range(1000)))
    with ms.connect(home.with_name("live"), batch_rows=100, checkpoint_seconds=3600) as db:
        declare(db, data)
        seen = 0

        def stop(_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == 3:
                db.interrupt()

        db.run(report=stop)
        if crash:
            shutil.copytree(home.with_name("live"), home)
    if not crash:
        shutil.copytree(home.with_name("live"), home)


def test_a_source_that_is_gone_after_its_end_is_not_missed(tmp_path: Path) -> None:
    data, home = tmp_path / "in.jsonl", tmp_path / "home"
    data.write_text(lines(range(10)))
    with ms.connect(tmp_path / "live", checkpoint_seconds=3600) as db:
        declare(db, data)
        db.run()
        shutil.copytree(tmp_path / "live", home)
    data.unlink()
    with ms.connect(home) as db:
        assert values(db) == list(range(10))
        db.finish()
    with ms.connect() as db, pytest.raises(ms.ConnectorError, match="no file at"):
        declare(db, tmp_path / "other.jsonl")


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("change", ["edit", "middle", "gone", "shorter", "longer", "touch", "other"])
def test_a_file_that_changed_is_noticed(tmp_path: Path, change: str, crash: bool) -> None:
    data, home = tmp_path / "in.jsonl", tmp_path / "home"
    half_read(home, data, crash)
    text = data.read_text()
    match change:
        case "edit":
            data.write_text(text.replace('"v": 7,', '"v": 8,', 1))
        case "middle":
            data.write_text(text.replace('"v": 150,', '"v": 151,'))
        case "gone":
            data.unlink()
        case "shorter":
            data.write_text(text[:40])
        case "longer":
            data.write_text(text + lines(range(1000, 1010)))
        case "touch":
            os.utime(data, ns=(1, 1))
        case "other":
            data.write_text(lines(range(5000, 6000)))
    if change in ("longer", "touch"):
        with ms.connect(home) as db:
            db.finish()
            assert values(db) == list(range(1010 if change == "longer" else 1000))
    elif crash:
        with pytest.raises(ms.StateError, match="no longer has the rows"):
            ms.connect(home)
        data.write_text(text)
        with ms.connect(home) as db:
            db.finish()
            assert values(db) == list(range(1000))
    else:
        with ms.connect(home) as db:
            found = values(db)
            assert 200 < len(found) < 400 and found == list(range(len(found)))
            with pytest.raises(ms.ConnectorError, match=r"not the file that was read before|no file at"):
                db.run()


def test_a_followed_file_that_is_replaced_is_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "in.jsonl"
    data.write_text(lines(range(10)))
    with ms.connect() as db:
        declare(db, data, ", follow = true, poll_ms = 10")
        found: list[int] = []

        def wait_for(count: int) -> None:
            until = time.monotonic() + 20
            while len(found) < count:
                assert time.monotonic() < until
                found.extend(values(db))
                time.sleep(0.01)

        wait_for(10)
        fresh = tmp_path / "in.new"
        fresh.write_text(lines(range(100, 150)))  # longer than the first, so its length tells nothing
        fresh.replace(data)
        wait_for(60)
        assert found == [*range(10), *range(100, 150)]
        assert "was replaced" in caplog.text


def test_a_followed_file_that_changed_in_its_middle_meanwhile_is_read_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, home = tmp_path / "in.jsonl", tmp_path / "home"
    data.write_text(lines(range(500)))
    with ms.connect(home) as db:
        declare(db, data, ", follow = true, poll_ms = 10")
        until = time.monotonic() + 20
        while db._host.streams["s"].rows < 500:  # type: ignore[attr-defined]
            assert time.monotonic() < until
            time.sleep(0.01)
        assert values(db) == list(range(500))
    data.write_text(lines(range(500)).replace('"v": 250,', '"v": 999,') + lines(range(500, 510)))
    with ms.connect(home):
        while "was replaced" not in caplog.text:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_mark_tells_a_change_anywhere(tmp_path: Path) -> None:
    path, data = tmp_path / "f", bytearray(os.urandom(3_000_000))
    path.write_bytes(data)
    growing, whole = FileMarker(path), FileMarker(path)
    marks = [growing.mark(1_000_000), growing.mark(2_500_000), whole.mark(0)]
    assert marks[1] == FileMarker(path, marks[0]).mark(2_500_000) == FileMarker(path).mark(2_500_000)
    os.utime(path, ns=(1, 1))
    assert all(is_same(path, mark) for mark in marks)
    for place, same in ((500_000, [False, False, False]), (2_000_000, [True, False, False])):
        changed = data.copy()
        changed[place] ^= 1
        path.write_bytes(changed)
        assert [is_same(path, mark) for mark in marks] == same
    path.write_bytes(data + b"more")
    assert [is_same(path, mark) for mark in marks] == [True, True, False]
    assert is_same(path, marks[1][:5]), "marks of older versions have no checksum of all that was read"

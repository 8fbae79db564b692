"""Reading fails, or DuckDB cannot write its file: an error of ours, and nothing is lost once the disk is well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from tests.faults.damage import DIE, QUERIES, answers
from tests.faults.failing_disk import FailingDisk


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with a checkpoint and a journal behind it, as its death leaves it."""
    home = tmp_path_factory.mktemp("crashed") / "home"
    subprocess.run([sys.executable, "-c", DIE, str(home), repr(QUERIES)], check=True)
    return home


def content(home: Path) -> dict[str, bytes]:
    """The files of a session; DuckDB's may be written to by opening it."""
    found = (path for path in home.rglob("*") if path.is_file() and not path.name.startswith(("lock", "tables")))
    return {str(path.relative_to(home)): path.read_bytes() for path in found}


def test_each_read_of_an_opening_fails_once(crashed: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(crashed, whole)
    expected = answers(whole)
    disk = FailingDisk(tmp_path, reads=True)
    with disk:
        shutil.copytree(crashed, tmp_path / "counted")
        disk.arm(-1)
        with ms.connect(tmp_path / "counted"):
            steps = list(disk.steps)
        opening = [number for number, (what, _) in enumerate(steps) if what == "read"]
        read = {Path(path).name.partition("-")[0] for what, path in steps if what == "read"}
        assert {"CURRENT", "journal", "states"} <= read
        for number in opening:
            home = tmp_path / "home"
            shutil.copytree(crashed, home)
            before = content(home)
            disk.arm(number, "eio")
            with pytest.raises(ms.MillstreamError) as caught:
                ms.connect(home)
            assert disk.failed_at is not None and "internal error" not in str(caught.value), disk.failed_at
            disk.heal()
            assert content(home) == before, "an opening that failed changed the directory"
            assert answers(home) == expected
            shutil.rmtree(home)


def test_a_source_that_cannot_be_read_is_reported_and_read_on(tmp_path: Path) -> None:
    data = tmp_path / "in.jsonl"
    data.write_text("".join(f'{{"v": {i}, "t": {i}}}\n' for i in range(200_000)))
    with FailingDisk(tmp_path, reads=True) as disk, ms.connect(batch_rows=1000) as db:
        db.execute(f"CREATE STREAM s (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{data}')")
        query = db.sql("SELECT v FROM s")
        disk.arm(10, "eio")
        with pytest.raises(ms.MillstreamError, match=r"in\.jsonl|Input/output"):
            db.run()
        disk.heal()
        db.finish()
        assert query.fetch()["v"].to_pylist() == list(range(200_000))


FULL = """
import os, resource, sys
import millstream as ms
home = sys.argv[1]
db = ms.connect(home, checkpoint_seconds=3600, durability=sys.argv[2])
db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t; CREATE TABLE t (i INT PRIMARY KEY, x VARCHAR)")
db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
query = db.sql("SELECT s.v, t.x FROM s JOIN t ON s.v = t.i", name="q")
db.push("s", [(1, 1)])
db.checkpoint()
most = max(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(home) for name in names)
resource.setrlimit(resource.RLIMIT_FSIZE, (most + (1 << 16), resource.RLIM_INFINITY))
failed = 0
for number in range(3, 9):
    try:
        db.execute(f"INSERT INTO t SELECT {number} * 1000000 + i.range, md5(i.range::VARCHAR) FROM t, "
                   "unnest(range(200000)) AS i(range) WHERE t.i = 1")
    except ms.MillstreamError as error:
        assert "internal error" not in str(error), error
        failed += 1
print(failed, flush=True)
try:
    print(db.sql("SELECT count(*) AS n FROM t").fetch().to_pylist()[0]["n"], flush=True)
except ms.MillstreamError:
    print("closed", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_duckdb_cannot_write_its_file(tmp_path: Path, durability: str) -> None:
    """No file may grow further: as on a disk that is full, DuckDB's writes fail below us."""
    home = tmp_path / "home"
    made = subprocess.run(
        [sys.executable, "-c", FULL, str(home), durability], check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    failed, count = made.stdout.split()
    assert int(failed) > 0, "nothing failed"
    with ms.connect(home) as db:
        found = db.sql("SELECT count(*) AS n FROM t").fetch().to_pylist()[0]["n"]
        assert found == 2 + 200_000 * (6 - int(failed)), "a statement that failed had an effect, or one had none"
        assert count in ("closed", str(found))
        db.push("s", [(2, 2)])
        assert db.query("q").fetch().to_pylist() == [{"v": 1, "x": "a"}, {"v": 2, "x": "b"}]


@pytest.mark.parametrize("hurt", ["header", "cut", "gone", "directory"])
def test_damage_to_the_file_of_tables_is_told(crashed: Path, tmp_path: Path, hurt: str) -> None:
    home = tmp_path / "home"
    shutil.copytree(crashed, home)
    with ms.connect(home) as db:
        db.execute("INSERT INTO names VALUES (1, 'a')")
    path = next(home.glob("tables*.duckdb"))
    match hurt:
        case "header":
            path.write_bytes(os.urandom(64) + path.read_bytes()[64:])
        case "cut":
            path.write_bytes(path.read_bytes()[:5000])
        case "gone":
            path.unlink()
        case "directory":
            path.unlink()
            path.mkdir()
    with pytest.raises(ms.MillstreamError) as caught:
        ms.connect(home).sql("SELECT * FROM names").fetch()
    assert "internal error" not in str(caught.value)


def test_errors_of_reading_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with FailingDisk(tmp_path, reads=True) as disk:
        disk.arm(1, "eio")
        assert path.read_bytes() == b"content"
        found: Any = disk.steps
        with pytest.raises(OSError, match="Input/output"):
            path.read_bytes()
        assert [what for what, _ in found] == ["read", "read"]

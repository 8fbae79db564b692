"""A process that is killed at any moment and started again has lost nothing and doubled nothing."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import millstream as ms

WORKER = """
import sys, millstream as ms
home, rows, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
db = ms.connect(home, checkpoint_seconds=0.2)
if not db.queries():
    db.execute("CREATE STREAM s (k INT, x BIGINT, ts TIMESTAMP) ORDER BY ts SLACK 3 SECONDS")
    db.sql("SELECT k, x, sum(x) OVER (PARTITION BY k RANGE 5 SECONDS PRECEDING) AS total FROM s", name="totals")
    db.sql("SELECT count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s", name="seen")
    # how many rows have arrived is asked of the session itself: the pushing side keeps no record
done = db._host.streams["s"].rows
while done < rows:
    part = [
        (i % 7, i, f"2026-01-01 00:{i // 57 % 60:02d}:{(i * 7) % 3 + i % 57:02d}")
        for i in range(done, min(done + step, rows))
    ]
    db.push("s", part)
    done += len(part)
    print(done, flush=True)
print("end", flush=True)
db.close()
"""


def run_until_done(home: Path, rows: int, step: int, rng: random.Random, kill: bool) -> int:
    """Run the worker, killing it at random moments, until it has pushed everything; how often it was killed."""
    kills = 0
    while True:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(home), str(rows), str(step)], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        wanted = rng.randint(1, max(2, rows // step // 2)) if kill else None
        ended = False
        for lines, line in enumerate(worker.stdout, 1):
            if line.strip() == "end":
                ended = True
            if wanted is not None and lines >= wanted and not ended:
                time.sleep(rng.random() * 0.01)
                worker.send_signal(signal.SIGKILL)
                kills += 1
                break
        worker.wait()
        if ended:
            return kills
        kill = kill and kills < 6


def results(home: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    with ms.connect(home) as db:
        db.finish()
        return db.query("totals").fetch().to_pylist(), db.query("seen").fetch().to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_while_pushing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    assert run_until_done(tmp_path / "calm", 400, 10, rng, kill=False) == 0
    kills = run_until_done(tmp_path / "rough", 400, 10, rng, kill=True)
    assert kills > 0
    calm, rough = results(tmp_path / "calm"), results(tmp_path / "rough")
    assert calm == rough
    assert len(rough[1]) + late_rows(tmp_path / "rough") == 400


def late_rows(home: Path) -> int:
    with ms.connect(home) as db:
        return int(db._host.streams["s"].late)  # type: ignore[attr-defined]


def five_pushes(home: Path) -> None:
    """What a session leaves that dies after five pushes."""
    with ms.connect(home.with_name("live"), checkpoint_seconds=3600) as db:
        db.execute("CREATE STREAM s (x INT, ts TIMESTAMP) ORDER BY ts")
        db.sql("SELECT sum(x) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM s", name="totals")
        for i in range(5):
            db.push("s", [(i, f"2026-01-01 00:00:0{i}")])
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(home.with_name("live"), home)
    shutil.rmtree(home.with_name("live"))


def test_torn_note_is_cut_off(tmp_path: Path) -> None:
    home = tmp_path / "home"
    five_pushes(home)
    whole = (home / "journal-0").read_bytes()
    last = len(whole) - whole.rfind(b'{"op": "push"') + 28
    for cut in (1, 7, 40, last - 1, last):
        five_pushes(home)
        (home / "journal-0").write_bytes(whole[:-cut])
        with ms.connect(home) as again:
            assert again.query("totals").fetch()["total"].to_pylist() == [0, 1, 3, 6]
    # a file that the system had made longer, without writing to it
    five_pushes(home)
    (home / "journal-0").write_bytes(whole + bytes(5000))
    with ms.connect(home) as again:
        assert again.query("totals").fetch()["total"].to_pylist() == [0, 1, 3, 6, 10]


def test_one_session_at_a_time(tmp_path: Path) -> None:
    with ms.connect(tmp_path), pytest.raises(ms.StateError, match="open in another session"):
        ms.connect(tmp_path)


def test_file_source_resumes_where_it_was(tmp_path: Path) -> None:
    data = tmp_path / "in.jsonl"
    lines = [
        json.dumps({"x": i if i % 50 else "bad", "ts": f"2026-01-01 00:{i // 60:02d}:{i % 60:02d}"}) for i in range(600)
    ]
    data.write_text("\n".join(lines) + "\n")
    declare = f"CREATE STREAM s (x INT, ts TIMESTAMP) ORDER BY ts WITH (connector = 'file', path = '{data}')"
    query = "SELECT sum(x) OVER (ROWS 3 PRECEDING) AS total FROM s"

    whole = ms.connect(batch_rows=64)
    whole.execute(declare)
    expected = whole.sql(query).arrow()["total"].to_pylist()

    db = ms.connect(tmp_path / "home", batch_rows=64, checkpoint_seconds=3600)
    db.execute(declare)
    db.sql(query, name="q")
    db.sql("SELECT row FROM ERRORS(s)", name="wrong")
    seen = 0

    def stop_after_three(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            db.interrupt()

    db.run(report=stop_after_three)
    first = db.query("q").fetch()["total"].to_pylist()
    assert 0 < len(first) < len(expected)
    db.listener._journal.close()  # type: ignore[attr-defined,union-attr]  # gone without closing: only the journal is left

    again = ms.connect(tmp_path / "home", batch_rows=17)
    again.finish()
    assert first + again.query("q").fetch()["total"].to_pylist() == expected
    assert again.query("wrong").fetch().num_rows == 12

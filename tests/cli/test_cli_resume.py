"""Runs that are stopped, killed and resumed: nothing is lost and nothing comes twice."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import Invoke, Spawn

import millstream as ms
from millstream.cli.directory import RunDirectory
from millstream.cli.pipeline import start
from millstream.cli.revise import revise

PIPELINE = """\
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price DOUBLE, date_time TIMESTAMP) ORDER BY date_time SLACK 1 SECOND
    WITH (connector = 'file', path = 'bids.parquet');
CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts
    WITH (connector = 'file', path = 'quotes.csv');
CREATE SINK prices WITH (connector = 'file', path = '${out}/prices');
CREATE SINK alike WITH (connector = 'file', path = '${out}/both.jsonl', single_file = true);
INSERT INTO prices SELECT auction, price, date_time,
    sum(price) OVER (PARTITION BY auction RANGE 10 SECONDS PRECEDING) AS total,
    count(*) OVER (PARTITION BY bidder ROWS 99 PRECEDING) AS seen FROM bids;
INSERT INTO alike SELECT price, date_time FROM bids WHERE price > 5000
    UNION ALL SELECT price, ts FROM quotes WHERE price > 400;
"""
# small batches and many checkpoints: the run takes long enough to be hit anywhere
SLOW = ["-e", "embedded", "--conf", "batch_rows=200", "--conf", "checkpoint_seconds=0.1", "--conf", "jit=off"]
BIDS, QUOTES = 15_000, 6_000


@pytest.fixture
def pipeline(invoke: Invoke, tmp_path: Path) -> Path:
    made = invoke(
        "generate",
        "nexmark",
        "--table",
        "bid",
        "--rows",
        BIDS,
        "--out",
        "bids.parquet",
        "--disorder",
        "500 milliseconds",
    )
    assert made.exit_code == 0, made.stderr
    invoke("generate", "quotes", "--rows", QUOTES, "--out", "quotes.csv")
    (tmp_path / "p.sql").write_text(PIPELINE)
    return tmp_path / "p.sql"


def results(out: Path) -> tuple[pa.Table, list[str]]:
    return pq.read_table(out / "prices"), (out / "both.jsonl").read_text().splitlines()


@pytest.fixture
def expected(pipeline: Path, invoke: Invoke, tmp_path: Path) -> tuple[pa.Table, list[str]]:
    """What a run that nobody disturbs writes."""
    ran = invoke("run", "p.sql", "-e", "embedded", "--conf", "jit=off", "--var", "out=calm")
    assert ran.exit_code == 0, ran.stderr
    prices, both = results(tmp_path / "calm")
    assert prices.num_rows == BIDS
    assert len(both) > 100
    return prices, both


def wait_for_a_checkpoint(process: subprocess.Popen[str], state: Path, after: int) -> int:
    """The number of a checkpoint later than `after`, as soon as there is one, or as the process has ended."""
    while process.poll() is None:
        found = [int(path.name.split("-")[1]) for path in state.glob("checkpoint-*")]
        if max(found, default=0) > after:
            return max(found)
        time.sleep(0.01)
    return after


def check(got: tuple[pa.Table, list[str]], expected: tuple[pa.Table, list[str]]) -> None:
    assert got[0].num_rows == expected[0].num_rows
    assert got[0].equals(expected[0])
    assert got[1] == expected[1]


@pytest.mark.slow
def test_killed_at_random_moments(spawn: Spawn, tmp_path: Path, expected: tuple[pa.Table, list[str]]) -> None:
    chance = random.Random()
    state = tmp_path / "state"
    command = ["run", "p.sql", *SLOW, "--var", "out=rough", "--checkpoint", state]
    checkpoint, killed = 0, 0
    for _ in range(3):
        process = spawn(*command)
        checkpoint = wait_for_a_checkpoint(process, state, checkpoint + 1)
        time.sleep(chance.uniform(0, 0.3))
        killed += process.poll() is None
        process.kill()
        process.communicate()
    assert killed
    last = spawn(*command)
    _, err = last.communicate(timeout=300)
    assert last.returncode == 0, err
    check(results(tmp_path / "rough"), expected)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_in_good_order(
    spawn: Spawn, tmp_path: Path, expected: tuple[pa.Table, list[str]], number: signal.Signals, code: int
) -> None:
    state = tmp_path / "state"
    command = ["run", "p.sql", *SLOW, "--var", "out=rough", "--checkpoint", state]
    first = spawn(*command)
    wait_for_a_checkpoint(first, state, 2)
    first.send_signal(number)
    _, err = first.communicate(timeout=300)
    assert first.returncode == code, err
    assert "interrupted after" in err
    assert "Traceback" not in err
    half = results(tmp_path / "rough")
    assert 0 < half[0].num_rows < expected[0].num_rows
    second = spawn(*command)
    _, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    check(results(tmp_path / "rough"), expected)


def test_an_edited_pipeline_goes_on(invoke: Invoke, tmp_path: Path) -> None:
    lines = [f"{i % 3},{i},{i}" for i in range(1, 31)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("\n".join(["k,v,t", *lines[:20]]) + "\n")
    text = """\
CREATE STREAM s (k INT, v INT, t INT) ORDER BY t WITH (connector = 'file', path = 'in', format = 'csv', follow = true);
CREATE STREAM few AS SELECT k, v FROM s WHERE v > 0;
SELECT k, sum(v) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS total FROM few;
SELECT max(v) OVER (ROWS UNBOUNDED PRECEDING) AS high FROM s;
"""
    edited = (
        text.replace("AS total", "AS sum_of_all, k + 1 AS next /* one more */")
        .replace("v > 0", "v > 10 - 10")
        .replace(
            "SELECT max(v) OVER (ROWS UNBOUNDED PRECEDING) AS high FROM s;",
            "SELECT max(v) OVER (ROWS UNBOUNDED PRECEDING) AS top FROM s;\nSELECT v FROM few WHERE v > 29;",
        )
    )
    with ms.connect(tmp_path / "state") as db:
        start(db, text, lambda _: None)
        wait_for(lambda: db.query("q1"), 20)
    RunDirectory(tmp_path / "state", text)._write(started=True)
    directory = RunDirectory(tmp_path / "state", edited)
    assert directory.prepare()
    assert directory.is_edited
    with ms.connect(tmp_path / "state") as db:
        revise(db, edited, lambda _: None, directory.path)
        (tmp_path / "in" / "2.csv").write_text("\n".join(["k,v,t", *lines[20:]]) + "\n")
        rows = wait_for(lambda: db.query("q1"), 10)
        assert rows[-1] == {"k": 0, "sum_of_all": sum(range(3, 31, 3)), "next": 1}
        assert wait_for(lambda: db.query("q2"), 10)[-1] == {"top": 30}
        assert wait_for(lambda: db.query("q3"), 1) == [{"v": 30}]
        another = text.replace("ROWS UNBOUNDED PRECEDING) AS high", "ROWS 3 PRECEDING) AS high")
        with pytest.raises(ms.StateError, match="query q2 cannot continue with its state"):
            revise(db, another, lambda _: None, directory.path)
        with pytest.raises(ms.StateError, match="another pipeline"):
            revise(db, text.replace("path = 'in'", "path = 'out'"), lambda _: None, directory.path)


def wait_for(query: Callable[[], Any], count: int) -> list[dict[str, Any]]:
    """So many rows of a query whose source is followed."""
    rows: list[dict[str, Any]] = []
    for _ in range(300):
        rows += query().fetch().to_pylist()
        if len(rows) >= count:
            return rows
        time.sleep(0.05)
    raise AssertionError(f"{len(rows)} rows instead of {count}")


def test_a_finished_run_has_nothing_left_to_do_and_another_text_is_refused(
    pipeline: Path, invoke: Invoke, tmp_path: Path
) -> None:
    command = ["run", "p.sql", "-e", "embedded", "--conf", "jit=off", "--checkpoint", "state"]
    assert invoke(*command, "--var", "out=here").exit_code == 0
    first = results(tmp_path / "here")
    again = invoke(*command, "--var", "out=here")
    assert again.exit_code == 0, again.stderr
    check(results(tmp_path / "here"), first)
    other = invoke(*command, "--var", "out=there")
    assert other.exit_code == 1
    assert "belongs to a run of another pipeline" in other.stderr
    assert not (tmp_path / "there").exists()


def test_a_pipeline_that_does_not_start_can_be_mended(invoke: Invoke, pipeline: Path, tmp_path: Path) -> None:
    command = ["run", "p.sql", "-e", "embedded", "--checkpoint", "state", "--var", "out=here"]
    pipeline.rename(tmp_path / "right.sql")
    (tmp_path / "p.sql").write_text(PIPELINE + "SELECT nothing FROM bids;")
    assert invoke(*command).exit_code == 1
    # the same wrong text is wrong for the same reason, not because something is there already
    assert "no column nothing" in invoke(*command).stderr

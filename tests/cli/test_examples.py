"""The examples run as their comments say."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import ROOT

from tiers import THOROUGH


def run(example: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)], cwd=directory, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart(tmp_path: Path) -> None:
    shown = run("quickstart.py", tmp_path)
    assert "12.5" in shown.splitlines()[-1]
    assert len((ROOT / "examples/quickstart.py").read_text().splitlines()) <= 25


@pytest.mark.spark
def test_spark_quickstart(tmp_path: Path) -> None:
    shown = run("spark_quickstart.py", tmp_path)
    assert [line.split("|")[1].strip() for line in shown.splitlines() if "|    S" in line] == ["S0", "S1", "S2"]


@pytest.mark.spark
def test_spark_submit(tmp_path: Path) -> None:
    """A cluster's way to run a pipeline; a second run has nothing new to read and leaves everything as it is."""
    (tmp_path / "in").mkdir()
    start = dt.datetime(2026, 1, 1)
    rows = [("a", 10.0, 0), ("a", 12.0, 1), ("b", 5.0, 2), ("b", 5.1, 3), ("end", 0.0, 3600)]
    symbols, prices, seconds = zip(*rows, strict=True)
    times = pa.array([start + dt.timedelta(seconds=after) for after in seconds], pa.timestamp("us"))
    pq.write_table(pa.table({"symbol": symbols, "price": prices, "ts": times}), tmp_path / "in" / "1.parquet")
    submit = Path(sys.executable).with_name("spark-submit")
    job = [str(ROOT / "examples/spark_submit/job.py"), "in", "out", str(tmp_path / "checkpoint"), "--once"]
    for _ in range(2 if THOROUGH else 1):
        command = [str(submit), "--master", "local[2]", *job]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
    jumps = pa.concat_tables(pq.read_table(path) for path in (tmp_path / "out" / "jumps").glob("part-*"))
    means = pa.concat_tables(pq.read_table(path) for path in (tmp_path / "out" / "means").glob("part-*"))
    assert [(row["symbol"], row["price"]) for row in jumps.to_pylist()] == [("a", 12.0)]
    assert sorted(means.column("mean").to_pylist()) == [5.0, 5.05, 10.0, 11.0]

"""`millstream run` on Spark gives the rows that the embedded engine gives."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_tools import ROOT, Invoke, Spawn

pytestmark = pytest.mark.spark
AUCTIONS = ROOT / "examples/auctions/pipeline.sql"


def test_the_main_job_on_both_engines(invoke: Invoke, spawn: Spawn, tmp_path: Path) -> None:
    assert invoke("generate", "nexmark", "--rows", 20_000, "--seed", 3, "--out", "data").exit_code == 0
    on_spark = spawn("run", AUCTIONS, "--var", "data=data", "--var", "out=spark", "--master", "local[2]")
    here = invoke("run", AUCTIONS, "--var", "data=data", "--var", "out=here", "-e", "embedded")
    out, err = on_spark.communicate(timeout=900)
    assert (here.exit_code, on_spark.returncode) == (0, 0), err
    assert out == here.stdout
    assert "done after" in err
    assert "Traceback" not in err
    for sink in ("seller_activity", "item_prices"):
        assert pq.read_table(f"spark/{sink}").equals(pq.read_table(f"here/{sink}"))


def test_followed_files_are_interrupted_and_resumed(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "follow.sql").write_text(
        "CREATE STREAM s (a INT, b VARCHAR) WITH (connector = 'file', path = 'in', format = 'csv');\n"
        "CREATE SINK o WITH (connector = 'file', path = 'out');\nINSERT INTO o SELECT a * 10 AS t, b FROM s"
    )
    command = ["run", "follow.sql", "--master", "local[1]", "--streaming", "--checkpoint", "state"]
    for file, rows in (("b.csv", [10, 20, 30]), ("c.csv", [10, 20, 30, 40])):
        run = spawn(*command)
        wait_for_rows(tmp_path / "out", len(rows) - 1)
        (tmp_path / "in" / file).write_text(f"a,b\n{rows[-1] // 10},z\n")
        wait_for_rows(tmp_path / "out", len(rows))
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=900)
        assert run.returncode == 143, err
        assert committed(tmp_path / "out") == rows


def committed(out: Path) -> list[int]:
    """What a streaming query has written for good."""
    return sorted(value for part in out.glob("part-*") for value in pq.read_table(part)["t"].to_pylist())


def wait_for_rows(out: Path, count: int) -> None:
    give_up = time.monotonic() + 900
    while len(committed(out)) < count:
        assert time.monotonic() < give_up, f"no {count} rows in {out}"
        time.sleep(0.2)

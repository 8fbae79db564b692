"""The pipeline of examples/patterns, on both engines."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import ROOT, Invoke, Spawn

from tiers import THOROUGH

PIPELINE = ROOT / "examples/patterns/pipeline.sql"
MINUTE = dt.timedelta(minutes=1)


def make_clicks(invoke: Invoke, rows: int) -> None:
    made = invoke("generate", "clicks", "--rows", rows, "--rate", 10, "--seed", 5, "--out", "data/clicks.parquet")
    assert made.exit_code == 0, made.stderr


def bought(clicks: pa.Table) -> list[tuple[Any, ...]]:
    """What the pattern of the purchases means: a description, the first cart after it, the first payment after that."""
    sessions: dict[int, list[tuple[dt.datetime, int, str]]] = defaultdict(list)
    for row in clicks.to_pylist():
        sessions[row["SessNo"]].append((row["ClickTime"], row["PageNo"], row["PageType"]))
    found = []
    for number, rows in sessions.items():
        at = 0
        while at < len(rows):
            seen, page, kind = rows[at]
            carts = [i for i in range(at + 1, len(rows)) if rows[i][2] == "c"] if kind == "d" else []
            paid = [i for i in range(carts[0] + 1, len(rows)) if rows[i][2] == "p"] if carts else []
            if paid and rows[paid[0]][0] - seen <= MINUTE:
                found.append((number, page, seen, rows[carts[0]][0], rows[paid[0]][0], paid[0] - at + 1))
                at = paid[0]
            at += 1
    return sorted(found)


def rows_of(path: Path | str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pq.read_table(path).to_pylist())


def test_purchases_and_abandoned_carts(invoke: Invoke) -> None:
    make_clicks(invoke, 6_000)
    ran = invoke("run", PIPELINE, "-e", "embedded", "--var", "data=data", "--var", "out=out", "--limit", 5)
    assert ran.exit_code == 0, ran.stderr
    clicks = pq.read_table("data/clicks.parquet")
    purchases = rows_of("out/purchases")
    assert len(purchases) > 20
    assert purchases == bought(clicks)
    abandoned = rows_of("out/abandoned")
    assert len(abandoned) > 20
    paid = {(row["SessNo"], row["ClickTime"]) for row in clicks.to_pylist() if row["PageType"] == "p"}
    for session, _, seen, carted, _ in abandoned:
        assert not any(at == session and carted < when <= seen + MINUTE for at, when in paid)
    assert ran.stdout.splitlines()[0] == "SessNo\tadvertisement\tdescription\tbought"


@pytest.mark.spark
@pytest.mark.skipif(not THOROUGH, reason="starts Spark for what the main job shows too; `make thorough` runs it")
def test_the_pipeline_on_both_engines(invoke: Invoke, spawn: Spawn) -> None:
    make_clicks(invoke, 6_000)
    on_spark = spawn("run", PIPELINE, "--var", "data=data", "--var", "out=spark", "--master", "local[2]")
    here = invoke("run", PIPELINE, "--var", "data=data", "--var", "out=here", "-e", "embedded")
    out, err = on_spark.communicate(timeout=900)
    assert (here.exit_code, on_spark.returncode) == (0, 0), err
    assert out == here.stdout
    for sink in ("purchases", "abandoned"):
        assert rows_of(f"spark/{sink}") == rows_of(f"here/{sink}") != []

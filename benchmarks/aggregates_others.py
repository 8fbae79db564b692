"""A compiled aggregate per key against the same thing as a Python loop, in Bytewax, and in PySpark with pandas."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from aggregates_figures import interleaved
from aggregates_sql import BATCH_ROWS, Chain, Data, session

PER_KEY = "SELECT key, decay_online_avg(price) AS mean FROM bid GROUP BY key"


class PythonLoop:
    """The decayed average of each key, row by row, with a dictionary for each key: Arrow columns in, a column out."""

    def __init__(self) -> None:
        self.states: dict[int, dict[str, float]] = {}

    def step(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.array(self.run(rows.column("key").to_pylist(), rows.column("price").to_pylist()))

    def run(self, keys: list[int], prices: list[float]) -> list[float]:
        states, out = self.states, []
        for key, price in zip(keys, prices, strict=True):
            state = states.get(key)
            if state is None:
                states[key] = {"tsum": price, "cnt": 1}
                out.append(price)
            else:
                state["tsum"] = 0.9 * state["tsum"] + 1.1 * price
                state["cnt"] += 1
                out.append(state["tsum"] / state["cnt"])
        return out


def per_key(data: Data, rounds: int) -> dict[str, float]:
    """Rows per second of the compiled kernel and of the loop, which must agree."""
    with session() as db:
        chain = Chain(db, PER_KEY)
    loop, lists = PythonLoop(), PythonLoop()
    batches = data.batches(chain.columns)
    for batch in batches[:1]:
        ours, theirs = chain.step(batch).rows.column(-1), loop.step(batch.rows)
        assert ours.equals(theirs), "the loop and the kernel differ"
    given = [(batch.rows.column("key").to_pylist(), batch.rows.column("price").to_pylist()) for batch in batches[:2]]
    works: dict[str, list[Any]] = {
        "compiled": [lambda b=b: chain.step(b) for b in batches[:2]],
        "python loop": [lambda b=b: loop.step(b.rows) for b in batches[:2]],
        "python loop, lists given": [lambda pair=pair: lists.run(*pair) for pair in given],
    }
    return {name: BATCH_ROWS / seconds for name, seconds in interleaved(works, rounds).items()}


BYTEWAX = """
import json, random, sys, time
from datetime import datetime, timedelta, timezone

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main

rows, keys = int(sys.argv[1]), int(sys.argv[2])
start, chance, out = datetime(2024, 1, 1, tzinfo=timezone.utc), random.Random(7), []
given = [(str(chance.randrange(keys)), (start + timedelta(milliseconds=i), chance.random())) for i in range(rows)]

def fold(state, value):
    return (value[1], 1) if state is None else (0.9 * state[0] + 1.1 * value[1], state[1] + 1)

flow = Dataflow("decayed")
clock = win.EventClock(ts_getter=lambda value: value[0], wait_for_system_duration=timedelta(0))
windower = win.TumblingWindower(length=timedelta(seconds=10), align_to=start)
stream = op.input("in", flow, TestingSource(given, batch_size=1000))
folded = win.fold_window("fold", stream, clock, windower, lambda: None, fold, lambda a, b: b)
op.output("out", folded.down, TestingSink(out))
began = time.perf_counter()
run_main(flow)
print(json.dumps({"seconds": time.perf_counter() - began, "results": len(out)}))
"""
"""Folds the decayed average of each key over windows of 10 s; it delivers one result per window, not one per row."""


def bytewax(rows: int, keys: int, python: Path | None) -> tuple[float | None, str]:
    """Rows per second of Bytewax's fold_window, in an environment of its own, and how that came about."""
    with tempfile.TemporaryDirectory() as directory:
        if python is None:
            python = Path(directory) / "venv" / "bin" / "python"
            try:
                _run([sys.executable, "-m", "venv", str(Path(directory) / "venv")])
                _run([str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "bytewax"])
            except (subprocess.SubprocessError, OSError) as failure:
                return None, f"not installed: {str(getattr(failure, 'stderr', '') or failure).strip()[-200:]}"
        rates = []
        for _ in range(2):
            try:
                told = json.loads(_run([str(python), "-c", BYTEWAX, str(rows), str(keys)]).splitlines()[-1])
            except (subprocess.SubprocessError, OSError, ValueError, IndexError) as failure:
                return None, f"did not run: {str(getattr(failure, 'stderr', '') or failure).strip()[-200:]}"
            rates.append(rows / told["seconds"])
    return max(rates), f"{rows:,} rows, best of 2, {told['results']:,} results"


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def pandas_with_state(bench: Any) -> Any:
    """The decayed average per key with applyInPandasWithState, a row for each row, on the files of `bench`."""
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def decayed(key: tuple[int], frames: Any, state: Any) -> Any:
        tsum, cnt = state.get if state.exists else (None, 0)
        for frame in frames:
            means = []
            for price in frame["price"].tolist():
                tsum = price if tsum is None else 0.9 * tsum + 1.1 * price
                cnt += 1
                means.append(tsum / cnt)
            yield pd.DataFrame({"key": key[0], "mean": means})
        state.update((tsum, cnt))

    return (
        bench.frame(True)
        .groupBy("key")
        .applyInPandasWithState(
            decayed, "key LONG, mean DOUBLE", "tsum DOUBLE, cnt LONG", "append", GroupStateTimeout.NoTimeout
        )
    )


def on_spark(rows: int, keys: int, files: int, per_trigger: int, window: int) -> dict[str, float]:
    """Rows per second on local[2] of the SQL window average per key, of the built-in one, and of pandas with state."""
    from aggregates_sql import DECAYED_AVERAGE, EXPIRING_AVERAGE
    from millstream.hosts.spark.session import get_session
    from spark import Bench, make_files

    few_rows = max(400_000, rows // 10)
    over = f"OVER (PARTITION BY key ROWS {window - 1} PRECEDING)"
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as few:
        make_files(Path(directory), rows, keys, files)
        make_files(Path(few), few_rows, 1_000, 8)
        spark = get_session("local[2]", {"spark.millstream.filesPerTrigger": str(per_trigger)})
        try:
            bench = Bench(spark, Path(directory), rows, files, per_trigger)

            def ask(text: str, streaming: bool) -> Any:
                m = bench.declared(streaming)
                m.execute(EXPIRING_AVERAGE)
                m.execute(DECAYED_AVERAGE)
                return m.sql(text)

            texts = {
                "built-in avg": f"SELECT key, price, avg(price) {over} AS mean FROM quotes",
                "SQL aggregate": f"SELECT key, price, expiring_avg(price) {over} AS mean FROM quotes",
            }
            print("  warming up", flush=True)
            for text in texts.values():
                bench._micro_batches(ask(text, True), None)
            for name, text in texts.items():
                bench.stream(f"streaming: {name}", lambda text=text: ask(text, True))
            for name, text in texts.items():
                bench.batch(f"batch: {name}", lambda text=text: ask(text, False))
            small = Bench(spark, Path(few), few_rows, 8, 1)
            small.stream("streaming: applyInPandasWithState", lambda: pandas_with_state(small), batches=4)
            return bench.results | small.results
        finally:
            spark.stop()

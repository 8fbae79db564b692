"""GROUP BY over TUMBLE and HOP: rows a second for several aggregates, and how long each takes beside `count(*)`.

python benchmarks/window_groups.py [rows]
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

import millstream as ms

KEYS, WORDS, BATCH_ROWS, ROUNDS = 1_000, 5_000, 100_000, 3
AGGREGATES = (
    "count(*)", "sum(x)", "avg(n)", "stddev(x)", "min(x), max(x)", "min(word)", "max(word), last_value(word)",
)  # fmt: skip
WINDOWS = {"TUMBLE": "TUMBLE(s, t, 100000)", "HOP": "HOP(s, t, 10000, 100000)"}


def data(rows: int) -> pa.Table:
    chance = np.random.default_rng(3)
    words = np.array([f"{i * 7919 % WORDS:04d}-word" for i in range(WORDS)])
    return pa.table(
        {
            "k": chance.integers(0, KEYS, rows), "x": chance.normal(size=rows), "n": chance.integers(0, 10**12, rows),
            "word": pa.array(words[chance.integers(0, WORDS, rows)]), "t": np.arange(rows),
        }
    )  # fmt: skip


def seconds(table: pa.Table, aggregates: str, windows: str) -> float:
    """How long all rows take."""
    db = ms.connect(jit="on")
    db.execute("CREATE STREAM s (k BIGINT, x DOUBLE, n BIGINT, word VARCHAR, t BIGINT) ORDER BY t")
    query = db.sql(f"SELECT k, window_end, {aggregates} FROM {windows} GROUP BY k, window_end")
    start = time.perf_counter()
    for first in range(0, len(table), BATCH_ROWS):
        db.push("s", table.slice(first, BATCH_ROWS))
    db.finish()
    query.fetch()
    return time.perf_counter() - start


def main() -> None:
    table = data(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    for name, windows in WINDOWS.items():
        for aggregates in AGGREGATES:
            seconds(table.slice(0, 200_000), aggregates, windows)
        best = dict.fromkeys(AGGREGATES, float("inf"))
        for _ in range(ROUNDS):
            for aggregates in AGGREGATES:
                best[aggregates] = min(best[aggregates], seconds(table, aggregates, windows))
        for aggregates, took in best.items():
            rate, ratio = len(table) / took / 1e6, took / best["count(*)"]
            print(f"{name:6} {aggregates:28} {rate:6.2f} M rows/s  {ratio:5.2f} x count(*)")


if __name__ == "__main__":
    main()

"""OVER aggregates in-process against DuckDB, Polars and a bare hand-written Numba loop, all in one run.

    python benchmarks/over.py [--rows 10000000] [--keys 10000] [--threads 2] [--repeat 3]

Every contender gets the same Arrow table (ts, key, price) in order of time and the same number of threads, and
returns one average per row. Machines are noisy: read the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

START = 1_700_000_000_000_000
RATE = 100_000
"""Rows per second of event time: 10 s hold 1 M rows, 100 per key with 10 K keys."""


def make_table(rows: int, keys: int) -> pa.Table:
    rng = np.random.default_rng(7)
    ts = START + np.arange(rows, dtype=np.int64) * (1_000_000 // RATE)
    return pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us")),
            "key": pa.array(rng.integers(0, keys, rows)),
            "price": pa.array(rng.random(rows) * 100),
        }
    )


def millstream(table: pa.Table, frame: str, threads: int) -> pa.Table:
    import millstream as ms

    with ms.connect(threads=threads) as db:
        db.register("quotes", table, time="ts")
        return db.sql(f"SELECT key, avg(price) OVER (PARTITION BY key {frame}) AS m FROM quotes").arrow()


def duckdb(table: pa.Table, frame: str, threads: int) -> pa.Table:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}")
    connection.execute("SET preserve_insertion_order = false")
    quotes = table  # noqa: F841 - found by name in the query
    clause = {
        "ROWS 49 PRECEDING": "ROWS BETWEEN 49 PRECEDING AND CURRENT ROW",
        "RANGE 10 SECONDS PRECEDING": "RANGE BETWEEN INTERVAL 10 SECONDS PRECEDING AND CURRENT ROW",
    }[frame]
    query = f"SELECT key, avg(price) OVER (PARTITION BY key ORDER BY ts {clause}) AS m FROM quotes"
    return connection.sql(query).to_arrow_table()


def polars(table: pa.Table, frame: str, threads: int) -> object:
    import polars as pl

    quotes = pl.from_arrow(table)
    assert isinstance(quotes, pl.DataFrame)
    if frame.startswith("ROWS"):
        return quotes.select("key", pl.col("price").rolling_mean(50, min_samples=1).over("key"))
    return quotes.select("key", pl.col("price").rolling_mean_by("ts", "10000001us").over("key"))


def polars_by_groups(table: pa.Table, frame: str, threads: int) -> object:
    """The other way of Polars; for a window of rows it has none."""
    import polars as pl

    if frame.startswith("ROWS"):
        return None
    quotes = pl.from_arrow(table)
    assert isinstance(quotes, pl.DataFrame)
    return quotes.rolling("ts", period="10000001us", group_by="key").agg(pl.col("price").mean())


def bare_loop(table: pa.Table, frame: str, threads: int) -> object:
    """What one would write by hand for exactly this job: dense keys, no NULLs, no disorder, no state kept."""
    ts = table["ts"].combine_chunks().view(pa.int64()).to_numpy()
    key = table["key"].combine_chunks().to_numpy()
    price = table["price"].combine_chunks().to_numpy()
    out = np.empty(len(ts))
    if frame.startswith("ROWS"):
        loops()[0](key, price, int(key.max()) + 1, 50, out)
    else:
        loops()[1](ts, key, price, int(key.max()) + 1, 10_000_000, out)
    return out


def loops() -> tuple[Callable[..., None], Callable[..., None]]:
    import numba as nb

    if _LOOPS:
        return _LOOPS[0]

    @nb.njit(nogil=True)
    def rows_loop(key, price, keys, size, out):  # type: ignore[no-untyped-def]
        ring = np.zeros((keys, size))
        total = np.zeros(keys)
        count = np.zeros(keys, np.int64)
        for i in range(len(key)):
            k = key[i]
            at = count[k] % size
            if count[k] >= size:
                total[k] -= ring[k, at]
            ring[k, at] = price[i]
            total[k] += price[i]
            count[k] += 1
            out[i] = total[k] / min(count[k], size)

    @nb.njit(nogil=True)
    def range_loop(ts, key, price, keys, width, out):  # type: ignore[no-untyped-def]
        n = len(ts)
        following = np.full(n, -1, np.int64)
        head = np.full(keys, -1, np.int64)
        tail = np.full(keys, -1, np.int64)
        total = np.zeros(keys)
        count = np.zeros(keys, np.int64)
        for i in range(n):
            k = key[i]
            if tail[k] >= 0:
                following[tail[k]] = i
            else:
                head[k] = i
            tail[k] = i
            total[k] += price[i]
            count[k] += 1
            while ts[head[k]] < ts[i] - width:
                total[k] -= price[head[k]]
                count[k] -= 1
                head[k] = following[head[k]]
            out[i] = total[k] / count[k]

    _LOOPS.append((rows_loop, range_loop))
    return _LOOPS[0]


_LOOPS: list[tuple[Callable[..., None], Callable[..., None]]] = []


def best(run: Callable[[], object], repeat: int) -> float:
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--keys", type=int, default=10_000)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(given.threads)
    small = make_table(100_000, given.keys)
    table = make_table(given.rows, given.keys)
    contenders = {
        "millstream": millstream,
        "duckdb": duckdb,
        "polars, over": polars,
        "polars, rolling": polars_by_groups,
        "bare numba loop (1 thread)": bare_loop,
    }
    print(f"{given.rows:,} rows, {given.keys:,} keys, {given.threads} threads, best of {given.repeat}")
    for frame in ("ROWS 49 PRECEDING", "RANGE 10 SECONDS PRECEDING"):
        print(f"\navg(price) OVER (PARTITION BY key {frame})")
        rates: dict[str, float] = {}
        for name, run in contenders.items():
            if run(small, frame, given.threads) is None:
                continue
            seconds = best(lambda run=run, frame=frame: run(table, frame, given.threads), given.repeat)
            rates[name] = given.rows / seconds
            print(f"  {name:<28}{rates[name] / 1e6:8.1f} M rows/s")
        ours = rates.pop("millstream")
        print("  millstream is " + ", ".join(f"{ours / rate:.2f}x {name}" for name, rate in rates.items()))


if __name__ == "__main__":
    main()

"""Groups of window tables over a registered DataFrame in a batch job: our kernels, and Spark SQL as one would write it.

    python benchmarks/spark_native.py [--rows 4000000] [--keys 1000,100000] [--rounds 3]

Both take turns; the best round counts. Processor time is that of Java and all Python workers, so it can be read on a
busy machine, too. `panes` is Spark SQL by hand: groups by pane, then each pane once for each of its windows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_pipeline import processor_seconds

START = 1_700_000_000_000_000
RATE = 10_000
CALLS = "count(*) AS n, sum(b) AS total, max(b) AS high"
WINDOWS = {
    "TUMBLE 10 s": ("TUMBLE(s, ts, 10 SECONDS)", 10, 10),
    "HOP 10 s by 1 s": ("HOP(s, ts, 1 SECOND, 10 SECONDS)", 10, 1),
}


def make_file(path: Path, rows: int, keys: int) -> None:
    rng = np.random.default_rng(7)
    ts = START + np.arange(rows) * (1_000_000 // RATE)
    table = pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
            "k": rng.integers(0, keys, rows),
            "b": rng.integers(0, 1_000_000, rows),
        }
    )
    pq.write_table(table, path, row_group_size=rows // 8)


def variants(spark: Any, path: Path, table: str, size: int, slide: int) -> dict[str, Callable[[], Any]]:
    from millstream.hosts.spark.build import PUT_TOGETHER
    from millstream.spark import Millstream

    def ours(together: str) -> Any:
        spark.conf.set(PUT_TOGETHER, together)
        m = Millstream(spark)
        m.register("s", spark.read.parquet(str(path)), time="ts")
        return m.sql(f"SELECT k, window_start, {CALLS} FROM {table} GROUP BY k, window_start, window_end")

    def frame() -> Any:
        return spark.read.parquet(str(path))

    def windows() -> Any:
        window = f"window(ts, '{size} seconds', '{slide} seconds')"
        return frame().selectExpr("k", f"{window} AS w", "b").groupBy("k", "w").agg(*_calls("count(*)", "b", "b"))

    def panes() -> Any:
        pane = f"floor(unix_micros(ts) / {slide}000000) AS p"
        put = frame().selectExpr("k", pane, "b").groupBy("k", "p").agg(*_calls("count(*)", "b", "b"))
        spread = put.selectExpr("k", f"explode(sequence(p - {size // slide - 1}, p)) AS w", "n", "total", "high")
        return spread.groupBy("k", "w").agg(*_calls("sum(n)", "total", "high"))

    return {
        "ours, rows travel": lambda: ours("false"),
        "ours, partials travel": lambda: ours("true"),
        "Spark SQL, window()": windows,
        "Spark SQL, panes": panes,
    }


def _calls(count: str, total: str, high: str) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(f"{count} AS n"), F.expr(f"sum({total}) AS total"), F.expr(f"max({high}) AS high")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--keys", default="1000,100000")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from millstream.hosts.spark.session import get_session

    spark = get_session("local[2]", {})
    try:
        for keys in map(int, arguments.keys.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "rows.parquet"
                make_file(path, arguments.rows, keys)
                for name, window in WINDOWS.items():
                    print(f"\n{name}, {keys:,} keys, {arguments.rows:,} rows", flush=True)
                    run(variants(spark, path, *window), arguments.rows, arguments.rounds)
    finally:
        spark.stop()


def run(made: dict[str, Callable[[], Any]], rows: int, rounds: int) -> None:
    best: dict[str, tuple[float, float]] = {}
    for number in range(rounds + 1):
        for name, make in made.items():
            before, began = processor_seconds(), time.perf_counter()
            make().write.format("noop").mode("overwrite").save()
            spent = time.perf_counter() - began, processor_seconds() - before
            if number:
                best[name] = min(best.get(name, spent), spent, key=lambda seconds: seconds[1])
    for name, (wall, processor) in best.items():
        print(f"  {name:<28} {rows / wall / 1e6:7.2f} M rows/s   {processor:6.2f} s of processor time", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""A pipeline of five queries over one source on Spark: one job, beside five separate streaming queries.

python benchmarks/spark_pipeline.py [--rows 1000000] [--files 4] [--cores 2] [--warm 1] [--rounds 3]

Both read the same Parquet files, one per micro-batch, and write Parquet. Separate queries run one after the other, each
with all cores. Both run to warm up over a tenth of the rows in as many files, as often as --warm says: Java spends
about half of its first dozens of micro-batches compiling, and whatever runs first pays for that. Then they run in turn,
and the median of the rounds counts. Printed are rows of input per second of wall time and of processor time (driver,
Java and workers), how often each input row was read, and the ratio. What was measured is printed at once.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.config import Config
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.session import get_session
from millstream.hosts.tables import TableStore
from millstream.session.database import Database

QUERIES = {
    "means": "SELECT k, avg(x) OVER (PARTITION BY k RANGE 10 SECONDS PRECEDING) AS mean FROM s",
    "counts": "SELECT k, count(*) AS n FROM "
    "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_end",
    "peaks": "SELECT k, max(x) OVER (PARTITION BY k ROWS 99 PRECEDING) AS peak FROM s WHERE x > 0.5",
    "large": "SELECT k, x, ts FROM s WHERE x > 0.99",
    "shares": "SELECT k, sum(x) AS total FROM "
    "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_end",
}


def write_input(folder: Path, rows: int, files: int) -> None:
    draw = np.random.default_rng(1)
    each = rows // files
    for number in range(files):
        first = number * each
        table = pa.table(
            {
                "k": draw.integers(0, 10_000, each, dtype=np.int32),
                "x": draw.random(each),
                "ts": pa.array(np.arange(first, first + each) * 1_000, pa.timestamp("us")),
            }
        )
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def session(spark: object, folder: Path, checkpoint: Path, out: Path, queries: dict[str, str]) -> Database:
    tables = TableStore()
    host = SparkHost(spark, tables.read, checkpoint=str(checkpoint), trigger={"availableNow": True})  # type: ignore[arg-type]
    database = Database(host, tables, Config())
    options = f"connector = 'file', path = '{folder}', follow = true"
    database.execute(f"CREATE STREAM s (k INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts WITH ({options})")
    for name, text in queries.items():
        database.execute(
            f"CREATE SINK {name} WITH (connector = 'file', path = '{out / name}'); INSERT INTO {name} {text}"
        )
    return database


def processor_seconds() -> float:
    """User and system time of this process, of Java and of the workers."""
    total = 0
    tree: dict[int, list[int]] = {}
    times: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parts = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            tree.setdefault(int(parts[1]), []).append(int(entry.name))
            times[int(entry.name)] = sum(int(part) for part in parts[11:15])
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += times.get(process, 0)
        waiting += tree.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def run(spark: object, folder: Path, place: Path, groups: list[dict[str, str]]) -> tuple[float, float, int]:
    """Seconds, processor seconds and rows read for groups of queries, each group one job, side by side in turn."""
    read = 0
    began, worked = time.perf_counter(), processor_seconds()
    for number, queries in enumerate(groups):
        database = session(spark, folder, place / f"checkpoint{number}", place / "out", queries)
        seen: list[int] = []
        database.run(report=lambda progress, seen=seen: seen.append(sum(progress.rows_in.values())))  # type: ignore[misc]
        read += seen[-1]
        database.close()
    return time.perf_counter() - began, processor_seconds() - worked, read


def written(folder: Path) -> dict[str, int]:
    return {
        name: sum(pq.read_metadata(path).num_rows for path in (folder / "out" / name).glob("part-*"))
        for name in QUERIES
    }


def told(name: str, run: tuple[float, float, int], rows: int) -> None:
    seconds, worked, read = run
    print(
        f"{name:>14}: {rows / seconds / 1e6:6.3f} M rows/s  {worked / rows * 1e6:7.2f} µs CPU a row  "
        f"each row read {read / rows:.0f} times  ({seconds:.1f} s)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    spark = get_session(f"local[{args.cores}]", {"spark.millstream.filesPerTrigger": "1"})
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        for name, rows in (("warm", args.rows // 10), ("in", args.rows)):
            (base / name).mkdir()
            write_input(base / name, rows, args.files)
        apart = [{name: text} for name, text in QUERIES.items()]
        print(f"{args.rows:,} rows in {args.files} micro-batches, {args.cores} cores", flush=True)
        ways = {"one job": [QUERIES], "five queries": apart}
        for number in range(args.warm):
            for name, groups in ways.items():
                run(spark, base / "warm", base / f"warm {name} {number}", groups)
        runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
        for number in range(args.rounds):
            for name, groups in ways.items():
                runs[name].append(run(spark, base / "in", base / f"{name} {number}", groups))
                told(name, runs[name][-1], args.rows)
            if written(base / f"one job {number}") != written(base / f"five queries {number}"):
                raise SystemExit("results differ")
    one, five = ([statistics.median(own) for own in zip(*runs[name], strict=True)] for name in ways)
    print(f"one job: {five[0] / one[0]:.2f} x the throughput, {one[1] / five[1]:.2f} x the processor time")
    print(f"peak memory of the driver: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()

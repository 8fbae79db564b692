"""How long rows take at fixed rates: streaming queries on Spark, ours and Spark's own, and the embedded engine.

    python benchmarks/spark_latency.py [--rates 10000,50000,100000] [--seconds 30] [--every 0.25] [--only ours]

Rows come in small files, one every so many seconds, at a fixed rate; a query takes all files that are there as soon as
it has done the ones before. The latency of a file is the time from when it was put there until the micro-batch that
read it was done. The query counts bids per auction in windows of 10 s every 2 s (NEXMark q5). Embedded, the same rows
are pushed, and the latency ends when the push has returned, with all results that it made final. Printed are p50, p99
and the longest of the second half of each run, which follows a short one to warm up. A query that cannot keep up shows
latencies that grow with `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from nexmark_spark import HOP_COUNT
from nexmark_spark_files import SCHEMAS, bids
from spark_stores import on_stores

SQL = HOP_COUNT.format(slide=2)
COLUMNS = ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS["bid"].items())
SPARK_COLUMNS = COLUMNS.replace("TIMESTAMPTZ", "TIMESTAMP")


def tell(name: str, latencies: list[float]) -> None:
    counted = np.array(latencies[len(latencies) // 2 :])
    p50, p99 = np.percentile(counted, [50, 99])
    print(f"  {name:<36} p50 {p50:8.3f} s   p99 {p99:8.3f} s   longest {counted.max():8.3f} s", flush=True)


def put(folder: Path, number: int, part: pa.Table) -> float:
    """Put a file there, as a whole; when that was."""
    pq.write_table(part, folder / f".{number:06d}")
    (folder / f".{number:06d}").rename(folder / f"{number:06d}.parquet")
    return time.time()


def embedded(parts: list[pa.Table], every: float) -> list[float]:
    latencies = []
    with ms.connect() as db:
        db.execute(f"CREATE STREAM bid ({COLUMNS}) ORDER BY date_time")
        query = db.sql(SQL)
        db.push("bid", parts[0])
        began = time.perf_counter()
        for number, part in enumerate(parts[1:], 1):
            due = began + number * every
            time.sleep(max(0.0, due - time.perf_counter()))
            db.push("bid", part)
            query.fetch()
            latencies.append(time.perf_counter() - due)
    return latencies


def streaming(make: Callable[[Path], Any], parts: list[pa.Table], every: float, counted: int) -> list[float]:
    """Latencies of the files; Spark counts so many rows of each. The first is there before the query starts."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "in"
        folder.mkdir()
        put(folder, 0, parts[0])
        writer = make(folder).writeStream.format("noop").option("checkpointLocation", f"{scratch}/checkpoint")
        query = writer.start()
        ends: dict[int, tuple[int, float]] = {}
        while not _read(query, ends):
            time.sleep(0.1)
        began, there = time.time(), []
        for number, part in enumerate(parts[1:], 1):
            time.sleep(max(0.0, began + number * every - time.time()))
            there.append(put(folder, number, part))
            _read(query, ends)
        while _read(query, ends) < counted * len(parts):
            time.sleep(0.1)
        query.stop()
    done = [end for _, (rows, end) in sorted(ends.items()) for _ in range(rows // counted)][1:]
    return [end - at for at, end in zip(there, done, strict=True)]


def _read(query: Any, ends: dict[int, tuple[int, float]]) -> int:
    """Note the rows and the end of each micro-batch; how many rows were read so far."""
    if not query.isActive:
        raise RuntimeError(str(query.exception()))
    for entry in (json.loads(progress.json) for progress in query.recentProgress):
        spent = entry["durationMs"]["triggerExecution"] / 1000
        ends[entry["batchId"]] = entry["numInputRows"], datetime.fromisoformat(entry["timestamp"]).timestamp() + spent
    return sum(rows for rows, _ in ends.values())


def ours(spark: Any, folder: Path) -> Any:
    from millstream.spark import Millstream

    m = Millstream(spark)
    options = f"connector = 'file', path = '{folder}', follow = TRUE"
    m.execute(f"CREATE STREAM bid ({COLUMNS}) ORDER BY date_time WITH ({options})")
    return m.sql(SQL)


def native(spark: Any, folder: Path) -> Any:
    from pyspark.sql import functions as F

    windows = F.window("date_time", "10 seconds", "2 seconds")
    rows = spark.readStream.schema(SPARK_COLUMNS).parquet(str(folder)).withWatermark("date_time", "0 seconds")
    return rows.groupBy(windows, "auction").count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="10000,50000,100000", help="rows per second")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--every", type=float, default=0.25, help="seconds between two files")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    from millstream.hosts.spark.session import get_session

    spark = get_session("local[2]", {})
    folders: list[Path] = []

    def kept(folder: Path) -> Path:
        folders[:] = [folder]
        return folder

    variants: dict[str, tuple[Callable[[Path], Any], bool]] = {"Spark host": (lambda folder: ours(spark, folder), True)}
    for name, make in on_stores(spark, "Spark's own", lambda: native(spark, folders[0])).items():
        variants[name] = (lambda folder, make=make: (kept(folder), make())[1], False)
    try:
        for rate in map(int, arguments.rates.split(",")):
            each = int(rate * arguments.every)
            count = int(arguments.seconds / arguments.every)
            parts = [bids(number * each, each) for number in range(count)]
            print(f"\n{rate:,} rows/s, {each:,} every {arguments.every} s for {arguments.seconds} s", flush=True)
            if arguments.only in "embedded":
                tell("embedded", embedded(parts, arguments.every))
            for name, (make, by_file) in variants.items():
                if arguments.only in name:
                    streaming(make, parts[:8], arguments.every, 1 if by_file else each)
                    tell(name, streaming(make, parts, arguments.every, 1 if by_file else each))
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())

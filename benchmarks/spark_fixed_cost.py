"""What a micro-batch costs before it has rows: our queries against Spark's own stateful ones, in one run on local[2].

    python benchmarks/spark_fixed_cost.py [--sizes 1,10000] [--files 12] [--only 1,2] [--kept files] [--phases]

Queries with one, two and three exchanges run over small files, one per micro-batch. All run once to warm up, then in
turn. Ours keep state in files of the checkpoint, in variables (RocksDB, with changelogs) or as one value for each
bucket (Spark's default store).
Printed are the median seconds of a micro-batch and the processor time that it took in all processes (Java, Python
workers), which other work of the machine disturbs less; then the ratios to Spark's own query on the better of its two
state stores: below 1 is cheaper. With --phases, also where Spark says that the time went.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_stores import PROVIDER, STORES, Make, on_stores

START = 1_700_000_000_000_000
SPAN = 20_000_000
"""Event time of a file: two windows end in every micro-batch."""
KEYS = 1_000
UNCHECKED = "spark.sql.streaming.unsupportedOperationCheck"
"""Off, so that DataFrames of ours with several exchanges may keep one value each, as jobs do."""

WINDOWS = """SELECT window_end AS t, key % {keys} AS key, count(*) AS n, sum(price) AS price
    FROM TUMBLE({of}, {time}, 10 SECONDS) GROUP BY window_start, window_end, key % {keys}"""
OF_KEYS = WINDOWS.format(of="quotes", time="ts", keys=KEYS)
OF_PARTS = WINDOWS.format(of=f"({OF_KEYS})", time="t", keys=100)
OF_TENTHS = WINDOWS.format(of=f"({OF_PARTS})", time="t", keys=10)
OURS = {1: OF_KEYS, 2: OF_PARTS, 3: OF_TENTHS}
"""By the number of exchanges."""


def make_files(directory: Path, rows: int, files: int) -> None:
    """Quotes in order of time, cut into files whose names tell the order."""
    rng = np.random.default_rng(7)
    for number in range(files):
        ts = START + number * SPAN + np.sort(rng.integers(0, SPAN, rows)) if rows > 1 else [START + number * SPAN]
        columns = {
            "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(rng.integers(0, KEYS, rows)),
            "price": pa.array(rng.random(rows) * 100),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number:05d}.parquet")


def ours(spark: Any, data: Path, exchanges: int, kept: str) -> Any:
    from millstream.spark import Millstream

    store = "RocksDB" if kept == "variables" else "default store"
    settings = {"spark.millstream.state": kept, PROVIDER: STORES[store], UNCHECKED: "false"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    m = Millstream(spark)
    m.execute(
        "CREATE STREAM quotes (ts TIMESTAMPTZ, key BIGINT, price DOUBLE) ORDER BY ts "
        f"WITH (connector = 'file', path = '{data}', follow = TRUE)"
    )
    return m.sql(OURS[exchanges])


def native(spark: Any, data: Path, exchanges: int) -> Any:
    from pyspark.sql import functions as F

    reader = spark.readStream.schema("ts TIMESTAMP, key BIGINT, price DOUBLE").option("maxFilesPerTrigger", 1)
    df = reader.parquet(str(data)).withWatermark("ts", "0 seconds")
    window = F.window("ts", "10 seconds")
    for keys in (KEYS, 100, 10)[:exchanges]:
        df = df.groupBy(window.alias("window"), F.expr(f"key % {keys}").alias("key"))
        df, window = df.agg(F.count("*").alias("n"), F.sum("price").alias("price")), F.col("window")
    return df


@dataclass
class Spent:
    """What the micro-batches of one query took."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """seconds of processor time for each micro-batch, the average of a run"""
    phases: dict[str, list[float]] = field(default_factory=dict)

    def note(self, entries: list[dict[str, Any]], processor: float) -> None:
        self.processor.append(processor / len(entries))
        for entry in entries[2:]:
            took = entry["durationMs"]
            self.seconds.append(took["triggerExecution"] / 1000)
            state = {f"state {name}": sum(op[name] for op in entry["stateOperators"]) for name in STATE_TIMES}
            for name, ms in {**took, **state}.items():
                self.phases.setdefault(name, []).append(ms)


STATE_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
"""Summed over the tasks of all stateful operators."""


def run_once(df: Any, spent: Spent | None) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        began = processor_time()
        writer = df.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = processor_time() - began
        entries = [json.loads(entry.json) for entry in query.recentProgress]
    if spent is not None:
        spent.note([entry for entry in entries if entry["numInputRows"]], took)


def processor_time() -> float:
    """Seconds of processor time of this process and all that it started, those included that have ended."""
    found: dict[int, tuple[int, int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                words = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(directory.name)] = int(words[1]), sum(map(int, words[11:15]))
    ticks, mine = 0, {os.getpid()}
    while mine:
        ticks += sum(found[process][1] for process in mine)
        mine = {process for process, (parent, _) in found.items() if parent in mine}
    return ticks / os.sysconf("SC_CLK_TCK")


def compare(variants: Mapping[str, Make], rounds: int, phases: bool) -> None:
    spent = {name: Spent() for name in variants}
    for number in range(rounds + 1):
        for name, make in variants.items():
            run_once(make(), spent[name] if number else None)
    for name, found in spent.items():
        seconds, processor = statistics.median(found.seconds), statistics.median(found.processor)
        print(f"  {name:<36} {seconds:7.3f} s   processor {processor:7.3f} s", flush=True)
        if phases:
            told = (f"{phase} {statistics.median(ms):.0f}" for phase, ms in found.phases.items())
            print(f"    {', '.join(told)} ms", flush=True)
    own = [found for name, found in spent.items() if name.startswith("Spark's own")]
    for name, found in spent.items():
        if found not in own and own:
            wall = statistics.median(found.seconds) / min(statistics.median(other.seconds) for other in own)
            cpu = statistics.median(found.processor) / min(statistics.median(other.processor) for other in own)
            print(f"  {name} / Spark's own: {wall:.2f} of its time, {cpu:.2f} of its processor time (wanted: 1.0)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,10000", help="rows of a micro-batch; one row is as good as none")
    parser.add_argument("--files", type=int, default=12, help="micro-batches of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="1,2,3", help="numbers of exchanges")
    parser.add_argument("--kept", default="files,variables,value", help="how ours keep state")
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    from millstream.hosts.spark.session import get_session

    given = dict(pair.split("=", 1) for pair in arguments.conf)
    spark = get_session("local[2]", {"spark.millstream.filesPerTrigger": "1", **given})
    try:
        for size in map(int, arguments.sizes.split(",")):
            with tempfile.TemporaryDirectory() as directory:
                data = Path(directory)
                make_files(data, size, arguments.files)
                for exchanges in map(int, arguments.only.split(",")):
                    print(f"\n{exchanges} exchanges, micro-batches of {size:,} rows", flush=True)
                    variants = {
                        f"ours, {kept}": lambda data=data, n=exchanges, kept=kept: ours(spark, data, n, kept)
                        for kept in arguments.kept.split(",")
                    }
                    variants |= on_stores(spark, "Spark's own", lambda data=data, n=exchanges: native(spark, data, n))
                    compare(variants, arguments.rounds, arguments.phases)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())

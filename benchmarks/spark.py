"""The Spark host against Spark's own operators, all on the same files, in one run on local[2].

    python benchmarks/spark.py [--sizes 10000,…,5000000] [--files 6] [--keys 10000] [--only declared,window]

For each size of micro-batches there are as many files of that size. Streaming variants read one per micro-batch: all
once to warm up, then in turn. Spark's own window runs on both of its state stores, and the better one counts. Machines
are noisy: read the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_stores import best_of, files_of, in_turn, micro_batches, on_stores

START = 1_700_000_000_000_000
RATE = 10_000
"""Rows per second of event time: 10 s hold 100 K rows, 10 per key with 10 K keys."""
RISING = """SELECT key, price_1, price FROM FILTER{DUR >= 3 SECONDS} (
    (SELECT key, price FROM quotes) FOLD{$2.key = $.key, $2.price > $.price, } (SELECT key, price FROM quotes))"""
"""a price that rises for three seconds, three quotes or so with 10 K keys"""
OVER = "OVER (PARTITION BY key RANGE 10 SECONDS PRECEDING)"


def make_files(directory: Path, rows: int, keys: int, files: int) -> None:
    """Quotes in order of time, cut into files whose names tell the order."""
    rng = np.random.default_rng(7)
    per_file = rows // files
    for number in range(files):
        first = number * per_file
        ts = START + np.arange(first, first + per_file, dtype=np.int64) * (1_000_000 // RATE)
        table = pa.table(
            {
                "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                "key": pa.array(rng.integers(0, keys, per_file)),
                "price": pa.array(rng.random(per_file) * 100),
            }
        )
        pq.write_table(table, directory / f"part-{number:05d}.parquet")


@dataclass
class Bench:
    """One session, one set of files; every variant runs on both."""

    spark: Any
    data: Path
    size: int
    files: int
    rounds: int
    results: dict[str, float] = field(default_factory=dict)

    # -- inputs ----------------------------------------------------------------------------------------------------

    def declared(self, streaming: bool) -> Any:
        """The files as a declared stream, read by the file connector."""
        from millstream.spark import Millstream

        m = Millstream(self.spark)
        follow = ", follow = TRUE" if streaming else ""
        m.execute(
            "CREATE STREAM quotes (ts TIMESTAMPTZ, key BIGINT, price DOUBLE) ORDER BY ts "
            f"WITH (connector = 'file', path = '{self.data}'{follow})"
        )
        return m

    def registered(self, streaming: bool) -> Any:
        """The same files as a DataFrame of Spark's."""
        from millstream.spark import Millstream

        m = Millstream(self.spark)
        m.register("quotes", self.frame(streaming), time="ts")
        return m

    def frame(self, streaming: bool) -> Any:
        if not streaming:
            return self.spark.read.parquet(str(self.data))
        reader = self.spark.readStream.schema("ts TIMESTAMP, key BIGINT, price DOUBLE")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.data))

    # -- running ---------------------------------------------------------------------------------------------------

    def stream(self, variants: dict[str, Callable[[], Any]]) -> None:
        """Rows per second of streaming queries."""
        for name, seconds in in_turn(variants, self.rounds).items():
            self.note(name, self.size / seconds, f"{seconds:.3f} s per micro-batch")

    def batch(self, name: str, make: Callable[[], Any]) -> None:
        """Rows per second of a batch job; the best of three, the first of which warms up."""
        spent = []
        for _ in range(3):
            began = time.perf_counter()
            make().write.format("noop").mode("overwrite").save()
            spent.append(time.perf_counter() - began)
        self.note(name, self.size * self.files / min(spent), "best of 3")

    def note(self, name: str, rate: float, how: str) -> None:
        self.results[name] = rate
        print(f"  {name:<44} {rate / 1e6:8.3f} M rows/s   ({how})", flush=True)

    def ratio(self, what: str, over: str, under: str, target: float) -> None:
        base = self.results.get(under) or best_of(self.results, under)
        if over in self.results and base is not None:
            print(f"  {what:<64} {self.results[over] / base:7.2f}x   (wanted: {target}x)")


def row_fed(bench: Bench) -> Any:
    """The same kernel fed by plain rows through transformWithStateInPandas: what the packed exchange saves."""
    import pandas as pd
    from pyspark.sql import functions as F
    from pyspark.sql.streaming import StatefulProcessor

    from millstream.kernels.batch import Batch
    from millstream.kernels.over.spec import Frame, OverSpec
    from millstream.kernels.saving import states as saving
    from millstream.plan.aggregate_calls import AggregateCall
    from millstream.schema import Field, Schema
    from millstream.types import BIGINT, DOUBLE, TIMESTAMPTZ

    schema = Schema((Field("ts", TIMESTAMPTZ), Field("key", BIGINT), Field("price", DOUBLE)))
    call = AggregateCall.over("total", "sum", "price", Frame("range", 10_000_000), False, DOUBLE)
    spec = OverSpec(schema, ("key",), (call,))

    class Rows(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("kernel", "saved BINARY")
            self.kernel = spec.build()

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            saved = self.state.get()
            state = self.kernel.open() if saved is None else saving.restore(self.kernel, bytes(saved[0]))
            for frame in rows:
                frame = frame.sort_values("ts", kind="stable")
                time_ = frame["ts"].to_numpy().astype("datetime64[us]").astype(np.int64)
                batch = pa.RecordBatch.from_arrays(
                    [
                        pa.array(time_).cast(pa.timestamp("us", "UTC")),
                        pa.array(frame["key"].to_numpy()),
                        pa.array(frame["price"].to_numpy()),
                    ],
                    schema=schema.arrow,
                )
                upto = int(time_[-1]) + 1
                out = self.kernel.step(state, Batch(batch, time_, np.arange(len(time_)), upto))
                yield pd.DataFrame(
                    {"key": out.rows.column(1).to_numpy(), "total": out.rows.column(3).to_numpy(zero_copy_only=False)}
                )
            self.state.update((saving.snapshot(self.kernel, state),))

        def close(self) -> None: ...

    bucketed = bench.frame(True).withColumn("bucket", F.expr("pmod(hash(key), 16)"))
    return bucketed.groupBy("bucket").transformWithStateInPandas(Rows(), "key BIGINT, total DOUBLE", "Append", "None")


def native_window(bench: Bench) -> Any:
    """Spark's nearest answer: a sum per key and hop, not per row."""
    from pyspark.sql import functions as F

    windows = F.window("ts", "10 seconds", "1 second")
    return bench.frame(True).withWatermark("ts", "0 seconds").groupBy("key", windows).agg(F.sum("price"))


def idle_keys(bench: Bench, idle: int, rows: int = 500_000, files: int = 8) -> float:
    """Seconds of a micro-batch of 10 K active keys while `idle` others, seen once, are kept in the state."""
    from millstream.spark import Millstream

    rng = np.random.default_rng(idle)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(files):
            key = 10_000 + np.arange(idle) if number == 0 else rng.integers(0, 10_000, rows)
            ts = START + (number * rows + np.arange(len(key))) * (1_000_000 // RATE)
            columns = {"ts": pa.array(ts).cast(pa.timestamp("us", "UTC")), "key": key, "price": rng.random(len(key))}
            pq.write_table(pa.table(columns), Path(directory) / f"part-{number:05d}.parquet")
        m = Millstream(bench.spark)
        m.execute(
            "CREATE STREAM quotes (ts TIMESTAMPTZ, key BIGINT, price DOUBLE) ORDER BY ts "
            f"WITH (connector = 'file', path = '{directory}', follow = TRUE)"
        )
        df = m.sql("SELECT key, avg(price) OVER (PARTITION BY key ROWS 10 PRECEDING) AS mean FROM quotes")
        spent = micro_batches(df)[3:]
    print(f"  {f'{idle:,} idle keys':<44} {statistics.median(spent):8.3f} s per micro-batch of {rows:,}", flush=True)
    return statistics.median(spent)


def run(bench: Bench, chosen: Callable[[str], bool]) -> None:
    sums = f"SELECT key, price, sum(price) {OVER} AS total FROM quotes"
    means = f"SELECT key, price, avg(price) {OVER} AS mean FROM quotes"
    declared, registered = bench.declared, bench.registered
    streaming = {
        "streaming: native filter": lambda: bench.frame(True).where("price > 50"),
        "streaming: declared, sum": lambda: declared(True).sql(sums),
        "streaming: declared, avg": lambda: declared(True).sql(means),
        "streaming: declared, FOLD": lambda: declared(True).sql(RISING),
        "streaming: registered, sum": lambda: registered(True).sql(sums),
        "streaming: plain rows, sum": lambda: row_fed(bench),
        **on_stores(bench.spark, "streaming: native window", lambda: native_window(bench)),
    }
    batch = {
        "batch: native filter": lambda: bench.frame(False).where("price > 50"),
        "batch: declared, sum": lambda: declared(False).sql(sums),
        "batch: registered, sum": lambda: registered(False).sql(sums),
    }
    print(f"\nmicro-batches of {bench.size:,} rows", flush=True)
    bench.stream({name: make for name, make in streaming.items() if chosen(name)})
    for name, make in batch.items():
        if chosen(name):
            bench.batch(name, make)
    few, many = (idle_keys(bench, count) for count in (30_000, 300_000)) if chosen("idle keys") else (0.0, 0.0)
    print("ratios")
    bench.ratio(
        "OVER sum per row / Spark's window of 10 s by 1 s", "streaming: declared, sum", "streaming: native window", 10
    )
    bench.ratio("packed / plain rows, registered", "streaming: registered, sum", "streaming: plain rows, sum", 3)
    bench.ratio("packed / plain rows, declared", "streaming: declared, sum", "streaming: plain rows, sum", 3)
    bench.ratio("declared / registered, streaming", "streaming: declared, sum", "streaming: registered, sum", 2)
    bench.ratio("declared / registered, batch", "batch: declared, sum", "batch: registered, sum", 2)
    bench.ratio("OVER avg / native filter, streaming", "streaming: declared, avg", "streaming: native filter", 0.2)
    if few:
        print(f"  {'a micro-batch with 10 times as many idle keys':<64} {many / few:7.2f}x   (wanted: at most 1.3x)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,400000,1000000,5000000", help="rows of micro-batches")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=6, help="micro-batches of a run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    from millstream.hosts.spark.session import get_session

    words = [word for word in arguments.only.split(",") if word]
    spark = get_session("local[2]", {"spark.millstream.filesPerTrigger": "1"})
    try:
        for size in map(int, arguments.sizes.split(",")):
            files = files_of(size, arguments.files)
            with tempfile.TemporaryDirectory() as data:
                make_files(Path(data), size * files, arguments.keys, files)
                bench = Bench(spark, Path(data), size, files, arguments.rounds)
                run(bench, lambda name: not words or any(word in name for word in words))
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())

"""Many standing selections in one streaming query of Spark's, which come and go while it runs, on local[2].

    python benchmarks/queries_spark.py [--queries 100000] [--rows 200000] [--apart 16]

The queries are rows of a table (CREATE QUERIES … INTO a sink): `symbol = $symbol AND price > $low`, about five matches
an event. Compared with one query that gives as many rows, over the same files, a file for each micro-batch. In the
middle a hundredth of the queries is dropped and as many are added, without a restart; all that was written is compared
with a join in DuckDB for each micro-batch. Then the same selections as separate streaming queries of Spark's, twice as
many each time, until a round takes too long. Events/s are by the time of micro-batches, medians of those behind the
first two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark import Millstream
from queries import MATCHES, PER_SYMBOL, symbols

WANTED = 0.3
FILES = 7
PATIENCE = 60.0


def put(folder: Path, number: int, queries: int, rows: int) -> None:
    """The events of a micro-batch."""
    draw, known = np.random.default_rng(number), symbols(queries)
    table = pa.table(
        {
            "symbol": known.take(pa.array(draw.integers(0, len(known), rows))),
            "price": draw.uniform(9, 10, rows),
            "t": np.arange(number * rows, (number + 1) * rows),
        }
    )
    pq.write_table(table, folder / f".{number}")
    (folder / f".{number}").rename(folder / f"{number:03d}.parquet")


def constants(count: int) -> Iterator[str]:
    """Statements that make the table of the queries: a row, then as many again until there are all."""
    yield "CREATE TABLE wanted (id BIGINT PRIMARY KEY, symbol VARCHAR, low DOUBLE)"
    yield "INSERT INTO wanted VALUES (0, 'S0', 0)"
    known, made = len(symbols(count)), 1
    while made < count:
        number = f"(id + {made})"
        # prices are below 10: of fifty queries with the same symbol, about five match
        low = f"CAST({number} * 7919 % 1000 AS DOUBLE) / {1_000 * MATCHES / PER_SYMBOL / 10}"
        yield (
            f"INSERT INTO wanted SELECT {number}, 'S' || CAST({number} % {known} AS VARCHAR), {low} "
            f"FROM wanted WHERE id < {count - made}"
        )
        made *= 2


def session(spark: Any, folder: Path, out: Path) -> Millstream:
    m = Millstream(spark)
    m.execute(f"""
        CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, t BIGINT) ORDER BY t
            WITH (connector = 'file', path = '{folder}', follow = true);
        CREATE SINK out WITH (connector = 'file', path = '{out}')""")
    return m


def fed(job: Any, folder: Path, args: argparse.Namespace, between: Any = lambda number: None) -> float:
    """Events/s of a job that gets a file for each micro-batch."""
    for number in range(FILES):
        between(number)
        put(folder, number, args.queries, args.rows)
        job.query.processAllAvailable()
    batches = [entry for entry in job.query.recentProgress if entry["numInputRows"]][2:]
    seconds = statistics.median(entry["durationMs"]["triggerExecution"] / 1e3 for entry in batches)
    job.stop()
    return float(args.rows / seconds)


def many(spark: Any, place: Path, args: argparse.Namespace) -> float:
    folder, out = place / "in", place / "out"
    folder.mkdir(parents=True)
    m, checker = session(spark, folder, out), duckdb.connect()
    for run in (m.execute, checker.execute):
        for statement in constants(args.queries):
            run(statement)
    m.execute("""
        CREATE QUERIES alerts INTO out AS
            SELECT q.symbol, price, t FROM wanted AS w, quotes AS q WHERE q.symbol = w.symbol AND price > w.low""")
    checker.execute("CREATE TABLE expected (query BIGINT, symbol VARCHAR, price DOUBLE, t BIGINT)")
    changed, expected = (
        max(args.queries // 100, 1),
        f"""
        INSERT INTO expected SELECT id, q.symbol, price, t FROM wanted AS w, read_parquet('{folder}/%03d.parquet') AS q
        WHERE q.symbol = w.symbol AND price > w.low""",
    )

    def between(number: int) -> None:
        if number:
            checker.execute(expected % (number - 1))
        if number in (3, 5):
            first, after = (number - 3) * changed, args.queries + number * changed
            for run in (m.execute, checker.execute):
                run(f"DELETE FROM wanted WHERE id >= {first} AND id < {first + changed}")
                run(
                    f"INSERT INTO wanted SELECT id + {after - first - changed}, symbol, low FROM wanted "
                    f"WHERE id >= {first + changed} AND id < {first + 2 * changed}"
                )

    job = m.start(checkpoint=str(place / "checkpoint"), trigger={"processingTime": "0 seconds"})
    rate = fed(job, folder, args, between)
    checker.execute(expected % (FILES - 1))
    written = f"SELECT * FROM read_parquet('{out}/part-*')"
    differ = f"(TABLE expected EXCEPT ALL {written}) UNION ALL ({written} EXCEPT ALL TABLE expected)"
    ((rows,),) = checker.sql(f"SELECT count(*) FROM ({written})").fetchall()
    ((differences,),) = checker.sql(f"SELECT count(*) FROM ({differ})").fetchall()
    print(f"  {rows:,} rows, {2 * changed:,} queries dropped and added in the middle: "
          f"{differences} differ from a join of each micro-batch (wanted 0)", flush=True)  # fmt: skip
    return rate


def one(spark: Any, place: Path, args: argparse.Namespace) -> float:
    folder, out = place / "in", place / "out"
    folder.mkdir(parents=True)
    m = session(spark, folder, out)
    m.execute("CREATE TABLE copies (n BIGINT)")
    m.execute("INSERT INTO copies VALUES " + ", ".join(f"({n})" for n in range(MATCHES)))
    m.execute("INSERT INTO out SELECT n, symbol, price, t FROM quotes, copies WHERE price > 0")
    job = m.start(checkpoint=str(place / "checkpoint"), trigger={"processingTime": "0 seconds"})
    return fed(job, folder, args)


def apart(spark: Any, place: Path, args: argparse.Namespace) -> None:
    """Separate streaming queries of Spark's own, until they take too long."""
    count = 1
    while count <= args.apart:
        folder = place / str(count) / "in"
        folder.mkdir(parents=True)
        put(folder, 0, args.queries, args.rows)
        begun, queries = time.perf_counter(), []
        for i in range(count):
            df = spark.readStream.schema("symbol STRING, price DOUBLE, t BIGINT").parquet(str(folder))
            writer = df.where(f"symbol = 'S{i}' AND price > 9.5").writeStream.format("parquet")
            writer = writer.option("checkpointLocation", f"{place}/{count}/checkpoint{i}")
            queries.append(writer.option("path", f"{place}/{count}/out{i}").trigger(availableNow=True).start())
        for query in queries:
            query.awaitTermination()
        spent = time.perf_counter() - begun
        print(
            f"  {count:5,} separate streaming queries: {args.rows / spent:12,.0f} events/s, all started anew",
            flush=True,
        )
        if spent > PATIENCE:
            print(f"  more than {PATIENCE:.0f} s for one file: they end here")
            return
        count *= 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--apart", type=int, default=128)
    args = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{args.queries:,} selections in one streaming query, {args.rows:,} events in a micro-batch", flush=True)
        rates = [many(spark, Path(scratch, "many"), args), one(spark, Path(scratch, "one"), args)]
        ratio = f"{rates[0] / rates[1]:.2f} of it (wanted {WANTED})"
        print(f"  {rates[0]:,.0f} events/s; one query with as many rows {rates[1]:,.0f}: {ratio}", flush=True)
        apart(spark, Path(scratch, "apart"), args)
    spark.stop()


if __name__ == "__main__":
    main()

"""NEXMark q5 and q8 embedded, on the Spark host, and by Spark's own streaming operators: the same files, one run.

    python benchmarks/nexmark_spark.py [--sizes 10000,100000,400000,1000000,5000000] [--files 10] [--warm 1]
        [--only q5,overlap]
    python benchmarks/nexmark_spark.py --memory 20000000

Spark runs on local[2] and reads one file per micro-batch, for each size of micro-batches. Queries run to warm up, once
or as often as --warm says (Java spends about half of its first dozens of micro-batches compiling), then in turn; the
rate is that of the median micro-batch, without the first of each run. Spark's own operators run on both of its state
stores, and the better one counts. Embedded reads all files from beginning to end, the best of some runs. Read the
ratios, not the rates. With --memory, only the embedded engine runs, and tells how much memory it has.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millstream as ms
from nexmark_spark_files import SCHEMAS, TIMES, make_files
from nexmark_spark_memory import watch_memory
from spark_stores import best_of, files_of, in_turn, on_stores

HOP_COUNT = """SELECT window_start, auction, count(*) AS num FROM HOP(bid, date_time, {slide} SECONDS, 10 SECONDS)
    GROUP BY window_start, window_end, auction"""
NEW_USERS = """SELECT P.id, P.name, P.window_start FROM (
    SELECT id, name, window_start, window_end FROM TUMBLE(person, date_time, 10 SECONDS)
    GROUP BY id, name, window_start, window_end
) AS P JOIN (
    SELECT seller, window_start, window_end FROM TUMBLE(auction, date_time, 10 SECONDS)
    GROUP BY seller, window_start, window_end
) AS A ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end"""
NEW_USERS_AT_EACH_INSTANT = """SELECT DISTINCT P.id, P.name
    FROM person [RANGE 10 SECONDS] AS P, auction [RANGE 10 SECONDS] AS A WHERE P.id = A.seller"""
TOTALS = """SELECT window_start, key, sum(price) AS total FROM HOP(quotes, ts, 1 SECOND, 10 SECONDS)
    GROUP BY window_start, window_end, key"""


@dataclass(frozen=True)
class Workload:
    """A query of ours, Spark's own form of it, and the ratios wanted to that."""

    tables: tuple[str, ...]
    sql: str
    native: Callable[[Bench], Any] | None
    embedded: float = 20
    host: float = 3


def native_hops(bench: Bench) -> Any:
    from pyspark.sql import functions as F

    windows = F.window("date_time", "10 seconds", "2 seconds")
    return bench.frame("bid").withWatermark("date_time", "0 seconds").groupBy(windows, "auction").count()


def native_overlap(bench: Bench) -> Any:
    from pyspark.sql import functions as F

    windows = F.window("ts", "10 seconds", "1 second")
    return bench.frame("quotes").withWatermark("ts", "0 seconds").groupBy(windows, "key").agg(F.sum("price"))


def native_new_users(bench: Bench) -> Any:
    from pyspark.sql import functions as F

    window = F.window("date_time", "10 seconds")
    person = bench.frame("person").withWatermark("date_time", "0 seconds").groupBy(window, "id", "name").count()
    auction = bench.frame("auction").withWatermark("date_time", "0 seconds").groupBy(window, "seller").count()
    joined = person.alias("P").join(
        auction.alias("A"), (F.col("P.id") == F.col("A.seller")) & (F.col("P.window") == F.col("A.window"))
    )
    return joined.select("P.id", "P.name", "P.window")


WORKLOADS: Mapping[str, Workload] = {
    "q5": Workload(("bid",), HOP_COUNT.format(slide=2), native_hops),
    "q8": Workload(("person", "auction"), NEW_USERS, native_new_users),
    "q8 at each instant": Workload(("person", "auction"), NEW_USERS_AT_EACH_INSTANT, None),
    "overlap": Workload(("quotes",), TOTALS, native_overlap, host=10),
}


@dataclass
class Bench:
    """One Spark session and one set of files for everything."""

    spark: Any
    data: Path
    files: int
    rounds: int
    warm: int
    counts: Mapping[str, int]
    rates: dict[str, float] = field(default_factory=dict)

    def rows(self, work: Workload) -> int:
        return sum(self.counts[table] for table in work.tables)

    # -- inputs ----------------------------------------------------------------------------------------------------

    def declare(self, db: Any, work: Workload, follow: bool) -> Any:
        """The files as declared streams."""
        for table in work.tables:
            options = f"connector = 'file', path = '{self.data / table}'" + (", follow = TRUE" if follow else "")
            columns = ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS[table].items())
            db.execute(f"CREATE STREAM {table} ({columns}) ORDER BY {TIMES[table]} WITH ({options})")
        return db

    def frame(self, table: str) -> Any:
        """The files as a streaming DataFrame of Spark's."""
        types = {"VARCHAR": "STRING", "TIMESTAMPTZ": "TIMESTAMP"}
        schema = ", ".join(f"{name} {types.get(type_, type_)}" for name, type_ in SCHEMAS[table].items())
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.data / table))

    # -- running ---------------------------------------------------------------------------------------------------

    def embedded(self, name: str, work: Workload) -> None:
        spent, results = [], 0
        for _ in range(self.rounds + 1):
            with ms.connect() as db:
                query = self.declare(db, work, follow=False).sql(work.sql)
                began = time.perf_counter()
                results = query.arrow().num_rows
                spent.append(time.perf_counter() - began)
        self.note(f"{name}: embedded", self.rows(work) / min(spent), f"best of {self.rounds}, {results:,} results")

    def streaming(self, work: Workload, variants: Mapping[str, Callable[[], Any]]) -> None:
        """Rows per second of streaming queries."""
        rows = self.rows(work) / self.files
        for name, seconds in in_turn(variants, self.rounds, self.warm).items():
            self.note(name, rows / seconds, f"{seconds:.3f} s per micro-batch of {rows:,.0f}")

    def note(self, name: str, rate: float, how: str) -> None:
        self.rates[name] = rate
        print(f"  {name:<40} {rate / 1e6:8.3f} M rows/s   ({how})", flush=True)

    def ratio(self, what: str, over: str, under: str, wanted: float) -> None:
        base = best_of(self.rates, under)
        if over in self.rates and base is not None:
            print(f"  {what:<56} {self.rates[over] / base:7.2f}x   (wanted: {wanted}x)", flush=True)


def run(bench: Bench, chosen: Callable[[str], bool]) -> None:
    from millstream.spark import Millstream

    for name, work in WORKLOADS.items():
        if not chosen(name):
            continue
        bench.embedded(name, work)
        variants = {
            f"{name}: Spark host": lambda work=work: bench.declare(Millstream(bench.spark), work, follow=True).sql(
                work.sql
            )
        }
        if work.native is not None:
            variants |= on_stores(bench.spark, f"{name}: Spark's own", lambda work=work: work.native(bench))
        bench.streaming(work, variants)
    print("ratios to Spark's own operators, streaming")
    for name, work in WORKLOADS.items():
        bench.ratio(f"{name}: embedded", f"{name}: embedded", f"{name}: Spark's own", work.embedded)
        bench.ratio(f"{name}: Spark host", f"{name}: Spark host", f"{name}: Spark's own", work.host)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", default="10000,100000,400000,1000000,5000000", help="bids or quotes of micro-batches"
    )
    parser.add_argument("--files", type=int, default=10, help="micro-batches of a run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--warm", type=int, default=1, help="runs of each query before those that count")
    parser.add_argument("--only", default="")
    parser.add_argument("--memory", type=int, default=0, metavar="ROWS")
    arguments = parser.parse_args()
    if arguments.memory:
        return watch_memory(arguments.memory)
    words = [word.strip() for word in arguments.only.split(",") if word]
    works = {name: work for name, work in WORKLOADS.items() if not words or name in words}
    tables = {table for work in works.values() for table in work.tables}
    from millstream.hosts.spark.session import get_session

    spark = get_session("local[2]", {"spark.millstream.filesPerTrigger": "1"})
    try:
        for size in map(int, arguments.sizes.split(",")):
            files = files_of(size, arguments.files)
            with tempfile.TemporaryDirectory() as data:
                counts = make_files(Path(data), size * files, files, tables)
                print(
                    f"\nmicro-batches of {size:,} bids, or quotes; {0.87 * size:,.0f} people and auctions", flush=True
                )
                bench = Bench(spark, Path(data), files, arguments.rounds, arguments.warm, counts)
                run(bench, lambda name: name in works)
    finally:
        spark.stop()
    return None


if __name__ == "__main__":
    sys.exit(main())

"""What a PySpark user does with Millstream's DataFrames: the same checks for classic sessions and for Spark Connect.

Each check takes a session and an empty directory, and asserts. Run as a program with the address of a Connect server
it connects, runs them all, and prints as JSON what went wrong, by name.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from millstream.errors import EngineError, UnsupportedError
from millstream.hosts.spark.meters import numbers_of
from millstream.spark import Millstream

T0 = dt.datetime(2026, 1, 1)
COLUMNS = "symbol STRING, price DOUBLE, ts TIMESTAMP_NTZ"
SUMS = "SELECT symbol, price, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total FROM quotes"

Row = tuple[Any, ...]
ROWS: list[Row] = [("a", 1.0, 1), ("b", 2.0, 2), ("a", 4.0, 3), ("b", 8.0, 30), ("a", 16.0, 31), ("a", 32.0, 60)]
TOTALS = {("a", 1.0, 1.0), ("b", 2.0, 2.0), ("a", 4.0, 5.0), ("b", 8.0, 8.0), ("a", 16.0, 16.0), ("a", 32.0, 32.0)}
PASSED = {row for row in TOTALS if row[1] < 32.0}
"""The totals of rows that time has passed when all have come."""


def is_remote(spark: Any) -> bool:
    return "connect" in type(spark).__module__


def timed(rows: list[Row]) -> list[Row]:
    return [(*row[:-1], T0 + dt.timedelta(seconds=row[-1])) for row in rows]


def put(folder: Path, number: int, rows: list[Row]) -> None:
    """A file of rows; the number makes it younger than those before it."""
    folder.mkdir(exist_ok=True)
    columns = zip(*timed(rows), strict=True)
    schema = pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("ts", pa.timestamp("us"))])
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table([list(column) for column in columns], schema=schema), path)
    os.utime(path, (number, number))


def quotes(spark: Any, folder: Path, rows: list[Row], files: int = 2) -> Any:
    """A streaming DataFrame that reads one file per micro-batch."""
    size = -(-len(rows) // files)
    for number in range(files):
        put(folder, number, rows[number * size : (number + 1) * size])
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def collected(df: Any) -> set[Row]:
    rows = [tuple(row) for row in df.collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


def to_the_end(writer: Any, folder: Path) -> Any:
    """Run a streaming query over all that is there."""
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return query


def stage_metrics(query: Any) -> list[dict[str, int]]:
    """What the only stage of a query told in each micro-batch that brought it rows."""
    told = []
    for entry in query.recentProgress:
        ((name, row),) = entry.observedMetrics.items()
        assert name == "millstream_stage_1", name
        told.append(numbers_of(row))
    return [entry for entry in told if entry["rows"]]


def a_static_dataframe(spark: Any, folder: Path) -> None:
    m = Millstream(spark)
    m.register("quotes", spark.createDataFrame(timed(ROWS), COLUMNS), time="ts")
    df = m.sql(SUMS)
    assert not df.isStreaming and df.columns == ["symbol", "price", "total"]
    assert collected(df) == TOTALS
    names = spark.createDataFrame([("a", "Ada"), ("c", "Cy")], "symbol STRING, name STRING")
    assert collected(df.join(names, "symbol").where("total > 4").select("name", "total")) == {
        ("Ada", 5.0), ("Ada", 16.0), ("Ada", 32.0)
    }  # fmt: skip
    df.createOrReplaceTempView("sums")
    counts = spark.sql("SELECT symbol, count(*), max(total) FROM sums GROUP BY symbol")
    assert collected(counts) == {("a", 4, 32.0), ("b", 2, 8.0)}
    m.register("names", names)
    running = "count(*) OVER (ROWS UNBOUNDED PRECEDING)"
    named = m.sql(f"SELECT name, {running} AS n FROM quotes q, names n WHERE q.symbol = n.symbol")
    assert collected(named) == {("Ada", n) for n in (1, 2, 3, 4)}


def a_memory_sink_and_what_a_listener_hears(spark: Any, folder: Path) -> None:
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Notes what stages tell in files."""

        def __init__(self, target: str) -> None:
            self.target = target

        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None:
            Path(self.target, "ended").touch()

        def onQueryProgress(self, event: Any) -> None:
            told = {name: row.asDict() for name, row in event.progress.observedMetrics.items()}
            Path(self.target, f"{event.progress.batchId}.json").write_text(json.dumps(told))

    (folder / "told").mkdir()
    m = Millstream(spark)
    m.register("quotes", quotes(spark, folder / "in", [*ROWS, ("a", 64.0, 5), ("b", 64.0, 99)]), time="ts")
    df = m.sql(SUMS)
    assert df.isStreaming
    listener = Listener(str(folder / "told"))
    spark.streams.addListener(listener)
    try:
        query = to_the_end(df.writeStream.format("memory").queryName("in_memory"), folder)
        until = time.monotonic() + 20
        while not (folder / "told" / "ended").exists() and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert collected(spark.table("in_memory")) == TOTALS
    told = stage_metrics(query)
    assert [(entry["rows"], entry["late"]) for entry in told] == [(4, 0), (4, 1)]
    assert told[-1]["waiting"] == 1 and told[-1]["state"] > 0
    heard = [json.loads(path.read_text()) for path in sorted((folder / "told").glob("*.json"))]
    ((name, first),) = heard[0].items()
    assert name == "millstream_stage_1" and first == told[0]
    assert heard[1][name] == told[1]


def a_view_a_join_and_foreach_batch(spark: Any, folder: Path) -> None:
    m = Millstream(spark)
    m.register("quotes", quotes(spark, folder / "in", ROWS), time="ts")
    m.sql(SUMS).createOrReplaceTempView("live_sums")
    names = spark.createDataFrame([("a", "Ada"), ("b", "Bo")], "symbol STRING, name STRING")
    joined = spark.sql("SELECT * FROM live_sums WHERE total > 4").join(names, "symbol").select("name", "total")
    target = str(folder / "out")

    def write(rows: Any, batch: int) -> None:
        rows.write.mode("append").parquet(target)

    to_the_end(joined.writeStream.foreachBatch(write), folder)
    full = {"a": "Ada", "b": "Bo"}
    assert collected(spark.read.parquet(target)) == {(full[row[0]], row[2]) for row in PASSED if row[2] > 4}


def declared_files(spark: Any, folder: Path) -> None:
    quotes(spark, folder / "in", ROWS)
    m = Millstream(spark)
    m.execute(f"""
        CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts
        WITH (connector='file', path='{folder / "in"}', follow=true)""")
    df = m.sql(SUMS)
    assert df.isStreaming
    to_the_end(df.writeStream.format("parquet").option("path", str(folder / "out")), folder)
    assert collected(spark.read.parquet(str(folder / "out"))) == PASSED


def a_generator_without_end(spark: Any, folder: Path) -> None:
    m = Millstream(spark)
    columns = "(symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts"
    m.execute(f"CREATE STREAM quotes {columns} WITH (connector='quotes', symbols=5, rate=100)")
    counts = "SELECT symbol, count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS n FROM quotes"
    if is_remote(spark):
        try:
            m.start({"counts": counts}, checkpoint=str(folder / "open"), open=True)
        except UnsupportedError as error:
            assert "Spark Connect" in error.message
        else:
            raise AssertionError("an open job on Spark Connect")
    spark.conf.set("spark.millstream.rowsPerTrigger", "600000")
    try:
        df = m.sql(f"SELECT symbol, n FROM ({counts}) WHERE n % 10000 = 0")
        query = to_the_end(df.writeStream.format("parquet").option("path", str(folder / "out")), folder)
    finally:
        spark.conf.unset("spark.millstream.rowsPerTrigger")
    took = [entry["rows"] for entry in stage_metrics(query)]
    assert took[0] == 600_000 and len(took) == 2
    found = collected(spark.read.parquet(str(folder / "out")))
    by_symbol = {symbol: sorted(n for other, n in found if other == symbol) for symbol, _ in found}
    assert len(by_symbol) == 5
    assert all(numbers == [10_000 * (i + 1) for i in range(len(numbers))] for numbers in by_symbol.values())
    assert sum(took) - 5 * 10_000 <= 10_000 * len(found) <= sum(took)


def late_rows(spark: Any, folder: Path) -> None:
    rows: list[Row] = [("a", 1.0, 10), ("b", 2.0, 50), ("c", 3.0, 20), ("d", 4.0, 55)]
    m = Millstream(spark)
    m.register("quotes", quotes(spark, folder / "in", rows), time="ts", slack="3 seconds")
    df = m.sql("SELECT symbol, price FROM LATE(quotes)")
    to_the_end(df.writeStream.format("parquet").option("path", str(folder / "out")), folder)
    assert collected(spark.read.parquet(str(folder / "out"))) == {("c", 3.0)}


def stages_beside_sparks_plan(spark: Any, folder: Path) -> None:
    m = Millstream(spark)
    m.register("quotes", quotes(spark, folder / "in", ROWS), time="ts")
    text = m.explain(SUMS)
    ours, _, sparks = text.partition("Spark plan")
    assert "on Spark, as a streaming query" in ours
    assert "[stage 1: packed exchange by symbol, kernel with bucketed state]" in ours
    # in local mode workers keep state themselves, in files
    stateful = "TransformWithState" if is_remote(spark) else "Exchange"
    assert all(part in sparks for part in (stateful, "MapInArrow", "FileSource", "millstream_stage_1"))


def the_calls_of_the_in_process_engine(spark: Any, folder: Path) -> None:
    quotes(spark, folder / "in", ROWS)
    db = ms.connect(spark=spark)
    db.execute(f"""
        CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts;
        CREATE STREAM filed (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts
        WITH (connector='file', path='{folder / "in"}')""")
    read = db.sql(SUMS.replace("quotes", "filed")).arrow()
    assert {tuple(row.values()) for row in read.to_pylist()} == TOTALS
    pushed = db.sql(SUMS)
    db.push("quotes", timed(ROWS))
    db.finish()
    assert {tuple(row.values()) for row in pushed.fetch().to_pylist()} == TOTALS
    db.close()


def part_files_of_a_streaming_query(spark: Any, folder: Path) -> None:
    quotes(spark, folder / "in", ROWS)
    db = ms.connect(spark=spark)
    db.execute(f"""
        CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts
        WITH (connector='file', path='{folder / "in"}', follow=true);
        CREATE SINK totals WITH (connector='file', path='{folder / "out"}', format='parquet');
        INSERT INTO totals {SUMS}""")
    host: Any = db._host
    (running,) = host._queries.values()
    query = host.start_streaming(running.program, str(folder / "checkpoint"), {"availableNow": True})
    assert query.awaitTermination(120)
    assert {tuple(row.values()) for row in pq.read_table(folder / "out").to_pylist()} == PASSED
    if is_remote(spark):
        unsunk = replace(running.program, sink=None)
        try:
            host.start_streaming(unsunk, str(folder / "another"))
        except EngineError as error:
            assert "cannot return rows" in str(error)
        else:
            raise AssertionError("rows of a query without a sink would be lost")
    db.close()


Check = Callable[[Any, Path], None]
CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        a_static_dataframe, a_memory_sink_and_what_a_listener_hears, a_view_a_join_and_foreach_batch, declared_files,
        a_generator_without_end, late_rows, stages_beside_sparks_plan, the_calls_of_the_in_process_engine,
        part_files_of_a_streaming_query,
    )
}  # fmt: skip


def main(address: str, names: list[str]) -> None:
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.builder.remote(address).getOrCreate()
    failures = {}
    for name in names or CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                CHECKS[name](spark, Path(folder))
            except BaseException:
                failures[name] = traceback.format_exc()
    print(json.dumps(failures))
    sys.stdout.flush()
    # closing channels in good order takes seconds that nobody needs
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

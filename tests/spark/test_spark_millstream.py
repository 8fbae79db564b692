"""The PySpark way: register DataFrames, get DataFrames."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.errors import BindError, CatalogError, EngineError
from millstream.spark import Millstream

pytestmark = pytest.mark.spark

T0 = dt.datetime(2026, 1, 1)


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


ROWS = [("IBM", 10.0, at(1)), ("SUN", 5.0, at(0)), ("IBM", 20.0, at(2)), ("IBM", 30.0, None), (None, 7.0, at(3))]
COLUMNS = "symbol STRING, price FLOAT, `event.time` TIMESTAMP_NTZ"


@pytest.fixture
def m(spark: Any) -> Millstream:
    return Millstream(spark)


def test_static_streams_and_tables(m: Millstream, spark: Any) -> None:
    m.register("quotes", spark.createDataFrame(ROWS, COLUMNS), time="event.time")
    m.register("names", spark.createDataFrame([("IBM", "big"), ("SUN", "blue")], "symbol STRING, name STRING"))
    m.execute("CREATE STREAM named AS SELECT q.symbol, n.name, price FROM quotes q, names n WHERE q.symbol = n.symbol")
    df = m.sql("SELECT name, sum(price) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS total FROM named")
    assert not df.isStreaming
    assert sorted(df.collect()) == [("big", 10.0), ("big", 30.0), ("blue", 5.0)]
    assert dict(df.dtypes) == {"name": "string", "total": "double"}
    tried = m.sql("SELECT TRY(CAST(symbol AS INT)) AS n, price FROM quotes WHERE TRY(CAST(symbol AS INT)) IS NULL")
    assert sorted(row.price for row in tried.collect()) == [5.0, 7.0, 10.0, 20.0]
    refused = m.sql("SELECT error, origin FROM ERRORS(quotes)").collect()
    assert refused == [("event.time is NULL, and orders the stream", "quotes")]
    assert "packed exchange by symbol" in m.explain(
        "SELECT count(*) OVER (PARTITION BY symbol ROWS 1 PRECEDING) FROM quotes"
    )


def test_rows_that_come_in_many_arrow_batches(m: Millstream, spark: Any) -> None:
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(size)
    try:
        spark.conf.set(size, "2")
        m.register("numbers", spark.range(20, numPartitions=3).selectExpr("id", "id DIV 2 AS at"), time="at")
        df = m.sql("SELECT id, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM numbers")
        assert sorted(df.collect()) == [(i, i + 1) for i in range(20)]
    finally:
        spark.conf.set(size, before)


def test_a_stored_table_of_our_own(m: Millstream, spark: Any) -> None:
    m.register("quotes", spark.createDataFrame(ROWS, COLUMNS), time="event.time")
    m.execute("CREATE TABLE limits (symbol VARCHAR, most DOUBLE); INSERT INTO limits VALUES ('IBM', 15)")
    df = m.sql("SELECT q.symbol, price FROM quotes q, limits l WHERE q.symbol = l.symbol AND price > most")
    assert df.collect() == [("IBM", 20.0)]


def test_a_session_in_another_time_zone(m: Millstream, spark: Any) -> None:
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        # an hour that New York's clocks skip: read as local times, these three would lose their distance
        times = [dt.datetime(2026, 3, 8, 1, 59, 59), dt.datetime(2026, 3, 8, 2, 30), dt.datetime(2026, 3, 8, 3, 0)]
        rows = [("a", float(i), time) for i, time in enumerate(times)]
        m.register("quotes", spark.createDataFrame(rows, COLUMNS), time="event.time")
        df = m.sql("SELECT price, count(*) OVER (RANGE 31 MINUTES PRECEDING) AS n FROM quotes")
        assert sorted(df.collect()) == [(0.0, 1), (1.0, 2), (2.0, 2)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_streaming_in_streaming_out(m: Millstream, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table(
        {"symbol": ["a", "b", "a", "a"], "price": [1.0, 2.0, 4.0, 8.0], "ts": [at(1), at(2), at(3), at(60)]},
        schema=pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("ts", pa.timestamp("us", "UTC"))]),
    )
    pq.write_table(table, tmp_path / "in" / "1.parquet")
    frame = spark.readStream.schema("symbol STRING, price DOUBLE, ts TIMESTAMP").parquet(str(tmp_path / "in"))
    m.register("quotes", frame, time="ts", slack="5 seconds")
    df = m.sql("SELECT symbol, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS s FROM quotes")
    assert df.isStreaming
    query = (
        df.writeStream.format("memory").queryName("sums").option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert sorted(spark.table("sums").collect()) == [("a", 1.0), ("a", 5.0), ("b", 2.0)]


TWICE = """SELECT window_end AS t, k % 3 AS part, sum(n) AS n FROM TUMBLE(
    (SELECT window_end AS t, k, count(*) AS n FROM TUMBLE(s, ts, 2 SECONDS) GROUP BY window_start, window_end, k),
    t, 6 SECONDS) GROUP BY window_start, window_end, k % 3"""


def test_a_checkpoint_says_how_many_buckets_there_are(spark: Any, tmp_path: Path) -> None:
    """A new one has as many as there are cores, and keeps them, also where the plan has clocks for more."""
    (tmp_path / "in").mkdir()
    declared = "CREATE STREAM s (k INT, ts TIMESTAMP) ORDER BY ts"
    parts = [
        pa.table({"k": [i * 7 % 10 for i in range(n, n + 40)], "ts": [at(i / 4) for i in range(n, n + 40)]})
        for n in (0, 40, 80)
    ]
    with ms.connect() as here:
        here.execute(declared)
        asked = here.sql(TWICE)
        for part in parts:
            here.push("s", part)
        expected = sorted(map(repr, asked.fetch().to_pylist()))
    assert len(expected) > 6
    place, found, told = tmp_path / "check", [], []

    def run() -> None:
        m = Millstream(spark)
        m.execute(f"{declared} WITH (connector = 'file', path = '{tmp_path / 'in'}', follow = TRUE)")
        writer = m.sql(TWICE).writeStream.option("checkpointLocation", str(place)).trigger(availableNow=True)
        query = writer.foreachBatch(lambda df, _: found.extend(df.toArrow().to_pylist())).start()
        query.awaitTermination()
        rounds = [entry.observedMetrics for entry in query.recentProgress if entry.numInputRows]
        told.extend(row["millstream_stage_1"].asDict() for row in rounds)

    for number, part in enumerate(parts):
        pq.write_table(part, tmp_path / "in" / f"{number}.parquet")
        run()
        assert (place / "millstream" / "buckets").read_text() == "2"
    assert sorted(map(repr, found)) == expected
    assert [metrics["rows"] for metrics in told] == [40, 40, 40]
    assert all(metrics["late"] == 0 < metrics["state"] and 0 <= metrics["waiting"] < 10 for metrics in told)
    state = place / "millstream" / "state"
    assert sorted(str(path.relative_to(state)) for path in state.glob("*/*")) == ["0/0", "0/1", "1/0", "1/1"]
    pq.write_table(parts[0], tmp_path / "in" / "3.parquet")
    spark.conf.set("spark.millstream.buckets", "8")
    try:
        with pytest.raises(Exception, match="the number of buckets changed"):
            run()
    finally:
        spark.conf.unset("spark.millstream.buckets")


def test_what_does_not_fit_is_said(m: Millstream, spark: Any) -> None:
    df = spark.createDataFrame(ROWS, COLUMNS)
    with pytest.raises(CatalogError, match="no column nosuch"):
        m.register("quotes", df, time="nosuch")
    with pytest.raises(CatalogError, match="cannot order a stream"):
        m.register("quotes", df, time="symbol")
    with pytest.raises(EngineError, match="no column of nested has an SQL type"):
        m.register("nested", spark.sql("SELECT array(make_interval(1)) AS xs"))
    with pytest.raises(CatalogError, match="two columns"):
        m.register("twice", spark.sql("SELECT 1 AS a, 2 AS A"))
    with pytest.raises(EngineError, match="without a time"):
        m.register("live", spark.readStream.format("rate").load())
    with pytest.raises(BindError):
        m.sql("SELECT x FROM nowhere")


def test_columns_of_other_types_pass_unless_they_are_used(m: Millstream, spark: Any) -> None:
    rows = "SELECT array(make_interval(1)) AS xs, 1 AS x, TIMESTAMP_NTZ '2026-01-01' AS ts, map('a', 1) AS m"
    rows += """, parse_json('{"k": [1, "z"]}') AS doc"""
    m.register("nested", spark.sql(rows), time="ts")
    assert [tuple(row) for row in m.sql("SELECT x, m['a'], m FROM nested").collect()] == [(1, 1, {"a": 1})]
    # a variant is JSON
    assert [tuple(row) for row in m.sql("SELECT doc, doc -> 'k' ->> 1 FROM nested").collect()] == [
        ('{"k":[1,"z"]}', "z")
    ]
    with pytest.raises(BindError, match="no column xs") as raised:
        m.sql("SELECT xs FROM nested")
    assert "array<interval>" in str(raised.value) and "select()" in str(raised.value)
    with pytest.raises(EngineError, match="xs is array<interval>"):
        m.register("nested", spark.sql(rows), time="xs")


def test_temporary_views_are_known_by_name(m: Millstream, spark: Any) -> None:
    m.register("quotes", spark.createDataFrame(ROWS, COLUMNS), time="event.time")
    text = "SELECT price, city FROM quotes JOIN listed_view ON symbol = name WHERE price <= 10"
    with pytest.raises(BindError, match="listed_view"):
        m.sql(text)
    spark.sql("SELECT 'IBM' AS name, 'Ulm' AS city").createOrReplaceTempView("listed_view")
    try:
        assert [tuple(row) for row in m.sql(text).collect()] == [(10.0, "Ulm")]
        spark.sql("SELECT 'SUN' AS name, 'Bonn' AS city").createOrReplaceTempView("listed_view")
        assert [tuple(row) for row in m.sql(text).collect()] == [(5.0, "Bonn")]
        spark.readStream.format("rate").load().createOrReplaceTempView("listed_view")
        with pytest.raises(EngineError, match="without a time"):
            m.sql(text)
    finally:
        spark.catalog.dropTempView("listed_view")


def test_settings_of_the_process_are_refused(m: Millstream, spark: Any) -> None:
    for statement in ("SET threads = 2", "SET jit = 'off'"):
        with pytest.raises(EngineError, match="in-process engine only"):
            m.execute(statement)
    with pytest.raises(EngineError, match="durability is a setting of the in-process engine only"):
        ms.connect(spark=spark, durability="disk")
    m.execute("SET rules = off")

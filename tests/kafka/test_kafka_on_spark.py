"""Kafka topics on Spark, against a real broker: as a declared stream, and as a DataFrame of Spark's own source.

Delta tables have no test of this kind: their newest release fails on Spark 4.3 when it reads a table (NoSuchMethodError
on the constructor of LogicalRDD). To `register` a DataFrame is a DataFrame, whatever it reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kafka_jars import Unavailable, spark_kafka_jars

import millstream as ms
from millstream.spark import Millstream

pytestmark = pytest.mark.spark

QUERY = """
SELECT symbol, price, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total,
       count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS n
FROM quotes"""
LAST = "last"
"""The symbol of a row that is later than all others, so that their time passes."""

SENT = int(time.time() * 1000)
"""The timestamp of a topic's first message."""

PATIENCE = 600
"""Seconds after which something that a machine with much else to do still has not done has failed."""

Row = tuple[Any, ...]


def send(topics: Any, topic: str, start: int, end: int, last: bool = False) -> None:
    """Rows a second apart, every third one four seconds early, in two partitions.

    Their timestamps differ: of two messages of one millisecond in two partitions nobody knows which came first, and the
    last row makes all after it late.
    """
    for number in range(start, end):
        at = 100 + number - (4 if number % 3 == 0 else 0)
        topics.send(topic, message(f"s{number % 4}", float(number), at), partition=number % 2, time=SENT + number)
    if last:
        topics.send(topic, message(LAST, 0.0, 3000), partition=0, time=SENT + end)


def message(symbol: str, price: float, second: int) -> str:
    when = f"2026-01-01 00:{second // 60:02d}:{second % 60:02d}"
    return json.dumps({"symbol": symbol, "price": price, "ts": when})


def declaration(topics: Any, topic: str, more: str = "") -> str:
    return f"""
        CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 30 SECONDS
        WITH (connector = 'kafka', brokers = '{topics.broker.address}', topic = '{topic}'{more})"""


def in_process(topics: Any, topic: str, query: str = QUERY) -> set[Row]:
    db = ms.connect()
    db.execute(declaration(topics, topic, ", end = 'latest'"))
    rows = [tuple(row.values()) for row in db.sql(query).arrow().to_pylist()]
    db.close()
    assert len(rows) == len(set(rows))
    return set(rows)


def test_a_bounded_topic(spark: Any, topics: Any) -> None:
    topic = topics.make(2)
    send(topics, topic, 0, 60, last=True)
    m = Millstream(spark)
    m.execute(declaration(topics, topic, ", end = 'latest'"))
    df = m.sql(QUERY)
    assert not df.isStreaming
    found = [tuple(row) for row in df.collect()]
    assert len(found) == 61 and set(found) == in_process(topics, topic)


def run(spark: Any, topics: Any, topic: str, folder: Path) -> Any:
    """A new session over the topic, from where the one before it ended, to what is there now."""
    db = ms.connect(spark=spark)
    db.execute(f"""
        {declaration(topics, topic)};
        CREATE SINK totals WITH (connector = 'file', path = '{folder / "out"}', format = 'parquet');
        INSERT INTO totals {QUERY}""")
    host: Any = db._host
    (running,) = host._queries.values()
    query = host.start_streaming(running.program, str(folder / "checkpoint"), {"availableNow": True})
    assert query.awaitTermination(PATIENCE) and query.exception() is None
    db.close()
    return query


def test_each_row_once_whatever_is_restarted(spark: Any, topics: Any, tmp_path: Path) -> None:
    topic = topics.make(2)
    send(topics, topic, 0, 40)
    spark.conf.set("spark.millstream.rowsPerTrigger", "16")
    try:
        query = run(spark, topics, topic, tmp_path)
        ends = [json.loads(json.loads(entry.sources[0].endOffset)["offset"]) for entry in query.recentProgress]
        assert [sum(end["partitions"].values()) for end in ends] == [16, 32, 40]
        # as if the process had died after the last micro-batch was written, but before Spark knew: it comes again
        done = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        done[-1].unlink()
        (done[-1].parent / f".{done[-1].name}.crc").unlink(missing_ok=True)
        send(topics, topic, 40, 70, last=True)
        query = run(spark, topics, topic, tmp_path)
        assert query.recentProgress[0].batchId == 2
    finally:
        spark.conf.unset("spark.millstream.rowsPerTrigger")
    found = [tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist()]
    expected = in_process(topics, topic)
    assert len(found) == len(set(found)) == 70
    assert set(found) == {row for row in expected if row[0] != LAST}


def test_a_derived_stream_over_a_topic_is_replaced_between_runs(spark: Any, topics: Any, tmp_path: Path) -> None:
    """Prices are powers of two, so a sum says which rows are in it. The last row of a run has its result later."""
    topic, m = topics.make(1), Millstream(spark)
    m.execute(declaration(topics, topic).replace(" SLACK 30 SECONDS", ""))
    m.execute("CREATE STREAM d AS SELECT price, ts FROM quotes")

    def run(first: int, end: int, *altered: str) -> list[Row]:
        for number in range(first, end):
            topics.send(topic, message("s", 2.0**number, 100 + number), partition=0, time=SENT + number)
        found: list[Row] = []
        m.start(
            {"total": "SELECT price, sum(price) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM d"},
            checkpoint=f"{tmp_path}/checkpoint",
            trigger={"availableNow": True},
            foreach_batch={"total": lambda frame, batch: found.extend(tuple(row) for row in frame.collect())},
            altered=altered,
        ).wait(PATIENCE)
        return sorted(found, key=lambda row: abs(row[0]))

    def sums(numbers: range, sign: int = 1) -> list[Row]:
        return [(sign * 2.0**i, sign * (2.0 ** (i + 1) - 1)) for i in numbers]

    assert run(0, 5) == sums(range(4))
    m.execute("CREATE OR REPLACE STREAM d AS SELECT -price AS price, ts FROM quotes")
    assert run(5, 8, "total") == sums(range(4, 7), -1)
    assert run(8, 9) == sums(range(7, 8), -1)
    m.close()


def test_a_dataframe_of_sparks_kafka_source(topics: Any, tmp_path: Path) -> None:
    try:
        jars = spark_kafka_jars()
    except Unavailable as reason:
        pytest.skip(str(reason))
    topic = topics.make(2)
    send(topics, topic, 0, 20, last=True)
    program = [sys.executable, str(Path(__file__).with_name("kafka_frame.py")), ",".join(map(str, jars))]
    done = subprocess.run(
        [*program, topics.broker.address, topic, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    expected = {row[:3] for row in in_process(topics, topic)}
    static, streamed = ([tuple(row) for row in told[name]] for name in ("static", "streamed"))
    assert len(static) == 21 and set(static) == expected
    assert len(streamed) == 20 and set(streamed) == {row for row in expected if row[0] != LAST}
    assert told["rounds"] >= 3


def test_a_dataframe_is_one_whatever_it_reads(spark: Any, tmp_path: Path) -> None:
    rows = "VALUES ('a', 1.0D, TIMESTAMP_NTZ '2026-01-01 00:00:01'), ('a', 2.0D, TIMESTAMP_NTZ '2026-01-01 00:00:02')"
    made = spark.sql(f"SELECT * FROM {rows} AS t (symbol, price, ts)")
    m = Millstream(spark)
    for form in ("parquet", "orc", "json"):
        path = str(tmp_path / form)
        made.write.format(form).save(path)
        m.register("quotes", spark.read.format(form).schema(made.schema).load(path), time="ts")
        assert sorted(map(tuple, m.sql(QUERY).collect())) == [("a", 1.0, 1.0, 1), ("a", 2.0, 3.0, 2)]


def test_a_topic_that_is_partitioned_by_key_needs_no_exchange(spark: Any, topics: Any, tmp_path: Path) -> None:
    topic, found = topics.make(2), []

    def run_job() -> Any:
        m = Millstream(spark)
        m.execute(declaration(topics, topic, ", partitioned_by = 'symbol'"))
        job = m.start(
            {"totals": QUERY},
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
            foreach_batch={
                "totals": lambda frame, _: found.extend(tuple(row.values()) for row in frame.toArrow().to_pylist())
            },
        )
        try:
            assert job.wait(PATIENCE)
        finally:
            job.stop()
        return job

    spark.conf.set("spark.millstream.rowsPerTrigger", "16")
    try:
        for begin, end in ((0, 40), (40, 60)):
            send(topics, topic, begin, end, last=end == 60)
            assert [stage.level for stage in run_job().graph.stages] == [0]
        # the other partition hears in the next micro-batch how far time has come in this one
        send(topics, topic, 60, 60, last=True)
        run_job()
        assert {row for row in found if row[0] != LAST} == {row for row in in_process(topics, topic) if row[0] != LAST}
        assert len(found) == len(set(found))
        topics.grow(topic, 3)
        send(topics, topic, 60, 61)
        with pytest.raises(ms.MillstreamError, match="has 3 partitions now, and had 2"):
            run_job()
    finally:
        spark.conf.unset("spark.millstream.rowsPerTrigger")

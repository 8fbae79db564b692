"""Streaming queries on Spark: several micro-batches, restarts, watermarks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cases import SECOND, TRADES, apply, as_rows, in_process, over, program, random_trades, source, stream, trades

from millstream.catalog import Clock, SinkDef, StreamDef
from millstream.errors import EngineError, StateError
from millstream.expressions.nodes import Call, Column, Literal
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.failures import translated
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.session import PROVIDER, ROCKSDB, check_streaming
from millstream.hosts.spark.sources import FILES_PER_TRIGGER
from millstream.kernels.over import Frame, OverSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Compute, Physical
from millstream.plan.aggregate_calls import AggregateCall
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR

pytestmark = pytest.mark.spark

SLACK = 3 * SECOND
NOW = {"availableNow": True}


class Inbox:
    """A directory that Spark follows, one file per micro-batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.count = 0
        folder.mkdir()

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        path = self.folder / f"{self.count:03d}.parquet"
        pq.write_table(pa.Table.from_batches([trades(rows)]), path)
        os.utime(path, (self.count, self.count))
        self.count += 1

    def frame(self) -> Any:
        reader = self.spark.readStream.schema("symbol STRING, price DOUBLE, ts TIMESTAMP_NTZ")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@pytest.fixture
def inbox(spark: Any, tmp_path: Path) -> Inbox:
    return Inbox(spark, tmp_path / "inbox")


def host_of(spark: Any, inbox: Inbox, plan: Physical, buckets: int = 3, slack: int = SLACK) -> SparkHost:
    host = SparkHost(spark, lambda node: pa.table({}), buckets=buckets)
    host.register_stream(stream(slack=slack), inbox.frame())
    host.start(program(plan))
    return host


def run(host: SparkHost, checkpoint: Path) -> list[tuple[Any, ...]]:
    """Let a query read all files that are there; what it delivered, and nothing but that."""
    query = host.start_streaming(host._queries["q"].program, str(checkpoint), NOW)
    query.awaitTermination()
    return as_rows(host.fetch("q"))


def passed(rows: list[tuple[Any, ...]], slack: int = SLACK) -> int:
    """Where the watermark ends: Spark counts whole milliseconds."""
    return (max(row[2] for row in rows) // 1000) * 1000 - slack


def test_two_stages_over_micro_batches_and_a_restart(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    rows = random_trades(120, 5, disorder=2 * SECOND)
    dear = Call(BOOLEAN, "<>", (Column(DOUBLE, "price"), Literal(DOUBLE, 13.0)))
    first = over()
    second = over((), first.output, suffix="2")
    plan = apply(second, apply(first, Compute(TRADES, source(), dear, None)))
    checkpoint = tmp_path / "checkpoint"
    for start in (0, 25):
        inbox.add(rows[start : start + 25])
    delivered = run(host_of(spark, inbox, plan), checkpoint)
    kept = [row for row in rows[:50] if row[1] is not None and row[1] != 13.0]
    expected = in_process(second, in_process(first, kept, passed(rows[:50])))
    assert delivered == expected and len(delivered) > 20
    inbox.add(rows[50:51])
    inbox.add(rows[51:])
    delivered += run(host_of(spark, inbox, plan), checkpoint)
    kept = [row for row in rows if row[1] is not None and row[1] != 13.0]
    assert delivered == in_process(second, in_process(first, kept, passed(rows)))


def test_a_filter_does_not_hold_time_back(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    rare = Call(BOOLEAN, "=", (Column(DOUBLE, "price"), Literal(DOUBLE, 7.0)))
    plan = apply(over(), Compute(TRADES, source(), rare, None))
    inbox.add([("a", 7.0, 10 * SECOND), ("a", 8.0, 90 * SECOND)])
    assert [row[1] for row in run(host_of(spark, inbox, plan), tmp_path / "checkpoint")] == [7.0]


def test_union_of_streams_waits_for_the_slower_one(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    other = Inbox(spark, tmp_path / "other")
    inbox.add([("a", 1.0, 10 * SECOND), ("b", 2.0, 50 * SECOND)])
    other.add([("c", 4.0, 10 * SECOND), ("d", 8.0, 20 * SECOND), ("e", 16.0, 5 * SECOND)])
    plan = apply(over(()), apply(MergeSpec(TRADES, 2), source(), source("others")))
    host = host_of(spark, inbox, plan, slack=0)
    host.register_stream(stream("others", slack=10 * SECOND), other.frame())
    assert [(row[0], row[3]) for row in run(host, tmp_path / "checkpoint")] == [("e", 1)]


def test_without_a_kernel_rows_flow_natively(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    rows = random_trades(20, 1)
    inbox.add(rows[:10])
    inbox.add(rows[10:])
    plan = Compute(TRADES, source(), Call(BOOLEAN, ">", (Column(DOUBLE, "price"), Literal(DOUBLE, 50.0))), None)
    host = host_of(spark, inbox, plan)
    df = host.to_dataframe(host._queries["q"].program)
    assert df.isStreaming and df.columns == list(TRADES.names)
    text = host.explain(host._queries["q"].program)
    assert "streaming query" in text and "MapInArrow" not in text and "EventTimeWatermark" not in text
    target = tmp_path / "out.csv"
    sunk = ReadyQuery("files", plan, ("a", "A", "ts"), SinkDef("out", {"connector": "file", "path": str(target)}))
    host.start_streaming(sunk, str(tmp_path / "checkpoint"), NOW).awaitTermination()
    written = spark.read.csv(str(target), header=True, schema="a STRING, A_2 DOUBLE, ts TIMESTAMP_NTZ").collect()
    assert sorted(row[1] for row in written) == sorted(row[1] for row in rows if row[1] is not None and row[1] > 50)


@pytest.fixture
def one_file_at_a_time(spark: Any) -> Iterator[None]:
    spark.conf.set(FILES_PER_TRIGGER, "1")
    yield
    spark.conf.unset(FILES_PER_TRIGGER)


def test_declared_files_through_a_kernel(spark: Any, inbox: Inbox, tmp_path: Path, one_file_at_a_time: None) -> None:
    from dataclasses import replace

    rows = random_trades(60, 9, disorder=SECOND)
    for start in (0, 20, 40):
        inbox.add(rows[start : start + 20])
    host = SparkHost(spark, lambda node: pa.table({}), buckets=2)
    options = {"connector": "file", "path": str(inbox.folder), "follow": True}
    host.declare(replace(stream(slack=SLACK), source=options))
    host.start(program(apply(over(), source())))
    assert run(host, tmp_path / "checkpoint") == in_process(over(), rows, passed(rows))


def test_arrival_is_the_time_of_a_stream_that_has_none(
    spark: Any, inbox: Inbox, tmp_path: Path, one_file_at_a_time: None
) -> None:
    rows = random_trades(30, 2)
    for start in (0, 10, 20):
        inbox.add(rows[start : start + 10])
    host = SparkHost(spark, lambda node: pa.table({}), buckets=2)
    options = {"connector": "file", "path": str(inbox.folder), "follow": True}
    host.declare(StreamDef("trades", TRADES, Clock.LATENT, source=options))
    counts = OverSpec(TRADES, ("symbol",), over().calls[:1])
    host.start(program(apply(counts, source())))
    as_if_timed = [(symbol, price, i) for i, (symbol, price, _) in enumerate(rows)]
    expected = [(*row[:2], row[3]) for row in in_process(counts, as_if_timed)]
    assert [(*row[:2], row[3]) for row in run(host, tmp_path / "checkpoint")] == expected


def test_whole_numbers_are_times_too(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    schema = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=BIGINT)
    inbox.add([("a", 1.0, 5 * SECOND), ("a", 2.0, 7 * SECOND), ("a", 4.0, 6 * SECOND), ("a", 8.0, 9 * SECOND)])
    frame = inbox.frame().selectExpr("symbol", "price", "unix_micros(CAST(ts AS TIMESTAMP)) DIV 1000000 AS ts")
    host = SparkHost(spark, lambda node: pa.table({}), buckets=2)
    host.register_stream(stream(slack=1, schema=schema), frame)
    total = AggregateCall.over("total", "sum", "price", Frame("range", 1), False, DOUBLE)
    host.start(program(apply(OverSpec(schema, ("symbol",), (total,)), source(schema=schema))))
    delivered = run(host, tmp_path / "checkpoint")
    assert [(row[2], row[3]) for row in delivered] == [(5, 1.0), (6, 5.0), (7, 6.0)]


def test_another_kernel_on_the_same_checkpoint_is_refused(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    inbox.add([("a", 1.0, 10 * SECOND), ("a", 1.0, 20 * SECOND)])
    run(host_of(spark, inbox, apply(over(), source())), checkpoint)
    inbox.add([("a", 1.0, 30 * SECOND)])
    with pytest.raises(StateError, match="another query"):
        try:
            run(host_of(spark, inbox, apply(over(keys=()), source())), checkpoint)
        except Exception as error:
            raise translated(error) from None
    # other names of its columns do not make it another one
    goes_on = run(host_of(spark, inbox, apply(over(suffix="2"), source())), checkpoint)
    assert [row[3] for row in goes_on] == [2]


def test_late_rows_come_from_late(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    inbox.add([("a", 1.0, 10 * SECOND), ("b", 2.0, 50 * SECOND)])
    inbox.add([("c", 3.0, 46 * SECOND), ("d", 4.0, 47 * SECOND), ("e", 5.0, 20 * SECOND)])
    host = host_of(spark, inbox, source(side="late"))
    assert sorted(row[0] for row in run(host, tmp_path / "checkpoint")) == ["c", "e"]


def test_progress_tells_what_stages_do(spark: Any, inbox: Inbox, tmp_path: Path) -> None:
    inbox.add([("a", 1.0, 10 * SECOND), ("b", 2.0, 50 * SECOND)])
    inbox.add([("c", 3.0, 46 * SECOND), ("d", 4.0, 49 * SECOND)])
    host = host_of(spark, inbox, apply(over(), source()))
    query = host.start_streaming(host._queries["q"].program, str(tmp_path / "checkpoint"), NOW)
    query.awaitTermination()
    rounds = [entry.observedMetrics for entry in query.recentProgress if entry.numInputRows]
    (name,) = rounds[0]
    assert name == "millstream_stage_1"
    told = [metrics[name].asDict() for metrics in rounds]
    assert [entry["rows"] for entry in told] == [2, 2] and [entry["late"] for entry in told] == [0, 1]
    assert [entry["waiting"] for entry in told] == [1, 2] and told[-1]["state"] > 0


def test_static_and_streaming_inputs_do_not_mix(spark: Any, inbox: Inbox) -> None:
    inbox.add([("a", 1.0, SECOND)])
    host = host_of(spark, inbox, apply(MergeSpec(TRADES, 2), source(), source("static")))
    host.declare(stream("static"))
    with pytest.raises(EngineError, match="both streaming and static"):
        host.to_dataframe(host._queries["q"].program)
    host.start(program(source("static"), "alone"))
    host.finish()
    assert host.fetch("alone").num_rows == 0
    with pytest.raises(EngineError, match="both streaming and static"):
        host.fetch("q")


def test_state_store_is_set_where_it_is_missing(spark: Any) -> None:
    try:
        spark.conf.unset(PROVIDER)
        spark.conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
        check_streaming(spark)
        assert spark.conf.get(PROVIDER) == ROCKSDB
    finally:
        spark.conf.set(PROVIDER, ROCKSDB)

"""Bounded runs on Spark: programs over pushed rows give what the same kernels give in-process."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from spark_cases import SECOND, TRADES, apply, as_rows, in_process, over, program, random_trades, source, stream, trades

from millstream.catalog import ERRORS_SCHEMA, Clock, StreamDef
from millstream.connectors.contract import Rejected
from millstream.errors import DataError, MillstreamError
from millstream.expressions.nodes import Call, Cast, Column, Literal
from millstream.hosts.spark.host import SparkHost
from millstream.kernels.streams.distinct import DistinctSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import SEVERAL_ROWS, Compute, StoredTable, TableJoin
from millstream.plan.nodes import TableHow, table_join_schema
from millstream.schema import Schema
from millstream.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTERVAL,
    NULL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
)

pytestmark = pytest.mark.spark

SYMBOL, PRICE, TS = Column(VARCHAR, "symbol"), Column(DOUBLE, "price"), Column(TIMESTAMP, "ts")
LISTED = Schema.of(name=VARCHAR, city=VARCHAR)
CITIES = pa.table({"name": ["S1", "S2", "S1", None], "city": ["Ulm", "Köln", "Bonn", "nowhere"]})


@pytest.fixture
def host(spark: Any) -> SparkHost:
    made = SparkHost(spark, lambda node: CITIES.select(list(node.schema.names)))
    made.declare(stream(slack=SECOND))
    return made


def listed(how: TableHow, residual: Any = None) -> TableJoin:
    table = StoredTable(
        LISTED, ("listed",), None, (("name", Column(VARCHAR, "name")), ("city", Column(VARCHAR, "city")))
    )
    schema = table_join_schema(TRADES, LISTED, how, "found")
    return TableJoin(schema, source(), table, ((SYMBOL, Column(VARCHAR, "name")),), residual, how, "found")


@pytest.mark.parametrize("buckets", [1, 3])
def test_kernels_by_key_and_in_one_place(spark: Any, buckets: int) -> None:
    host = SparkHost(spark, lambda node: CITIES, buckets=buckets)
    host.declare(stream(slack=5 * SECOND))
    rows = random_trades(300, 7, disorder=5 * SECOND)
    keyed, alone = over(), over(())
    second = over((), keyed.output, suffix="2")
    host.start(program(apply(keyed, source()), "keyed"))
    host.start(program(apply(alone, source()), "alone"))
    host.start(program(apply(second, apply(keyed, source())), "chained"))
    for start in (0, 1, 100):
        host.push("trades", trades(rows[start : {0: 1, 1: 100, 100: 300}[start]]))
    assert host.fetch("keyed").num_rows == 0
    host.finish()
    expected = in_process(keyed, rows)
    assert as_rows(host.fetch("keyed")) == expected
    assert as_rows(host.fetch("alone")) == in_process(alone, rows)
    assert as_rows(host.fetch("chained")) == in_process(second, expected)
    assert host.fetch("keyed").num_rows == 0


def test_no_rows_at_all(host: SparkHost) -> None:
    plan = Compute(Schema.of(twice=DOUBLE), apply(over(), source()), None, (("twice", PRICE),))
    host.start(program(plan))
    host.start(program(apply(over(), source()), "kernel"))
    host.finish()
    assert host.fetch("q").schema == pa.schema([("twice", pa.float64())])
    assert host.fetch("kernel").num_rows == 0


def test_filter_project_and_union(host: SparkHost) -> None:
    dear = Compute(TRADES, source(), Call(BOOLEAN, ">", (PRICE, Literal(DOUBLE, 10.0))), None)
    schema = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=TIMESTAMP)
    doubled = Compute(
        schema,
        source(),
        None,
        (("symbol", SYMBOL), ("price", Call(DOUBLE, "*", (PRICE, Literal(DOUBLE, 2.0)))), ("ts", TS)),
    )
    both = apply(MergeSpec(TRADES, 2), dear, doubled)
    three = apply(MergeSpec(TRADES, 2), both, source())
    host.start(program(both, "both"))
    host.start(program(apply(over(()), three), "over"))
    host.start(program(apply(DistinctSpec(TRADES), three), "distinct"))
    rows = [("a", 20.0, 2), ("b", None, 1), ("a", 5.0, 2), (None, 30.0, 2)]
    host.push("trades", trades(rows))
    host.finish()
    dear_rows = [("a", 20.0, 2), (None, 30.0, 2)]
    doubled_rows = [("b", None, 1), ("a", 40.0, 2), ("a", 10.0, 2), (None, 60.0, 2)]
    merged = [doubled_rows[0], *dear_rows, *doubled_rows[1:]]
    assert as_rows(host.fetch("both")) == merged
    later = [rows[1], rows[0], rows[2], rows[3]]
    everything = sorted(merged, key=lambda row: row[2])
    three_rows = [everything[0], later[0], *everything[1:], *later[1:]]
    assert as_rows(host.fetch("over")) == in_process(over(()), three_rows)
    assert as_rows(host.fetch("distinct")) == list(dict.fromkeys(three_rows))


def test_joins_with_a_stored_table(host: SparkHost) -> None:
    not_bonn = Call(BOOLEAN, "<>", (Column(VARCHAR, "city"), Literal(VARCHAR, "Bonn")))
    host.start(program(listed("inner"), "inner"))
    host.start(program(listed("left"), "outer"))
    host.start(program(listed("left", residual=not_bonn), "residual"))
    schema = listed("inner").schema
    numbered = over(("symbol",), schema)
    host.start(program(apply(numbered, listed("inner")), "over"))
    rows = [("S1", 1.0, 5), (None, 2.0, 4), ("S9", 3.0, 3), ("S2", 4.0, 5)]
    host.push("trades", trades(rows))
    host.finish()
    inner = [("S1", 1.0, 5, "S1", "Ulm"), ("S1", 1.0, 5, "S1", "Bonn"), ("S2", 4.0, 5, "S2", "Köln")]
    unmatched = [("S9", 3.0, 3, None, None), (None, 2.0, 4, None, None)]
    assert as_rows(host.fetch("inner")) == inner
    assert as_rows(host.fetch("outer")) == unmatched + inner
    assert as_rows(host.fetch("residual")) == unmatched + [inner[0], inner[2]]
    assert as_rows(host.fetch("over")) == in_process(numbered, inner)


def test_what_a_stored_table_knows(host: SparkHost) -> None:
    not_ulm = Call(BOOLEAN, "<>", (Column(VARCHAR, "city"), Literal(VARCHAR, "Ulm")))
    dear = Call(BOOLEAN, ">", (PRICE, Literal(DOUBLE, 3.0)))
    ways: tuple[TableHow, ...] = ("semi", "anti", "mark", "single")
    for how in ways:
        host.start(program(listed(how, not_ulm), how))
        host.start(program(replace(listed(how, dear), pairs=()), f"any {how}"))
    rows = [("S1", 1.0, 5), (None, 2.0, 4), ("S9", 3.0, 3), ("S2", 4.0, 5)]
    host.push("trades", trades(rows))
    with pytest.raises(MillstreamError, match=SEVERAL_ROWS):
        host.finish()
        host.fetch("any single")
    s1, null, s9, s2 = rows
    assert as_rows(host.fetch("semi")) == [s1, s2]
    assert as_rows(host.fetch("anti")) == [s9, null]
    assert as_rows(host.fetch("mark")) == [(*s9, False), (*null, False), (*s1, True), (*s2, True)]
    assert as_rows(host.fetch("any semi")) == [s2]
    assert as_rows(host.fetch("any anti")) == [s9, null, s1]
    assert as_rows(host.fetch("any mark")) == [(*s9, False), (*null, False), (*s1, False), (*s2, True)]
    found = [(*s9, None, None), (*null, None, None), (*s1, "S1", "Bonn"), (*s2, "S2", "Köln")]
    assert as_rows(host.fetch("single")) == found


def test_names_may_repeat_and_hold_anything(host: SparkHost) -> None:
    schema = Schema.of(a=VARCHAR, b=DOUBLE, c=DOUBLE, d=TIMESTAMP)
    plan = Compute(schema, source(), None, (("a", SYMBOL), ("b", PRICE), ("c", PRICE), ("d", TS)))
    asked = program(plan, columns=("ключ.1", "x", "X", 'a `quoted` "name"'))
    host.start(asked)
    host.push("trades", trades([("ü", 1.0, 1)]))
    host.finish()
    assert host.fetch("q").column_names == list(asked.columns)
    df = host.to_dataframe(asked)
    assert df.columns == ["ключ.1", "x", "X_2", 'a `quoted` "name"']
    assert df.select("`ключ.1`", "X_2").collect() == [("ü", 1.0)]


def test_every_type_comes_back_as_it_went(spark: Any) -> None:
    schema = Schema.of(
        ts=TIMESTAMP, flag=BOOLEAN, tiny=TINYINT, big=BIGINT, real=DOUBLE, money=DECIMAL(10, 2), text=VARCHAR,
        data=BLOB, zoned=TIMESTAMPTZ, day=DATE, clock=TIME, span=INTERVAL, nothing=NULL,
    )  # fmt: skip
    when = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
    values = [
        (when, True, 1, 2**40, 0.5, Decimal("1.25"), "ü", b"\x00\xff", when.replace(tzinfo=dt.UTC), when.date(),
         when.time(), dt.timedelta(microseconds=-5), None),
        (when, *[None] * 12),
    ]  # fmt: skip
    columns = zip(*values, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema.arrow, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    host = SparkHost(spark, lambda node: CITIES)
    host.declare(StreamDef("all_types", schema, Clock.EXTERNAL, "ts"))
    plain = source("all_types", schema)
    host.start(program(Compute(schema, plain, Literal(BOOLEAN, True), None), "native"))
    host.start(program(apply(DistinctSpec(schema), plain), "kernel"))
    host.push("all_types", rows)
    host.finish()
    assert host.fetch("native").combine_chunks().to_batches()[0].equals(rows)
    assert host.fetch("kernel").combine_chunks().to_batches()[0].equals(rows)


def test_times_come_from_columns_clocks_and_arrival(spark: Any) -> None:
    ticks, stamped, latent = (
        Schema.of(x=BIGINT, at=BIGINT),
        Schema.of(x=BIGINT, current_time=TIMESTAMP),
        Schema.of(x=BIGINT),
    )
    host = SparkHost(spark, lambda node: CITIES, now=lambda: 77)
    host.declare(StreamDef("ticks", ticks, Clock.EXTERNAL, "at", 1))
    host.declare(StreamDef("stamped", stamped, Clock.INTERNAL, "current_time"))
    host.declare(StreamDef("latent", latent, Clock.LATENT))
    for name, schema in (("ticks", ticks), ("stamped", stamped), ("latent", latent)):
        host.start(program(source(name, schema), name))
    host.push("ticks", pa.record_batch({"x": [1, 2], "at": [9, 8]}))
    host.push("stamped", pa.record_batch({"x": [1, 2]}))
    host.push("latent", pa.record_batch({"x": [5, 4]}))
    host.push("latent", pa.record_batch({"x": [3]}))
    host.finish()
    assert as_rows(host.fetch("ticks")) == [(2, 8), (1, 9)]
    assert as_rows(host.fetch("stamped")) == [(1, 77), (2, 77)]
    assert as_rows(host.fetch("latent")) == [(5,), (4,), (3,)]


def test_refused_and_late_rows(host: SparkHost) -> None:
    host.start(program(source(schema=ERRORS_SCHEMA, side="errors"), "errors"))
    host.start(program(source(side="late"), "late"))
    host.start(program(source(), "main"))
    host.push("trades", trades([("a", 1.0, None), ("b", 2.0, 1)]), (Rejected("no number", "x,y", "push"),))
    host.finish()
    assert as_rows(host.fetch("errors")) == [
        ("no number", "x,y", "push"),
        ("ts is NULL, and orders the stream", "{'symbol': 'a', 'price': 1.0, 'ts': None}", "trades"),
    ]
    assert host.fetch("late").num_rows == 0
    assert as_rows(host.fetch("main")) == [("b", 2.0, 1)]


def test_pushed_rows_are_late_as_in_process(host: SparkHost) -> None:
    host.start(program(source(side="late"), "late"))
    host.start(program(source(), "main"))
    counts = host.push("trades", trades([("a", 1.0, 9 * SECOND), ("b", 2.0, 8 * SECOND), ("c", 3.0, 7 * SECOND)]))
    assert (counts.accepted, counts.late) == (2, 1)
    host.advance("trades", 10 * SECOND)
    assert host.push("trades", trades([("d", 4.0, 10 * SECOND - 1), ("e", 5.0, 10 * SECOND)])).late == 1
    host.finish()
    assert as_rows(host.fetch("late")) == [("c", 3.0, 7 * SECOND), ("d", 4.0, 10 * SECOND - 1)]
    assert [row[0] for row in as_rows(host.fetch("main"))] == ["b", "a", "e"]


def test_a_query_sees_rows_pushed_after_it_started(host: SparkHost) -> None:
    host.start(program(source(), "early"))
    host.push("trades", trades([("a", 1.0, 1)]))
    host.start(program(source(), "late"))
    host.push("trades", trades([("b", 2.0, 2)]))
    host.finish()
    assert host.fetch("early").num_rows == 2
    assert as_rows(host.fetch("late")) == [("b", 2.0, 2)]
    with pytest.raises(DataError, match="has ended"):
        host.push("trades", trades([("c", 3.0, 3)]))


def test_bad_data_is_our_error_without_a_traceback(host: SparkHost) -> None:
    number = Compute(Schema.of(n=BIGINT), source(), None, (("n", Cast(BIGINT, SYMBOL)),))
    host.start(program(number, "cast"))
    host.start(program(source(), "fine"))
    host.push("trades", trades([("a", 1.0, 1)]))
    host.finish()
    with pytest.raises(DataError) as caught:
        host.fetch("cast")
    assert "\n\tat " not in str(caught.value) and "Traceback" not in str(caught.value)
    assert host.fetch("fine").num_rows == 1


def test_kernel_errors_come_through_whole(spark: Any) -> None:
    from millstream.kernels.over import Frame, OverSpec
    from millstream.plan.aggregate_calls import AggregateCall

    schema = Schema.of(x=BIGINT, ts=TIMESTAMP)
    total = AggregateCall.over("total", "sum", "x", Frame("rows", None), False, BIGINT)
    host = SparkHost(spark, lambda node: CITIES)
    host.declare(StreamDef("numbers", schema, Clock.EXTERNAL, "ts"))
    host.start(program(apply(OverSpec(schema, (), (total,)), source("numbers", schema))))
    host.push("numbers", trades([(2**62, 1), (2**62, 2)], schema))
    host.finish()
    with pytest.raises(MillstreamError, match="overflows"):
        host.fetch("q")


def test_explain_names_the_stages(host: SparkHost) -> None:
    plan = apply(over(), apply(MergeSpec(TRADES, 2), source(), Compute(TRADES, source(), Literal(BOOLEAN, True), None)))
    text = host.explain(program(plan))
    assert "bounded run" in text
    assert "[packed exchange by symbol, kernel with all rows of a task]" in text
    assert "[Spark union]" in text and "[Spark SQL]" in text and "== Physical Plan ==" in text
    assert "[broadcast to every task]" in host.explain(program(listed("left")))

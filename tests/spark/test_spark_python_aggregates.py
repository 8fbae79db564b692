"""Aggregates written in Python on Spark: the same rows as in-process, in bounded and in streaming queries."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import millstream as ms
from millstream.spark import Millstream

sys.path.insert(0, str(Path(__file__).parent.parent / "session"))

from python_twins import PYTHON_TWINS, QUERIES, STREAM, random_rows

pytestmark = pytest.mark.spark

ROWS = random_rows(120)


def rows_of(db: ms.Database, text: str) -> list[tuple[Any, ...]]:
    db.execute(STREAM)
    query = db.sql(text)
    db.push("s", ROWS)
    db.finish()
    return [tuple(row.values()) for row in query.fetch().to_pylist()]


@pytest.mark.parametrize("name", ["window of rows", "active expiration", "naive window", "several rows", "groups"])
def test_the_same_rows_as_in_process(spark: Any, name: str) -> None:
    text = QUERIES[name].format("py")
    expected = rows_of(ms.connect(aggregates=PYTHON_TWINS), text)
    assert len(expected) > 3
    # between keys, rows of one time may come in any order
    assert sorted(rows_of(ms.connect(spark=spark, aggregates=PYTHON_TWINS), text)) == sorted(expected)


@ms.function("scaled", parameters={"x": "DOUBLE", "by": "DOUBLE"}, returns="DOUBLE")
def scaled(x: pa.Array, by: pa.Array) -> pa.Array:
    return pc.multiply(x, by)


def test_functions_are_the_same_as_in_process(spark: Any) -> None:
    text = "SELECT k, scaled(x, 2) AS y, sum(scaled(x, 0.5)) OVER (PARTITION BY k ROWS 1 PRECEDING) AS z FROM s"
    expected = rows_of(ms.connect(functions=[scaled]), text)
    assert sorted(rows_of(ms.connect(spark=spark, functions=[scaled]), text)) == sorted(expected)
    m = Millstream(spark)
    m.register_function(scaled)
    m.register("s", spark.createDataFrame(ROWS, "k string, kind string, x double, ts timestamp_ntz"), time="ts")
    assert sorted(map(tuple, m.sql(text).collect())) == sorted(expected)


def test_a_streaming_query_keeps_its_objects(spark: Any, tmp_path: Path) -> None:
    text = QUERIES["window of rows"].format("py")
    expected = rows_of(ms.connect(aggregates=PYTHON_TWINS), text)
    files = tmp_path / "in"
    got: list[tuple[Any, ...]] = []
    for part in range(2):
        # each part is a query of its own that goes on from the checkpoint
        batch = spark.createDataFrame(
            ROWS[part * 60 : (part + 1) * 60], "k string, kind string, x double, ts timestamp_ntz"
        )
        batch.coalesce(1).write.mode("append").parquet(str(files))
        m = Millstream(spark)
        m.register("s", spark.readStream.schema(batch.schema).parquet(str(files)), time="ts")
        for made in PYTHON_TWINS:
            m.register_aggregate(made)
        writer = m.sql(text).writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        query.awaitTermination()
    got = [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    settled = [row for row in expected if row[0] < ROWS[-1][3]]
    assert sorted(row for row in got if row[0] < ROWS[-1][3]) == sorted(settled)


def test_an_error_in_a_worker_names_the_method(spark: Any) -> None:
    @ms.aggregate("picky", parameters={"x": "DOUBLE"}, returns="DOUBLE")
    class Picky:
        def initialize(self, x: float) -> float:
            return x

        def iterate(self, x: float) -> float:
            raise KeyError(dt.date(2026, 1, 1))

    db = ms.connect(spark=spark, aggregates=[Picky])
    with pytest.raises(ms.DataError, match=r"picky\.iterate failed: KeyError"):
        rows_of(db, "SELECT picky(x) FROM s")


@ms.aggregate("fussy", parameters={"x": "DOUBLE"}, returns="DOUBLE", one_row=True)
class Fussy:
    def initialize(self, x: float) -> float:
        self.total = x
        return x

    def iterate(self, x: float) -> float:
        self.total += x
        if int(x) % 3 == 0:
            raise ValueError(x)
        return self.total

    def expire(self, x: float) -> None:
        self.total -= x
        if int(x) % 4 == 0:
            raise ValueError(x)


def test_rows_that_a_class_fails_on_are_left_out(spark: Any) -> None:
    def left_out(db: ms.Database) -> tuple[list[Any], list[Any]]:
        db.execute("CREATE STREAM s (k VARCHAR, x DOUBLE, ts TIMESTAMP) ORDER BY ts")
        query = db.sql("SELECT k, x, fussy(x) OVER (PARTITION BY k ROWS 2 PRECEDING) AS t FROM s", name="q")
        errors = db.sql("SELECT error, row FROM ERRORS(q)")
        db.push("s", [("ab"[i % 2], float(i * 7 % 13), dt.datetime(2026, 1, 1, 0, 0, i)) for i in range(40)])
        db.finish()
        return [list(row.values()) for row in query.fetch().to_pylist()], [
            list(row.values()) for row in errors.fetch().to_pylist()
        ]

    rows, errors = left_out(ms.connect(aggregates=[Fussy], on_error="row"))
    assert any("iterate" in error for error, _ in errors) and any("EXPIRE" in error for error, _ in errors)
    assert len(rows) + sum("iterate" in error for error, _ in errors) == 40
    found = left_out(ms.connect(spark=spark, aggregates=[Fussy], on_error="row"))
    assert (sorted(found[0], key=str), sorted(found[1])) == (sorted(rows, key=str), sorted(errors))

"""Row patterns in streaming queries on Spark: input that comes out of order, over several micro-batches."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.spark import Millstream

pytestmark = pytest.mark.spark

SLACK = 8
ROWS = 120
MICRO_BATCHES = 6
LATE = [("S0", 1, 3), ("S1", 99, 4)]
"""rows of the last micro-batch but one whose time is long over"""
END = ("end", 0, 10 * ROWS)
"""the last row, which only lets time pass"""
DECLARED = f"CREATE STREAM quotes (symbol VARCHAR, price INT, n BIGINT) ORDER BY n SLACK {SLACK}"
FALLS_AND_RISES = "DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)"
QUERIES = {
    "chain": f"""SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY n
        MEASURES FIRST(n) AS since, LAST(DOWN.price) AS bottom, LAST(n) AS until, MATCH_NUMBER() AS nr
        PATTERN (A DOWN+ UP+) {FALLS_AND_RISES})""",
    "threads": f"""SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY n
        MEASURES CLASSIFIER() AS label, sum(price) AS total ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A OTHER*? (DOWN UP | UP UP)) WITHIN 12 {FALLS_AND_RISES})""",
    "timeouts": """SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY n
        MEASURES FIRST(n) AS since, TIMED_OUT() AS gone
        PATTERN (A UP UP) WITHIN 9 WITH TIMEOUTS DEFINE UP AS price > PREV(price))""",
    "computed key": """SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY lower(symbol) AS low, price % 2 ORDER BY n
        MEASURES FIRST(n) AS since, count(*) AS many PATTERN (A UP+) DEFINE UP AS price > PREV(price))""",
    "sequence": """SELECT symbol, X.n, LAST(Y).n, count(*Y) FROM quotes PARTITION BY symbol SEQUENCE BY n AS (X, *Y, Z)
        WHERE Y.price > Y.previous.price AND Z.price < X.price""",
}

Row = tuple[Any, ...]


def micro_batches(seed: int) -> list[list[Row]]:
    """Rows out of order by no more than the slack, cut anywhere; late ones among them, and the last one at the end."""
    draw = random.Random(seed)
    rows: list[Row] = [(f"S{draw.randrange(3)}", draw.randrange(30), n) for n in range(100, 100 + ROWS)]
    rows.sort(key=lambda row: row[2] + draw.uniform(0, SLACK))
    cuts = sorted(draw.sample(range(10, ROWS - 10), MICRO_BATCHES - 1))
    parts = [rows[since:until] for since, until in zip([0, *cuts], [*cuts, ROWS], strict=True)]
    for row in LATE:
        parts[-2].insert(draw.randint(0, len(parts[-2])), row)
    return [*parts, [END]]


def in_process(query: str, parts: list[list[Row]]) -> tuple[list[Row], list[Row]]:
    """What comes out before the input ends, and which rows were late."""
    with ms.connect() as db:
        db.execute(DECLARED)
        running, late = db.sql(query), db.sql("SELECT * FROM LATE(quotes)")
        for part in parts:
            db.push("quotes", part)
        return tuples(running.fetch()), tuples(late.fetch())


def tuples(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("name", QUERIES)
def test_rows_out_of_order_over_micro_batches(spark: Any, tmp_path: Path, name: str) -> None:
    parts = micro_batches(len(name))
    times = [row[2] for part in parts for row in part if row not in LATE]
    assert times != sorted(times)
    folder = tmp_path / "in"
    folder.mkdir()
    for number, part in enumerate(parts):
        path = folder / f"{number}.parquet"
        columns = zip(*part, strict=True)
        types = (pa.string(), pa.int32(), pa.int64())
        arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
        pq.write_table(pa.table(arrays, names=["symbol", "price", "n"]), path)
        os.utime(path, (number, number))
    reader = spark.readStream.schema("symbol STRING, price INT, n BIGINT").option("maxFilesPerTrigger", 1)
    m = Millstream(spark)
    m.register("quotes", reader.parquet(str(folder)), time="n", slack=SLACK)
    table = "patterns_" + name.replace(" ", "_")
    writer = m.sql(QUERIES[name]).writeStream.format("memory").queryName(table)
    query = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
    query.awaitTermination()
    delivered = [tuple(row) for row in spark.table(table).collect()]

    expected, late = in_process(QUERIES[name], parts)
    in_order = sorted((row for part in parts for row in part if row not in LATE), key=lambda row: row[2])
    assert (expected, []) == in_process(QUERIES[name], [in_order])
    assert sorted(late) == sorted(LATE)
    assert sorted(delivered, key=str) == sorted(expected, key=str)
    assert len(expected) >= 8
    rounds = [entry for entry in query.recentProgress if entry.numInputRows]
    assert len(rounds) == len(parts)
    told = [metrics.asDict() for entry in rounds for metrics in entry.observedMetrics.values()]
    assert sum(metrics["late"] for metrics in told if "late" in metrics) == len(LATE)

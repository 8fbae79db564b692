"""Groups made of panes on Spark: the rows that the process gives, keys spread over tasks, compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms

pytestmark = pytest.mark.spark

START = 1_700_000_000_000_000

QUERIES = {
    "overlapping": """
        SELECT k, window_end, count(*) AS n, sum(b) AS total, avg(x) AS mean, min(x) AS low, stddev(x) AS spread
        FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY k, window_end
    """,
    "growing": """
        SELECT window_start, window_end, k, max(b) AS high FROM CUMULATE(s, ts, 5 SECONDS, 20 SECONDS)
        GROUP BY window_start, window_end, k
    """,
    "in one place": "SELECT window_start, count(x) AS n, sum(b) AS t FROM HOP(s, ts, 3 SECONDS, 7 SECONDS) GROUP BY 1",
}


def random_table(rows: int) -> pa.Table:
    draw = np.random.default_rng(3)
    return pa.table(
        {
            "k": pa.array([f"key {i}" for i in draw.integers(0, 200, rows)], mask=draw.random(rows) < 0.02),
            "b": pa.array(draw.integers(-(2**40), 2**40, rows), mask=draw.random(rows) < 0.1),
            "x": pa.array(np.round(draw.normal(0, 50, rows), 2), mask=draw.random(rows) < 0.1),
            "ts": pa.array(START + np.sort(draw.integers(0, 60_000_000, rows))).cast(pa.timestamp("us")),
        }
    )


def answer(db: Any, table: pa.Table, query: str) -> list[str]:
    db.register("s", table, time="ts")
    running = db.sql(query)
    assert "by panes" in running.explain()
    return sorted(map(repr, running.arrow().to_pylist()))


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_same_rows_as_in_process(spark: Any, query: str) -> None:
    table = random_table(8_000)
    with ms.connect() as here:
        expected = answer(here, table, query)
    with ms.connect(spark=spark) as there:
        assert answer(there, table, query) == expected

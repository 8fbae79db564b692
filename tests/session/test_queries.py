"""What a user may do with a query that he holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms


@pytest.mark.parametrize("ask", [ms.Query.fetch, ms.Query.arrow, list], ids=["fetch", "arrow", "iterate"])
def test_a_stopped_query_says_so(ask: Callable[[Any], object]) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, ts TIMESTAMP) ORDER BY ts")
        query = db.sql("SELECT x FROM s")
        query.stop()
        with pytest.raises(ms.MillstreamError, match="q1 is not running") as caught:
            ask(query)
        assert "start it again" in str(caught.value)


def test_a_union_of_many_relations() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, t INT) ORDER BY t")
        many = " UNION ALL ".join(f"SELECT x + {i} AS x FROM s [RANGE {i + 1}]" for i in range(40))
        query = db.sql(many)
        distinct = db.sql(f"SELECT DISTINCT x FROM ({many}) AS u")
        db.push("s", [(0, 0)])
        db.finish()
        expected = {(i, 0, i + 1) for i in range(40)}
        for each in (query, distinct):
            assert {tuple(row.values()) for row in each.fetch().to_pylist()} == expected


def test_a_union_of_too_many_streams() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, t INT) ORDER BY t")
        with pytest.raises(ms.MillstreamError, match="UNION of 17 streams; at most 16 are possible"):
            db.sql(" UNION ALL ".join(["SELECT x FROM s"] * 17))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM s WHERE " + " AND ".join(f"x <> {i}" for i in range(2000)),
        "SELECT " + "+".join(["x"] * 2000) + " AS y FROM s [RANGE 5]",
    ],
    ids=["conditions", "a sum"],
)
def test_too_deep(text: str) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, t INT) ORDER BY t")
        for attempt in (db.sql, db.explain, db.prepare):
            with pytest.raises(ms.MillstreamError, match="nested too deeply"):
                attempt(text)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (10**19, "10000000000000000000 is out of range"),
        (dt.datetime(2026, 1, 1), "stream s is ordered by a number, not datetime"),
        ("5", "stream s is ordered by a number, not '5'"),
    ],
)
def test_times_that_are_none(time: Any, message: str) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, t INT) ORDER BY t")
        query = db.sql("SELECT x FROM s [RANGE 5]")
        with pytest.raises(ms.MillstreamError, match=message):
            db.advance("s", time)
        with pytest.raises(ms.MillstreamError, match=message):
            query.snapshot(time)
        db.push("s", [(1, 0)])
        assert query.fetch().num_rows == 1


@pytest.mark.parametrize(
    ("time", "slack", "message"),
    [
        ("name", None, "name is VARCHAR, which cannot order a stream"),
        ("no", None, "no column no in r"),
        ("t", -1, "slack cannot be negative"),
        ("t", "5 seconds", "ordered by a number"),
    ],
)
def test_what_orders_no_stream(time: str, slack: Any, message: str) -> None:
    with ms.connect() as db:
        rows = pa.table({"name": ["a"], "t": [1]})
        with pytest.raises(ms.MillstreamError, match=message):
            db.register("r", rows, time=time, slack=slack)
        db.register("r", rows, time="t", slack=1)

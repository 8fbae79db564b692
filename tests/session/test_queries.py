"""What a user may do with a query that he holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import millstream as ms


@pytest.mark.parametrize("ask", [ms.Query.fetch, ms.Query.arrow, list], ids=["fetch", "arrow", "iterate"])
def test_a_stopped_query_says_so(ask: Callable[[Any], object]) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, ts TIMESTAMP) ORDER BY ts")
        query = db.sql("SELECT x FROM s")
        query.stop()
        with pytest.raises(ms.MillstreamError, match="q1 does not run any more") as caught:
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
        with pytest.raises(ms.MillstreamError, match="UNION of 17 streams, at most 16 are possible"):
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

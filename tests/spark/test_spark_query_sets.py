"""Many queries as one on Spark: what they give is what they give in-process."""

from __future__ import annotations

from typing import Any

import pytest

import millstream as ms

pytestmark = pytest.mark.spark

ROWS = [(i % 4, f"n{i % 3}", float(i * 7 % 11), i) for i in range(60)]
CONSTANTS = [{"id": f"q{i}", "k": i % 4, "low": float(i % 6)} for i in range(12)]
SETS = {
    "chosen": "SELECT k, v FROM s WHERE k = $k AND v > $low",
    "means": "SELECT v, avg(v) OVER (PARTITION BY name ROWS 2 PRECEDING) AS x FROM s WHERE v >= $low",
    "lengths": "SELECT v, sum(v) OVER (ROWS $k PRECEDING) AS x FROM s WHERE v > $low",
}


def results(db: Any) -> dict[str, list[str]]:
    db.execute("CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t")
    db.execute("CREATE TABLE limits (id VARCHAR PRIMARY KEY, kind INT, low DOUBLE)")
    db.execute("CREATE QUERIES followed AS SELECT v, low FROM s JOIN limits AS l ON s.k = l.kind WHERE v > l.low")
    db.execute("INSERT INTO limits VALUES ('a', 1, 2), ('b', 2, 3), ('c', 2, 1); DELETE FROM limits WHERE id = 'b'")
    sets = {name: db.sql_many(text, CONSTANTS, key="id", name=name) for name, text in SETS.items()}
    sets["followed"] = db.query_set("followed")
    alone = [db.sql(f"SELECT v, t FROM s WHERE k = {i % 4} AND v <= {i}", name=f"alone{i}") for i in range(9)]
    db.push("s", ROWS)
    db.finish()
    found = {name: sorted(map(repr, many.fetch().to_pylist())) for name, many in sets.items()}
    shared = db.sql("SHOW SHARING").arrow().to_pylist()
    assert any(row["queries"] == 9 and row["operator"].startswith("Filter") for row in shared)
    return found | {query.name: [repr(row) for row in query.fetch().to_pylist()] for query in alone}


def test_sets_and_shared_filters_give_the_same_rows(spark: Any) -> None:
    here = results(ms.connect())
    there = results(ms.connect(spark=spark))
    assert all(here.values())
    assert there == here

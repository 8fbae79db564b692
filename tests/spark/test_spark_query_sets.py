"""Many queries as one on Spark: what they give is what they give in-process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms

pytestmark = pytest.mark.spark

ROWS = [(i % 4, f"n{i % 3}", float(i * 7 % 11), i) for i in range(60)]
CONSTANTS = [{"id": f"q{i}", "k": i % 4, "low": float(i % 6)} for i in range(12)]
SETS = {
    "chosen": "SELECT k, v FROM s WHERE k = $k AND v > $low",
    "means": "SELECT v, avg(v) OVER (PARTITION BY name ROWS 2 PRECEDING) AS x FROM s WHERE v >= $low",
    "follows": "SELECT v_1, v FROM FILTER{v >= $low}(s) NEXT{$1.name = $2.name} s",
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


def test_queries_come_and_go_under_a_running_job(spark: Any, tmp_path: Path) -> None:
    """The constants are data that workers read at each micro-batch, and a repeated one reads what it read before."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    db = session(spark, folder)
    host, many = db._host, db.query_set("alerts")
    found: dict[int, list[Any]] = {}
    job = host.start_job(list(host._queries.values()), str(checkpoint), {"processingTime": "200 milliseconds"})
    try:
        for number, change in enumerate(CHANGES):
            if change:
                db.execute(change)
            add_file(folder, number)
            job.query.processAllAvailable()
            found[number] = sorted(tuple(row.values()) for row in many.fetch().to_pylist())
    finally:
        job.stop()
    assert found == {number: alone(number) for number in range(len(CHANGES))}
    # the last micro-batch did not end, for all that Spark knows: it runs again, with the constants that it had
    last = max((checkpoint / "commits").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    db = session(spark, folder)
    for change in CHANGES:
        db.execute(change or "DELETE FROM limits WHERE id = ''")
    db.execute("DELETE FROM limits")
    host, many = db._host, db.query_set("alerts")
    for query in many.queries():
        # rows of queries that are gone are not delivered: here they are looked at
        host.admit(query.name, lambda rows: rows)
    host.start_job(list(host._queries.values()), str(checkpoint), {"availableNow": True}).wait()
    again = sorted(row["v"] for query in many.queries() for row in query.fetch().to_pylist())
    assert again == sorted(row[1] for row in found[len(CHANGES) - 1])


CHANGES = [
    "INSERT INTO limits VALUES ('ann', 1, 10), ('bob', 2, 20)",
    "INSERT INTO limits VALUES ('eve', 1, 0)",
    "DELETE FROM limits WHERE id = 'ann'",
    "",
    "UPDATE limits SET low = 55 WHERE id = 'bob'; INSERT INTO limits VALUES ('joe', 0, 58)",
]


def session(spark: Any, folder: Path) -> Any:
    db = ms.connect(spark=spark)
    db.execute(f"""
        CREATE STREAM s (k INT, v DOUBLE, t BIGINT) ORDER BY t
            WITH (connector = 'file', path = '{folder}', follow = true);
        CREATE TABLE limits (id VARCHAR PRIMARY KEY, kind INT, low DOUBLE);
        CREATE QUERIES alerts AS SELECT v FROM limits AS l, s WHERE k = l.kind AND v > low""")
    return db


def rows_of(number: int) -> list[tuple[int, float, int]]:
    return [(i % 3, float(i * 7 % 60), i) for i in range(number * 40, number * 40 + 40)]


def add_file(folder: Path, number: int) -> None:
    k, v, t = zip(*rows_of(number), strict=True)
    table = pa.table({"k": pa.array(k, pa.int32()), "v": list(v), "t": list(t)})
    pq.write_table(table, folder / f".{number}.parquet")
    (folder / f".{number}.parquet").rename(folder / f"{number}.parquet")


def alone(number: int) -> list[Any]:
    """What the queries of a moment give for the rows of that moment."""
    with ms.connect() as db:
        db.execute("CREATE TABLE limits (id VARCHAR PRIMARY KEY, kind INT, low DOUBLE)")
        for change in CHANGES[: number + 1]:
            db.execute(change or "DELETE FROM limits WHERE id = ''")
        limits = db.sql("SELECT * FROM limits").arrow().to_pylist()
    return sorted((q["id"], v) for k, v, _ in rows_of(number) for q in limits if k == q["kind"] and v > q["low"])

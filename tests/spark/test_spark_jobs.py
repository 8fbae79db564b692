"""Many queries in one job: every source is read once, and each query gets the rows that it gets alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.job import bounded
from millstream.hosts.spark.job.graph import GraphBuilder, JobGraph, JobQuery
from millstream.hosts.spark.meters import Meters

pytestmark = pytest.mark.spark

ROWS = [(k % 3, float(k), f"2026-01-01 00:00:{k:02}") for k in range(40)]

QUERIES = {
    "totals": "SELECT k, sum(x) OVER (PARTITION BY k RANGE 10 SECONDS PRECEDING) AS total FROM s",
    "large": "SELECT k, x FROM s WHERE x > 30",
    "named": "SELECT s.k, n, x FROM s LEFT JOIN t ON s.k = t.k WHERE x < 5",
    "live": "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k",
    "peaks": "SELECT max(total) OVER (ROWS 4 PRECEDING) AS peak FROM (SELECT k, sum(x) OVER "
    "(PARTITION BY k RANGE 10 SECONDS PRECEDING) AS total FROM s) AS u",
    "both": "SELECT k, x FROM s WHERE x > 35 UNION ALL SELECT k, total FROM (SELECT k, sum(x) OVER "
    "(PARTITION BY k RANGE 10 SECONDS PRECEDING) AS total FROM s) AS u WHERE total > 60",
}

DECLARED = """
CREATE STREAM s (k INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts;
CREATE TABLE t (k INT, n VARCHAR);
INSERT INTO t VALUES (0, 'zero'), (1, 'one')
"""


def started(database: Any, queries: dict[str, str] = QUERIES) -> Any:
    database.execute(DECLARED)
    for name, text in queries.items():
        database.sql(text, name=name)
    database.push("s", ROWS)
    return database


def results(database: Any) -> dict[str, list[Any]]:
    """What each query gave; rows of a relation have no order among equal times."""
    found = {query.name: query.fetch().to_pylist() for query in database.queries()}
    for name in found.keys() & {"live"}:
        found[name].sort(key=str)
    return found


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Any]]:
    database = started(ms.connect())
    database.finish()
    return results(database)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each job that is run, how many queries it has."""
    seen: list[int] = []
    plain = bounded.run_together

    def counted(spark: Any, queries: Any, *more: Any) -> Any:
        seen.append(len(queries))
        return plain(spark, queries, *more)

    monkeypatch.setattr(bounded, "run_together", counted)
    return seen


def graph_of(database: Any, *texts: str, streaming: bool = False) -> JobGraph:
    inputs = database._host.inputs(Meters({}), streaming=streaming)
    asked = [JobQuery(database.prepare(text, f"q{i}"), inputs) for i, text in enumerate(texts)]
    return GraphBuilder(streaming=streaming, buckets=2).build(asked)


def test_queries_of_a_session_run_as_one_job(spark: Any, expected: dict[str, list[Any]], jobs: list[int]) -> None:
    database = started(ms.connect(spark=spark))
    database.finish()
    assert results(database) == expected
    assert jobs == [len(QUERIES)]


def test_sessions_are_finished_with_one_job(spark: Any, expected: dict[str, list[Any]], jobs: list[int]) -> None:
    databases = [started(ms.connect(spark=spark), {name: text}) for name, text in QUERIES.items()]
    SparkHost.finish_together([database._host for database in databases])
    together: dict[str, list[Any]] = {}
    for database in databases:
        together |= results(database)
    assert together == expected
    assert jobs == [len(QUERIES)]
    with pytest.raises(ms.DataError, match="has ended"):
        databases[0].push("s", ROWS)


def test_a_query_that_fails_fails_alone(spark: Any, expected: dict[str, list[Any]]) -> None:
    database = started(
        ms.connect(spark=spark), {**QUERIES, "bad": "SELECT CAST(CAST(x AS VARCHAR) AS INT) AS i FROM s"}
    )
    database.push("s", [(1, 1.5, "2026-01-01 00:01:00")])
    database.finish()
    with pytest.raises(ms.MillstreamError):
        database.query("bad").fetch()
    assert database.query("large").fetch().to_pylist() == expected["large"]


def test_a_query_sees_rows_from_its_start_on(spark: Any) -> None:
    database = started(ms.connect(spark=spark), {"large": QUERIES["large"]})
    late = database.sql(QUERIES["large"], name="later")
    database.push("s", [(7, 99.0, "2026-01-01 00:02:00")])
    database.finish()
    assert late.fetch().to_pylist() == [{"k": 7, "x": 99.0}]
    assert len(database.query("large").fetch()) == 10


def test_equal_parts_of_queries_are_one_stage(spark: Any) -> None:
    database = started(ms.connect(spark=spark))
    graph = graph_of(database, *QUERIES.values())
    assert len(graph.sources) == 1
    described = [stage.stage.spec.describe() for stage in graph.stages]
    # totals, peaks and both begin with the same window
    assert sum("over by k" in text for text in described) == 1
    assert graph.stages_of[0] == [0] and graph.stages_of[4][0] == 0 and 0 in graph.stages_of[5]
    assert graph.levels == 2


def test_files_are_read_once(spark: Any, tmp_path: Path) -> None:
    table = pa.table({"k": [k for k, _, _ in ROWS], "x": [x for _, x, _ in ROWS], "ts": [t for _, _, t in ROWS]})
    pq.write_table(table.set_column(2, "ts", table["ts"].cast(pa.timestamp("us"))), tmp_path / "in.parquet")
    database = ms.connect(spark=spark)
    database.execute(
        f"CREATE STREAM s (k INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts WITH (connector = 'file', path = '{tmp_path}')"
    )
    queries = [database.sql(QUERIES[name], name=name) for name in ("totals", "large", "live", "peaks")]
    seen: list[Any] = []
    database.run(report=seen.append)
    assert seen[-1].rows_in == {"s": len(ROWS)}
    assert all(query.counts.accepted == len(ROWS) for query in queries)


def test_sinks_take_their_parts_of_one_job(spark: Any, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    database = ms.connect(spark=spark)
    database.execute(DECLARED)
    for name in ("totals", "large"):
        options = f"connector = 'file', path = '{tmp_path / name}', format = 'parquet'"
        database.execute(f"CREATE SINK {name}_out WITH ({options}); INSERT INTO {name}_out {QUERIES[name]}")
    shown = database.sql(QUERIES["peaks"])
    database.push("s", ROWS)
    database.finish()
    for name in ("totals", "large"):
        assert pq.read_table(tmp_path / name).to_pylist() == expected[name]
    assert shown.fetch().to_pylist() == expected["peaks"]

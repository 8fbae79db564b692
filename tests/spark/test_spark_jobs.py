"""Many queries in one job: every source is read once, and each query gets the rows that it gets alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cases import STEPWISE, stepwise

import millstream as ms
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.job import bounded
from millstream.hosts.spark.job.graph import GraphBuilder, JobGraph, JobQuery
from millstream.hosts.spark.job.streaming_job import RunningJob
from millstream.hosts.spark.meters import Meters
from millstream.spark import Millstream

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


def test_queries_that_come_later_share_work_that_keeps_nothing(spark: Any) -> None:
    """Filters and expressions are those of the others; windows are their own, as they begin empty."""
    database = started(ms.connect(spark=spark), {})
    doubled = "SELECT k, x * 2 AS y FROM s WHERE x > 1"
    text = f"SELECT k, sum(y) OVER (PARTITION BY k ROWS 9 PRECEDING) AS total FROM ({doubled})"
    inputs = database._host.inputs(Meters({}), streaming=True)
    asked = [JobQuery(database.prepare(text, f"q{i}"), inputs, generation=i) for i in range(3)]
    graph = GraphBuilder(streaming=True, buckets=2).build(asked)
    assert len(graph.stages) == 3
    fan, works = graph.sources[0].fan, 0
    while fan.branches:
        ((_, fan),) = fan.branches
        works += 1
    assert works and len(fan.leaves) == 3


def test_a_query_keeps_its_stages_when_one_goes_that_shared_them(spark: Any) -> None:
    database = started(ms.connect(spark=spark), {})
    chained = "SELECT max(total) OVER (PARTITION BY k ROWS 1 PRECEDING) AS most FROM (SELECT k, sum(x) OVER " + (
        "(PARTITION BY k RANGE 10 SECONDS PRECEDING) AS total FROM s) AS u"
    )
    both = graph_of(database, chained, QUERIES["totals"])
    assert len(graph_of(database, chained).stages) == 1 and len(both.stages) == 2
    left = GraphBuilder(streaming=False, buckets=2).build(both.queries[:1])
    assert [stage.stage.signature for stage in left.stages] == [stage.stage.signature for stage in both.stages]


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


def test_sinks_take_their_parts_of_one_job(
    spark: Any, tmp_path: Path, expected: dict[str, list[Any]], changes: list[Any]
) -> None:
    database = ms.connect(spark=spark)
    database.execute(DECLARED)
    for name in ("totals", "large"):
        options = f"connector = 'file', path = '{tmp_path / name}', format = 'parquet'"
        database.execute(f"CREATE SINK {name}_out WITH ({options}); INSERT INTO {name}_out {QUERIES[name]}")
    database.execute(f"{upsert_sink('live', tmp_path)}; INSERT INTO live {QUERIES['live']}")
    shown = database.sql(QUERIES["peaks"])
    database.push("s", ROWS)
    database.finish()
    for name in ("totals", "large"):
        assert pq.read_table(tmp_path / name).to_pylist() == expected[name]
    assert in_files(tmp_path / "live") == changes
    assert shown.fetch().to_pylist() == expected["peaks"]


# -- streaming ---------------------------------------------------------------------------------------------------------

NOW = {"availableNow": True}
END = [(9, 10.0, "2026-01-01 01:00:00")]
"""A row that makes all before it final."""


@pytest.fixture
def one_file_at_a_time(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.millstream.filesPerTrigger", "1")
    yield
    spark.conf.unset("spark.millstream.filesPerTrigger")


class Feed:
    """A directory of files that a streaming job follows, each file a micro-batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        folder.mkdir()

    def add(self, rows: list[tuple[int, float, str]]) -> None:
        table = pa.table({"k": [k for k, _, _ in rows], "x": [x for _, x, _ in rows], "ts": [t for _, _, t in rows]})
        path = self.folder / f"{self.count:03d}.parquet"
        hidden = path.with_name("." + path.name)
        pq.write_table(table.set_column(2, "ts", table["ts"].cast(pa.timestamp("us"))), hidden)
        os.utime(hidden, (1_700_000_000 + self.count,) * 2)
        hidden.rename(path)
        self.count += 1


@pytest.fixture
def feed(tmp_path: Path, one_file_at_a_time: None) -> Feed:
    return Feed(tmp_path / "in")


def pipeline(spark: Any, feed: Feed, tmp_path: Path, queries: dict[str, str]) -> Any:
    """A session whose queries write part files, one file or a Delta table, as the ends of their names say."""
    database = ms.connect(spark=spark)
    options = f"connector = 'file', path = '{feed.folder}', follow = true"
    database.execute(DECLARED.replace("ORDER BY ts;", f"ORDER BY ts WITH ({options});"))
    for name, text in queries.items():
        if name.endswith("_upsert"):
            database.execute(f"{upsert_sink(name, tmp_path)}; INSERT INTO {name} {text}")
            continue
        if name.endswith("_out"):
            database.execute(f"CREATE SINK {name} WITH (connector = 'file', path = '{tmp_path / name}')")
        elif name.endswith("_delta"):
            options = f"connector = 'file', path = '{tmp_path / name}', format = 'delta'"
            database.execute(f"CREATE SINK {name} WITH ({options})")
        elif name.endswith("_csv"):
            path = tmp_path / name
            database.execute(
                f"CREATE SINK {name} WITH (connector = 'file', path = '{path}', format = 'csv', single_file = true)"
            )
        sink = database.catalog.find(name)
        program = replace(database.prepare(text, name), sink=sink)
        database._host.start(program)
    return database


def upsert_sink(name: str, folder: Path) -> str:
    options = f"connector = 'file', path = '{folder / name}', mode = 'upsert', key = 'k'"
    return f"CREATE SINK {name} WITH ({options})"


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """How the groups of `live` change, in-process."""
    folder = tmp_path_factory.mktemp("changes")
    database = ms.connect()
    database.execute(f"{DECLARED}; {upsert_sink('out', folder)}; INSERT INTO out {QUERIES['live']}")
    database.push("s", ROWS)
    database.finish()
    return in_files(folder / "out")


def run_job(database: Any, checkpoint: Path, functions: Any = None) -> Any:
    host = database._host
    job = host.start_job(list(host._queries.values()), str(checkpoint), NOW, functions)
    try:
        assert job.wait()
    finally:
        job.stop()
    return job


def in_files(folder: Path) -> list[Any]:
    return sorted((row for path in folder.glob("part-*") for row in pq.read_table(path).to_pylist()), key=str)


def in_csv(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


STREAMED = {
    "totals_out": QUERIES["totals"],
    "large": QUERIES["large"],
    "named_csv": QUERIES["named"],
    "live_out": QUERIES["live"],
    "peaks_fn": QUERIES["peaks"],
    "live_upsert": QUERIES["live"],
    "totals_delta": QUERIES["totals"],
}


@pytest.mark.parametrize("kept", ["files", "value"])
def test_a_streaming_job_serves_every_sink_and_resumes(
    spark: Any, feed: Feed, tmp_path: Path, expected: dict[str, list[Any]], changes: list[Any], kept: str
) -> None:
    """However state is kept; a checkpoint goes on as it began."""
    taken: list[tuple[int, list[Any]]] = []

    def take(frame: Any, batch: int) -> None:
        taken.append((batch, [row.peak for row in frame.collect()]))

    fetched: list[Any] = []
    for first, last in ((0, 10), (10, 20)):
        feed.add(ROWS[first:last])
    database = pipeline(spark, feed, tmp_path, STREAMED)
    spark.conf.set("spark.millstream.state", kept)
    try:
        job = run_job(database, tmp_path / "checkpoint", {"peaks_fn": take})
    finally:
        spark.conf.unset("spark.millstream.state")
    operators = {entry["operatorName"] for entry in job.query.lastProgress["stateOperators"]}
    by_name = {"value": {"applyInPandasWithState"}, "variables": {"transformWithStateInPandasExec"}, "files": set()}
    assert operators == by_name[kept]
    assert (tmp_path / "checkpoint/millstream/state/level-3").exists() == (kept == "files")
    fetched += database._host.fetch("large").to_pylist()
    assert job.graph.levels == 3 and len(job.graph.sources) == 1
    files = [entry["sources"][0]["numInputRows"] for entry in job.query.recentProgress]
    assert [count for count in files if count] == ([1, 1] if STEPWISE else [2]), "each file is read once"
    feed.add(ROWS[20:])
    feed.add(END)
    database = pipeline(spark, feed, tmp_path, STREAMED)
    job = run_job(database, tmp_path / "checkpoint", {"peaks_fn": take})
    fetched += database._host.fetch("large").to_pylist()
    assert fetched == expected["large"]
    totals = sorted(expected["totals"], key=str)
    assert [row for row in in_files(tmp_path / "totals_out") if row["k"] != 9] == totals
    in_delta = deltalake.DeltaTable(str(tmp_path / "totals_delta")).to_pyarrow_table().to_pylist()
    assert sorted((row for row in in_delta if row["k"] != 9), key=str) == totals
    assert in_files(tmp_path / "live_out") == expected["live"]
    assert [row for row in in_files(tmp_path / "live_upsert") if row["k"] != 9] == changes
    assert {row["op"] for row in changes} == {"u", "d"}
    assert len(in_csv(tmp_path / "named_csv")) == len(expected["named"])
    peaks = [row["peak"] for row in expected["peaks"]]
    assert [peak for _, rows in taken for peak in rows][: len(peaks)] == peaks
    assert job.rows("large") == len(fetched) and job.stages["millstream_stage_1"].startswith("over by k")


MOVED = {
    "sliding_out": "SELECT k, count(*) AS n FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "coarse_out": "SELECT k, sum(x) AS total FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] GRANULARITY(15 SECONDS) "
    "GROUP BY k",
    "joined_out": "SELECT a.k, b.x FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] AS a, s [RANGE 5 SECONDS] AS b "
    "WHERE a.k = b.k",
}


def test_windows_that_move_rows_leave_out_the_late_ones_of_in_process(spark: Any, feed: Feed, tmp_path: Path) -> None:
    """A row is late by its own time, also if its window with SLIDE or coarser time begins only later."""
    first = [(k % 5, float(k), f"2026-01-01 00:00:{k:02}") for k in (1, 2, 3, 4, 12)]
    second = [(7, 1.0, "2026-01-01 00:00:11"), (2, 2.0, "2026-01-01 00:00:12"), (1, 3.0, "2026-01-01 00:00:35")]
    batches = [first, second, [(7, 2.0, "2026-01-01 00:00:33"), (3, 1.0, "2026-01-01 00:01:50")], END]
    alone = ms.connect()
    alone.execute(DECLARED)
    queries = {name: alone.sql(text, name=name) for name, text in MOVED.items()}
    assert [alone.push("s", batch).late for batch in batches] == [0, 1, 1, 0]
    alone.finish()
    for batch in batches:
        feed.add(batch)
    job = run_job(pipeline(spark, feed, tmp_path, MOVED), tmp_path / "checkpoint")
    assert {name: job.late_rows(name) for name in MOVED} == {"sliding_out": 2, "coarse_out": 2, "joined_out": 4}
    for name, query in queries.items():
        rows = sorted((row for row in query.fetch().to_pylist() if row["k"] != 9), key=str)
        assert rows and rows == in_files(tmp_path / name), name


def test_a_repeated_micro_batch_counts_once(spark: Any, feed: Feed, tmp_path: Path) -> None:
    """Spark repeats a micro-batch whose end it did not note, though its rows were committed."""
    feed.add(ROWS[:35])
    feed.add(ROWS[35:])
    database = pipeline(spark, feed, tmp_path, {"large_out": QUERIES["large"], "large_fetched": QUERIES["large"]})
    queries = list(database._host._queries.values())

    def counted() -> list[int]:
        job = RunningJob(run_job(database, tmp_path / "checkpoint"), queries, Meters({}))
        job.look()
        return [query.rows for query in queries]

    rows = counted()
    assert rows == [len(in_files(tmp_path / "large_out"))] * 2 and rows[0]
    commits = tmp_path / "checkpoint/commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    assert counted() == rows
    assert last.exists(), "the micro-batch ran again"
    feed.add([(5, 99.0, "2026-01-01 00:59:00")])
    assert counted() == [len(in_files(tmp_path / "large_out"))] * 2 == [rows[0] + 1] * 2


def test_the_state_of_a_frame_is_kept_as_it_began(
    spark: Any, feed: Feed, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    for first in range(0, 40, 20):
        feed.add(ROWS[first : first + 20])
    feed.add(END)
    m = Millstream(spark)
    options = f"connector = 'file', path = '{feed.folder}', follow = true"
    m.execute(f"CREATE STREAM s (k INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts WITH ({options})")
    spark.conf.set("spark.millstream.state", "value")
    try:
        frame = m.sql(QUERIES["totals"])
        assert "TransformWithState" in m.explain(QUERIES["peaks"]), "Spark refuses two operators that keep a value each"
    finally:
        spark.conf.unset("spark.millstream.state")

    def run(frame: Any) -> Any:
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**NOW).start(str(tmp_path / "out"))
        query.awaitTermination()
        return query

    operators = run(frame).lastProgress["stateOperators"]
    assert [entry["operatorName"] for entry in operators] == ["applyInPandasWithState"]
    assert in_files(tmp_path / "out") == sorted(expected["totals"], key=str)
    feed.add(END)
    spark.conf.set("spark.millstream.state", "files")
    try:
        with pytest.raises(Exception, match="STATEFUL_OPERATOR_NOT_MATCH"):
            run(m.sql(QUERIES["totals"]))
    finally:
        spark.conf.unset("spark.millstream.state")


@stepwise
def test_a_micro_batch_that_is_repeated_leaves_every_row_once(spark: Any, feed: Feed, tmp_path: Path) -> None:
    queries = {name: STREAMED[name] for name in ("totals_out", "named_csv", "peaks_fn")}
    for first in range(0, 40, 10):
        feed.add(ROWS[first : first + 10])

    def fail_at(wanted: int) -> Any:
        def take(frame: Any, batch: int) -> None:
            if batch == wanted:
                raise ValueError("the network is gone")

        return take

    for batch in (0, 2):
        database = pipeline(spark, feed, tmp_path, queries)
        with pytest.raises(ms.MillstreamError, match="the network is gone"):
            run_job(database, tmp_path / "checkpoint", {"peaks_fn": fail_at(batch)})
    feed.add(END)
    run_job(pipeline(spark, feed, tmp_path, queries), tmp_path / "checkpoint", {"peaks_fn": fail_at(-1)})
    alone = started(ms.connect(), {name: QUERIES[name] for name in ("totals", "named")})
    alone.finish()
    assert len(in_files(tmp_path / "totals_out")) == len(alone.query("totals").fetch())
    lines = in_csv(tmp_path / "named_csv")
    assert len(lines) == len(set(lines)) == len(alone.query("named").fetch())


def test_queries_come_and_go_and_the_others_keep_their_state(spark: Any, feed: Feed, tmp_path: Path) -> None:
    sums = "SELECT k, x, sum(x) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS total FROM s"
    checkpoint = tmp_path / "checkpoint"
    feed.add([(1, 1.0, "2026-01-01 00:00:00")])
    feed.add([(1, 2.0, "2026-01-01 00:00:01")])
    run_job(pipeline(spark, feed, tmp_path, {"a_out": sums, "b_out": sums}), checkpoint)
    feed.add([(1, 4.0, "2026-01-01 00:00:02"), (1, 0.0, "2026-01-01 00:00:03")])
    run_job(pipeline(spark, feed, tmp_path, {"b_out": sums, "c_out": sums}), checkpoint)
    totals = {name: [row["total"] for row in in_files(tmp_path / name)] for name in ("a_out", "b_out", "c_out")}
    assert totals["b_out"] == [1.0, 3.0, 7.0], "it goes on, though the query that it shared its kernel with is gone"
    assert totals["a_out"] == [1.0], "it is no more"
    assert totals["c_out"] == [4.0], "it starts with an empty window"
    with pytest.raises(ms.StateError, match="stage 1 of query b_out was"):
        run_job(pipeline(spark, feed, tmp_path, {"b_out": sums.replace("PARTITION BY k ", "")}), checkpoint)


def test_millstream_starts_its_queries_as_one_job(spark: Any, feed: Feed, tmp_path: Path) -> None:
    m = Millstream(spark)
    options = f"connector = 'file', path = '{feed.folder}', follow = true"
    m.execute(f"CREATE STREAM s (k INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts WITH ({options})")
    m.execute(f"CREATE SINK large_out WITH (connector = 'file', path = '{tmp_path / 'large'}')")
    m.execute(f"INSERT INTO large_out {QUERIES['large']}")
    feed.add(ROWS)
    feed.add(END)
    taken: list[Any] = []
    job = m.start(
        {"totals": QUERIES["totals"]},
        checkpoint=str(tmp_path / "checkpoint"),
        trigger=NOW,
        foreach_batch={"totals": lambda frame, batch: taken.extend(frame.collect())},
    )
    job.wait()
    assert len(taken) == len(ROWS) and len(in_files(tmp_path / "large")) == 9
    assert {query.program.name for query in job.graph.queries} == {"q1", "totals"}
    with pytest.raises(ms.EngineError, match="no query named peaks"):
        m.start({"t": QUERIES["totals"]}, checkpoint=str(tmp_path / "other"), foreach_batch={"peaks": print})


def test_inserts_over_inputs_that_end_run_at_once(spark: Any, tmp_path: Path) -> None:
    m = Millstream(spark)
    frame = spark.createDataFrame(ROWS, "k INT, x DOUBLE, t STRING").selectExpr(
        "k", "x", "CAST(t AS TIMESTAMP_NTZ) AS ts"
    )
    m.register("s", frame, time="ts")
    sinks = [f"CREATE SINK {name} WITH (connector = 'file', path = '{tmp_path / name}')" for name in ("a", "b")]
    m.execute(";".join([*sinks, f"INSERT INTO a {QUERIES['large']}", f"INSERT INTO b {QUERIES['totals']}"]))
    assert len(in_files(tmp_path / "a")) == 9 and len(in_files(tmp_path / "b")) == len(ROWS)
    with pytest.raises(ms.EngineError, match="nothing to start"):
        m.start(checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(ms.EngineError, match="all inputs of large end"):
        m.start({"large": QUERIES["large"]}, checkpoint=str(tmp_path / "checkpoint"))


def test_views_of_a_job_hold_what_is_valid(spark: Any, feed: Feed, tmp_path: Path) -> None:
    m = Millstream(spark)
    options = f"connector = 'file', path = '{feed.folder}', follow = true"
    m.execute(f"CREATE STREAM s (k INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts WITH ({options})")
    views = {"live": "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k"}

    def content_at(rows: list[Any]) -> set[tuple[int, int]]:
        feed.add(rows)
        m.start(views=views, checkpoint=str(tmp_path / "checkpoint"), trigger=NOW).wait()
        return {(row.k, row.n) for row in spark.sql("SELECT k, n FROM live").collect()}

    # just before the last row, which tells the time but has not passed itself: rows of the last ten seconds
    assert content_at([*ROWS[:20], (7, 0.0, "2026-01-01 00:00:20")]) == {(0, 3), (1, 4), (2, 3)}
    assert content_at([(8, 0.0, "2026-01-01 00:00:27")]) == {(0, 1), (1, 1), (2, 1), (7, 1)}
    assert content_at(END) == set()
    spark.catalog.dropTempView("live")


def test_snapshots_of_pushed_rows(spark: Any) -> None:
    text = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k"
    found = []
    for database in (ms.connect(), ms.connect(spark=spark)):
        database.execute(DECLARED)
        query = database.sql(text)
        database.push("s", ROWS[:20])
        database.advance("s", "2026-01-01 00:00:22")
        kept = [query.snapshot(), query.snapshot("2026-01-01 00:00:25")]
        found.append([sorted(table.to_pylist(), key=str) for table in kept])
    assert found[0] == found[1] and all(found[0])

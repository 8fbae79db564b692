"""Queries on Spark that end before their inputs do, that come and go while a job runs, and limits of Spark's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import millstream as ms
from millstream.config import Config
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from tests.support.spark_histories import altered_job, late_cases

pytestmark = pytest.mark.spark

PATIENCE = 120


def values(table: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_stopped_query_leaves_what_it_has_produced(spark: Any, tmp_path: Path) -> None:
    with ms.connect(spark=spark) as db, ms.connect() as other:
        left = []
        for session, home in ((db, tmp_path / "spark"), (other, tmp_path / "alone")):
            session.execute(
                "CREATE STREAM s (k VARCHAR, v INT, t INT) ORDER BY t SLACK 2;"
                f"CREATE SINK o WITH (connector = 'file', path = '{home}', format = 'csv');"
                "INSERT INTO o SELECT k, sum(v) OVER (PARTITION BY k RANGE 3 PRECEDING) AS total FROM s"
            )
            query = session.sql("SELECT k, count(*) AS n FROM TUMBLE(s, t, 5) GROUP BY k, window_start", name="q")
            reader = session.sql("SELECT k, v FROM s", name="read").subscribe()
            session.push("s", [("a", 1, 1), ("b", 2, 3), ("a", 3, 2), ("b", 4, 6), ("a", 5, 8)])
            for name in ("q", "read", *(q.name for q in session.queries() if q.name not in ("q", "read"))):
                session.stop(name)
            session.push("s", [("a", 1, 90)])
            rows = sorted((row["k"], row["v"]) for batch in reader for row in batch.to_pylist())
            lines = [line for path in home.glob("part-*") for line in path.read_text().splitlines()]
            left.append((values(query.fetch()), rows, sorted(line for line in lines if line != "k,total")))
            with pytest.raises(ms.MillstreamError, match="q is not running"):
                query.fetch()
        assert left[0] == left[1]
        assert left[0][0] == [("a", 2), ("b", 1)] and len(left[0][1]) == 4 and len(left[0][2]) == 3


def test_queries_that_start_late_or_end_early_give_the_rows_of_in_process(spark: Any) -> None:
    found, met = late_cases(range(30), lambda: ms.connect(spark=spark))
    assert not found, found[0]
    assert met["stopped"] > 3 and met["to the end"] > 15 and met["altered"] > 3 and met["derived"] > 3


def test_altered_queries_of_a_job_give_the_rows_of_in_process(spark: Any) -> None:
    """Definitions of other shapes: their state is computed from what the job has read."""
    assert not altered_job(1, spark)


@pytest.mark.parametrize("keep", ["", " KEEP ALL"])
def test_what_uses_a_replaced_stream_follows_before_inputs_end(spark: Any, keep: str) -> None:
    found = []
    with ms.connect(spark=spark) as db, ms.connect() as alone:
        for session in (db, alone):
            session.execute(
                f"CREATE STREAM s (v INT, t INT) ORDER BY t{keep};"
                "CREATE STREAM d AS SELECT v, t FROM s WHERE v > 1;"
                "CREATE STREAM e AS SELECT v, t FROM d WHERE v < 90;"
                "CREATE VIEW top AS SELECT max(v) AS v FROM e [RANGE 10]"
            )
            query = session.sql("SELECT v, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM e", name="q")
            session.push("s", [(1, 1), (2, 2)])
            session.execute("CREATE OR REPLACE STREAM d AS SELECT CAST(v * 10 AS INT) AS v, t FROM s")
            session.push("s", [(3, 3)])
            top = session.sql("SELECT v FROM top").fetch().to_pylist()
            with pytest.raises(ms.MillstreamError, match="cannot use its new definition"):
                session.execute("CREATE OR REPLACE STREAM d AS SELECT v AS w, t FROM s")
            session.push("s", [(4, 4)])
            session.finish()
            found.append((values(query.fetch()), top))
    assert found[0] == found[1] and found[0][0][0] == (2, 1)


@ms.function("slowly", parameters={"x": "INTEGER"}, returns="INTEGER")
def slowly(x: Any) -> Any:
    """Two minutes, whatever it is called with."""
    time.sleep(120)
    return x


def later(wait: Callable[[], bool], work: Callable[[], Any]) -> Thread:
    def body() -> None:
        until = time.monotonic() + PATIENCE
        while not wait() and time.monotonic() < until:
            time.sleep(0.05)
        work()

    thread = Thread(target=body, daemon=True)
    thread.start()
    return thread


def busy(spark: Any) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_statements_that_run_spark_jobs_end_on_time(spark: Any) -> None:
    with ms.connect(spark=spark) as db:
        db.register_function(slowly)
        db.execute("CREATE STREAM a (v INT, t INT) ORDER BY t")
        db.execute("CREATE VIEW w AS SELECT slowly(v) AS n FROM a [RANGE 5]; SET statement_timeout = 3")
        db.push("a", [(1, 1), (2, 2)])
        begun = time.monotonic()
        with pytest.raises(ms.LimitError, match="statement_timeout"):
            db.sql("SELECT n FROM w")
        assert time.monotonic() - begun < 30
        db.execute("SET statement_timeout = 0")
        ends = later(lambda: busy(spark), db.cancel)
        with pytest.raises(ms.CancelledError):
            db.sql("SELECT n FROM w")
        ends.join()


def test_a_query_that_is_cancelled_leaves_the_others_of_its_run(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v,t\n1,1\n2,2\n")
    with ms.connect(spark=spark) as db:
        db.register_function(slowly)
        db.execute(f"CREATE STREAM a (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{tmp_path}/a.csv')")
        slow = db.sql("SELECT slowly(v) AS n FROM a", name="slow")
        quick = db.sql("SELECT sum(v) OVER (ROWS 1 PRECEDING) AS n FROM a")
        ends = later(lambda: busy(spark), slow.cancel)
        db.run()
        ends.join()
        assert quick.fetch().num_rows == 2 and quick.state == "ended"
        with pytest.raises(ms.CancelledError):
            slow.fetch()


@contextmanager
def running(spark: Any, tmp_path: Path) -> Iterator[tuple[Database, Callable[[list[tuple[int, int]]], None]]]:
    """A session whose job follows a directory, and how rows get there."""
    (tmp_path / "in").mkdir()
    tables = TableStore()
    host = SparkHost(spark, tables.read, checkpoint=str(tmp_path / "checkpoint"), follow=True, buckets=2, tables=tables)
    with Database(host, tables, Config()) as db:
        db.execute(
            f"CREATE STREAM a (v INT, t INT) ORDER BY t KEEP ALL WITH (connector = 'file', path = '{tmp_path}/in')"
        )
        written = iter(range(1000))

        def bring(rows: list[tuple[int, int]]) -> None:
            hidden = tmp_path / "in" / ".new"
            hidden.write_text("v,t\n" + "".join(f"{v},{t}\n" for v, t in rows))
            hidden.rename(tmp_path / "in" / f"{next(written):03}.csv")

        yield db, bring


def gets(query: Any, count: int) -> list[Any]:
    """The next rows of a query, waiting for so many."""
    rows: list[Any] = []
    until = time.monotonic() + PATIENCE
    while len(rows) < count and time.monotonic() < until:
        rows += query.fetch().to_pylist()
        time.sleep(0.1)
    return rows


def test_queries_come_and_go_while_a_job_runs(spark: Any, tmp_path: Path) -> None:
    with running(spark, tmp_path) as (db, bring):
        total = db.sql("SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM a", name="total")
        gone = db.sql("SELECT v FROM a", name="gone")
        db.execute("CREATE STREAM d KEEP ALL AS SELECT v, t FROM a WHERE v > 1")
        slow = db.sql("SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM d", name="slow")
        run = later(lambda: True, db.run)
        bring([(1, 1), (2, 2), (4, 3)])
        assert [row["n"] for row in gets(total, 2)] == [1, 3] and [row["v"] for row in gets(gone, 3)] == [1, 2, 4]
        gone.stop()
        past = db.sql("SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM a WITH HISTORY", name="past")
        some = db.sql("SELECT v FROM a SINCE 2", name="some")
        bring([(8, 4), (16, 5)])
        assert [row["n"] for row in gets(total, 2)] == [7, 15]
        assert [row["n"] for row in gets(past, 4)] == [1, 3, 7, 15] and past.coverage.is_complete
        assert [row["v"] for row in gets(some, 4)] == [2, 4, 8, 16] and some.coverage.since == 2
        assert db.sql("SELECT sum(v) AS n FROM HISTORY(a)").fetch().to_pylist() == [{"n": 31}]
        total.pause()
        assert total.state == "paused"
        bring([(32, 6)])
        assert [row["n"] for row in gets(past, 1)] == [31]
        total.resume()
        db.execute("ALTER QUERY total AS SELECT -sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM a")
        # other state: it is computed from what was read, also of rows that came during the pause
        db.execute("ALTER QUERY total AS SELECT sum(v) OVER (ROWS 3 PRECEDING) AS n FROM a")
        bring([(64, 7), (128, 8)])
        again = [row["n"] for row in gets(total, 2)]
        while again[-1] < 120:
            again += [row["n"] for row in gets(total, 1)]
        # the job may not have read the row of the pause when it changed: then that row's result is the new definition's
        assert again == [1, 3, 7, 15, 30, 60, 120][-len(again) :] and len(again) <= 3
        assert [row["n"] for row in gets(past, 2)] == [63, 127] and total.state == "running"
        kept = [row["n"] for row in gets(slow, 4)]
        assert kept == [2, 6, 14, 30, 62, 126][: len(kept)]
        assert db.sql("SELECT sum(v) AS n FROM HISTORY(d)").fetch().to_pylist() == [{"n": 254}]
        with pytest.raises(ms.UnsupportedError, match="some would have two"):
            db.execute("ALTER QUERY total AS SELECT CAST(v AS BIGINT) AS n FROM a")
        db.interrupt()
        run.join(PATIENCE)
        assert not run.is_alive()


def test_an_open_job_is_not_restarted_for_queries_that_come_and_go(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.millstream.open", "1")
    try:
        with running(spark, tmp_path) as (db, bring):
            total = db.sql("SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM a", name="total")
            gone = db.sql("SELECT v FROM a", name="gone")
            run = later(lambda: True, db.run)
            bring([(1, 1), (2, 2), (4, 3)])
            assert len(gets(total, 2)) == 2 and len(gets(gone, 3)) == 3
            began = {query.runId for query in spark.streams.active}
            gone.stop()
            gone = db.sql("SELECT -v AS v FROM a", name="gone")
            some = db.sql("SELECT max(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM a WHERE v < 9", name="some")
            bring([(8, 4), (16, 5)])
            assert [row["n"] for row in gets(total, 2)] == [7, 15]
            assert [row["n"] for row in gets(some, 1)] == [8] and [row["v"] for row in gets(gone, 2)] == [-8, -16]
            total.pause()
            bring([(32, 6)])
            assert [row["v"] for row in gets(gone, 1)] == [-32] and some.state == "running"
            total.resume()
            db.execute("ALTER QUERY total AS SELECT -sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM a")
            bring([(64, 7), (128, 8)])
            assert [row["n"] for row in gets(total, 2)] == [-31, -95]
            assert {query.runId for query in spark.streams.active} == began and len(began) == 1
            # other state needs a restart: the job has read seven rows by then, whose results are not given again
            db.execute("ALTER QUERY total AS SELECT sum(v) OVER (ROWS 1 PRECEDING) AS n FROM a")
            bring([(256, 9), (512, 10)])
            assert [row["n"] for row in gets(total, 2)] == [192, 384]
            assert [row["v"] for row in gets(gone, 4)] == [-64, -128, -256, -512]
            assert {query.runId for query in spark.streams.active}.isdisjoint(began)
            db.interrupt()
            run.join(PATIENCE)
            assert not run.is_alive()
    finally:
        spark.conf.unset("spark.millstream.open")

"""Definitions that change between two runs of a streaming job on Spark: each row has one result.

Values are powers of two, so a sum says which rows are in it: none is lost, none counts twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import millstream as ms
from millstream.config import Config
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.job import backfill
from millstream.hosts.spark.job.backfill import matters_from
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from millstream.spark import Millstream

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}
TOTAL = "sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n"


class Followed:
    """A directory that a stream follows: row number i has the value 2 ** i, and the time i."""

    def __init__(self, place: Path) -> None:
        self.place, self.rows = place, 0
        place.mkdir()

    @property
    def declared(self) -> str:
        return (
            f"CREATE STREAM a (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{self.place}', follow = true)"
        )

    def bring(self, count: int, session: Any = None) -> None:
        """A file with so many more rows; with a session, time passes all of them."""
        numbers = range(self.rows, self.rows + count)
        hidden = self.place / ".new"
        hidden.write_text("v,t\n" + "".join(f"{2**number},{number}\n" for number in numbers))
        hidden.rename(self.place / f"{self.rows:03}.csv")
        self.rows += count
        if session is not None:
            session.advance("a", self.rows)


class Runs:
    """Runs of one job, each over what has come since the one before, and ended by then."""

    def __init__(self, spark: Any, place: Path) -> None:
        self.m, self.checkpoint = Millstream(spark), f"{place}/checkpoint"

    def __call__(self, queries: dict[str, str], altered: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
        """The rows that each query gave, in order."""
        found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in queries}

        def take(name: str) -> Any:
            return lambda frame, batch: found[name].extend(tuple(row) for row in frame.collect())

        functions = {name: take(name) for name in queries}
        self.m.start(queries, checkpoint=self.checkpoint, trigger=NOW, foreach_batch=functions, altered=altered).wait()
        return {name: sorted(rows, key=lambda row: abs(row[0])) for name, rows in found.items()}


def sums(numbers: range, of: Any = lambda number: 2**number) -> list[tuple[int, int]]:
    """The value of each of these rows, and the sum of all up to it."""
    return [(of(i), sum(map(of, range(i + 1)))) for i in numbers]


@pytest.mark.parametrize("passed", [True, False], ids=["all results given", "some results due"])
def test_a_derived_stream_is_replaced_between_runs(spark: Any, tmp_path: Path, passed: bool) -> None:
    runs, files = Runs(spark, tmp_path), Followed(tmp_path / "in")
    time = runs.m if passed else None
    due = 0 if passed else 1  # the last row, whose time has not passed
    runs.m.execute(f"{files.declared}; CREATE STREAM d AS SELECT v, t FROM a")
    queries = {
        "total": f"SELECT v, {TOTAL} FROM d",
        "plain": "SELECT v, t FROM d",
        "rest": f"SELECT v, {TOTAL} FROM a",
    }
    files.bring(3, time)
    files.bring(2, time)
    given = runs(queries)
    assert given["total"] == given["rest"] == sums(range(5 - due))
    assert given["plain"] == [(2**i, i) for i in range(5)]

    files.bring(2, time)  # while no job runs
    runs.m.execute("CREATE OR REPLACE STREAM d AS SELECT CAST(-v AS INT) AS v, t FROM a")
    files.bring(1, time)
    given = runs(queries, ("total", "plain"))
    assert given["total"] == sums(range(5 - due, 8 - due), lambda i: -(2**i))
    assert given["plain"] == [(-(2**i), i) for i in range(5, 8)]
    assert given["rest"] == sums(range(5 - due, 8 - due))

    # replaced twice, and only some rows of the old definition are in the new one's state
    runs.m.execute("CREATE OR REPLACE STREAM d AS SELECT v, t FROM a WHERE v > 100")
    runs.m.execute("CREATE OR REPLACE STREAM d AS SELECT v, t FROM a WHERE v <> 4")
    files.bring(1, time)
    given = runs(queries, ("total", "plain"))
    assert given["total"] == [(v, n - 4) for v, n in sums(range(8 - due, 9 - due))]
    assert given["plain"] == [(2**8, 8)] and given["rest"] == sums(range(8 - due, 9 - due))

    files.bring(1, time)  # nothing changes any more
    given = runs(queries)
    assert given["total"] == [(v, n - 4) for v, n in sums(range(9 - due, 10 - due))]
    assert given["plain"] == [(2**9, 9)] and given["rest"] == sums(range(9 - due, 10 - due))
    runs.m.close()


def test_a_run_that_changes_nothing_new_gives_nothing_again(spark: Any, tmp_path: Path) -> None:
    """Without new rows the first micro-batch after a change is that of the next rows."""
    runs, files = Runs(spark, tmp_path), Followed(tmp_path / "in")
    runs.m.execute(f"{files.declared}; CREATE STREAM d AS SELECT v, t FROM a")
    files.bring(4, runs.m)
    assert runs({"total": f"SELECT v, {TOTAL} FROM d"})["total"] == sums(range(4))
    for frame in ("ROWS 1 PRECEDING", "ROWS 2 PRECEDING"):
        assert runs({"total": f"SELECT v, sum(v) OVER ({frame}) AS n FROM d"}, ("total",)) == {"total": []}
    files.bring(2, runs.m)
    given = runs({"total": "SELECT v, sum(v) OVER (ROWS 2 PRECEDING) AS n FROM d"})
    assert given["total"] == [(2**i, 7 * 2 ** (i - 2)) for i in range(4, 6)]
    runs.m.close()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_only_rows_in_frames_of_coming_results_are_read_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Of two altered queries the one that looks back farther decides; one that looks at all rows reads all."""
    asked: list[dict[str, int]] = []

    def noted(*given: Any) -> dict[str, int]:
        asked.append(matters_from(*given))
        return asked[-1]

    monkeypatch.setattr(backfill, "matters_from", noted)
    place = tmp_path / "in"
    place.mkdir()
    with ms.connect() as alone:
        runs = Runs(spark, tmp_path)
        alone.execute("CREATE STREAM a (k INT, v INT, t INT) ORDER BY t KEEP ALL")
        runs.m.execute(
            "CREATE STREAM a (k INT, v INT, t INT) ORDER BY t "
            f"WITH (connector = 'file', path = '{place}', format = '{form}', follow = true)"
        )
        frames = ["RANGE 3 PRECEDING", "RANGE BETWEEN 9 PRECEDING AND 2 PRECEDING"]
        others = ["RANGE 20 PRECEDING", "RANGE BETWEEN 30 PRECEDING AND 5 PRECEDING"]
        text = "SELECT k, v, sum(v) OVER (PARTITION BY k {0}) AS n, max(v) OVER (PARTITION BY k {0}) AS m FROM a"
        queries = {f"q{number}": text.format(frame) for number, frame in enumerate(frames)}
        standing = {name: alone.sql(query, name=name) for name, query in queries.items()}

        def run(first: int, *altered: str) -> None:
            times = range(first, first + 100)
            rows = [(time % 3, time * 7 % 11, time - time % 2) for time in times]
            hidden = place / ".new"
            table = pa.table(
                {name: pa.array(of, pa.int32()) for name, of in zip("kvt", zip(*rows, strict=True), strict=True)}
            )
            (pq.write_table if form == "parquet" else csv.write_csv)(table, hidden)
            hidden.rename(place / f"{first:05}.{form}")
            alone.push("a", rows)
            given = runs(queries, altered)
            for name, query in standing.items():
                expected = [tuple(row.values()) for row in query.fetch().to_pylist()]
                assert sorted(given[name], key=repr) == sorted(expected, key=repr), name

        run(0)
        run(100)
        assert asked == []
        queries = {f"q{number}": text.format(frame) for number, frame in enumerate(others)}
        for name, query in queries.items():
            alone.execute(f"ALTER QUERY {name} AS {query}")
        run(200, *queries)
        assert len(asked) == 1 and asked[0].keys() == {"a"} and 198 - 32 <= asked[0]["a"] <= 198 - 30
        queries["q0"] = text.format("RANGE UNBOUNDED PRECEDING")
        alone.execute(f"ALTER QUERY q0 AS {queries['q0']}")
        run(300, "q0")
        assert asked[1:] == [{}]
        runs.m.close()


class Sessions:
    """Sessions one after the other with the same directory for checkpoints."""

    def __init__(self, spark: Any, place: Path, declared: str) -> None:
        self.spark, self.place, self.declared = spark, place, declared

    def begin(self) -> Database:
        tables = TableStore()
        host = SparkHost(
            self.spark, tables.read, checkpoint=f"{self.place}/checkpoint", follow=True, buckets=2, tables=tables,
            trigger=NOW,
        )  # fmt: skip
        db = Database(host, tables, Config())
        db.execute(self.declared)
        return db


def test_queries_of_a_session_are_altered_before_its_job_goes_on(spark: Any, tmp_path: Path) -> None:
    files = Followed(tmp_path / "in")
    out = tmp_path / "out"
    declared = (
        f"{files.declared}; CREATE STREAM d AS SELECT v, t FROM a;"
        f"CREATE SINK o WITH (connector = 'file', path = '{out}', format = 'csv')"
    )
    sessions = Sessions(spark, tmp_path, declared)
    texts = {
        "total": f"SELECT v, {TOTAL} FROM d",
        "window": "SELECT v, sum(v) OVER (RANGE 1 PRECEDING) AS n FROM a",
        "plain": "SELECT v, t FROM a",
    }

    def run(count: int, *changes: str) -> dict[str, list[tuple[Any, ...]]]:
        with sessions.begin() as db:
            queries = {name: db.sql(text, name=name) for name, text in texts.items()}
            db.execute(f"INSERT INTO o SELECT v, {TOTAL} FROM d")
            for change in changes:
                db.execute(change)
            files.bring(count, db)
            db.run()
            found = {name: query.fetch() for name, query in queries.items()}
            return {
                name: sorted(
                    zip(*(column.to_pylist() for column in table.columns), strict=True), key=lambda r: abs(r[0])
                )
                for name, table in found.items()
            }

    def written() -> list[tuple[int, int]]:
        lines = [line for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]
        return sorted(tuple(map(int, line.split(","))) for line in lines if line != "v,n")  # type: ignore[misc]

    given = run(4)
    assert given["total"] == sums(range(4)) and given["plain"] == [(2**i, i) for i in range(4)]
    assert given["window"] == [(2**i, 2**i + 2**i // 2) for i in range(4)]
    given = run(
        3,
        "ALTER QUERY window AS SELECT v, sum(v) OVER (RANGE 2 PRECEDING) AS n FROM a",
        "ALTER QUERY plain AS SELECT CAST(-v AS INT) AS v, t FROM a",
        "CREATE OR REPLACE STREAM d AS SELECT v, t FROM a WHERE v <> 2",
    )
    assert given["total"] == [(v, n - 2) for v, n in sums(range(4, 7))]
    assert given["window"] == [(2**i, 7 * 2 ** (i - 2)) for i in range(4, 7)]
    assert given["plain"] == [(-(2**i), i) for i in range(4, 7)]
    assert written() == [*sums(range(4)), *((v, n - 2) for v, n in sums(range(4, 7)))]


def test_a_derived_stream_that_keeps_its_rows_between_runs(spark: Any, tmp_path: Path) -> None:
    """Its reader is altered, and follows the files of its rows from where it was. It is not replaced itself: it would
    be another stream, whose rows are not those of the checkpoint. After the error, the job goes on as it was."""
    files = Followed(tmp_path / "in")
    declared = f"{files.declared}; CREATE STREAM d KEEP ALL AS SELECT v, t FROM a"
    sessions = Sessions(spark, tmp_path, declared)
    given: list[tuple[int, int]] = []

    def run(count: int, change: str = "") -> None:
        with sessions.begin() as db:
            query = db.sql("SELECT v, sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM d", name="total")
            for statement in (ALTERED if runs else "", change):
                if statement:
                    db.execute(statement)
            if count:
                files.bring(count, db)
            db.run()
            given.extend((row["v"], row["n"]) for row in query.fetch().to_pylist())
            kept = db.sql("SELECT v FROM HISTORY(d)").fetch()["v"].to_pylist()
            assert sorted(kept) == [2**i for i in range(files.rows)]

    ALTERED, runs = "", 0
    run(4)
    run(2)
    before = len(given)
    assert sorted(given) == sums(range(before)) and 0 < before < 6
    ALTERED, runs = "ALTER QUERY total AS SELECT CAST(-v AS INT) AS v, sum(v) OVER (ROWS 1 PRECEDING) AS n FROM d", 1
    run(2)
    with sessions.begin() as db:
        db.execute("CREATE OR REPLACE STREAM d KEEP ALL AS SELECT CAST(-v AS INT) AS v, t FROM a")
        files.bring(1, db)
        with pytest.raises(ms.StateError, match="another query") as error:
            db.run()
        assert "stream d was declared differently" in str(error.value)
    run(0)
    run(1)
    run(1)  # a reader sees rows in the run after the one that keeps them
    after = sorted(given[before:], reverse=True)
    assert len(after) > 3
    assert after == [(-(2**i), 2**i + 2 ** (i - 1)) for i in range(before, before + len(after))]

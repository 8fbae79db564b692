"""Many queries as one on Spark: what they give is what they give in-process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.hosts.spark.file_state import FileValue
from millstream.hosts.spark.job.levels import LevelStore
from millstream.spark import Millstream

pytestmark = pytest.mark.spark

ROWS = [(i % 4, f"n{i % 3}", float(i * 7 % 11), i) for i in range(60)]
CONSTANTS = [{"id": f"q{i}", "k": i % 4, "low": float(i % 6), "n": 2 + i} for i in range(12)]
SETS = {
    "chosen": "SELECT k, v FROM s WHERE k = $k AND v > $low",
    "means": "SELECT v, avg(v) OVER (PARTITION BY name ROWS 2 PRECEDING) AS x FROM s WHERE v >= $low",
    "follows": "SELECT v_1, v FROM FILTER{v >= $low}(s) NEXT{$1.name = $2.name} s",
    "lengths": "SELECT v, sum(v) OVER (ROWS $k PRECEDING) AS x FROM s WHERE v > $low",
    "windows": "SELECT sum(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), $n) WHERE k = $k GROUP BY window_end",
    "hops": "SELECT window_end, name, max(v) AS x FROM HOP(TABLE s, DESCRIPTOR(t), 2, $n) WHERE k = $k "
    "GROUP BY window_end, name",
    "visits": "SELECT window_end, count(*) AS x FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(t), $n) "
    "WHERE k = $k GROUP BY k, window_start, window_end",
    "latest": "SELECT name, sum(v) AS x FROM (SELECT * FROM s WHERE v > $low) [PARTITION BY name ROWS $n] "
    "GROUP BY name",
    "ranges": "SELECT name, count(*) AS x FROM s [RANGE $n] WHERE v > $low GROUP BY name",
}


def shown(row: dict[str, Any]) -> str:
    return repr({name: sorted(value) if isinstance(value, list) else value for name, value in row.items()})


def results(db: Any) -> dict[str, list[str]]:
    db.execute("CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t")
    db.execute("CREATE TABLE limits (id VARCHAR PRIMARY KEY, kind INT, low DOUBLE)")
    db.execute("CREATE QUERIES followed AS SELECT v, low FROM s JOIN limits AS l ON s.k = l.kind WHERE v > l.low")
    db.execute("INSERT INTO limits VALUES ('a', 1, 2), ('b', 2, 3), ('c', 2, 1); DELETE FROM limits WHERE id = 'b'")
    sets = {name: db.sql_many(text, CONSTANTS, key="id", name=name) for name, text in SETS.items()}
    sets["followed"] = db.query_set("followed")
    for name in ("chosen", "follows"):
        sets[f"{name} once"] = db.sql_many(SETS[name], CONSTANTS, key="id", merged=True)
    alone = [db.sql(f"SELECT v, t FROM s WHERE k = {i % 4} AND v <= {i}", name=f"alone{i}") for i in range(9)]
    db.push("s", ROWS)
    db.finish()
    found = {name: sorted(map(shown, many.fetch().to_pylist())) for name, many in sets.items()}
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
    undo_last(checkpoint)
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


SHAPES = {
    "high": "SELECT k, v FROM s WHERE v > 40",
    "sums": "SELECT k, count(*) AS n, sum(v) AS total FROM TUMBLE(s, t, 25) GROUP BY k, window_start",
    "rises": "SELECT v_1, v FROM FILTER{v < 15}(s) NEXT{$1.k = $2.k} s",
    "means": "SELECT t, avg(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS mean FROM s",
}
DEEP = """SELECT sum(m) OVER (PARTITION BY k ROWS 9 PRECEDING) AS x FROM (
    SELECT k, max(n) OVER (PARTITION BY v ROWS 9 PRECEDING) AS m FROM (
        SELECT k, v, count(*) OVER (ROWS 9 PRECEDING) AS n FROM s))"""


def test_new_shapes_come_and_go_under_an_open_job(spark: Any, tmp_path: Path) -> None:
    """Each gives the rows of a query that is started and stopped between the same rows in-process; also if the job
    ends in between, and its last micro-batch runs again, with the queries that it had."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    found: dict[str, dict[int, list[Any]]] = {name: {} for name in SHAPES}

    def take(*names: str) -> dict[str, Any]:
        def of(name: str) -> Any:
            return lambda frame, batch: found[name].update({batch: [tuple(row) for row in frame.collect()]})

        return {name: of(name) for name in names}

    def started(*names: str) -> Any:
        trigger, functions = {"processingTime": "200 milliseconds"}, take("high", "sums", "means")
        return m.start(
            {"high": SHAPES["high"]},
            checkpoint=str(checkpoint),
            trigger=trigger,
            foreach_batch={name: functions[name] for name in names},
            open=True,
        )

    def bring(number: int) -> None:
        add_file(folder, number)
        job.query.processAllAvailable()

    m = declared(spark, folder, tmp_path / "out")
    job = started("high")
    try:
        bring(0)
        job.add({"sums": SHAPES["sums"]}, foreach_batch=take("sums"))
        bring(1)
        m.execute(f"INSERT INTO out {SHAPES['rises']}")
        job.add()
        job.drop("high")
        bring(2)
        with pytest.raises(ms.UnsupportedError, match="needs 3 exchanges, and the job was started with 2"):
            job.add({"deep": DEEP})
        m.execute(f"CREATE STREAM r (t INT) ORDER BY t WITH (connector='file', path='{folder}', follow=true)")
        with pytest.raises(ms.UnsupportedError, match="the job does not read r"):
            job.add({"unread": "SELECT t FROM r"})
        job.add({"means": SHAPES["means"]}, foreach_batch=take("means"))
    finally:
        job.stop()
    repeated = undo_last(checkpoint)
    before = {name: rows.pop(repeated, None) for name, rows in found.items()}
    m = declared(spark, folder, tmp_path / "out")
    with pytest.raises(ms.MillstreamError, match="whose rows a function takes"):
        started("high")
    job = started("high", "sums", "means")
    try:
        bring(3)
        assert before == {name: rows.get(repeated) for name, rows in found.items()} and before["sums"]
        job.drop("sums")
        bring(4)
        assert state_of(checkpoint) == {"means", job.queries[0]}
        # queries that fail are stopped alone: while rows are on their way to a kernel, and behind it
        bad = {
            "bad": "SELECT CAST(v * 1e30 AS INT) AS x FROM s",
            "worse": f"SELECT CAST(mean * 1e30 AS INT) AS x FROM ({SHAPES['means']})",
        }
        job.add(bad)
        bring(5)
        assert job.failed.keys() == bad.keys() and "bad" not in job.queries
        assert all(isinstance(error, ms.DataError) and "1e+30" in error.message for error in job.failed.values())
        assert job.query.isActive and state_of(checkpoint) == {"means", job.queries[0]}
    finally:
        job.stop()
    given = {name: sorted(row for rows in by_batch.values() for row in rows) for name, by_batch in found.items()}
    given["rises"] = sorted(tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist())
    expected = in_process()
    expected["means"].pop()  # the row of the last instant: on Spark it waits until that has passed
    assert given == expected


def in_process() -> dict[str, list[Any]]:
    """What the shapes give if they are started and stopped between the same rows."""
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, v DOUBLE, t BIGINT) ORDER BY t")
        came, went = {"high": 0, "sums": 1, "rises": 2, "means": 3}, {"high": 2, "sums": 4}
        queries: dict[str, Any] = {}
        for number in range(6):
            for name in (name for name, at in went.items() if at == number):
                queries[name].stop()
            queries |= {name: db.sql(SHAPES[name], name=name) for name, at in came.items() if at == number}
            db.push("s", rows_of(number))
        return {name: sorted(tuple(row.values()) for row in q.fetch().to_pylist()) for name, q in queries.items()}


def undo_last(checkpoint: Path) -> int:
    """The last micro-batch did not end, for all that Spark knows."""
    last = max((checkpoint / "commits").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    return int(last.name)


def state_of(checkpoint: Path) -> set[str]:
    """The queries that have state."""
    names = set()
    for bucket in (checkpoint / "millstream" / "state").glob("level-*/*"):
        store = LevelStore(FileValue(bucket, 1 << 30))
        store.load()
        names |= set(store.heads)
    return {name.partition(".")[0] for name in names}


def declared(spark: Any, folder: Path, sink: Path) -> Millstream:
    m = Millstream(spark)
    m.execute(f"""
        CREATE STREAM s (k INT, v DOUBLE, t BIGINT) ORDER BY t
            WITH (connector = 'file', path = '{folder}', follow = true);
        CREATE SINK out WITH (connector = 'file', path = '{sink}')""")
    return m


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


SEQUENCES = {
    "falls": "SELECT v_1, v FROM FILTER{{k = {kind} AND v > {low}}}(s) NEXT{{$1.k = $2.k AND $2.v < $1.v}} s",
    "climbs": "SELECT v_1, v FROM FILTER{{v >= {low} - 40}}(s) FOLD{{$2.k = $.k AND DUR <= 90, $2.v > $.v, }} s",
}
COMING = [
    {"ann": (1, 10.0), "bob": (2, 50.0)},
    {"eve": (1, 10.0), "joe": (0, 30.0)},
    {"ann": None, "kim": (2, 50.0)},
    {"lee": (0, 0.0), "max": (1, 55.0)},
    {"joe": None},
]
"""queries that come and go before a micro-batch"""


def test_sequences_take_in_queries_under_a_running_job(spark: Any, tmp_path: Path) -> None:
    """All run as one automaton, and none sees an event that came before it; also if the job ends in between."""
    folder, checkpoint = tmp_path / "in", str(tmp_path / "checkpoint")
    folder.mkdir()
    db = ms.connect(spark=spark)
    db.execute(f"""
        CREATE STREAM s (k INT, v DOUBLE, t BIGINT) ORDER BY t
            WITH (connector = 'file', path = '{folder}', follow = true);
        CREATE TABLE limits (id VARCHAR PRIMARY KEY, kind INT, low DOUBLE)""")
    for name, text in SEQUENCES.items():
        text = text.format(kind="l.kind", low="l.low").replace(" FROM ", " FROM limits AS l, ", 1)
        db.execute(f"CREATE QUERIES {name} AS {text}")
    host, trigger = db._host, {"processingTime": "200 milliseconds"}
    found: dict[tuple[str, str], list[Any]] = {}
    job = host.start_job(list(host._queries.values()), checkpoint, trigger)
    try:
        for number, change in enumerate(COMING):
            for key, row in change.items():
                db.execute(
                    f"DELETE FROM limits WHERE id = '{key}'"
                    if row is None
                    else f"INSERT INTO limits VALUES ('{key}', {row[0]}, {row[1]})"
                )
            if number == 3:
                job.stop()
                job = host.start_job(list(host._queries.values()), checkpoint, trigger)
            add_file(folder, number)
            job.query.processAllAvailable()
            for name in SEQUENCES:
                assert len(db.query_set(name).sharing()) == 1
                for row in db.query_set(name).fetch().to_pylist():
                    query, *values = row.values()
                    found.setdefault((name, query), []).append(tuple(values))
    finally:
        job.stop()
    expected = sequences_alone()
    # the event of a file's last instant waits for the next one on Spark, where the query may be gone by then
    end = len(COMING) * 40 - 1
    for name, query in expected:
        mine, theirs = sorted(found.get((name, query), [])), sorted(expected[name, query])
        if any(query in change and change[query] is None for change in COMING):
            assert set(mine) <= set(theirs) and len(theirs) - len(mine) <= 2, (name, query)
        else:
            assert mine == [row for row in theirs if row[-1] != end] and mine, (name, query)


def sequences_alone() -> dict[tuple[str, str], list[Any]]:
    """What each query gives that is started and stopped between the same rows in-process."""
    found: dict[tuple[str, str], list[Any]] = {}
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, v DOUBLE, t BIGINT) ORDER BY t")
        running: dict[tuple[str, str], Any] = {}
        for number, change in enumerate(COMING):
            for key, row in change.items():
                for name, text in SEQUENCES.items():
                    if row is None:
                        query = running.pop((name, key))
                        found[name, key] = [tuple(each.values()) for each in query.fetch().to_pylist()]
                        query.stop()
                    else:
                        running[name, key] = db.sql(text.format(kind=row[0], low=row[1]))
            db.push("s", rows_of(number))
        rows = {key: [tuple(each.values()) for each in query.fetch().to_pylist()] for key, query in running.items()}
    return found | rows


def test_queries_that_come_and_go_between_pushes(spark: Any) -> None:
    """Each gives what it gives in-process, also if one job reads all pushes at the end."""

    def results(db: Any) -> list[list[str]]:
        db.execute("CREATE STREAM a (k INT, v INT, t INT) ORDER BY t; CREATE STREAM b (k INT, v INT, t INT) ORDER BY t")
        db.execute("CREATE TABLE limits (id VARCHAR PRIMARY KEY, low INT)")
        first = [{"id": "x", "low": 0}, {"id": "z", "low": 1}]
        sets = [
            db.sql_many("SELECT v FROM a WHERE v > $low", first, key="id"),
            db.sql_many("SELECT v_1, v FROM FILTER{v > $low}(a) NEXT{$1.k = $2.k} a", first, key="id"),
        ]
        for name, second in (("same", "a"), ("other", "b")):
            text = f"SELECT v_1, v FROM limits AS l, FILTER{{v > l.low}}(a) NEXT{{$1.k = $2.k}} {second}"
            db.execute(f"CREATE QUERIES {name} AS {text}")
        db.push("a", [(1, 5, 1)])
        for each in sets:
            each.add([{"id": "y", "low": 1}])
        db.execute("INSERT INTO limits VALUES ('p', 0), ('q', 0)")
        db.push("a", [(1, 6, 2)])
        db.push("b", [(1, 1, 3)])
        db.push("a", [(1, 6, 4)])
        db.execute("DELETE FROM limits WHERE id = 'q'; INSERT INTO limits VALUES ('r', 5)")
        for each in sets:
            each.drop(["z"])
        db.push("a", [(1, 7, 5)])
        db.push("b", [(1, 1, 6)])
        db.finish()
        every = [*sets, db.query_set("same"), db.query_set("other")]
        return [sorted(map(str, each.fetch().to_pylist())) for each in every]

    with ms.connect() as here, ms.connect(spark=spark) as there:
        assert results(there) == results(here)

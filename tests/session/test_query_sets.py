"""Many queries as one: a set of queries gives what the same queries give one by one."""

from __future__ import annotations

import datetime as dt
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.plan.templates import SHARING
from tests.tiers import one_seed_each

STREAMS = """
    CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t;
    CREATE STREAM r (k INT, w INT, t INT) ORDER BY t;
    CREATE TABLE kinds (k INT, kind VARCHAR);
    INSERT INTO kinds VALUES (1, 'odd'), (2, 'even'), (3, 'odd');
    CREATE AGGREGATE spread(x DOUBLE) : DOUBLE {
        TABLE seen(low DOUBLE, high DOUBLE);
        INITIALIZE: { INSERT INTO seen VALUES (x, x); }
        ITERATE: { UPDATE seen SET low = least(low, x), high = greatest(high, x); }
        TERMINATE: { INSERT INTO RETURN SELECT high - low FROM seen; }
    }
"""

SHAPES = {
    "selection": "SELECT k, v FROM s WHERE k = $k AND v > $low",
    "between": "SELECT v, t FROM s WHERE v BETWEEN $low AND $high",
    "one side": "SELECT v FROM s WHERE v <= $high",
    "text": "SELECT v FROM s WHERE name = $name",
    "any of": "SELECT v FROM s WHERE name = $name OR k = $k",
    "in": "SELECT v FROM s WHERE k IN ($k, 2) AND NOT v < $low",
    "not between": "SELECT v FROM s WHERE NOT (v BETWEEN $low AND $high)",
    "either": "SELECT v FROM s WHERE (k = $k OR v > $high) AND (name = $name OR NOT v < $low OR k = 2)",
    "in or like": "SELECT v FROM s WHERE k IN ($k, 1) OR (v > $low AND name LIKE $name || '%')",
    "prefix": "SELECT v FROM s WHERE name LIKE $name || '%'",
    "arithmetic": "SELECT v * $low AS x FROM s WHERE v + $low > $high - 1",
    "projection": "SELECT v + $low AS x, $name AS who FROM s",
    "over": "SELECT v, sum(v) OVER (ROWS 2 PRECEDING) AS x FROM s WHERE k = $k",
    "range over": "SELECT v, count(*) OVER (PARTITION BY name RANGE 5 PRECEDING) AS x FROM s WHERE v > $low",
    "shared over": "SELECT v, x FROM (SELECT v, avg(v) OVER (ROWS 3 PRECEDING) AS x FROM s) WHERE v > x + $low",
    "lengths": "SELECT v, sum(v) OVER (ROWS $k PRECEDING) AS x FROM s WHERE v > $low",
    "range lengths": "SELECT v, min(v) OVER w AS a, count(DISTINCT name) OVER w AS b, first_value(v) OVER w AS c, "
    "sum(v) OVER (ROWS $k PRECEDING) AS d FROM s WHERE v > $low WINDOW w AS (PARTITION BY k RANGE $length PRECEDING)",
    "tumble": "SELECT window_end, count(*) AS n, sum(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) "
    "WHERE k = $k GROUP BY window_start, window_end",
    "hop": "SELECT window_end, name, max(v) AS x FROM HOP(TABLE s, DESCRIPTOR(t), 2, 6) "
    "WHERE v > $low GROUP BY window_start, window_end, name",
    "having": "SELECT window_end, count(*) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) "
    "GROUP BY window_start, window_end HAVING count(*) > $k",
    "relation": "SELECT name, count(*) AS n FROM s [RANGE 6] WHERE k = $k GROUP BY name",
    "rows window": "SELECT max(v) AS x FROM s [ROWS 3] WHERE v > $low",
    "join": "SELECT a.v, b.w FROM s [RANGE 4] AS a, r [RANGE 6] AS b WHERE a.k = b.k AND a.v > $low AND b.w < $k",
    "join condition": "SELECT a.v, b.w FROM s [RANGE 4] AS a, r [RANGE 6] AS b WHERE a.k = b.k AND a.v + b.w > $high",
    "outer join": "SELECT a.v, b.w FROM s [RANGE 4] AS a LEFT JOIN r [RANGE 6] AS b ON a.k = b.k WHERE a.v > $low",
    "changes": "ISTREAM (SELECT DISTINCT name FROM s [RANGE 5] WHERE v > $low)",
    "union": "SELECT k, t FROM s WHERE v > $low UNION ALL SELECT k, t FROM r WHERE w = $k",
    "table": "SELECT s.v, kinds.kind FROM s JOIN kinds ON s.k = kinds.k WHERE s.v > $low",
    "table of a choice": "SELECT s.v, kinds.kind FROM s JOIN kinds ON s.k = kinds.k AND kinds.k > $k WHERE s.v > $low",
    "outer table of a choice": "SELECT s.v, kind, sum(v) OVER (PARTITION BY kind ROWS 2 PRECEDING) AS x "
    "FROM s LEFT JOIN kinds ON s.k = kinds.k + $k AND kinds.k <> $k - 1 WHERE s.v > $low",
    "part of a table": "SELECT s.v, kind FROM s JOIN (SELECT k, kind FROM kinds WHERE k < $k) AS few ON s.k = few.k",
    "rows in a table": "SELECT v, k FROM s WHERE k IN (SELECT k FROM kinds WHERE k >= $k) AND v > $low",
    "session": "SELECT window_end, count(*) AS n FROM SESSION(TABLE s PARTITION BY name, DESCRIPTOR(t), 2) "
    "WHERE v > $low GROUP BY window_start, window_end, name",
    "pattern": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY name ORDER BY t MEASURES A.v AS a, LAST(B.v) AS b "
    "PATTERN (A B+) DEFINE A AS v > $low, B AS v < PREV(v) + $high)",
    "next": "SELECT name_1, v_1, v FROM FILTER{v > $low}(s) NEXT{$1.name = $2.name} s",
    "next of constants": "SELECT v_1, v, t FROM s NEXT{$2.v > $1.v + $low AND DUR <= $k} s",
    "next of a choice": "SELECT v_1, k, v FROM FILTER{v > $low}(s) NEXT{$2.v <> $1.v} (FILTER{k = $k}(s))",
    "next of the second": "SELECT v, w FROM (SELECT v FROM s) NEXT (FILTER{w = $k}(r))",
    "next of lengths": "SELECT v_1, v FROM FILTER{v > $low}(s) NEXT{$1.name = $2.name AND DUR <= $length} s",
    "fold of lengths": "SELECT v_1, v, n FROM s FOLD{$2.name = $.name AND DUR < $length, $2.v >= $.v, count(*) AS n} s",
    "fold": "SELECT v_1, v, n FROM FILTER{n < 4}(FILTER{v >= $low}(s) FOLD{$2.name = $.name, $2.v <= $.v + $high, "
    "count(*) AS n} s)",
    "fold of a choice": "SELECT k_1, v_1, v, total FROM s FOLD{$2.k = $.k, DUR < 6, sum($2.v + $low) AS total} "
    "(FILTER{v <= $high}(s))",
    "chain": "SELECT a, b, v FROM FILTER{b > a + $low}((SELECT name, v AS a FROM FILTER{k = $k}(s)) "
    "NEXT{$1.name = $2.other} (SELECT name AS other, v AS b FROM s)) "
    "NEXT{$2.v > b AND DUR < 9} (SELECT v FROM FILTER{v < $high}(s))",
    "aggregate in SQL": "SELECT window_end, name, spread(v + $low) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), 4) "
    "WHERE k <> $k GROUP BY window_start, window_end, name",
    "aggregate in SQL over": "SELECT v, spread(v) OVER (PARTITION BY name ROWS 2 PRECEDING) AS x FROM s WHERE v > $low",
    "groupings": "SELECT window_end, CASE WHEN $k > 1 THEN name ELSE 'all' END AS grouping, sum(v) AS x "
    "FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) "
    "GROUP BY window_start, window_end, CASE WHEN $k > 1 THEN name ELSE 'all' END",
    "tumble lengths": "SELECT window_end, name, sum(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), $length) "
    "WHERE v > $low GROUP BY window_start, window_end, name",
    "programs of lengths": "SELECT window_start, name, spread(v) AS x, count(DISTINCT k) AS n "
    "FROM TUMBLE(TABLE s, DESCRIPTOR(t), $length) WHERE v > $low GROUP BY window_start, name",
    "hop lengths": "SELECT window_start, name, sum(v) AS x, min(k) AS y "
    "FROM HOP(TABLE s, DESCRIPTOR(t), $step, $length) WHERE v > $low GROUP BY window_start, name",
    "cumulate lengths": "SELECT window_end, max(v) AS x, count(*) AS n FROM CUMULATE(TABLE s, DESCRIPTOR(t), $step, 6) "
    "WHERE k = $k GROUP BY window_start, window_end",
    "session lengths": "SELECT window_start, window_end, name, sum(v) AS x "
    "FROM SESSION(TABLE (SELECT * FROM s WHERE v > $low) PARTITION BY name, DESCRIPTOR(t), $step) "
    "GROUP BY window_start, window_end, name",
    "rows lengths": "SELECT k, count(*) AS n, sum(v) AS x FROM s [PARTITION BY k ROWS $length SLIDE 2] "
    "WHERE k <= $k GROUP BY k",
    "changes of lengths": "ISTREAM (SELECT DISTINCT name FROM s [RANGE $length] WHERE v > $low)",
    "relation lengths": "SELECT name, count(*) AS n FROM s [RANGE $length] WHERE k = $k GROUP BY name",
    "join lengths": "SELECT a.v, b.w FROM s [RANGE $length] AS a, r [RANGE 4] AS b WHERE a.k = b.k AND b.w > $k",
    "exceeds": "SELECT v FROM s [RANGE 5] WHERE v > $low EXCEPT SELECT v FROM s [RANGE 2] WHERE k = $k",
}

RELATIONS = (
    "relation", "rows window", "join", "join condition", "outer join", "exceeds", "relation lengths", "join lengths",
    "rows lengths",
)  # fmt: skip
WITHOUT_ORDER = ("join", "join condition", "union", "changes", "changes of lengths", "join lengths", "rows lengths")
"""shapes whose results have no order among equal times"""


def written(text: str, row: dict[str, Any]) -> str:
    """The query of one row of constants, as somebody would write it."""

    def literal(match: re.Match[str]) -> str:
        value = row[match[1]]
        return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else f"({value!r})"

    for place in ("ROWS $k", "RANGE $length", "ROWS $length", "$step, ", "$length)", "$step)"):
        # the grammar takes nothing but a number there
        name = place.strip("RANGEOWS $),")
        text = text.replace(place, place.replace(f"${name}", str(row.get(name))))
    return re.sub(r"\$([a-z]\w*)", literal, text)


def constants(draw: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "k": draw.randint(0, 3),
        "length": draw.randint(2, 6),
        "step": draw.choice([1, 2, 3]),
        "name": draw.choice(["a", "b", "ab", "it's"]),
        "low": draw.choice([0.0, 1.0, 2.5, -1.0]),
        "high": draw.choice([1.0, 3.0, 4.0]),
    }


def some_rows(draw: random.Random, time: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], int]:
    s, r = [], []
    for _ in range(draw.randint(1, 8)):
        time += draw.choice([0, 0, 1, 1, 2, 4])
        v = draw.choice([None, 0.0, 1.0, 2.0, 2.5, 3.0, 5.0])
        s.append((draw.choice([None, 0, 1, 2, 3]), draw.choice(["a", "b", "ab", "it's", None]), v, time))
        if draw.random() < 0.5:
            r.append((draw.randint(0, 3), draw.randint(0, 4), time))
    return s, r, time


def by_query(table: Any) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in table.to_pylist():
        queries, *values = row.values()
        for query in queries if isinstance(queries, list) else [queries]:
            found.setdefault(query, []).append(tuple(values))
    return found


@pytest.mark.parametrize(("shape", "seed"), one_seed_each(SHAPES, 3))
def test_a_set_gives_what_its_queries_give_alone(shape: str, seed: int) -> None:
    draw, text = random.Random(f"{shape} {seed}"), SHAPES[shape]
    columns = ["id", *sorted(set(re.findall(r"\$([a-z]\w*)", text)))]
    db = ms.connect()
    db.execute(STREAMS)
    if seed % 2:
        # each of the rules over sets may be left out
        db.execute(f"SET disable_rule = '{draw.choice(list(SHARING))}'")

    def rows_of(keys: list[int]) -> list[dict[str, Any]]:
        return [{name: value for name, value in constants(draw, key).items() if name in columns} for key in keys]

    first = rows_of([1, 2, 3, 4])
    many = db.sql_many(text, first, key="id", merged=seed % 3 == 2)
    alone = {row["id"]: db.sql(written(text, row)) for row in first}
    got: dict[int, list[tuple[Any, ...]]] = {}
    want: dict[int, list[tuple[Any, ...]]] = {}

    def look() -> None:
        for key, rows in by_query(many.fetch()).items():
            got.setdefault(key, []).extend(rows)
        for key, query in alone.items():
            want.setdefault(key, []).extend(tuple(row.values()) for row in query.fetch().to_pylist())

    time, fresh = 0, 5
    for _ in range(5):
        s, r, time = some_rows(draw, time)
        db.push("s", s)
        db.push("r", r)
        if draw.random() < 0.5:
            look()
        if draw.random() < 0.6:
            added = rows_of(list(range(fresh, fresh + draw.randint(1, 3))))
            fresh += len(added)
            many.add(added)
            alone |= {row["id"]: db.sql(written(text, row)) for row in added}
        if draw.random() < 0.4 and len(alone) > 1:
            look()
            gone = draw.sample(sorted(alone), draw.randint(1, len(alone) - 1))
            many.drop(gone)
            for key in gone:
                alone.pop(key).stop()
        assert len(many) == len(alone)
        assert sorted(many.keys()) == sorted(alone)
    db.finish()
    look()
    for key in want:
        mine, theirs = got.get(key, []), want[key]
        if shape in RELATIONS and key not in alone:
            # a set emits the rows of relations in order of their start over all its queries, so a query that was
            # dropped may have emitted less by then
            assert all(mine.count(row) <= theirs.count(row) for row in mine), (shape, key)
        elif shape in WITHOUT_ORDER or "NEXT" in text or "FOLD" in text:
            assert sorted(mine, key=repr) == sorted(theirs, key=repr), (shape, key)
        else:
            assert mine == theirs, (shape, key)


@pytest.mark.parametrize(
    "shape",
    ["next", "next of constants", "next of a choice", "next of lengths", "fold", "fold of a choice", "chain"],
)
def test_events_that_follow_each_other_are_found_by_one_automaton(shape: str) -> None:
    draw, text = random.Random(shape), SHAPES[shape]
    columns = ["id", *sorted(set(re.findall(r"\$([a-z]\w*)", text)))]
    db = ms.connect()
    db.execute(STREAMS)
    rows = [{name: value for name, value in constants(draw, key).items() if name in columns} for key in range(20)]
    plan = db.sql_many(text, rows, key="id").explain().partition("physical plan")[2]
    # what only the first step of a chain chooses is chosen behind it, so both steps have one automaton for all queries
    assert plan.count("automaton") == (2 if shape == "chain" else 1)


def test_a_row_of_several_queries_is_there_once(tmp_path: Any) -> None:
    """With the keys of its queries, as far as they are there and have room for it."""
    text = "SELECT v_1, v FROM FILTER{v > $low}(s) NEXT{$1.name = $2.name AND DUR <= $length} s"
    rows = [{"id": f"q{i}", "low": float(i % 2), "length": 2 + i} for i in range(4)]
    events = [(0, "a", 2.0, 0), (0, "b", 1.0, 1), (0, "a", 3.0, 4), (0, "b", 1.0, 6), (0, "c", 1.0, 9)]
    with ms.connect(tmp_path / "db") as db:
        db.execute(STREAMS)
        many = db.sql_many(text, rows, key="id", name="many", merged=True)
        db.push("s", events)
    with ms.connect(tmp_path / "db") as db:
        many = db.query_set("many")
        assert many.schema.names == ["queries", "v_1", "v", "event_start", "event_end"]
        found = [(sorted(row["queries"]), row["v_1"], row["v"]) for row in many.fetch().to_pylist()]
        assert found == [(["q2", "q3"], 2.0, 3.0)]
        many.drop(["q3"])
        db.push("s", [(0, "a", 1.0, 9)])
        db.finish()
        # the second event of `a` waited for this one; the query that would allow it and is gone is not named
        assert [(row["queries"], row["v"]) for row in many.fetch().to_pylist()] == []
        assert many.metrics(["q2"]).to_pylist()[0]["rows_out"] == 1


@pytest.mark.parametrize("how", ["stop", "drop"])
def test_limits_count_rows_of_several_queries_for_each(how: str) -> None:
    with ms.connect() as db:
        db.execute(STREAMS + f"; SET max_unfetched_per_query = 2; SET when_unfetched = '{how}'")
        rows = [{"id": i, "low": float(i)} for i in range(3)]
        many = db.sql_many("SELECT v FROM s WHERE v > $low", rows, key="id", merged=True)
        db.push("s", [(0, "a", v, t) for t, v in enumerate((3.0, 2.0, 3.0, 1.0, 5.0))])
        found = [(sorted(row["queries"]), row["v"]) for row in many.fetch().to_pylist()]
        assert found == [([0, 1, 2], 3.0), ([0, 1], 2.0), ([2], 3.0)]
        assert sorted(many.stopped) == ([0, 1, 2] if how == "stop" else [])


def test_a_set_survives_closing_and_a_crash(tmp_path: Any) -> None:
    text = "SELECT v, sum(v) OVER (ROWS 1 PRECEDING) AS x FROM s WHERE k = $k AND v > $low"
    db = ms.connect(tmp_path / "kept")
    db.execute(STREAMS)
    many = db.sql_many(text, [{"id": "one", "k": 1, "low": 0.0}, {"id": "two", "k": 2, "low": 0.0}], key="id", name="m")
    db.push("s", [(1, "a", 1.0, 1), (2, "a", 2.0, 2)])
    assert by_query(many.fetch()) == {"one": [(1.0, 1.0)], "two": [(2.0, 2.0)]}
    many.drop(["two"])
    many.add([{"id": "three", "k": 2, "low": 3.0}])
    db.close()

    db = ms.connect(tmp_path / "kept")
    many = db.query_set("m")
    assert sorted(many.keys()) == ["one", "three"]
    db.push("s", [(1, "a", 5.0, 3), (2, "a", 2.0, 4), (2, "a", 4.0, 5)])
    many.add([{"id": "two", "k": 2, "low": 0.0}])
    db.push("s", [(2, "a", 7.0, 6)])
    assert by_query(many.fetch()) == {"one": [(5.0, 6.0)], "three": [(4.0, 4.0), (7.0, 11.0)], "two": [(7.0, 7.0)]}
    many.stop()
    db.close()
    db = ms.connect(tmp_path / "kept")
    assert db.query_sets() == [] and db.queries() == []


@pytest.mark.parametrize(
    ("shape", "seed"),
    one_seed_each(["selection", "lengths", "tumble", "having", "join", "pattern", "next of lengths"], 2),
)
def test_rows_that_wait_outlive_dropped_queries_and_restarts(shape: str, seed: int, tmp_path: Path) -> None:
    """A saved set that is closed, or crashes, at any moment gives what one in memory gives that goes on."""
    draw, text = random.Random(f"{shape} {seed}"), SHAPES[shape]
    columns = ["id", *sorted(set(re.findall(r"\$([a-z]\w*)", text)))]

    def rows_of(keys: list[int]) -> list[dict[str, Any]]:
        return [{name: value for name, value in constants(draw, key).items() if name in columns} for key in keys]

    home, first = tmp_path / "0", rows_of([1, 2, 3, 4])
    steady, saved = ms.connect(), ms.connect(home)
    for db in (steady, saved):
        db.execute(STREAMS)
        db.sql_many(text, first, key="id", name="m", merged=seed % 2 == 1)
    got: list[dict[int, list[tuple[Any, ...]]]] = [{}, {}]
    time, fresh = 0, 5
    for step in range(6):
        s, r, time = some_rows(draw, time)
        known = sorted(steady.query_set("m").keys())
        gone = draw.sample(known, draw.randint(0, max(0, len(known) - 1)))
        added = rows_of(list(range(fresh, fresh + draw.randint(0, 2))))
        looks, how = draw.random() < 0.3, draw.choice(["go on", "close", "crash"])
        fresh += len(added)
        for db, seen in zip((steady, saved), got, strict=True):
            many = db.query_set("m")
            db.push("s", s)
            db.push("r", r)
            many.drop(gone)
            if looks or step == 5:
                for key, rows in by_query(many.fetch()).items():
                    seen.setdefault(key, []).extend(rows)
            many.add(added)
        if how == "crash":
            left, home = home, tmp_path / str(step + 1)
            shutil.copytree(left, home)
        if how != "go on":
            saved.close()
            saved = ms.connect(home)
            assert sorted(saved.query_set("m").keys()) == sorted(steady.query_set("m").keys())
    assert {key: sorted(rows, key=repr) for key, rows in got[0].items()} == {
        key: sorted(rows, key=repr) for key, rows in got[1].items()
    }
    for db in (steady, saved):
        db.query_set("m").stop()
        assert not db.sql("SHOW TABLES").arrow().num_rows - 1  # nothing is left but the table of kinds
        db.close()


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("SELECT sum(v) OVER (ROWS $n PRECEDING) AS x FROM s WHERE k = $k", 1),
        ("SELECT sum(v) OVER (RANGE $n PRECEDING) AS x FROM s WHERE k = $k", 1),
        ("SELECT sum(v) AS x FROM s [RANGE $n] WHERE k = $k", 1),
        ("SELECT max(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), $n) WHERE k = $k GROUP BY window_end", 1),
        ("SELECT max(v) AS x FROM HOP(TABLE s, DESCRIPTOR(t), 2, $n) WHERE k = $k GROUP BY window_end", 1),
        ("SELECT max(v) AS x FROM CUMULATE(TABLE s, DESCRIPTOR(t), $n, $n) WHERE k = $k GROUP BY window_end", 1),
        (
            "SELECT max(v) AS x FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(t), $n) WHERE k = $k GROUP BY k, "
            "window_start, window_end",
            1,
        ),
        ("SELECT sum(v) AS x FROM s [PARTITION BY k ROWS $n] WHERE k = $k", 1),
        # one window for all queries of a length: they differ behind it
        ("SELECT max(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), $n) GROUP BY window_end HAVING max(v) > $k", 20),
        ("SELECT sum(v) AS x FROM s [ROWS $n] WHERE k = $k", 20),
    ],
)
def test_windows_of_different_lengths_run_as_one_program(text: str, programs: int) -> None:
    with ms.connect() as db:
        db.execute(STREAMS)
        many = db.sql_many(text, [{"id": i, "n": 1 + i, "k": i} for i in range(20)], key="id")
        assert len(many.queries()) == programs
        many.add([{"id": i, "n": 20 + i, "k": i} for i in range(20, 25)])
        assert len(many.queries()) == (1 if programs == 1 else 25)
        for wrong in (-1, None):
            with pytest.raises(ms.MillstreamError):
                many.add([{"id": 30, "n": 3, "k": 1}, {"id": 31, "n": wrong, "k": 1}])
        assert len(many) == 25
        # neither of them was started, so both keys are free
        many.add([{"id": 30, "n": 3, "k": 1}, {"id": 31, "n": 4, "k": 1}])
        assert sorted(many.keys()) == [*range(25), 30, 31]


@pytest.mark.parametrize(
    ("window", "right", "wrong"),
    [
        ("HOP(TABLE s, DESCRIPTOR(t), $step, $size)", [(1, 10), (10, 90_000)], (1, 10_001)),
        ("CUMULATE(TABLE s, DESCRIPTOR(t), $step, $size)", [(1, 10), (5, 20)], (3, 10)),
    ],
)
def test_lengths_that_do_not_fit_each_other_are_refused(
    window: str, right: list[tuple[int, int]], wrong: tuple[int, int]
) -> None:
    """Although other queries have each of the two."""
    with ms.connect() as db:
        db.execute(STREAMS)
        rows = [{"id": i, "k": i, "step": step, "size": size} for i, (step, size) in enumerate([*right, wrong])]
        many = db.sql_many(f"SELECT sum(v) AS x FROM {window} WHERE k = $k GROUP BY window_end", rows[:2], key="id")
        with pytest.raises(ms.MillstreamError, match=r"\$size and \$step cannot be the lengths of a window"):
            many.add(rows[2:])
        assert len(many) == 2 and len(many.queries()) == 1


def test_lengths_of_time_are_numbers_of_units_or_intervals() -> None:
    start = dt.datetime(2024, 1, 1)
    shapes = [
        "SELECT sum(v) OVER (RANGE {} PRECEDING) AS x FROM z WHERE k = $k",
        "SELECT sum(v) AS x FROM z [RANGE {}] WHERE k = $k",
        "SELECT window_end, sum(v) AS x FROM TUMBLE(TABLE z, DESCRIPTOR(t), {}) WHERE k = $k GROUP BY window_end",
        "SELECT window_end, sum(v) AS x FROM HOP(TABLE z, DESCRIPTOR(t), 2 SECONDS, {}) WHERE k = $k "
        "GROUP BY window_end",
        "SELECT window_end, sum(v) AS x FROM SESSION(TABLE z PARTITION BY k, DESCRIPTOR(t), {}) WHERE k = $k "
        "GROUP BY k, window_start, window_end",
    ]
    with ms.connect() as db:
        db.execute("CREATE STREAM z (k INT, v INT, t TIMESTAMP) ORDER BY t")
        rows = [{"id": i, "n": 1 + i, "k": i % 2} for i in range(6)]
        sets = []
        for text in shapes:
            by_unit = db.sql_many(text.format("$n SECONDS"), rows, key="id")
            spans = [{**row, "n": dt.timedelta(seconds=row["n"])} for row in rows]
            by_span = db.sql_many(text.format("$n"), spans, key="id")
            assert len(by_unit.queries()) == len(by_span.queries()) == 1
            alone = {row["id"]: db.sql(text.format(f"{row['n']} SECONDS").replace("$k", str(row["k"]))) for row in rows}
            sets.append((by_unit, by_span, alone))
        draw = random.Random(3)
        times = sorted(draw.uniform(0, 30) for _ in range(60))
        db.push("z", [(draw.randint(0, 1), draw.randint(0, 9), start + dt.timedelta(seconds=at)) for at in times])
        db.finish()
        for by_unit, by_span, alone in sets:
            want = {key: [tuple(row.values()) for row in query.fetch().to_pylist()] for key, query in alone.items()}
            assert by_query(by_unit.fetch()) == by_query(by_span.fetch()) == want
            assert all(want.values())
        with pytest.raises(ms.MillstreamError, match=r"\$n cannot be the length of a window"):
            sets[0][0].add([{"id": 9, "n": 2**50, "k": 1}])


def test_dropped_queries_of_several_programs_end_where_they_were_dropped(tmp_path: Path) -> None:
    """Windows go on for a while without their query; each program has results, and places in them, of its own."""
    text = (
        "SELECT window_end, count(*) AS n FROM HOP(TABLE s, DESCRIPTOR(t), 2, $length) "
        "GROUP BY window_start, window_end HAVING min(k) = $k"
    )
    rows = [{"id": key, "k": 1, "length": length} for key, length in ((1, 2), (2, 8), (3, 8))]
    found = []
    for home in (None, tmp_path):
        with ms.connect(home) as db:
            db.execute(STREAMS)
            many = db.sql_many(text, rows, key="id")
            assert len(many.queries()) == 2
            db.push("s", [(1, "a", 1.0, t) for t in range(20)])
            many.drop([2])
            db.push("s", [(1, "a", 1.0, t) for t in range(20, 60)])
            found.append(by_query(many.fetch()))
    assert found[0] == found[1]
    assert found[0][2][-1][0] < found[0][3][-1][0]


def test_constants_that_do_not_fit_are_refused() -> None:
    db = ms.connect()
    db.execute(STREAMS)
    text = "SELECT v FROM s WHERE k = $k"
    many = db.sql_many(text, [{"id": 1, "k": 1}], key="id")
    with pytest.raises(ms.MillstreamError, match="query 1 is already"):
        many.add([{"id": 1, "k": 2}])
    with pytest.raises(ms.MillstreamError, match="same id"):
        many.add([{"id": 2, "k": 2}, {"id": 2, "k": 3}])
    with pytest.raises(ms.MillstreamError, match="no query 7"):
        many.drop([7])
    with pytest.raises(ms.MillstreamError, match="no column k"):
        many.add([{"id": 3}])
    with pytest.raises(ms.MillstreamError, match="types of the first"):
        many.add([{"id": 3, "k": "x"}])
    with pytest.raises(ms.MillstreamError, match=r"no constants for the parameter \$low"):
        db.sql_many("SELECT v FROM s WHERE v > $low", [{"id": 1, "k": 1}], key="id")
    with pytest.raises(ms.MillstreamError, match="no column key"):
        db.sql_many(text, [{"id": 1, "k": 1}], key="key")
    with pytest.raises(ms.MillstreamError, match="no column vv"):
        db.sql_many("SELECT vv FROM s WHERE k = $k", [{"id": 1, "k": 1}], key="id")
    assert len(many) == 1
    many.drop([1])
    assert len(many) == 0 and many.fetch().num_rows == 0
    many.add([{"id": 1, "k": 3}])
    db.push("s", [(3, "a", 1.0, 1)])
    assert many.fetch().to_pylist() == [{"query": 1, "v": 1.0}]


def test_filters_of_one_shape_give_what_each_gives_alone() -> None:
    draw = random.Random(5)
    together = ms.connect()
    together.execute(STREAMS)
    texts = [f"SELECT v, t FROM s WHERE k = {draw.randint(0, 3)} AND v >= {draw.randint(0, 4)}.5" for _ in range(40)]
    texts += [f"SELECT sum(v) OVER (ROWS 1 PRECEDING) AS x FROM s WHERE v < {i % 4}" for i in range(8)]
    queries = [together.sql(text) for text in texts]
    shared = together.sql("SHOW SHARING").arrow().to_pylist()
    assert sorted(row["queries"] for row in shared if row["operator"].startswith("Filter")) == [40]
    # those with windows run as one
    assert sorted(row["queries"] for row in shared if row["operator"].startswith("Over")) == [3, 5]
    pushes, time = [], 0
    for _ in range(12):
        rows, _, time = some_rows(draw, time)
        pushes.append(rows)
    stopped = {3, 17, 44}
    for number, rows in enumerate(pushes):
        together.push("s", rows)
        if number == 6:
            got = {i: queries[i].fetch().to_pylist() for i in stopped}
            for i in stopped:
                queries[i].stop()
    together.finish()
    got |= {i: query.fetch().to_pylist() for i, query in enumerate(queries) if i not in stopped}
    for i, text in enumerate(texts):
        alone = ms.connect()
        alone.execute(STREAMS)
        query = alone.sql(text)
        for rows in pushes[:7] if i in stopped else pushes:
            alone.push("s", rows)
        if i not in stopped:
            alone.finish()
        assert got[i] == query.fetch().to_pylist(), text


# -- the rows of a stored table ----------------------------------------------------------------------------------------

FOLLOWED = """
    CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, t INT) ORDER BY t;
    CREATE TABLE limits (id VARCHAR PRIMARY KEY, name VARCHAR, low DOUBLE);
    CREATE QUERIES alerts AS SELECT q.symbol, price, low FROM limits AS l, quotes AS q
        WHERE q.symbol = l.name AND price > low
"""


def found(db: Any, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    db.push("quotes", list(rows))
    return sorted(tuple(row.values()) for row in db.query_set("alerts").fetch().to_pylist())


def test_queries_are_the_rows_of_a_table(tmp_path: Any) -> None:
    with ms.connect(tmp_path) as db:
        db.execute(FOLLOWED)
        assert db.query_set("alerts").schema.names == ["query", "symbol", "price", "low"]
        assert found(db, ("A", 1.0, 0)) == []
        db.execute("INSERT INTO limits VALUES ('ann', 'A', 10), ('bob', 'A', 20), ('eve', 'B', 5)")
        assert found(db, ("A", 15.0, 1), ("B", 4.0, 2)) == [("ann", "A", 15.0, 10.0)]
        db.execute("DELETE FROM limits WHERE id = 'bob'; UPDATE limits SET low = 3 WHERE id = 'eve'")
        db.execute("UPDATE limits SET id = 'joe' WHERE id = 'ann'")
        assert found(db, ("A", 30.0, 3), ("B", 4.0, 4)) == [("eve", "B", 4.0, 3.0), ("joe", "A", 30.0, 10.0)]
    with ms.connect(tmp_path) as db:
        assert sorted(db.query_set("alerts").keys()) == ["eve", "joe"]
        db.execute("INSERT INTO limits SELECT id || '2', name, 0 FROM limits")
        assert [row[0] for row in found(db, ("A", 1.0, 5))] == ["joe2"]
        told = db.query_set("alerts").metrics().to_pylist()
        assert told[0] == {"query": "joe2", "rows_in": 1, "rows_out": 1, "dropped": 0, "share": 1.0}
        assert {row["rows_out"] for row in told[1:]} == {0}
        assert db.query_set("alerts").metrics(["eve"]).column("rows_in").to_pylist() == [0]
        db.execute("DELETE FROM limits")
        assert (len(db.query_set("alerts")), found(db, ("A", 50.0, 6))) == (0, [])
        with pytest.raises(ms.CatalogError, match="used by queries alerts"):
            db.execute("DROP TABLE limits")
        db.execute("DROP QUERIES alerts; DROP TABLE limits")
        assert db.queries() == []


def test_what_was_done_to_a_table_before_a_crash_counts(tmp_path: Any) -> None:
    with ms.connect(tmp_path) as db:
        db.execute(FOLLOWED + "; INSERT INTO limits VALUES ('ann', 'A', 10)")
        # as if the process had died between the table and the queries
        db.tables.change("UPDATE limits SET low = 1", frozenset(["limits"]))
        db.tables.change("INSERT INTO limits VALUES ('bob', 'A', 2)", frozenset(["limits"]))
    with ms.connect(tmp_path) as db:
        assert found(db, ("A", 3.0, 1)) == [("ann", "A", 3.0, 1.0), ("bob", "A", 3.0, 2.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE QUERIES x AS SELECT * FROM limits, quotes", "would include the constants"),
        ("CREATE QUERIES x AS SELECT price FROM quotes", "no stored table in FROM"),
        ("CREATE QUERIES x AS SELECT price FROM plain, quotes WHERE low > price", "has no PRIMARY KEY"),
        ("CREATE QUERIES x AS SELECT price FROM limits AS l, quotes WHERE price > l.high", "no column high in limits"),
        ("CREATE QUERIES x AS SELECT price FROM limits LEFT JOIN quotes ON price > low", "not only its constants"),
        ("CREATE QUERIES x AS SELECT prize FROM limits, quotes WHERE price > low", "prize"),
        ("CREATE QUERIES alerts AS SELECT price FROM limits, quotes WHERE price > low", "already running"),
    ],
)
def test_what_cannot_be_queries_of_a_table(text: str, said: str) -> None:
    with ms.connect() as db:
        db.execute(FOLLOWED + "; CREATE TABLE plain (low DOUBLE)")
        with pytest.raises(ms.MillstreamError, match=said):
            db.execute(text)
        assert [each.name for each in db.query_sets()] == ["alerts"]


def test_a_row_for_which_there_is_no_query_is_refused() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t; CREATE TABLE c (id INT PRIMARY KEY, many INT)")
        many = db.sql_many("SELECT sum(v) OVER (ROWS $many PRECEDING) AS x FROM s", [{"id": 0, "many": 1}], key="id")
        many.table = "c"
        with pytest.raises(ms.MillstreamError):
            db.execute("INSERT INTO c VALUES (1, 2), (2, -1)")
        assert db.sql("SELECT count(*) AS n FROM c").arrow().to_pylist() == [{"n": 0}]
        with pytest.raises(ms.CatalogError, match="rows of table c"):
            many.add([{"id": 5, "many": 2}])


PLANS = {
    ("index_constants", "selection"): (
        "TableJoin on CAST(k AS BIGINT) = $k where (v > $low)",
        "where (v > $low)\n    TableJoin on CAST",
    ),
    ("lift_constants", "shared over"): ("where (v > ($1.avg + $low))", "TableJoin on every row\n"),
    ("channel_events", "next"): ("SemiTableJoin", "TableJoin on every row where (v > $low)"),
}


@pytest.mark.parametrize(("rule", "shape"), PLANS)
def test_each_rule_over_a_set_leaves_its_mark_on_the_plan(rule: str, shape: str) -> None:
    plans = []
    for off in ("", rule):
        with ms.connect() as db:
            db.execute(STREAMS + (f"; SET disable_rule = '{off}'" if off else ""))
            text = SHAPES[shape]
            rows = [{"id": key, "k": key, "low": float(key)} for key in range(5)]
            plans.append(db.sql_many(text, rows, key="id").explain().partition("physical plan")[2])
    with_rule, without = PLANS[rule, shape]
    assert with_rule in plans[0] and without in plans[1]
    assert plans[0] != plans[1]


def test_queries_of_a_table_write_to_a_sink(tmp_path: Any) -> None:
    with ms.connect() as db:
        db.execute(f"""
            CREATE STREAM s (k INT, v INT, t INT) ORDER BY t;
            CREATE TABLE c (id VARCHAR PRIMARY KEY, low INT);
            CREATE SINK out WITH (connector = 'file', path = '{tmp_path}/out.csv', format = 'csv', single_file = true);
            CREATE QUERIES many INTO out AS SELECT window_end, count(*) AS n
                FROM c, TUMBLE(TABLE s, DESCRIPTOR(t), 10) WHERE v > low GROUP BY window_start, window_end;
            INSERT INTO c VALUES ('a', 1), ('b', 5)""")
        db.push("s", [(1, 3, 1), (1, 9, 2), (1, 9, 12)])
        db.execute("DELETE FROM c WHERE id = 'b'")
        assert db.query_set("many").fetch().num_rows == 0
        assert db.query_set("many").schema.names == ["query", "window_end", "n"]
        db.finish()
    lines = (tmp_path / "out.csv").read_text().split()
    # b went before its second window ended
    assert sorted(lines) == sorted(["query,window_end,n", "a,10,2", "b,10,1", "a,20,1"])


@pytest.mark.parametrize("kept", [False, True])
def test_a_query_that_floods_its_outbox_stops_no_other(kept: bool, tmp_path: Any) -> None:
    """With a limit for each query, the rows of one that floods are dropped, or it stops alone."""
    with ms.connect(tmp_path if kept else None, max_unfetched_per_query=3, when_unfetched="drop") as db:
        db.execute(STREAMS)
        rows = [{"id": "flood", "low": -9.0}, {"id": "calm", "low": 2.5}]
        many = db.sql_many("SELECT v FROM s WHERE v > $low", rows, key="id")
        push = [(1, "a", float(i % 4), i) for i in range(8)]
        db.push("s", push)
        assert by_query(many.fetch()) == {"flood": [(0.0,), (1.0,), (2.0,)], "calm": [(3.0,), (3.0,)]}
        told = {row["query"]: row for row in many.metrics().to_pylist()}
        assert told["flood"] == {"query": "flood", "rows_in": 3, "rows_out": 3, "dropped": 5, "share": 0.6}
        db.push("s", [(1, "a", 1.0, 8)])
        assert by_query(many.fetch()) == {"flood": [(1.0,)]}
        db.execute("SET when_unfetched = 'stop'")
        db.push("s", [(1, "a", 7.0, 9)] * 3)
        db.push("s", [(1, "a", 1.0, 10)] * 4)
        assert by_query(many.fetch()) == {"flood": [(7.0,)] * 3, "calm": [(7.0,)] * 3}
        db.push("s", [(1, "a", 8.0, 11)])
        assert (by_query(many.fetch()), many.stopped, many.keys()) == ({"calm": [(8.0,)]}, ["flood"], ["calm"])


def test_what_each_query_takes_in_is_counted() -> None:
    with ms.connect() as db:
        db.execute(STREAMS)
        text = "SELECT window_end, count(*) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) WHERE v > $low "
        rows = [{"id": key, "low": float(key)} for key in range(3)]
        many = db.sql_many(text + "GROUP BY window_start, window_end", rows, key="id")
        db.push("s", [(1, "a", float(i % 4), i) for i in range(12)])
        many.fetch()
        told = many.metrics().to_pylist()
        assert [(row["query"], row["rows_in"], row["rows_out"]) for row in told] == [(0, 9, 2), (1, 6, 2), (2, 3, 2)]
        assert sum(row["share"] for row in told) == pytest.approx(1)

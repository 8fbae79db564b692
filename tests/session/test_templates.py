"""Queries that `sql()` starts one by one and that differ in constants run as one, which nobody can notice."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from tests.session.test_query_sets import SHAPES, STREAMS, WITHOUT_ORDER, constants, some_rows, written
from tests.tiers import one_seed_each

MORE = {
    "ahead": "SELECT v, lead(v) OVER (PARTITION BY name) AS x FROM s WHERE k <> $k",
    "following": "SELECT v, sum(v) OVER (PARTITION BY name ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS x FROM s "
    "WHERE v > $low",
    "later": "SELECT v, max(v) OVER (RANGE BETWEEN CURRENT ROW AND 3 FOLLOWING) AS x FROM s WHERE v > $low",
    "joined events": "SELECT a.v, b.w FROM s AS a JOIN r AS b ON a.k = b.k AND b.t BETWEEN a.t - 2 AND a.t + 3 "
    "WHERE a.v > $low",
    "changes of groups": "ISTREAM (SELECT name, count(*) AS n, max(v) AS x FROM s [RANGE 6] WHERE k <> $k "
    "GROUP BY name)",
    "ends": "DSTREAM (SELECT a.v, b.w FROM s [RANGE 4] AS a, r [RANGE 3] AS b WHERE a.k = b.k AND a.v > $low)",
    "begins": "ISTREAM (SELECT a.v, b.w FROM s [RANGE 4] AS a, r [ROWS 3] AS b WHERE a.k = b.k AND a.v > $low)",
    "samples": "RSTREAM (SELECT sum(v) AS x FROM s [RANGE 4 SLIDE 2] WHERE v > $low)",
    "counts": "SELECT window_end, sum(k) AS n, sum(CAST(k AS BIGINT)) AS x, avg(v) AS y "
    "FROM TUMBLE(TABLE s, DESCRIPTOR(t), 3) WHERE v > $low GROUP BY window_start, window_end",
    "sessions of few": "SELECT window_end, count(*) AS n FROM SESSION(TABLE (SELECT * FROM s WHERE v > $low) "
    "PARTITION BY name, DESCRIPTOR(t), 2) GROUP BY window_start, window_end, name",
    "pattern of few": "SELECT * FROM (SELECT * FROM s WHERE k = $k) MATCH_RECOGNIZE (ORDER BY t "
    "MEASURES FIRST(A.v) AS a, LAST(B.v) AS b PATTERN (A+ B) DEFINE A AS v > 1, B AS v <= $high)",
    "matched rows": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY name ORDER BY t MEASURES count(*) AS n "
    "ALL ROWS PER MATCH PATTERN (A B*) WITHIN 4 DEFINE A AS v > $low, B AS v > A.v)",
    "words": "SELECT window_end, string_agg(name, $name) AS names, quantile_cont(v, 0.5) AS middle, "
    "min(v + $low) AS least FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) WHERE k <> $k GROUP BY window_start, window_end",
    "before": "SELECT v, lag(v, 1, $low) OVER w AS a, nth_value(v, 2) OVER w AS b, row_number() OVER w AS c FROM s "
    "WHERE k <> $k WINDOW w AS (PARTITION BY name ORDER BY t)",
    "cases": "SELECT window_end, CASE WHEN sum(v) > $high THEN $name WHEN count(*) IN (1, $k) THEN 'few' END AS x, "
    "round(sum(v), 1) AS y FROM HOP(TABLE s, DESCRIPTOR(t), 2, 4) WHERE v > $low GROUP BY window_start, window_end",
    "first of each": "SELECT window_end, name, v FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) WHERE v > $low "
    "ORDER BY window_end, v DESC, name, k LIMIT 2",
    "different": "SELECT window_end, count(DISTINCT name) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) "
    "WHERE name LIKE $name || '%' AND k >= $k GROUP BY window_start, window_end",
    "with kinds": "SELECT kind, v, sum(v) OVER (PARTITION BY kind ROWS 2 PRECEDING) AS x FROM "
    "(SELECT s.v, kinds.kind, s.k FROM s JOIN kinds ON s.k = kinds.k WHERE s.v > $low)",
    "both": "SELECT window_end, sum(v) AS x FROM TUMBLE(TABLE (SELECT k, v, t FROM s WHERE v > $low UNION ALL "
    "SELECT k, w * 1.0 AS v, t FROM r WHERE w < $k), DESCRIPTOR(t), 4) GROUP BY window_start, window_end",
}
"""queries whose results may wait for later rows, and others with state"""
ALL = SHAPES | MORE
UNORDERED = (*WITHOUT_ORDER, "joined events", "changes of groups", "ends", "begins")


def shared_queries(db: ms.Database) -> int:
    return sum(row["queries"] for row in db.sql("SHOW SHARING").arrow().to_pylist() if row["how"].startswith("as one"))


def rows_of(query: Any, ordered: bool) -> list[tuple[Any, ...]]:
    found = [tuple(row.values()) for row in query.fetch().to_pylist()]
    return found if ordered else sorted(found, key=repr)


@pytest.mark.parametrize(("shape", "seed"), one_seed_each(ALL, 3))
def test_queries_of_a_shape_give_what_they_give_by_themselves(shape: str, seed: int) -> None:
    draw, text = random.Random(f"{shape} {seed} one by one"), ALL[shape]
    ordered = shape not in UNORDERED and "NEXT" not in text and "FOLD" not in text
    together, apart = ms.connect(), ms.connect()
    for db in (together, apart):
        db.execute(STREAMS)
    apart.execute("SET disable_rule = 'share_templates'")
    running: dict[int, tuple[Any, Any]] = {}
    # lengths make shapes of their own
    length = constants(draw, 0)
    lengths = {name: length[name] for name in ("length", "step")}
    if re.search(r"(ROWS|<=) \$k", text):
        lengths["k"] = length["k"]
    time, fresh = 0, 0
    for turn in range(6):
        for _ in range(draw.randint(0, 3) if turn else 6):
            query = written(text, constants(draw, fresh) | lengths)
            running[fresh] = together.sql(query), apart.sql(query)
            fresh += 1
        if draw.random() < 0.4 and len(running) > 1:
            for key in draw.sample(sorted(running), draw.randint(1, 2)):
                for query in running.pop(key):
                    query.stop()
        assert shared_queries(apart) == 0
        s, r, time = some_rows(draw, time)
        for db in (together, apart):
            db.push("s", s)
            db.push("r", r)
        for key, (mine, theirs) in running.items():
            assert rows_of(mine, ordered) == rows_of(theirs, ordered), (shape, turn, key, mine.sql)
    for db in (together, apart):
        db.finish()
    for key, (mine, theirs) in running.items():
        assert rows_of(mine, ordered) == rows_of(theirs, ordered), (shape, "end", key, mine.sql)


APART = (
    "shared over", "having", "session", "relation", "rows window", "join", "join condition", "outer join", "exceeds",
    "relation lengths", "join lengths", "rows lengths", "aggregate in SQL over", "ahead", "following", "later",
    "joined events", "ends", "begins", "samples", "words", "first of each", "changes", "changes of lengths",
    "outer table of a choice",
)  # fmt: skip
"""shapes with state whose queries do not run as one: windows that no constant chooses the rows of, results that would
wait for those of others, and operators that may fail"""
WITHOUT_STATE = (
    "selection", "between", "one side", "text", "any of", "in", "not between", "either", "in or like", "prefix",
    "arithmetic", "projection", "table", "table of a choice", "part of a table", "rows in a table",
)  # fmt: skip


@pytest.mark.parametrize("shape", ALL)
def test_which_shapes_run_as_one(shape: str) -> None:
    row = {"k": 1, "length": 3, "step": 2, "name": "a"}
    with session() as db:
        for key in range(6):
            db.sql(written(ALL[shape], row | {"low": key + 0.5, "high": key + 3.5}))
        if not re.search(r"\$(low|high)", ALL[shape]):
            for query in db.queries():
                query.stop()
            # small numbers are lengths of events, which belong to the shape
            for key in range(6):
                db.sql(written(ALL[shape], row | {"k": key, "name": "abcdef"[key]}))
        assert shared_queries(db) == (0 if shape in APART + WITHOUT_STATE else 3)
        told = [each["how"] for each in db.sql("SHOW SHARING").arrow().to_pylist()]
        assert any(how.startswith("apart: ") for how in told) == (shape not in WITHOUT_STATE)


TEXT = (
    "SELECT window_end, count(*) AS n, sum(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) "
    "WHERE k = {k} AND v > {low} GROUP BY window_start, window_end"
)


def session(*args: Any, apart: bool = False) -> Any:
    db = ms.connect(*args)
    if not db.sql("SHOW STREAMS").arrow().num_rows:
        db.execute(STREAMS)
    if apart:
        db.execute("SET disable_rule = 'share_templates'")
    return db


@pytest.mark.parametrize("seed", range(8))
def test_sharing_survives_closing_crashes_pauses_and_changes(seed: int, tmp_path: Path) -> None:
    """A saved session gives what one in memory gives whose queries all run by themselves."""
    draw = random.Random(f"life {seed}")
    texts = [
        TEXT,
        "SELECT v, sum(v) OVER (ROWS 2 PRECEDING) AS x FROM s WHERE k = {k} AND v >= {low}",
        "SELECT name_1, v_1, v FROM FILTER{{k = {k} AND v > {low}}}(s) NEXT{{$1.name = $2.name}} s",
        "SELECT * FROM (SELECT * FROM s WHERE k <> {k}) MATCH_RECOGNIZE (PARTITION BY name ORDER BY t "
        "MEASURES A.v AS a, LAST(B.v) AS b PATTERN (A B+) DEFINE A AS v > {low}, B AS v < 3)",
    ]
    text = texts[seed % len(texts)]

    def one() -> str:
        return text.format(k=draw.randint(0, 3), low=draw.choice([-1.0, 0.0, 1.5, 2.0]))

    home = tmp_path / "0"
    steady, saved = session(apart=True), session(home)
    names: list[str] = []
    paused: set[str] = set()
    seen: list[dict[str, list[Any]]] = [{}, {}]
    time = shared = 0
    for step in range(10):
        for _ in range(draw.randint(0, 3) if step else 6):
            names.append(f"q{step}_{len(names)}")
            query = one()
            for db in (steady, saved):
                db.sql(query, name=names[-1])
        shared = max(shared, shared_queries(saved))
        s, _, time = some_rows(draw, time)
        rests = draw.choice(names) if draw.random() < 0.4 else None
        stops = draw.choice(names) if draw.random() < 0.4 and len(names) > 2 else None
        changes = draw.choice(names) if draw.random() < 0.5 else None
        other = draw.choice([one(), one().replace("FROM s WHERE", "FROM s WHERE v < 9 AND")])
        looks, how = draw.random() < 0.6, draw.choice(["go on", "close", "crash"])
        for db, got in zip((steady, saved), seen, strict=True):
            db.push("s", s)
            if looks or step == 9:
                for name in names:
                    got.setdefault(name, []).extend(db.query(name).fetch().to_pylist())
        for db in (steady, saved):
            if rests is not None:
                db.execute(f"{'RESUME' if rests in paused else 'PAUSE'} {rests}")
            if changes is not None and changes not in paused and changes != rests:
                db.execute(f"ALTER QUERY {changes} AS {other}")
            if stops is not None:
                db.stop(stops)
        if rests is not None:
            paused ^= {rests}
        if stops is not None:
            names.remove(stops)
            paused.discard(stops)
        if how == "crash":
            left, home = home, tmp_path / str(step + 1)
            shutil.copytree(left, home)
        if how != "go on":
            saved.close()
            saved = session(home)
    assert shared > 3
    for key in seen[0]:
        mine, theirs = seen[1][key], seen[0][key]
        assert sorted(mine, key=repr) == sorted(theirs, key=repr), (key, text)
    for db in (steady, saved):
        db.close()


def test_a_query_that_fails_fails_alone() -> None:
    """Its results up to there are there, and so are those of the others in the same push."""
    text = (
        "SELECT window_end, CAST(concat(sum(v), name) AS DOUBLE) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), 5) "
        "WHERE k = {k} GROUP BY window_start, window_end, name"
    )
    with session() as together, session(apart=True) as apart:
        queries = [[db.sql(text.format(k=k), name=f"q{k}") for k in range(8)] for db in (together, apart)]
        assert shared_queries(together) == 5
        for db in (together, apart):
            db.push("s", [(k, "", float(k), 1) for k in range(8)])
            db.push("s", [(k, "", 1.0, 6) for k in range(8)])
            # no number, in one window of one query
            db.push("s", [(k, "x" if k == 5 else "7", 2.0, 11 + k // 7) for k in range(8)])
            db.push("s", [(k, "", 3.0, 30) for k in range(8)])
            db.push("s", [(k, "", 4.0, 40) for k in range(8)])
        for mine, theirs in zip(*queries, strict=True):
            if mine.name == "q5":
                assert rows_of(mine, True) == rows_of(theirs, True)
                for query in (mine, theirs):
                    assert query.state == "failed"
                    with pytest.raises(ms.MillstreamError, match="concat"):
                        query.fetch()
            else:
                assert mine.state == "running"
            if mine.name != "q5":
                assert len(found := rows_of(mine, True)) == 4
                assert found == rows_of(theirs, True)
        assert shared_queries(together) == 5
        together.stop("q5")
        assert shared_queries(together) == 4


def test_a_sum_that_overflows_stops_its_query_alone() -> None:
    text = "SELECT window_end, sum(n) AS x FROM TUMBLE(TABLE b, DESCRIPTOR(t), 5) WHERE k = {k} GROUP BY window_end"
    with ms.connect() as db:
        db.execute("CREATE STREAM b (k INT, n BIGINT, t INT) ORDER BY t")
        queries = [db.sql(text.format(k=k)) for k in range(6)]
        assert shared_queries(db) == 3
        db.push("b", [(k, 2**62, 1) for k in range(6)] + [(4, 2**62, 2), (9, 0, 7)])
        for k, query in enumerate(queries):
            if k == 4:
                with pytest.raises(ms.MillstreamError):
                    query.fetch()
            else:
                assert query.fetch().to_pylist() == [{"window_end": 5, "x": 2**62}]


def test_a_query_that_is_cancelled_ends_alone() -> None:
    with session() as db:
        queries = [db.sql(TEXT.format(k=k, low=0.0)) for k in range(6)]
        queries[4].cancel()
        db.push("s", [(k, "a", 1.0, 1) for k in range(6)] + [(9, "", 0.0, 9)])
        with pytest.raises(ms.MillstreamError):
            queries[4].fetch()
        assert [query.fetch().num_rows for query in queries if query is not queries[4]] == [1] * 5


def test_what_is_shared_and_what_keeps_queries_apart_is_told() -> None:
    with session() as db:
        for k in range(6):
            db.sql(TEXT.format(k=k, low=0.5), name=f"count{k}")
            db.sql(f"SELECT name, count(*) AS n FROM s [RANGE 6] WHERE k = {k} GROUP BY name", name=f"now{k}")
            db.sql(f"SELECT v, lead(v) OVER () AS x FROM s WHERE k = {k}", name=f"next{k}")
            db.sql(f"SELECT max(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), {k + 2}) WHERE k = 1 GROUP BY window_end")
        found = {(row["names"], row["how"]) for row in db.sql("SHOW SHARING").arrow().to_pylist()}
        assert ("count3, count4, count5", "as one, over a table of their constants") in found
        assert ("count0, count1, count2", "apart: the first 3 of their shape") in found
        of_relation = "apart: rows of a relation come in order of their start, over all queries of a plan"
        assert ("now0, now1, now2, now3, now4, now5", of_relation) in found
        [why] = [how for names, how in found if names == "next0, next1, next2, next3, next4, next5"]
        assert why.startswith("apart: results would wait for those of other queries: over by $query")
        text = db.query("count5").explain()
        assert "runs as one with 2 other queries; its own constants: 5, 0.5" in text
        assert "Filter ((k = 5) AND (v > 0.5))" in text
        assert db.query("count5").schema.names == ["window_end", "n", "x"]
        assert db.sql("SHOW TABLES").arrow().num_rows == 1
        # the rule may be left out, also for queries that come later
        db.execute("SET disable_rule = 'share_templates'")
        db.sql(TEXT.format(k=7, low=0.5), name="count7")
        assert "runs as one" not in db.query("count7").explain()


def test_the_last_query_takes_the_template_with_it() -> None:
    with session() as db:
        first = [db.sql(TEXT.format(k=k, low=0.0)) for k in range(7)]
        db.push("s", [(k, "a", 1.0, 1) for k in range(7)])
        for query in first:
            query.stop()
        assert not db.sql("SHOW SHARING").arrow().num_rows
        assert not db._host.members._tables
        assert not db._host.graph._shared
        again = [db.sql(TEXT.format(k=k, low=0.0)) for k in range(7)]
        db.push("s", [(k, "a", 2.0, 2) for k in range(7)] + [(9, "", 0.0, 9)])
        assert [query.fetch().to_pylist() for query in again] == [[{"window_end": 5, "n": 1, "x": 2.0}]] * 7


def test_rows_that_wait_to_be_put_in_order_are_not_for_later_queries() -> None:
    texts = [
        TEXT,
        "SELECT v_1, v FROM FILTER{{k = {k} AND v >= {low}}}(s) NEXT{{$1.name = $2.name}} s",
    ]
    for text in texts:
        got = []
        for apart in (False, True):
            with ms.connect() as db:
                db.execute("CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t SLACK 4")
                if apart:
                    db.execute("SET disable_rule = 'share_templates'")
                queries, draw = [], random.Random(text)
                for step in range(12):
                    queries += [db.sql(text.format(k=draw.randint(0, 2), low=0.0)) for _ in range(2)]
                    assert apart or step < 4 or shared_queries(db) > 3
                    rows = [(draw.randint(0, 2), "a", 1.0 * i, 2 * step + draw.randint(0, 4)) for i in range(4)]
                    db.push("s", rows)
                db.finish()
                got.append([sorted(query.fetch().to_pylist(), key=repr) for query in queries])
        assert got[0] == got[1]


def test_a_query_that_is_replaced_goes_on_with_its_state() -> None:
    with session() as db:
        queries = [db.sql(TEXT.format(k=k, low=0.0), name=f"q{k}") for k in range(6)]
        db.push("s", [(k, "a", 1.0, 1) for k in range(6)])
        db.sql(TEXT.format(k=5, low=0.0).replace("sum(v) AS x", "sum(v) AS total"), name="q5", replace=True)
        db.execute(f"ALTER QUERY q4 AS {TEXT.format(k=4, low=0.0).replace('sum(v) AS x', 'sum(v) * 2 AS x')}")
        db.push("s", [(k, "a", 2.0, 2) for k in range(6)] + [(9, "", 0.0, 9)])
        assert db.query("q5").fetch().to_pylist() == [{"window_end": 5, "n": 2, "total": 3.0}]
        assert db.query("q4").fetch().to_pylist() == [{"window_end": 5, "n": 2, "x": 6.0}]
        for query in queries[:4]:
            assert query.fetch().to_pylist() == [{"window_end": 5, "n": 2, "x": 3.0}]


def test_a_copy_to_step_through_concerns_nobody_else() -> None:
    text = (
        "SELECT CAST(concat(x, name) AS DOUBLE) AS x FROM "
        "(SELECT name, sum(v) OVER (ROWS 2 PRECEDING) AS x FROM s WHERE k = {k})"
    )
    with session() as db:
        queries = [db.sql(text.format(k=k), name=f"q{k}") for k in range(6)]
        db.push("s", [(k, "", 1.0, 1) for k in range(6)])
        copy = db.inspector.copy("q5")
        wrong = pa.record_batch([[5], ["x"], [1.0], [2]], schema=db.catalog.find("s").schema.arrow)
        with pytest.raises(ms.MillstreamError):
            copy.push("s", wrong)
        assert [query.state for query in queries] == ["running"] * 6
        db.push("s", [(5, "", 2.0, 3)])
        assert db.query("q5").fetch().to_pylist() == [{"x": 1.0}, {"x": 3.0}]


def test_shared_queries_write_to_their_own_sinks(tmp_path: Path) -> None:
    with session() as db:
        for k in range(6):
            path = tmp_path / f"{k}.csv"
            db.execute(f"CREATE SINK out{k} WITH (connector = 'file', path = '{path}')")
            db.execute(f"INSERT INTO out{k} SELECT v, sum(v) OVER (ROWS 2 PRECEDING) AS x FROM s WHERE k = {k}")
        assert shared_queries(db) == 3
        db.push("s", [(k % 6, "a", float(k), k) for k in range(12)])
        db.finish()
    for k in range(6):
        [file] = (tmp_path / f"{k}.csv").glob("*.csv")
        assert file.read_text().split() == ["v,x", f"{k}.0,{k}.0", f"{k + 6}.0,{2 * k + 6}.0"]

"""Queries over events that follow each other, in sessions that are closed and opened again."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import CatalogError, MillstreamError
from millstream.plan.aggregates import BESIDE, NAMES

STREAM = "CREATE STREAM s (k VARCHAR, v INT, t BIGINT) ORDER BY t"
ROWS = [("a", 1, 1), ("b", 5, 2), ("a", 2, 3), ("a", 3, 3), ("b", 4, 4), ("a", 9, 5), ("b", 7, 6), ("a", 1, 7)]
PUBLISHED = "SELECT k, v AS low FROM FILTER{v < 5}(s) PUBLISH lows"
RISES = "SELECT k_1, v_1, v, n FROM (SELECT *, 1 AS n FROM s) FOLD{$2.k = $.k, $2.v > $.v, $.n + 1 AS n} s"
AFTER = "SELECT low, v FROM lows NEXT{$2.k = $1.k AND $2.v > $1.low} s"


def whole() -> list[list[dict[str, object]]]:
    with ms.connect() as db:
        db.execute(f"{STREAM}; {PUBLISHED}")
        queries = [db.sql(RISES), db.sql(AFTER)]
        db.push("s", ROWS)
        db.finish()
        return [query.fetch().to_pylist() for query in queries]


@pytest.mark.parametrize("cut", range(1, len(ROWS)))
def test_instances_survive_a_restart(tmp_path: Path, cut: int) -> None:
    with ms.connect(tmp_path / "db") as db:
        db.execute(f"{STREAM}; {PUBLISHED}")
        queries = [db.sql(RISES, name="rises"), db.sql(AFTER, name="after")]
        db.push("s", ROWS[:cut])
        found = [query.fetch().to_pylist() for query in queries]
    with ms.connect(tmp_path / "db") as db:
        queries = [db.query("rises"), db.query("after")]
        db.push("s", ROWS[cut:])
        db.finish()
        found = [rows + query.fetch().to_pylist() for rows, query in zip(found, queries, strict=True)]
    assert found == whole()
    assert all(found)


def test_published_streams_are_dropped_and_made_all_or_none() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        with pytest.raises(MillstreamError, match="already exists"):
            db.execute("SELECT low FROM (SELECT v AS low FROM s PUBLISH lows) NEXT s PUBLISH s")
        with pytest.raises(MillstreamError, match="no stream or table lows"):
            db.sql("SELECT low FROM lows")
        query = db.sql(PUBLISHED, name="q")
        with pytest.raises(CatalogError):
            db.execute(PUBLISHED)
        db.push("s", ROWS[:1])
        assert query.fetch().to_pylist() == [{"k": "a", "low": 1}]
        query.stop()
        db.execute("DROP STREAM lows")


def test_matches_and_relations_feed_next() -> None:
    """NEXT reads matches of row patterns, events of relations and derived streams; windows read what it finds."""
    with ms.connect() as db:
        db.execute(f"{STREAM}; CREATE STREAM big AS SELECT k, v AS w FROM s WHERE v > 3")
        after_match = db.sql("""
            SELECT top, w FROM (SELECT * FROM s MATCH_RECOGNIZE (
                PARTITION BY k ORDER BY t MEASURES LAST(UP.v) AS top PATTERN (A UP+) DEFINE UP AS v > PREV(v)))
            NEXT (SELECT w FROM big)""")
        of_relation = db.sql("""
            SELECT n, v FROM (SELECT ISTREAM(count(*) AS n) FROM s [RANGE 2]) NEXT{$2.v > $1.n} (SELECT v FROM s)""")
        windowed = db.sql("SELECT count(*) AS n FROM (SELECT v FROM s NEXT{$1.k = $2.k} s) [RANGE 3]")
        # the rise of a is certain to be over at 7
        db.push("s", [*ROWS, ("b", 8, 8)])
        db.finish()
        found = after_match.fetch().to_pylist()
        assert found == [{"top": 9, "w": 8, "event_start": 7, "event_end": 8}]
        assert {row["v"] > row["n"] for row in of_relation.fetch().to_pylist()} == {True}
        assert windowed.fetch().num_rows > 0


AGGREGATES = [
    "count(*)", "bool_and(flag)", "bool_or(flag)", "every(flag)", "count_if(flag)",
    *(f"{fn}({column})" for fn in sorted(NAMES - BESIDE) for column in ("v", "x", "d")),
    *(f"{fn}({column}, {by})" for fn in sorted(BESIDE) for column, by in (("v", "x"), ("name", "v"), ("d", "name"))),
    *(f"{fn}({column})" for fn in ("count", "min", "max", "first_value", "last_value") for column in ("name", "flag")),
    "sum(v) FILTER (WHERE flag)", "count(*) FILTER (WHERE v > 3)", "max(name) FILTER (WHERE x > 0)",
    "any_value(k)", "last_value(v + x)", "sum(CASE WHEN flag THEN d END)",
]  # fmt: skip


def test_aggregates_of_fold_are_those_of_group_by() -> None:
    """Of the same rows, FOLD, GROUP BY and OVER make the same of every built-in aggregate."""
    rng = random.Random(5)

    def row(time: int) -> tuple[object, ...]:
        name, v, x = rng.choice("abc"), rng.randint(0, 9), rng.choice([0.1, -2.5, 1e9, 7.25])
        values = (name, v, x, Decimal(rng.randint(-999, 999)) / 100, rng.random() < 0.5)
        return (f"k{time % 3}", *(None if rng.random() < 0.2 else value for value in values), time)

    begins = [(f"k{key}", None, -1, None, None, None, key) for key in range(3)]
    rows = [row(time) for time in range(3, 90)]
    named = [f"{text} AS a{place}" for place, text in enumerate(AGGREGATES)]
    of_event = [re.sub(r"\b(k|name|v|x|d|flag)\b(?! *\()", r"$2.\1", text.split(" AS ")[0]) for text in named]
    folded = [f"{text} AS a{place}" for place, text in enumerate(of_event)]
    names = ", ".join(f"a{place}" for place in range(len(named)))
    with ms.connect() as db:
        columns = "k VARCHAR, name VARCHAR, v INT, x DOUBLE, d DECIMAL(9, 2), flag BOOLEAN, t BIGINT"
        db.execute(f"CREATE STREAM s ({columns}) ORDER BY t")
        fold = db.sql(f"SELECT k, {names} FROM FILTER{{v = -1}}(s) FOLD{{$2.k = $.k, , {', '.join(folded)}}} s")
        rest = "WHERE v <> -1 OR v IS NULL"
        over = ", ".join(f"{text.replace(' AS ', ' OVER w AS ')}" for text in named)
        each = db.sql(f"SELECT k, {over} FROM s {rest} WINDOW w AS (PARTITION BY k ROWS UNBOUNDED PRECEDING)")
        group = db.sql(f"SELECT k, {', '.join(named)} FROM TUMBLE(s, t, 1000) {rest} GROUP BY k, window_end")
        db.push("s", [*begins, *rows])
        db.finish()
        found = fold.fetch().select(["k", *names.split(", ")]).to_pylist()
        prefixes, groups = each.fetch().to_pylist(), group.fetch().to_pylist()
    assert len(found) == len(rows)
    assert [repr(row) for row in found] == [repr(row) for row in prefixes]
    last = {row["k"]: repr(row) for row in found}
    assert last == {row["k"]: repr(row) for row in groups}

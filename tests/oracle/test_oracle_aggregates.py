"""Every aggregate in every place where one may stand: DuckDB's answer for the rows that it is asked of."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import millstream as ms

Row = tuple[Any, ...]
Group = tuple[Any, Sequence[int]]
"""What is told beside an aggregate, and the numbers of the rows that it is asked of."""

COLUMNS = "k VARCHAR, x DOUBLE, y INT, u INT, b BOOLEAN, t VARCHAR"
START = datetime(2024, 5, 1)


def feed(count: int, seed: int) -> list[Row]:
    """Rows of COLUMNS with NULLs, ties in y and none in u, and a time without ties."""
    chance = random.Random(seed)
    unique = chance.sample(range(10 * count), count)
    at, rows = START, []
    for i in range(count):
        at += timedelta(seconds=chance.choice([1, 1, 2, 3, 9]))
        values = [
            round(chance.gauss(5, 40), chance.choice([0, 2])), chance.randrange(4), unique[i], chance.random() < 0.8,
            chance.choice("pqrst"),
        ]  # fmt: skip
        rows.append((chance.choice("ab"), *(None if chance.random() < 0.2 else value for value in values), at))
    return rows


@dataclass(frozen=True)
class Call:
    """An aggregate as each side writes it; `ordered` if it depends on the order of rows."""

    ours: str
    theirs: str = ""
    ordered: bool = False

    @property
    def duckdb(self) -> str:
        return self.theirs or self.ours


CALLS = [
    Call("bool_and(b)"),
    Call("every(x > -20)", "bool_and(x > -20)"),
    Call("bool_or(b)"),
    Call("bool_and(b) FILTER (WHERE y > 1)"),
    Call("count_if(b)", "count(*) FILTER (WHERE b)"),
    Call("count_if(b) FILTER (WHERE y > 1)", "count(*) FILTER (WHERE b AND y > 1)"),
    Call("approx_count_distinct(y)", "count(DISTINCT y)"),
    Call("count(DISTINCT t) FILTER (WHERE b)"),
    Call("sum(DISTINCT y) FILTER (WHERE x > 0)"),
    Call("count(*) FILTER (WHERE b)"),
    Call("sum(x) FILTER (WHERE y > 1)"),
    Call("max(t) FILTER (WHERE y < 3)"),
    Call("var_pop(x) FILTER (WHERE b)"),
    Call("stddev_samp(y)"),
    Call("max_by(t, u)"),
    Call("arg_max(x, u)"),
    Call("min_by(x, u) FILTER (WHERE b)"),
    Call("arg_min(t, u)"),
    Call("max_by(x, y)", "arg_max(x, y ORDER BY n)", ordered=True),
    Call("min_by(DISTINCT t, y)", "arg_min(t, y ORDER BY n)", ordered=True),
    Call("median(x)"),
    Call("median(x) FILTER (WHERE b)"),
    Call("median(DISTINCT y)"),
    Call("quantile_cont(x, 0.3)"),
    Call("percentile_cont(0.9) WITHIN GROUP (ORDER BY x)", "quantile_cont(x, 0.9)"),
    Call("percentile_cont(0.9) WITHIN GROUP (ORDER BY x DESC)", "quantile_cont(x, 0.1)"),
    Call("string_agg(t, '-')", "string_agg(t, '-' ORDER BY n)", ordered=True),
    Call("string_agg(t)", "string_agg(t, ',' ORDER BY n)", ordered=True),
    Call("listagg(t, '') FILTER (WHERE b)", "string_agg(t, '' ORDER BY n) FILTER (WHERE b)", ordered=True),
    Call("string_agg(t, '-' ORDER BY u DESC)", "string_agg(t, '-' ORDER BY u DESC NULLS LAST, n)", ordered=True),
    Call("string_agg(t, '-' ORDER BY x, u NULLS FIRST) FILTER (WHERE u IS NOT NULL)"),
    Call("listagg(t, '+') WITHIN GROUP (ORDER BY u) FILTER (WHERE u > 0)",
         "string_agg(t, '+' ORDER BY u) FILTER (WHERE u > 0)"),
    Call("string_agg(DISTINCT t, '-' ORDER BY t DESC)"),
    Call("spread(x) FILTER (WHERE b)", "max(x) FILTER (WHERE b) - min(x) FILTER (WHERE b)"),
    Call("spread(DISTINCT x)", "max(x) - min(x)"),
]  # fmt: skip
BY_TIME = [
    Call("first(x)", "first(x ORDER BY n)"),
    Call("last(t)", "last(t ORDER BY n)"),
    Call("any_value(t)", "any_value(t ORDER BY n)"),
    Call("any_value(x) FILTER (WHERE b)", "any_value(x ORDER BY n) FILTER (WHERE b)"),
    Call("first_value(x IGNORE NULLS)", "any_value(x ORDER BY n)"),
    Call("last_value(y IGNORE NULLS)", "any_value(y ORDER BY n DESC)"),
]
OF_GROUPS = [
    Call("first(x) FILTER (WHERE b)", "first(x ORDER BY n) FILTER (WHERE b)"),
    Call("last_value(t) FILTER (WHERE y > 1)", "last(t ORDER BY n) FILTER (WHERE y > 1)"),
    Call("first(t ORDER BY u DESC) FILTER (WHERE u > 5)", "first(t ORDER BY u DESC) FILTER (WHERE u > 5)"),
]
OWN = """
    CREATE AGGREGATE spread(x DOUBLE) : DOUBLE {
      TABLE state(low DOUBLE, high DOUBLE);
      INITIALIZE: { INSERT INTO state VALUES (x, x); }
      ITERATE: { UPDATE state SET low = least(low, x), high = greatest(high, x); }
      TERMINATE: { INSERT INTO RETURN SELECT high - low FROM state; }
    }
"""


def ask(query: str, rows: list[Row], **options: Any) -> list[Row]:
    """Our answer, the rows pushed in random pieces."""
    chance = random.Random(len(query))
    with ms.connect(**options) as db:
        db.execute(f"CREATE STREAM s ({COLUMNS}, ts TIMESTAMP) ORDER BY ts")
        db.execute(OWN)
        q = db.sql(query)
        start = 0
        while start < len(rows):
            size = chance.randint(1, 40)
            db.push("s", rows[start : start + size])
            start += size
        db.finish()
        return list(zip(*(column.to_pylist() for column in q.fetch().columns), strict=True))


def oracle(calls: Sequence[Call], rows: list[Row], groups: Sequence[Group]) -> list[Row]:
    """DuckDB's aggregates of each group, behind what is told beside them."""
    asked = ", ".join(call.duckdb for call in calls)
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute(f"CREATE TABLE r ({COLUMNS}, ts TIMESTAMP, n INT); CREATE TABLE g (g INT, n INT)")
        db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(*row, n) for n, row in enumerate(rows)])
        db.executemany("INSERT INTO g VALUES (?, ?)", [(i, n) for i, (_, among) in enumerate(groups) for n in among])
        found = db.execute(f"SELECT {asked} FROM g JOIN r USING (n) GROUP BY g ORDER BY g").fetchall()
    return [(*told, *values) for (told, _), values in zip(groups, found, strict=True)]


def assert_same(found: list[Row], expected: list[Row]) -> None:
    def key(row: Row) -> str:
        numbers = (float(value) if isinstance(value, int | float | Decimal) else value for value in row)
        return repr([round(value, 6) + 0.0 if isinstance(value, float) else value for value in numbers])

    assert sorted(map(key, found)) == sorted(map(key, expected))


def select(calls: Sequence[Call], over: str = "") -> str:
    return ", ".join(f"{call.ours}{over} AS c{i}" for i, call in enumerate(calls))


def compare(calls: Sequence[Call], query: str, groups: Callable[[list[Row]], list[Group]], over: str = "") -> None:
    """`query` has the calls in place of `{}`."""
    rows = feed(90, seed=len(query))
    assert_same(ask(query.format(select(calls, over)), rows), oracle(calls, rows, groups(rows)))


def by(key: Callable[[int, Row], Any]) -> Callable[[list[Row]], list[Group]]:
    def grouped(rows: list[Row]) -> list[Group]:
        found: dict[Any, list[int]] = {}
        for n, row in enumerate(rows):
            found.setdefault(key(n, row), []).append(n)
        return list(found.items())

    return grouped


def minute(at: datetime) -> datetime:
    return at.replace(second=0)


def hops(rows: list[Row]) -> list[Group]:
    """Windows of 60 seconds that begin every 20."""
    found: dict[Any, list[int]] = {}
    for n, row in enumerate(rows):
        at = row[-1]
        for back in range(3):
            start = minute(at) + timedelta(seconds=20 * (at.second // 20 - back))
            found.setdefault((row[0], start + timedelta(seconds=60)), []).append(n)
    return list(found.items())


def sessions(rows: list[Row]) -> list[Group]:
    found: list[tuple[tuple[str, datetime], list[int]]] = []
    last: dict[str, int] = {}
    for n, row in enumerate(rows):
        k, at = row[0], row[-1]
        if k in last and at - rows[found[last[k]][1][-1]][-1] < timedelta(seconds=8):
            found[last[k]][1].append(n)
        else:
            last[k] = len(found)
            found.append(((k, at), [n]))
    return list(found)


def windows(holds: Callable[[Row, Row, int], bool]) -> Callable[[list[Row]], list[Group]]:
    """For each row those before it of its partition that the window holds, counted from it back."""

    def found(rows: list[Row]) -> list[Group]:
        groups: list[Group] = []
        for n, row in enumerate(rows):
            before = [m for m in range(n + 1) if rows[m][0] == row[0]]
            kept = [m for place, m in enumerate(reversed(before)) if holds(rows[m], row, place)]
            groups.append(((row[-1],), kept[::-1]))
        return groups

    return found


def matches(rows: list[Row]) -> list[Group]:
    """Runs of a partition that begin anywhere and go on while u is less than 600 or not known."""
    groups: list[Group] = []
    for k in "ab":
        run: list[int] = []
        for n in [n for n, row in enumerate(rows) if row[0] == k]:
            if run and not (rows[n][3] is None or rows[n][3] < 600):
                groups.append(((k,), run))
                run = []
            run.append(n)
        groups.append(((k,), run))
    return [group for group in groups if group[1]]


ALL = [*CALLS, *BY_TIME, *OF_GROUPS]


def test_tumbles() -> None:
    compare(ALL, "SELECT k, window_end, {} FROM TUMBLE(s, ts, 1 MINUTE) GROUP BY k, window_end",
            by(lambda _, row: (row[0], minute(row[-1]) + timedelta(minutes=1))))  # fmt: skip


def test_hops() -> None:
    compare(ALL, "SELECT k, window_end, {} FROM HOP(s, ts, 20 SECONDS, 60 SECONDS) GROUP BY k, window_end", hops)


def test_sessions() -> None:
    compare(ALL, "SELECT k, window_start, {} FROM SESSION(s PARTITION BY k, ts, 8 SECONDS) "
            "GROUP BY k, window_start, window_end", sessions)  # fmt: skip


FRAMES = {
    "ROWS UNBOUNDED PRECEDING": windows(lambda old, new, place: True),
    "ROWS 6 PRECEDING": windows(lambda old, new, place: place <= 6),
    "RANGE 20 SECONDS PRECEDING": windows(lambda old, new, place: new[-1] - old[-1] <= timedelta(seconds=20)),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_over(frame: str) -> None:
    compare([*CALLS, *BY_TIME], "SELECT ts, {} FROM s", FRAMES[frame], f" OVER (PARTITION BY k {frame})")


def test_compiled() -> None:
    rows = feed(300, seed=8)
    for query in (
        "SELECT ts, max_by(t, y) OVER (PARTITION BY k RANGE 20 SECONDS PRECEDING) AS top FROM s",
        "SELECT k, min_by(x, y) AS least, any_value(t) AS one, first(x) FILTER (WHERE b) AS early "
        "FROM TUMBLE(s, ts, 1 MINUTE) GROUP BY k, window_end",
    ):
        assert ask(query, rows, jit="on") == ask(query, rows, jit="off")


def test_slides() -> None:
    """Every third row of a partition has the window of its last seven rows."""

    def third(rows: list[Row]) -> list[Group]:
        of = {k: [n for n, row in enumerate(rows) if row[0] == k] for k in "ab"}
        yields = {rows[n][-1] for numbers in of.values() for n in numbers[2::3]}
        return [group for group in FRAMES["ROWS 6 PRECEDING"](rows) if group[0][0] in yields]

    compare([*CALLS, *BY_TIME], "SELECT ts, {} FROM s", third, " OVER (PARTITION BY k ROWS 6 PRECEDING SLIDE 3)")


def test_row_patterns() -> None:
    # FIRST and LAST are navigation there
    compare(
        [call for call in ALL if not call.ours.startswith(("first(", "last("))],
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES {} AFTER MATCH SKIP PAST LAST ROW "
        "PATTERN (ANY_ LOW*) DEFINE LOW AS u < 600 OR u IS NULL)",
        matches,
    )


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_relations(form: str) -> None:
    """What a group says at each second of its windows' ten seconds."""
    calls = [
        *(call for call in CALLS if not call.ordered),
        Call("any_value(t)", "min(t)"),
        Call("first(t ORDER BY u) FILTER (WHERE u > 5)"),
        Call("last(x ORDER BY u) FILTER (WHERE u IS NOT NULL)", "last(x ORDER BY u) FILTER (WHERE u IS NOT NULL)"),
    ]
    rows = feed(60, seed=5)
    found = ask(f"SELECT k, {select(calls)} FROM s WINDOW(RANGE 10 SECONDS) GROUP BY k", rows, relations=form)
    length, second = timedelta(seconds=10), timedelta(seconds=1)
    instants = [START + i * second for i in range((rows[-1][-1] - START) // second + 12)]
    groups: list[Group] = [
        ((at, k), held)
        for at in instants
        for k in "ab"
        if (held := [n for n, row in enumerate(rows) if row[0] == k and row[-1] <= at < row[-1] + length])
    ]
    told = [(at, *row[:-2]) for at in instants for row in found if row[-2] <= at and (row[-1] is None or at < row[-1])]
    assert_same(told, oracle(calls, rows, groups))


def test_stored_tables() -> None:
    rows, calls = feed(60, seed=6), [call for call in CALLS if not call.ordered and "spread" not in call.ours]
    with ms.connect() as db:
        db.execute(f"CREATE TABLE s ({COLUMNS}, ts TIMESTAMP)")
        for row in rows:
            db.execute(f"INSERT INTO s VALUES ({', '.join('NULL' if v is None else repr(str(v)) for v in row)})")
        answer = db.sql(f"SELECT k, {select(calls)} FROM s GROUP BY k").fetch()
    found = list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
    assert_same(found, oracle(calls, rows, by(lambda _, row: (row[0],))(rows)))


def test_bodies() -> None:
    """Inside an aggregate written in SQL, over a table of its own."""
    calls = [Call("stddev_pop(v)", "stddev_pop(x)"), Call("bool_or(v > 30)", "bool_or(x > 30)"),
             Call("sum(v) FILTER (WHERE v > 0)", "sum(x) FILTER (WHERE x > 0)"),
             Call("median(DISTINCT v)", "median(DISTINCT x)"),
             Call("any_value(v)", "any_value(x ORDER BY n)"), Call("last(v)", "last(x ORDER BY n)"),
             Call("max_by(v, w) FILTER (WHERE v > 0)", "arg_max(x, u) FILTER (WHERE x > 0)"),
             Call("count_if(v > 0)", "count(*) FILTER (WHERE x > 0)")]  # fmt: skip
    for call in calls:
        body = f"""
            CREATE AGGREGATE whole(x DOUBLE, u INT) : (whole) {{
              TABLE kept(v DOUBLE, w INT);
              INITIALIZE: ITERATE: {{ INSERT INTO kept VALUES (x, u); }}
              TERMINATE: {{ INSERT INTO RETURN SELECT {call.ours} FROM kept; }}
            }}"""
        rows = feed(50, seed=7)
        with ms.connect() as db:
            db.execute(f"CREATE STREAM s ({COLUMNS}, ts TIMESTAMP) ORDER BY ts")
            db.execute(body)
            q = db.sql("SELECT k, window_end, whole(x, u) FROM TUMBLE(s, ts, 1 MINUTE) GROUP BY k, window_end")
            db.push("s", rows)
            db.finish()
            found = list(zip(*(column.to_pylist() for column in q.fetch().columns), strict=True))
        groups = by(lambda _, row: (row[0], minute(row[-1]) + timedelta(minutes=1)))(rows)
        assert_same(found, oracle([call], rows, groups))

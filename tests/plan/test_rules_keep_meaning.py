"""Rules change how a query runs and never what it gives: random queries on random data, with and without each rule."""

from __future__ import annotations

import datetime as dt
from random import Random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.rules import RULE_NAMES
from tiers import examples

START = dt.datetime(2020, 1, 1, 10)
DECLARATIONS = """
CREATE STREAM a (k INT, v BIGINT, x DOUBLE, t VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM b (k INT, v BIGINT, x DOUBLE, t VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE TABLE d (k INT, w INT, name VARCHAR);
INSERT INTO d VALUES (0, 0, 'a'), (1, 1, 'one'), (1, 2, 'ab'), (NULL, 3, 'none'), (2, NULL, NULL)
"""
COLUMNS = ("k", "v", "x", "t", "ts")
OUTPUTS = (*COLUMNS, "v + 1 AS next", "1 AS one")
VALUES: tuple[tuple[Any, ...], ...] = (
    (0, 1, 2, None),
    (-1, 0, 1, 2, 7, None),
    (0.25, 1.0, -3.5, None),
    ("a", "ab", "1", "", None),
)
CONDITIONS = (
    "k = 1", "k <> 0", "k IS NULL", "v > 0", "v % 2 = 0 AND k < 2", "x > 0.5 OR t = 'a'", "NOT (x > 0.5)",
    "t IN ('a', 'ab')", "t LIKE 'a%' AND v < 5", "coalesce(k, 1) = 1 AND TRUE", "TRY_CAST(t AS INT) = 1",
    "CASE WHEN t IN ('1', '2') THEN CAST(t AS INT) > 0 ELSE v > 0 END",
)  # fmt: skip
CHANGES = (
    {}, {"v": "v + 1"}, {"v": "v * 2", "k": "k"}, {"k": "CAST(v % 3 AS INT)"}, {"x": "x / 2 + v"}, {"t": "t || 'x'"},
    {"t": "CASE WHEN v > 0 THEN 'a' ELSE t END", "v": "coalesce(v, 0)"},
)  # fmt: skip
CALLS = (("v", "sum(v)"), ("v", "count(DISTINCT t)"), ("x", "avg(x)"), ("t", "max(t)"), ("k", "min(k)"))
KEYS = ("", "PARTITION BY k ", "PARTITION BY k, t ", "PARTITION BY v % 2 ")
FRAMES = (
    "ROWS 2 PRECEDING", "ROWS UNBOUNDED PRECEDING", "RANGE 3 SECONDS PRECEDING", "ROWS 3 PRECEDING SLIDE 2",
    "ROWS 5 PRECEDING SLIDE 4", "ROWS 1 PRECEDING SLIDE 3", "RANGE 3 SECONDS PRECEDING SLIDE 2 SECONDS",
)  # fmt: skip
MATCHES = ("j.k = d.k", "j.k = d.k AND j.v > d.w", "j.k = d.k AND d.w > 1", "j.v < d.w")


def random_query(random: Random) -> str:
    query = random_branch(random)
    for _ in range(random.randint(1, 4)):
        query = random.choice((filtered, projected, windowed, windowed, joined, united))(query, random)
    columns = random.sample(OUTPUTS, random.randint(1, 4))
    return f"SELECT {', '.join(columns)} FROM ({query}) AS final WHERE {random.choice(CONDITIONS)}"


def random_branch(random: Random) -> str:
    query = f"SELECT * FROM {random.choice('ab')}"
    return filtered(query, random) if random.random() < 0.3 else query


def filtered(query: str, random: Random) -> str:
    return f"SELECT * FROM ({query}) AS f WHERE {random.choice(CONDITIONS)}"


def projected(query: str, random: Random) -> str:
    return with_changes(query, random.choice(CHANGES))


def windowed(query: str, random: Random) -> str:
    column, call = random.choice(CALLS)
    return with_changes(query, {column: f"{call} OVER ({random.choice(KEYS)}{random.choice(FRAMES)})"})


def joined(query: str, random: Random) -> str:
    value = random.choice(("j.v + coalesce(d.w, 0)", "CAST(d.w AS BIGINT)"))
    columns = f"j.k, {value} AS v, j.x, d.name AS t, j.ts"
    return f"SELECT {columns} FROM ({query}) AS j {random.choice(('', 'LEFT'))} JOIN d ON {random.choice(MATCHES)}"


def united(query: str, random: Random) -> str:
    return f"SELECT * FROM ({query} {random.choice(('UNION', 'UNION ALL'))} {random_branch(random)}) AS u"


def with_changes(query: str, changes: dict[str, str]) -> str:
    columns = ", ".join(f"{changes[column]} AS {column}" if column in changes else column for column in COLUMNS)
    return f"SELECT {columns} FROM ({query}) AS p"


def push_random_rows(database: ms.Database, random: Random) -> None:
    clock = {"a": START, "b": START}
    for _ in range(random.randint(2, 5)):
        stream = random.choice("ab")
        rows = []
        for _ in range(random.randint(4, 10)):
            clock[stream] += dt.timedelta(seconds=random.randint(0, 2))
            rows.append((*map(random.choice, VALUES), clock[stream]))
        database.push(stream, rows)


@settings(max_examples=examples(60), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_rules_keep_meaning(seed: int) -> None:
    random = Random(seed)
    query = random_query(random)
    with ms.connect() as database:
        database.execute(DECLARATIONS)
        with_all = database.sql(query, name="all")
        runs = {}
        for rule in applied(database, query):
            database.execute(f"SET disable_rule = '{rule}'")
            runs[f"without {rule}"] = database.sql(query, name=f"without_{rule}")
        database.execute("SET rules = off")
        runs["as bound"] = database.sql(query, name="bound")
        push_random_rows(database, random)
        database.finish()
        expected = rows_of(with_all)
        for name, run in runs.items():
            assert rows_of(run) == expected, f"{name}: {query}"


def applied(database: ms.Database, query: str) -> list[str]:
    """The rules that change a plan: without any other, it would be the same."""
    line = next(line for line in database.explain(query).splitlines() if line.startswith("rules applied: "))
    names = line.removeprefix("rules applied: ").split(", ")
    return [rule for rule in RULE_NAMES if rule in names]


def rows_of(query: ms.Query | ms.Result) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in query.fetch().columns), strict=True))

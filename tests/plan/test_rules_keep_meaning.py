"""Rules change how a query runs and never what it gives: random queries on random data, with and without each rule."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.rules import RULE_NAMES

START = dt.datetime(2020, 1, 1, 10)
DECLARATIONS = """
CREATE STREAM a (k INT, v BIGINT, x DOUBLE, t VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM b (k INT, v BIGINT, x DOUBLE, t VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE TABLE d (k INT, w INT, name VARCHAR);
INSERT INTO d VALUES (0, 0, 'zero'), (1, 1, 'one'), (1, 2, 'uno'), (NULL, 3, 'none'), (2, NULL, NULL)
"""
COLUMNS = ("k", "v", "x", "t", "ts")

conditions = st.sampled_from(
    [
        "TRUE",
        "FALSE",
        "k = 1",
        "k <> 0",
        "k IS NULL",
        "v > 0",
        "v % 2 = 0 AND k < 2",
        "x > 0.5 OR t = 'a'",
        "NOT (x > 0.5)",
        "t IN ('a', 'b')",
        "t LIKE 'a%' AND v < 5",
        "coalesce(k, 1) = 1 AND TRUE",
        "TRY_CAST(t AS INT) = 1",
        "CASE WHEN t IN ('1', '2') THEN CAST(t AS INT) > 1 ELSE v > 0 END",
    ]
)
projections = st.sampled_from(
    [
        {"v": "v + 1"},
        {"v": "v * 2", "k": "k"},
        {"k": "CAST(v % 3 AS INT)"},
        {"x": "x / 2 + v"},
        {"t": "t || 'x'"},
        {"t": "CASE WHEN v > 0 THEN 'a' ELSE t END", "v": "coalesce(v, 0)"},
        {},
    ]
)
frames = st.sampled_from(["ROWS 2 PRECEDING", "ROWS UNBOUNDED PRECEDING", "RANGE 3 SECONDS PRECEDING"])
partitions = st.sampled_from(["", "PARTITION BY k ", "PARTITION BY k, t ", "PARTITION BY v % 2 "])
aggregates = st.sampled_from(
    [("v", "sum(v)"), ("v", "count(DISTINCT t)"), ("x", "avg(x)"), ("t", "max(t)"), ("k", "min(k)")]
)


def project(source: str, changes: dict[str, str]) -> str:
    columns = ", ".join(f"{changes[c]} AS {c}" if c in changes else c for c in COLUMNS)
    return f"SELECT {columns} FROM ({source}) AS p"


def window(source: str, call: tuple[str, str], partition: str, frame: str) -> str:
    return project(source, {call[0]: f"{call[1]} OVER ({partition}{frame})"})


def join(source: str, kind: str, on: str) -> str:
    columns = "j.k, j.v + coalesce(d.w, 0) AS v, j.x, d.name AS t, j.ts"
    return f"SELECT {columns} FROM ({source}) AS j {kind} JOIN d ON {on}"


def union(first: str, word: str, second: str) -> str:
    return f"SELECT * FROM ({first} {word} {second}) AS u"


streams = st.sampled_from(["a", "b"]).map(lambda name: f"SELECT * FROM {name}")


def larger(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(lambda q, c: f"SELECT * FROM ({q}) AS f WHERE {c}", smaller, conditions),
        st.builds(project, smaller, projections),
        st.builds(window, smaller, aggregates, partitions, frames),
        st.builds(join, smaller, st.just(""), st.sampled_from(["j.k = d.k", "j.k = d.k AND d.w > 1", "j.v < d.w"])),
        st.builds(join, smaller, st.just("LEFT"), st.sampled_from(["j.k = d.k", "j.k = d.k AND j.v > d.w"])),
        st.builds(union, smaller, st.sampled_from(["UNION ALL", "UNION"]), smaller),
    )


queries = st.builds(
    lambda q, columns, condition: f"SELECT {', '.join(columns)} FROM ({q}) AS final WHERE {condition}",
    st.recursive(streams, larger, max_leaves=3),
    st.lists(st.sampled_from(["k", "v", "x", "t", "ts", "v + 1 AS next", "1 AS one"]), min_size=1, max_size=4),
    conditions,
)
rows = st.tuples(
    st.sampled_from([0, 1, 2, None]),
    st.sampled_from([-1, 0, 1, 2, 7, None]),
    st.sampled_from([0.25, 1.0, -3.5, None]),
    st.sampled_from(["a", "ab", "1", "", None]),
)
steps = st.integers(0, 2)
pushes = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.lists(st.tuples(steps, rows), min_size=1, max_size=6)), max_size=5
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(query=queries, data=pushes)
def test_rules_keep_meaning(query: str, data: list[tuple[str, list[tuple[int, Any]]]]) -> None:
    with ms.connect() as database:
        database.execute(DECLARATIONS)
        with_all = database.sql(query, name="all")
        runs = {}
        for rule in RULE_NAMES:
            database.execute(f"SET disable_rule = '{rule}'")
            runs[f"without {rule}"] = database.sql(query, name=f"without_{rule}")
        database.execute("SET rules = off")
        runs["as bound"] = database.sql(query, name="bound")
        clock = {"a": START, "b": START}
        for stream, pushed in data:
            batch = []
            for step, row in pushed:
                clock[stream] += dt.timedelta(seconds=step)
                batch.append((*row, clock[stream]))
            database.push(stream, batch)
        database.finish()
        expected = [tuple(row.values()) for row in with_all.fetch().to_pylist()]
        for name, run in runs.items():
            assert [tuple(row.values()) for row in run.fetch().to_pylist()] == expected, name

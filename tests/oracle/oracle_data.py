"""Random streams, and both engines' answers: ours after all pushes, DuckDB's on the table of all rows."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

import millstream as ms

START = dt.datetime(2020, 1, 1)
COLUMNS = "k INT, g VARCHAR, v BIGINT, x DOUBLE, ts TIMESTAMP"
TABLE = """
CREATE TABLE d (id INT, k INT, low BIGINT, name VARCHAR);
INSERT INTO d VALUES (0, 0, -2, 'zero'), (1, 1, 3, 'one'), (2, 1, 0, 'uno'), (3, NULL, 1, 'none'), (4, 2, NULL, NULL)
"""
_ARROW = pa.schema(
    [("k", pa.int32()), ("g", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("ts", pa.timestamp("us"))]
)


@dataclass(frozen=True)
class Feed:
    """The rows of a stream in the order they arrive, and where pushes and heartbeats come between them.

    `cuts[i]` is true if a push ends after row i; `beats[i]` if a heartbeat follows that push.
    """

    rows: list[tuple[Any, ...]]
    cuts: list[bool]
    beats: list[bool]


def feeds(max_size: int = 30, jitter: int = 0) -> st.SearchStrategy[Feed]:
    """Rows with NULLs and ties; with `jitter`, out of order by at most that many seconds."""
    values = st.tuples(
        st.sampled_from([0, 1, 2, None]),
        st.sampled_from(["a", "b", "ä", "", None]),
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([10**12, -(10**12)])),
        st.one_of(st.none(), st.sampled_from([0.5, -1.25, 3.0, 100.0]), st.floats(-1e3, 1e3)),
        st.sampled_from([0, 0, 1, 1, 2, 5, 30]),
        st.integers(0, jitter),
        st.booleans(),
        st.booleans(),
    )
    return st.lists(values, max_size=max_size).map(_feed)


def _feed(drawn: list[tuple[Any, ...]]) -> Feed:
    time, rows = 0, []
    for k, g, v, x, step, late, _, _ in drawn:
        time += step
        # the newest time so far is at most `time`, so a row is late by at most the jitter
        rows.append((k, g, v, x, START + dt.timedelta(seconds=time - late)))
    return Feed(rows, [row[6] for row in drawn], [row[7] for row in drawn])


def ours(query: str, *, slack: int = 0, **streams: Feed) -> list[tuple[Any, ...]]:
    """All rows of a query, after everything has been pushed into its streams in turn."""
    with ms.connect() as database:
        if " d ON " in query:
            database.execute(TABLE)
        for name in streams:
            database.execute(f"CREATE STREAM {name} ({COLUMNS}) ORDER BY ts SLACK {slack} SECONDS")
        running = database.sql(query)
        fetched = []
        for name, feed in streams.items():
            start = 0
            for i in range(len(feed.rows)):
                if feed.cuts[i] or i == len(feed.rows) - 1:
                    database.push(name, feed.rows[start : i + 1])
                    start = i + 1
                    if feed.beats[i]:
                        newest = max(row[4] for row in feed.rows[: i + 1])
                        database.advance(name, newest - dt.timedelta(seconds=slack))
                    fetched += _tuples(running.fetch())
        database.finish()
        return fetched + _tuples(running.fetch())


def theirs(query: str, **streams: Feed) -> list[tuple[Any, ...]]:
    """DuckDB's answer over tables that hold the rows, with `seq`, the number of their arrival."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute(TABLE)
        for name, feed in streams.items():
            rows = [dict(zip(_ARROW.names, row, strict=True)) for row in feed.rows]
            table = pa.Table.from_pylist(rows, schema=_ARROW)
            table = table.append_column("seq", pa.array(range(len(rows)), pa.int64()))
            connection.register("rows", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
            connection.unregister("rows")
        return [tuple(row) for row in connection.execute(query).fetchall()]


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def assert_same(got: list[tuple[Any, ...]], want: list[tuple[Any, ...]]) -> None:
    """Equal rows in equal order; floats may differ in the last digits."""
    assert len(got) == len(want), f"{len(got)} rows instead of {len(want)}"
    for number, (mine, their) in enumerate(zip(got, want, strict=True)):
        assert len(mine) == len(their)
        assert all(map(_close, mine, their)), f"row {number}: {mine} instead of {their}"


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return bool(one == other)

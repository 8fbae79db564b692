"""Plans that follow from what a running session has measured."""

from __future__ import annotations

import datetime as dt
from random import Random
from typing import Any

import millstream as ms

START = dt.datetime(2020, 1, 1)
EVERY = {"s": 100, "r": 10, "q": 1000}
"""milliseconds between the rows of each stream"""

THREE = """
SELECT a.v, b.v, c.v FROM s [RANGE 2 SECONDS] AS a, r [RANGE 2 SECONDS] AS b, q [RANGE 2 SECONDS] AS c
WHERE a.k = b.k AND a.t = c.t AND b.v < c.v
"""


def rows(stream: str, begin: int, end: int) -> list[tuple[Any, ...]]:
    random = Random(f"{stream} {begin}")
    times = range(begin * 1000, end * 1000, EVERY[stream])
    return [
        (random.randint(0, 20), random.randint(0, 50), str(random.randint(0, 60)), START + dt.timedelta(milliseconds=t))
        for t in times
    ]


def test_joins_of_a_running_session_follow_its_streams() -> None:
    with ms.connect() as database:
        for stream in EVERY:
            database.execute(f"CREATE STREAM {stream} (k INT, v INT, t VARCHAR, ts TIMESTAMP) ORDER BY ts")
        assert "order_joins" not in database.explain(THREE)
        assert "s: d 1000 assumed" in database.explain(THREE, "COST")
        for stream in EVERY:
            database.push(stream, rows(stream, 0, 5))
        assert "r: d 10000 measured over 500 rows" in database.explain(THREE, "COST")
        measured = database.sql(THREE, name="measured")
        database.execute("SET disable_rule = 'order_joins'")
        written = database.sql(THREE, name="written")
        assert isinstance(measured, ms.Query)
        assert "order_joins" in measured.explain()
        for stream in EVERY:
            database.push(stream, rows(stream, 5, 20))
        database.finish()
        found, expected = (sorted(map(repr, query.fetch().to_pylist())) for query in (measured, written))
        assert found == expected
        assert found

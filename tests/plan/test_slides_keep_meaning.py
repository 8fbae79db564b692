"""Windows of aggregates, written in SQL or not, give the same rows whether or not slides become tumbles and panes, and
windows become one: random windows on random data, with and without the rules."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pytest

import millstream as ms

START = dt.datetime(2020, 1, 1, 10)
DECLARATIONS = """
CREATE STREAM s (k INT, v BIGINT, i INT, x DOUBLE, d DECIMAL(9, 2), t VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE AGGREGATE total(x BIGINT) : BIGINT {
  TABLE t(n BIGINT);
  INITIALIZE: { INSERT INTO t VALUES (coalesce(x, 0)); } ITERATE: { UPDATE t SET n = n + x WHERE x IS NOT NULL; }
  TERMINATE: { INSERT INTO RETURN SELECT n FROM t; } };
CREATE ALGEBRAIC WINDOW AGGREGATE total(x BIGINT) : BIGINT {
  TABLE t(n BIGINT); TABLE inwindow(w BIGINT);
  INITIALIZE: { INSERT INTO t VALUES (coalesce(x, 0)); INSERT INTO RETURN VALUES (coalesce(x, 0)); }
  ITERATE: { UPDATE t SET n = n + coalesce(x, 0); INSERT INTO RETURN SELECT n FROM t; }
  EXPIRE: { UPDATE t SET n = n - coalesce(oldest(), 0); } };
CREATE ALGEBRAIC AGGREGATE top(x BIGINT) : BIGINT {
  TABLE t(n BIGINT);
  INITIALIZE: { INSERT INTO t VALUES (x); } ITERATE: { UPDATE t SET n = x WHERE x > n OR n IS NULL; }
  TERMINATE: { INSERT INTO RETURN SELECT n FROM t; } };
CREATE WINDOW AGGREGATE mean(x DOUBLE) : DOUBLE {
  TABLE state(total DOUBLE, n INT), inwindow(w DOUBLE);
  INITIALIZE: { INSERT INTO state VALUES (x, 1); INSERT INTO RETURN VALUES (x); }
  ITERATE: { UPDATE state SET total = total + x, n = n + 1; INSERT INTO RETURN SELECT total / n FROM state; }
  EXPIRE: { UPDATE state SET total = total - oldest(), n = n - 1; } };
CREATE WINDOW AGGREGATE before(x BIGINT) : BIGINT {
  TABLE s(n BIGINT), inwindow(w BIGINT);
  INITIALIZE: { INSERT INTO s VALUES (0); INSERT INTO RETURN SELECT n FROM s; }
  ITERATE: { INSERT INTO RETURN SELECT n FROM s; UPDATE s SET n = n + x WHERE x IS NOT NULL; }
  EXPIRE: { UPDATE s SET n = n - x WHERE x IS NOT NULL; } };
CREATE WINDOW AGGREGATE often(x BIGINT) : BIGINT {
  TABLE s(v BIGINT, n BIGINT), inwindow(w BIGINT);
  INITIALIZE: ITERATE: {
    UPDATE s SET n = n + 1 WHERE v = x; INSERT INTO s VALUES (x, 1) WHERE sqlcode > 0;
    INSERT INTO RETURN SELECT max(n) FROM s; }
  EXPIRE: { UPDATE s SET n = n - 1 WHERE v = oldest(); DELETE FROM s WHERE n = 0; } };
CREATE WINDOW AGGREGATE apart(x BIGINT, y INT) : BIGINT {
  TABLE inwindow(w BIGINT, u INT);
  INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x - oldest().w + y - oldest().u); } };
CREATE WINDOW AGGREGATE highest(x BIGINT) : BIGINT {
  TABLE inwindow(w BIGINT);
  INITIALIZE: { INSERT INTO RETURN VALUES (x); }
  ITERATE: { DELETE FROM inwindow WHERE w <= x; INSERT INTO RETURN VALUES (oldest()); } }
"""
CALLS = (
    "sum(v)", "count(*)", "count(v)", "avg(i)", "avg(x)", "max(t)", "min(i)", "max(x)", "sum(x)", "sum(d)", "max(d)",
    "total(v)", "total(i)", "top(v)", "mean(x)", "mean(v)", "before(v)", "often(v)", "often(i)", "apart(v, i)",
    "apart(i, i)", "highest(v)",
)  # fmt: skip
VALUES: tuple[tuple[Any, ...], ...] = (
    (0, 1, None), (None, 1, 2, -5, 9), (None, 3, 4, -1), (None, 0.5, 1.25, -3.0),
    (None, Decimal("1.25"), Decimal("-7.50")), (None, "a", "b", "zz"),
)  # fmt: skip


def random_query(random: Random) -> str:
    key = random.choice(("", "PARTITION BY k "))
    slide = random.choice((None, random.randint(2, 7), random.randint(2, 7)))
    frames = [f"ROWS {random.randint(0, 15)} PRECEDING{f' SLIDE {slide}' if slide else ''}" for _ in range(2)]
    if slide is None and random.random() < 0.5:
        frames = [f"RANGE {seconds} SECONDS PRECEDING" for seconds in random.sample(range(9), random.randint(1, 3))]
    calls = random.sample(CALLS, random.randint(1, 4))
    windows = (f"{call} OVER ({key}{random.choice(frames)}) AS c{n}" for n, call in enumerate(calls))
    return f"SELECT k, {', '.join(windows)} FROM s"


@pytest.mark.parametrize("seed", range(25))
def test_slides_and_shared_windows_keep_meaning(seed: int) -> None:
    random = Random(seed)
    query = random_query(random)
    with ms.connect() as database:
        database.execute(DECLARATIONS)
        runs = {"": database.sql(query, name="all")}
        for rule in ("pane_slides", "tumble_slides", "merge_aggregates"):
            database.execute(f"SET disable_rule = '{rule}'")
            runs[f"without {rule}"] = database.sql(query, name=f"without_{rule}")
        database.execute("SET rules = off")
        bound = database.sql(query, name="bound")
        now = START
        for _ in range(random.randint(1, 4)):
            rows = []
            for _ in range(random.randint(1, 30)):
                now += dt.timedelta(seconds=random.randint(0, 2))
                rows.append((*map(random.choice, VALUES), now))
            database.push("s", rows)
        database.finish()
        expected = bound.fetch().to_pylist()
        for name, run in runs.items():
            assert run.fetch().to_pylist() == expected, f"{name}: {query}"

"""Selections, joins with tables and unions against DuckDB on the table of all rows."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle_data import Feed, assert_same, feeds, ours, theirs

from tiers import examples

PATIENT = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])

EXPRESSIONS = [
    "v + k", "v * 2 - 1", "v / 3", "v % 3", "v // 2", "-v", "x * x", "abs(x)", "round(x, 1)", "floor(x)", "sign(v)",
    "coalesce(v, k, 0)", "nullif(k, 1)", "greatest(k, v)", "least(x, v)",
    "CASE k WHEN 0 THEN 'zero' WHEN 1 THEN g ELSE 'many' END", "CASE WHEN v > 0 THEN v ELSE 0 - v END",
    "g || '-' || k", "upper(g)", "length(g)", "substring(g, 1, 1)", "replace(g, 'a', 'aa')", "g LIKE '_%'",
    "extract(MINUTE FROM ts)", "date_trunc('minute', ts)", "ts + INTERVAL 5 SECONDS", "CAST(v AS VARCHAR)",
    "k IN (1, NULL)", "v BETWEEN 0 AND 3", "k IS DISTINCT FROM v", "NOT (v > k)", "v > 0 AND x > 0", "v > 0 OR x > 0",
]  # fmt: skip
JOINS = [
    ("JOIN", "s.k = d.k"),
    ("JOIN", "s.k = d.k AND s.v > d.low"),
    ("JOIN", "s.v >= d.low"),
    ("JOIN", "s.k + 1 = d.k"),
    ("LEFT JOIN", "s.k = d.k"),
    ("LEFT JOIN", "s.k = d.k AND s.v > d.low"),
    ("LEFT JOIN", "s.v > d.low AND d.name <> 'one'"),
    ("LEFT JOIN", "s.k = d.k AND s.x > 0"),
]
CONDITIONS = ["TRUE", "s.v > 0", "d.low > 0", "d.name IS NULL", "s.v > d.low OR d.low IS NULL", "upper(d.name) = 'ONE'"]


@PATIENT
@given(
    columns=st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=4),
    condition=st.sampled_from(EXPRESSIONS[-6:]),
    feed=feeds(),
)
def test_selection(columns: list[str], condition: str, feed: Feed) -> None:
    chosen = ", ".join(f"{column} AS c{i}" for i, column in enumerate(columns))
    got = ours(f"SELECT {chosen} FROM s WHERE {condition}", s=feed)
    want = theirs(f"SELECT {chosen} FROM s WHERE {condition} ORDER BY ts, seq", s=feed)
    assert_same(got, want)


@PATIENT
@given(join=st.sampled_from(JOINS), condition=st.sampled_from(CONDITIONS), feed=feeds())
def test_join_with_a_table(join: tuple[str, str], condition: str, feed: Feed) -> None:
    word, on = join
    query = f"SELECT s.k, s.v, s.ts, d.id, d.name FROM s {word} d ON {on} WHERE {condition}"
    assert_same(ours(query, s=feed), theirs(f"{query} ORDER BY ts, seq, id", s=feed))


@PATIENT
@given(join=st.sampled_from(JOINS), feed=feeds())
def test_window_over_a_join(join: tuple[str, str], feed: Feed) -> None:
    word, on = join
    joined = f"FROM s {word} d ON {on}"
    by_time = "sum(s.v) OVER (PARTITION BY d.name RANGE 5 SECONDS PRECEDING)"
    by_row = "count(*) OVER (ROWS UNBOUNDED PRECEDING)"
    got = ours(f"SELECT d.id, s.v, {by_time} AS t, {by_row} AS r {joined}", s=feed)
    by_time = "sum(s.v) OVER (PARTITION BY d.name ORDER BY ts RANGE INTERVAL 5 SECONDS PRECEDING)"
    by_row = "count(*) OVER (ORDER BY ts, seq, id ROWS UNBOUNDED PRECEDING)"
    want = theirs(f"SELECT d.id, s.v, {by_time} AS t, {by_row} AS r {joined} ORDER BY ts, seq, id", s=feed)
    assert_same(got, want)


@PATIENT
@given(one=feeds(max_size=15), two=feeds(max_size=15))
def test_union_all(one: Feed, two: Feed) -> None:
    branches = ("SELECT v, ts FROM a WHERE k = 1", "SELECT v * 2, ts FROM b")
    got = ours(
        f"SELECT v, ts, count(*) OVER (ROWS 2 PRECEDING) AS n FROM ({' UNION ALL '.join(branches)}) AS u", a=one, b=two
    )
    rows = "SELECT v, ts, 0 AS branch, seq FROM a WHERE k = 1 UNION ALL SELECT v * 2, ts, 1, seq FROM b"
    frame = "count(*) OVER (ORDER BY ts, branch, seq ROWS 2 PRECEDING)"
    want = theirs(f"SELECT v, ts, {frame} AS n FROM ({rows}) ORDER BY ts, branch, seq", a=one, b=two)
    assert_same(got, want)


@PATIENT
@given(one=feeds(max_size=20), two=feeds(max_size=20))
def test_union_removes_duplicates_of_the_same_time(one: Feed, two: Feed) -> None:
    got = ours("SELECT k, g FROM a UNION SELECT k, g FROM b", a=one, b=two)
    rows = "SELECT k, g, ts, 0 AS branch, seq FROM a UNION ALL SELECT k, g, ts, 1, seq FROM b"
    first = "min(branch * 1000 + seq) AS place"
    want = theirs(
        f"SELECT k, g FROM (SELECT k, g, ts, {first} FROM ({rows}) GROUP BY k, g, ts) ORDER BY ts, place", a=one, b=two
    )
    assert_same(got, want)

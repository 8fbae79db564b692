"""Joins of streams against DuckDB's joins of the tables of all rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle_data import Feed, feeds, ours, theirs

from tiers import examples

PATIENT = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])

NEAR = [
    "a.ts = b.ts",
    "a.ts BETWEEN b.ts - INTERVAL 5 SECONDS AND b.ts + INTERVAL 2 SECONDS",
    "a.ts BETWEEN b.ts AND b.ts + INTERVAL 30 SECONDS",
    "b.ts > a.ts AND b.ts < a.ts + INTERVAL 30 SECONDS",
    "b.ts - a.ts BETWEEN INTERVAL 1 SECOND AND INTERVAL 5 SECONDS",
    "a.ts >= b.ts + INTERVAL 1 SECOND AND a.ts <= b.ts + INTERVAL 2 SECONDS",
]
FURTHER = ["TRUE", "a.k = b.k", "a.k = b.k AND a.v > b.v", "a.v <= b.v"]
WINDOWS = {"TUMBLE(%s, ts, INTERVAL 5 SECONDS)": (5, 5), "HOP(%s, ts, INTERVAL 2 SECONDS, INTERVAL 5 SECONDS)": (2, 5)}


def assert_same_bag(got: list[tuple[Any, ...]], want: list[tuple[Any, ...]]) -> None:
    assert sorted(got, key=repr) == sorted(want, key=repr)


@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "ANTI JOIN"])
@PATIENT
@given(near=st.sampled_from(NEAR), further=st.sampled_from(FURTHER), a=feeds(15), b=feeds(15))
def test_rows_near_in_time(how: str, near: str, further: str, a: Feed, b: Feed) -> None:
    right = "" if how == "ANTI JOIN" else ", b.k AS bk, b.v AS bv, b.ts AS bts"
    query = f"SELECT a.k, a.v, a.ts{right} FROM a {how} b ON {further} AND {near}"
    assert_same_bag(ours(query, a=a, b=b), theirs(query, a=a, b=b))


@PATIENT
@given(
    near=st.sampled_from(NEAR),
    condition=st.sampled_from(["a.v > 0", "b.v > 0", "a.v + b.v < 3"]),
    a=feeds(15),
    b=feeds(15),
)
def test_bounds_in_where(near: str, condition: str, a: Feed, b: Feed) -> None:
    query = f"SELECT a.v, a.ts, b.v AS bv FROM a, b WHERE {condition} AND {near} AND a.k = b.k"
    assert_same_bag(ours(query, a=a, b=b), theirs(query, a=a, b=b))


@PATIENT
@given(near=st.sampled_from([NEAR[0], NEAR[2], NEAR[5]]), further=st.sampled_from(FURTHER), a=feeds(15), b=feeds(15))
def test_semi_join_with_earlier_rows(near: str, further: str, a: Feed, b: Feed) -> None:
    query = f"SELECT a.k, a.v, a.ts FROM a SEMI JOIN b ON {further} AND {near}"
    assert_same_bag(ours(query, a=a, b=b), theirs(query, a=a, b=b))


@PATIENT
@given(a=feeds(12), b=feeds(12), c=feeds(12))
def test_three_streams(a: Feed, b: Feed, c: Feed) -> None:
    query = (
        "SELECT a.v, b.v AS bv, c.v AS cv FROM a "
        "JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS "
        "JOIN c ON c.k = a.k WHERE c.ts >= b.ts - INTERVAL 2 SECONDS AND c.ts <= a.ts + INTERVAL 1 SECOND"
    )
    assert_same_bag(ours(query, a=a, b=b, c=c), theirs(query, a=a, b=b, c=c))


@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
@PATIENT
@given(windows=st.sampled_from(sorted(WINDOWS)), a=feeds(15), b=feeds(15))
def test_rows_of_one_window(how: str, windows: str, a: Feed, b: Feed) -> None:
    right = "" if how in ("SEMI JOIN", "ANTI JOIN") else ", r.v AS rv, r.window_start AS rs"
    on = "l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
    got = ours(f"SELECT l.v, l.window_end{right} FROM {windows % 'a'} l {how} {windows % 'b'} r ON {on}", a=a, b=b)
    slide, size = WINDOWS[windows]
    assigned = (
        "(SELECT *, make_timestamp(w * 1000000) AS window_start, make_timestamp((w + {size}) * 1000000) AS window_end "
        "FROM {name}, LATERAL (SELECT unnest(generate_series(epoch(ts)::BIGINT - {size}, epoch(ts)::BIGINT)) AS w) "
        "WHERE w % {slide} = 0 AND w <= epoch(ts) AND epoch(ts) < w + {size})"
    )
    one, two = (assigned.format(size=size, slide=slide, name=name) for name in ("a", "b"))
    want = theirs(f"SELECT l.v, l.window_end{right} FROM {one} l {how} {two} r ON {on}", a=a, b=b)
    assert_same_bag(got, want)


@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
@PATIENT
@given(outer=st.booleans(), keyed=st.booleans(), a=feeds(15), b=feeds(15))
def test_asof(op: str, outer: bool, keyed: bool, a: Feed, b: Feed) -> None:
    on = f"a.ts {op} b.ts{' AND a.k = b.k' if keyed else ''}"
    columns = "a.v, a.ts, b.v AS bv, b.g"
    got = ours(f"SELECT {columns} FROM a ASOF {'LEFT ' if outer else ''}JOIN b ON {on}", a=a, b=b)
    order = "ts DESC, seq DESC" if op in (">=", ">") else "ts, seq"
    nearest = f"(SELECT * FROM b WHERE {on} ORDER BY {order} LIMIT 1) AS b"
    want = theirs(f"SELECT {columns} FROM a {'LEFT' if outer else 'INNER'} JOIN LATERAL {nearest} ON TRUE", a=a, b=b)
    assert_same_bag(got, want)

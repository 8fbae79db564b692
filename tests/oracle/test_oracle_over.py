"""Windows against DuckDB: every row that OVER delivers is the row that DuckDB gives on the table of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle_data import Feed, assert_same, feeds, ours, theirs

from tiers import examples

PATIENT = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])

CALLS = [
    "count(*)", "count(v)", "count(g)", "count(DISTINCT v)", "count(DISTINCT g)", "sum(v)", "sum(x)", "sum(DISTINCT v)",
    "avg(v)", "avg(x)", "min(v)", "max(v)", "min(x)", "max(x)", "min(g)", "max(g)", "min(ts)", "max(k)",
    "var_pop(x)", "var_samp(x)", "stddev_pop(x)", "stddev_samp(x)", "stddev(x)", "variance(x)",
    "sum(x * 2 + 1)", "sum(CASE WHEN v > 0 THEN 1 ELSE 0 END)", "max(coalesce(v, 0) % 3)",
    "bool_and(v > 0)", "bool_or(x > 1)", "sum(v) FILTER (WHERE g = 'a')", "count(*) FILTER (WHERE v > 0)",
    "max(g) FILTER (WHERE x > 0)", "count(DISTINCT v) FILTER (WHERE v % 2 = 0)", "avg(x) FILTER (WHERE v IS NULL)",
]  # fmt: skip
PICKS = ["first_value(v)", "last_value(v)", "first_value(g)", "last_value(x)", "nth_value(v, 2)", "nth_value(g, 3)"]
OF_OWN_ROW = ("count", "sum", "avg", "min", "max")
KEYS = ["", "k", "g", "k, g", "v % 2", "k, ts"]
CONDITIONS = ["TRUE", "v > 0", "x IS NOT NULL", "k = 1 OR g = 'a'", "v % 2 = 0", "g < 'b'", "NOT (x > 1)"]


@dataclass(frozen=True)
class Call:
    """An aggregate over a frame, as each side writes it."""

    call: str
    key: str
    unit: str
    length: int | None

    @property
    def ours(self) -> str:
        reach = "UNBOUNDED" if self.length is None else f"{self.length} {'SECONDS' if self.unit == 'RANGE' else ''}"
        return f"{self.call} OVER ({self._partition}{self.unit} {reach} PRECEDING)"

    @property
    def theirs(self) -> str:
        order = "ts, seq" if self.unit == "ROWS" else "ts"
        length = f"INTERVAL {self.length} SECONDS" if self.unit == "RANGE" else str(self.length)
        reach = "UNBOUNDED" if self.length is None else length
        call = self.call.replace(")", " ORDER BY ts, seq)") if self.call in PICKS else self.call
        frame = f"{self.unit} BETWEEN {reach} PRECEDING AND CURRENT ROW"
        return f"{call} OVER ({self._partition}ORDER BY {order} {frame})"

    @property
    def _partition(self) -> str:
        return f"PARTITION BY {self.key} " if self.key else ""


@dataclass(frozen=True)
class Ahead:
    """A function over a frame that may end after the current row, as each side writes it; bounds count forwards."""

    call: str
    key: str
    unit: str
    start: int | None
    end: int

    @property
    def ours(self) -> str:
        order = "ORDER BY ts" if self.call.startswith("lead") else f"{self.unit} BETWEEN {self._frame('{} SECONDS')}"
        return f"{self.call} OVER ({self._partition}{order})"

    @property
    def theirs(self) -> str:
        if self.call.startswith("lead"):
            return f"{self.call} OVER ({self._partition}ORDER BY ts, seq)"
        order = "ts" if self.unit == "RANGE" else "ts, seq"
        call = self.call
        if "_value" in call and self.unit == "RANGE":
            call = call.replace(" IGNORE", " ORDER BY ts, seq IGNORE")
        frame = self._frame("INTERVAL {} SECONDS")
        return f"{call} OVER ({self._partition}ORDER BY {order} {self.unit} BETWEEN {frame})"

    def _frame(self, seconds: str) -> str:
        return f"{self._bound(self.start, seconds)} AND {self._bound(self.end, seconds)}"

    def _bound(self, at: int | None, seconds: str) -> str:
        if at is None:
            return "UNBOUNDED PRECEDING"
        if at == 0:
            return "CURRENT ROW"
        distance = seconds.format(abs(at)) if self.unit == "RANGE" else abs(at)
        return f"{distance} {'PRECEDING' if at < 0 else 'FOLLOWING'}"

    @property
    def _partition(self) -> str:
        return f"PARTITION BY {self.key} " if self.key else ""


LEADS = ["lead(v)", "lead(g, 2)", "lead(x, 3, 0.5)", "lead(v, 0)", "lead(v, -1, 7)"]
KNOWN = ["first_value(v IGNORE NULLS)", "last_value(g IGNORE NULLS)", "last_value(x IGNORE NULLS)"]


@st.composite
def aheads(draw: st.DrawFn) -> Ahead:
    unit = draw(st.sampled_from(["ROWS", "RANGE"]))
    end = draw(st.sampled_from([-1, 0, 1, 2, 5]))
    start = draw(st.none() | st.integers(-5, end))
    call = draw(st.sampled_from([*CALLS, *LEADS, *KNOWN, *(PICKS if unit == "ROWS" else [])]))
    return Ahead(call, draw(st.sampled_from(KEYS)), unit, start, end)


def calls(*which: str) -> st.SearchStrategy[Call]:
    units, lengths = st.sampled_from(["ROWS", "RANGE", "GROUPS"]), st.sampled_from([None, 0, 1, 2, 5, 40])
    return st.builds(Call, st.sampled_from(which or (*CALLS, *PICKS)), st.sampled_from(KEYS), units, lengths)


def compare(windows: Sequence[Call | Ahead], condition: str, feed: Feed, slack: int = 0) -> None:
    mine = ", ".join(f"{window.ours} AS c{i}" for i, window in enumerate(windows))
    other = ", ".join(f"{window.theirs} AS c{i}" for i, window in enumerate(windows))
    got = ours(f"SELECT k, v, ts, {mine} FROM s WHERE {condition}", slack=slack, s=feed)
    want = theirs(f"SELECT k, v, ts, {other} FROM s WHERE {condition} ORDER BY ts, seq", s=feed)
    assert_same(got, want)


@PATIENT
@given(windows=st.lists(calls(), min_size=1, max_size=3), condition=st.sampled_from(CONDITIONS), feed=feeds())
def test_over(windows: list[Call], condition: str, feed: Feed) -> None:
    compare(windows, condition, feed)


@settings(PATIENT, max_examples=examples(30))
@given(windows=st.lists(calls(), min_size=1, max_size=2), feed=feeds(jitter=7))
def test_over_out_of_order_within_slack(windows: list[Call], feed: Feed) -> None:
    compare(windows, "TRUE", feed, slack=7)


@PATIENT
@given(windows=st.lists(aheads(), min_size=1, max_size=3), condition=st.sampled_from(CONDITIONS), feed=feeds())
def test_frames_that_reach_ahead(windows: list[Ahead], condition: str, feed: Feed) -> None:
    compare(windows, condition, feed)


@pytest.mark.parametrize("unit", ["ROWS", "RANGE", "GROUPS"])
@pytest.mark.parametrize("call", CALLS + PICKS)
@settings(PATIENT, max_examples=examples(3))
@given(length=st.sampled_from([None, 0, 2, 5]), key=st.sampled_from(["", "k"]), feed=feeds(max_size=60))
def test_every_aggregate(call: str, unit: str, length: int | None, key: str, feed: Feed) -> None:
    compare([Call(call, key, unit, length)], "TRUE", feed)


@settings(PATIENT, max_examples=examples(30))
@given(
    call=st.sampled_from([call for call in CALLS if call.startswith(OF_OWN_ROW) and "DISTINCT" not in call]),
    frame=st.sampled_from(
        [
            "RANGE BETWEEN INTERVAL 3 SECONDS PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN INTERVAL 2 SECONDS PRECEDING AND INTERVAL 3 SECONDS FOLLOWING",
            "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
            "GROUPS BETWEEN 2 PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        ]
    ),
    excluded=st.sampled_from(["TIES", "GROUP", "CURRENT ROW"]),
    feed=feeds(),
)
def test_what_is_excluded(call: str, frame: str, excluded: str, feed: Feed) -> None:
    window = f"{call} OVER (PARTITION BY k ORDER BY ts {frame} EXCLUDE {excluded}) AS c"
    want = theirs(f"SELECT k, v, ts, {window} FROM s ORDER BY ts, seq", s=feed)
    assert_same(ours(f"SELECT k, v, ts, {window} FROM s", s=feed), want)


@settings(PATIENT, max_examples=examples(30))
@given(
    inner=calls("sum(v)", "max(v)", "count(*)"),
    outer=calls("sum(v)", "avg(v)", "min(v)", "count(DISTINCT v)"),
    feed=feeds(),
)
def test_over_of_over(inner: Call, outer: Call, feed: Feed) -> None:
    got = ours(f"SELECT v, {outer.ours} AS c FROM (SELECT k, g, ts, {inner.ours} AS v FROM s) AS i WHERE v > 0", s=feed)
    source = f"SELECT k, g, ts, seq, {inner.theirs} AS v FROM s"
    want = theirs(f"SELECT v, {outer.theirs} AS c FROM ({source}) AS i WHERE v > 0 ORDER BY ts, seq", s=feed)
    assert_same(got, want)

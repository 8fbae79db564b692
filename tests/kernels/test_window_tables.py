"""TUMBLE, HOP, CUMULATE and SESSION, and GROUP BY over them: what DuckDB makes of the same rows."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import DataError
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.programs import ends
from millstream.kernels.programs.kernel import engine_of_calls
from millstream.kernels.streams.hop import WindowStage, windows_of
from millstream.kernels.streams.session import SessionSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import KNOWN, NAMES, result_type
from millstream.plan.window_tables import Cumulating, Hopping, Windows
from millstream.schema import Field, Schema
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, SqlType
from tiers import examples

ONE = Schema.of(v=BIGINT)
START = dt.datetime(2020, 1, 1)
quick = settings(deadline=None, max_examples=examples(40))


def batch(times: list[int], upto: int = FOREVER, seq: list[int] | None = None) -> Batch:
    rows = pa.RecordBatch.from_arrays([pa.array(range(len(times)), pa.int64())], schema=ONE.arrow)
    numbers = range(len(times)) if seq is None else seq
    return Batch(rows, np.array(times, dtype=np.int64), np.array(list(numbers), dtype=np.int64), upto)


shapes = st.one_of(
    st.builds(Hopping, st.integers(1, 12), st.integers(1, 12), st.integers(-20, 20)),
    st.builds(lambda step, n, offset: Cumulating(step * n, step, offset), st.integers(1, 5), st.integers(1, 5),
              st.integers(-20, 20)),
)  # fmt: skip


@quick
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=8), shapes)
def test_windows_are_those_that_contain_the_time(times: list[int], windows: Windows) -> None:
    which, _, start, end = windows_of(np.array(times, dtype=np.int64), windows)
    found = list(zip(which.tolist(), start.tolist(), end.tolist(), strict=True))
    wanted = [
        (row, first, last)
        for row, time in enumerate(times)
        for first in range(-100, 100)
        for last in ends_of(first, windows)
        if first <= time < last
    ]
    assert found == wanted


def ends_of(start: int, windows: Windows) -> list[int]:
    every = windows.slide if isinstance(windows, Hopping) else windows.size
    if (start - windows.offset) % every:
        return []
    if isinstance(windows, Hopping):
        return [start + windows.size]
    return [start + i * windows.step for i in range(1, windows.most + 1)]


def test_copies_get_numbers_of_their_own() -> None:
    stage = WindowStage(ONE, Hopping(4, 2), BIGINT, spread=1)
    assert stage.step(batch([4, 5], seq=[3, 4])).seq.tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("time", [BEGIN + 3, FOREVER - 3])
def test_windows_beyond_all_time_are_refused(time: int) -> None:
    with pytest.raises(DataError, match="beyond the largest possible time"):
        WindowStage(ONE, Hopping(10, 5), BIGINT).step(batch([time]))


def test_heartbeats_pass() -> None:
    output = WindowStage(ONE, Hopping(10, 5), TIMESTAMP).step(batch([], upto=7))
    assert (len(output), output.upto, output.rows.schema.names) == (0, 7, ["v", "window_start", "window_end"])


def test_a_session_ends_when_the_gap_has_passed() -> None:
    kernel = SessionSpec(ONE, (), 5, BIGINT).build()
    state = kernel.open()
    assert len(kernel.step(state, batch([10, 13], upto=17))) == 0
    ended = kernel.step(state, batch([], upto=18))
    assert ended.rows.column("window_start").to_pylist() == [10, 10]
    assert ended.rows.column("window_end").to_pylist() == [18, 18]
    # the last instant of the session: whoever groups by the end knows that it is complete at 18
    assert ended.time.tolist() == [17, 17]


def test_rows_of_a_session_stay_in_order_of_their_times() -> None:
    kernel = SessionSpec(ONE, (), 5, BIGINT).build()
    output = kernel.step(kernel.open(), batch([10, 11, 12], seq=[9, 2, 4]))
    assert output.rows.column("v").to_pylist() == [0, 1, 2]
    assert output.seq.tolist() == [2, 4, 9]


def test_a_session_that_would_never_end_is_refused() -> None:
    kernel = SessionSpec(ONE, (), 5, BIGINT).build()
    with pytest.raises(DataError, match="beyond the largest possible time"):
        kernel.step(kernel.open(), batch([FOREVER - 2]))


VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    INTEGER: st.none() | st.integers(-3, 3),
    BIGINT: st.none() | st.sampled_from([1, -3, 2**61, -(2**61)]),
    DOUBLE: st.none() | st.sampled_from([0.5, -2.25, 0.0, 1e6]),
    VARCHAR: st.none() | st.sampled_from(["", "a", "b", "é"]),
    DECIMAL(9, 2): st.none() | st.decimals(-10, 10, places=2),
}
CALLS = [
    (fn, type_, distinct)
    for fn in sorted(NAMES | KNOWN)
    for type_ in VALUES
    for distinct in (False, True)
    if result_type(fn, distinct, type_) and not (distinct and fn in ("min", "max"))
    and not (fn == "sum" and type_ == BIGINT)
]  # fmt: skip


@quick
@given(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3), st.data())
def test_aggregates_are_those_of_duckdb(calls: list[tuple[str, SqlType, bool]], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    columns, named, texts = {}, [], []
    for i, (fn, type_, distinct) in enumerate(calls):
        values = data.draw(st.lists(VALUES[type_], min_size=size, max_size=size))
        columns[f"c{i}"] = pa.array(values, type_.arrow)
        result = result_type(fn, distinct, type_)
        assert result is not None
        named.append(AggregateCall.builtin(f"r{i}", fn, f"c{i}", result, distinct))
        name = fn.removesuffix("_value").removesuffix("_known")
        known = f" FILTER (WHERE c{i} IS NOT NULL)" if fn in KNOWN else ""
        texts.append(f"{name}({'DISTINCT ' if distinct else ''}c{i}){known}")
    rows = Schema(tuple(Field(f"c{i}", type_) for i, (_, type_, _) in enumerate(calls)))
    engine = engine_of_calls(named, rows, keyed=True)
    state = engine.open()
    numbers = np.arange(size, dtype=np.int64)
    engine.arrive(state, np.zeros(size, dtype=np.int32), numbers, numbers, list(columns.values()), 0)
    found = [column.to_pylist()[0] for column in engine.close(state, np.array([0])).columns]
    wanted = duckdb.connect().from_arrow(pa.table(columns)).aggregate(", ".join(texts)).fetchall()[0]
    for mine, other, (fn, _, _) in zip(found, wanted, calls, strict=True):
        if isinstance(mine, float) and other is not None:
            # DuckDB rounds a mean or a spread in its own way
            assert mine == pytest.approx(float(other), rel=1e-9, abs=1e-6), fn
        else:
            assert mine == other, fn


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-5, 5), st.integers(0, 40)), max_size=14
)
AGGREGATES = "count(*) AS n, sum(x) AS total, count(DISTINCT x) AS kinds, max(x) FILTER (WHERE x > 0) AS high"
TABLES = {
    "TUMBLE(s, ts, 10 SECONDS)": "SELECT *, time_bucket(INTERVAL 10 SECONDS, ts) AS window_start, "
    "window_start + INTERVAL 10 SECONDS AS window_end FROM s",
    "TUMBLE(s, ts, 10 SECONDS, 3 SECONDS)": "SELECT *, time_bucket(INTERVAL 10 SECONDS, ts, INTERVAL 3 SECONDS) AS "
    "window_start, window_start + INTERVAL 10 SECONDS AS window_end FROM s",
    "HOP(s, ts, 4 SECONDS, 10 SECONDS)": "SELECT s.*, w AS window_start, w + INTERVAL 10 SECONDS AS window_end FROM s, "
    "generate_series(TIMESTAMP '2019-12-31 23:59:00', TIMESTAMP '2020-01-01 00:01:00', INTERVAL 4 SECONDS) AS g(w) "
    "WHERE w <= ts AND ts < w + INTERVAL 10 SECONDS",
    "CUMULATE(s, ts, 5 SECONDS, 20 SECONDS)": "SELECT s.*, time_bucket(INTERVAL 20 SECONDS, ts) AS window_start, "
    "window_start + g.steps * INTERVAL 5 SECONDS AS window_end FROM s, range(1, 5) AS g(steps) WHERE ts < window_end",
    "SESSION(s PARTITION BY k, ts, 4 SECONDS)": "SELECT k, x, ts, min(ts) OVER w AS window_start, "
    "max(ts) OVER w + INTERVAL 4 SECONDS AS window_end FROM (SELECT *, sum(begins) OVER "
    "(PARTITION BY k ORDER BY ts, n) AS session FROM (SELECT *, CASE WHEN ts < lag(ts) OVER (PARTITION BY k ORDER BY "
    "ts, n) + INTERVAL 4 SECONDS THEN 0 ELSE 1 END AS begins FROM s)) WINDOW w AS (PARTITION BY k, session)",
}


@settings(deadline=None, max_examples=examples(15))
@given(ROWS)
@pytest.mark.parametrize("table", TABLES)
def test_groups_are_those_of_duckdb(table: str, given_rows: list[tuple[str | None, int | None, int]]) -> None:
    rows = sorted(given_rows, key=lambda row: row[2])
    stream = [(k, x, START + dt.timedelta(seconds=second)) for k, x, second in rows]
    outside = f"SELECT k, window_start, window_end, {AGGREGATES} FROM {{}} GROUP BY k, window_start, window_end"
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k VARCHAR, x INT, ts TIMESTAMP) ORDER BY ts")
        query = db.sql(outside.format(table))
        db.push("s", stream)
        db.finish()
        found = [tuple(row.values()) for row in query.fetch().to_pylist()]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE s (k VARCHAR, x INT, ts TIMESTAMP, n INT)")
    if stream:
        connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", [(*row, i) for i, row in enumerate(stream)])
    wanted = connection.execute(outside.format(f"({TABLES[table]})")).fetchall()
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    ends = [row[2] for row in found]
    assert ends == sorted(ends)


@pytest.mark.parametrize("few", [0, 5, 4_096])
def test_groups_are_told_once_when_they_have_ended(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of them are looked at each time."""
    monkeypatch.setattr(ends, "_FEW", few)
    draw, groups, live = random.Random(few), ends.GroupEnds(np.zeros(200, dtype=np.int64)), dict[int, int]()

    def there() -> Any:
        return np.array(sorted(live), dtype=np.int32)

    for now in range(0, 400, 3):
        free = [slot for slot in range(200) if slot not in live]
        new = draw.sample(free, draw.randint(0, min(len(free), 20)))
        for slot in new:
            live[slot] = groups.of[slot] = now + draw.choice([0, 1, 10, 40, 40, 90])
        groups.enter(np.array(new, dtype=np.int64))
        done = groups.over(now, there).tolist()
        assert sorted(done) == [slot for slot, end in sorted(live.items()) if end <= now]
        for slot in done:
            del live[slot]


@pytest.mark.parametrize("widest", [10, 2**40, 2**62])
def test_groups_are_ordered_by_several_keys(widest: int) -> None:
    chance = np.random.default_rng(widest)
    keys = [chance.integers(-3, 3, 500), chance.integers(-widest, widest, 500), chance.permutation(500)]
    assert ends.order_by(*keys).tolist() == np.lexsort(keys[::-1]).tolist()

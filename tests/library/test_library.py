"""The aggregates that come with the engine, against plain computations on random input with NULLs."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pytest

import millstream as ms
from millstream import library
from millstream.expressions import functions

START = datetime(2024, 5, 1)
Row = tuple[Any, ...]


def values(count: int, seed: int, nulls: bool = True) -> list[Row]:
    """Rows (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP) with gaps and equal times."""
    chance = random.Random(seed)
    at, rows = START, []
    for _ in range(count):
        at += timedelta(seconds=chance.choice([0, 1, 1, 2, 3, 9]))
        v = None if nulls and chance.random() < 0.15 else round(chance.gauss(5, 40), chance.choice([0, 3]))
        k = None if nulls and chance.random() < 0.1 else chance.randrange(-5, 40)
        t = None if nulls and chance.random() < 0.2 else chance.choice("abcdef")
        rows.append((v, k, t, at))
    return rows


def run(select: str, rows: list[Row]) -> list[Row]:
    """The rows of a query on a stream of `values`, pushed in uneven pieces."""
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP) ORDER BY ts")
        query = db.sql(select)
        for start in range(0, len(rows), 37):
            db.push("s", rows[start : start + 37])
        db.finish()
        return [tuple(row.values()) for row in query.fetch().to_pylist()]


def column(select: str, rows: list[Row]) -> list[Any]:
    return [row[0] for row in run(f"SELECT {select} AS result FROM s", rows)]


def windows(rows: list[Row], preceding: int | None, place: int = 0) -> list[list[Any]]:
    """For each row the values that are not NULL in its window of rows, in order of arrival."""
    return [
        [
            row[place]
            for row in rows[0 if preceding is None else max(0, i - preceding) : i + 1]
            if row[place] is not None
        ]
        for i in range(len(rows))
    ]


def oracle(expression: str, rows: list[Row]) -> list[Any]:
    """DuckDB's answer, row by row, in order of arrival."""
    with duckdb.connect() as db:
        db.execute("CREATE TABLE s (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP, n BIGINT)")
        db.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?)", [(*row, i) for i, row in enumerate(rows)])
        return [row[0] for row in db.execute(f"SELECT {expression} FROM s ORDER BY n").fetchall()]


def assert_close(found: list[Any], expected: list[Any]) -> None:
    assert [value is None for value in found] == [value is None for value in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine is None or mine == pytest.approx(theirs, rel=1e-9, abs=1e-7)


FRAMES = [
    ("ROWS UNBOUNDED PRECEDING", "ORDER BY n ROWS UNBOUNDED PRECEDING"),
    ("ROWS 6 PRECEDING", "ORDER BY n ROWS 6 PRECEDING"),
]


@pytest.mark.parametrize(("frame", "theirs"), FRAMES, ids=["unbounded", "rows"])
@pytest.mark.parametrize(
    ("mine", "duck"),
    [
        ("welford_variance(v)", "var_samp(v)"),
        ("welford_stddev(v)", "stddev_samp(v)"),
        ("median(v)", "median(v)"),
        ("quantile(v, 0.9)", "quantile_cont(v, 0.9)"),
        ("string_agg(t, '-')", "string_agg(t, '-')"),
        ("array_agg(t)", "array_agg(t)"),
    ],
)
def test_the_same_as_duckdb(mine: str, duck: str, frame: str, theirs: str) -> None:
    rows = values(150, seed=1)
    found, expected = column(f"{mine} OVER ({frame})", rows), oracle(f"{duck} OVER ({theirs})", rows)
    if mine.startswith(("string_agg", "array_agg")):
        assert found == expected
    else:
        assert_close(found, expected)


@pytest.mark.parametrize("fn", ["variance", "stddev"])
def test_the_same_as_the_built_in_ones(fn: str) -> None:
    rows = values(150, seed=2)
    for frame in ("ROWS 9 PRECEDING", "ROWS UNBOUNDED PRECEDING"):
        assert_close(column(f"welford_{fn}(v) OVER ({frame})", rows), column(f"{fn}(v) OVER ({frame})", rows))


def test_time_windows() -> None:
    # an aggregate written in SQL sees the rows up to its own, also among those of one time: without ties it is SQL's
    rows = [(*row[:3], START + timedelta(seconds=3 * i)) for i, row in enumerate(values(120, seed=3))]
    frame, theirs = "RANGE 20 SECONDS PRECEDING", "ORDER BY ts RANGE INTERVAL 20 SECONDS PRECEDING"
    assert_close(column(f"median(v) OVER ({frame})", rows), oracle(f"median(v) OVER ({theirs})", rows))
    assert_close(column(f"welford_variance(v) OVER ({frame})", rows), oracle(f"var_samp(v) OVER ({theirs})", rows))


def test_groups_of_tumbling_windows() -> None:
    rows = values(150, seed=4)
    found = run(
        "SELECT window_end, median(v) AS m, welford_variance(v) AS w, string_agg(t, ',') AS t "
        "FROM TUMBLE(s, ts, 1 MINUTE) GROUP BY window_end",
        rows,
    )
    slots: dict[datetime, list[Row]] = {}
    for row in rows:
        minute = row[3].replace(second=0) + timedelta(minutes=1)
        slots.setdefault(minute, []).append(row)
    assert [row[0] for row in found] == list(slots)
    with duckdb.connect() as db:
        db.execute("CREATE TABLE s (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP)")
        db.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", rows)
        expected = db.execute(
            "SELECT median(v), var_samp(v) FROM s GROUP BY time_bucket(INTERVAL 1 MINUTE, ts) "
            "ORDER BY time_bucket(INTERVAL 1 MINUTE, ts)"
        ).fetchall()
    assert_close([row[1] for row in found], [row[0] for row in expected])
    assert_close([row[2] for row in found], [row[1] for row in expected])
    assert [row[3] for row in found] == [
        ",".join(row[2] for row in slot if row[2] is not None) or None for slot in slots.values()
    ]


def test_decayed_avg() -> None:
    rows, half_life = values(150, seed=5), 7.5
    expected: list[float | None] = []
    for i in range(len(rows)):
        weights = [
            (row[0], 0.5 ** ((rows[i][3] - row[3]).total_seconds() / half_life))
            for row in rows[: i + 1]
            if row[0] is not None
        ]
        total = sum(weight for _, weight in weights)
        expected.append(sum(value * weight for value, weight in weights) / total if weights else None)
    assert_close(column("decayed_avg(v, ts, 7.5)", rows), expected)


@pytest.mark.parametrize(("frame", "preceding"), [("UNBOUNDED", None), ("9", 9)], ids=["unbounded", "rows"])
def test_top_k(frame: str, preceding: int | None) -> None:
    rows = values(120, seed=6)
    found = run(f"SELECT ts, k, top_k(v, 3) OVER (ROWS {frame} PRECEDING) FROM s", rows)
    expected: list[Row] = []
    for row, held in zip(rows, windows(rows, preceding), strict=True):
        best = sorted(range(len(held)), key=lambda i: (-held[i], i))[:3]
        ranks = {place: rank for rank, place in enumerate(best, 1)}
        expected += [(row[3], row[1], ranks[place], held[place]) for place in sorted(best)]
    assert found == expected


@pytest.mark.parametrize("preceding", [None, 30], ids=["all", "window"])
def test_frequency(preceding: int | None) -> None:
    rows = values(300, seed=7)
    call = "frequency(k)" if preceding is None else f"frequency(k) OVER (ROWS {preceding} PRECEDING)"
    found = column(call, rows)
    exact = [
        None if row[1] is None else Counter(held)[row[1]]
        for row, held in zip(rows, windows(rows, preceding, 1), strict=True)
    ]
    # 45 items in tables of 1024: no two share all four counters
    assert found == exact


def test_frequency_is_never_too_low() -> None:
    rows = [(None, item, None, START) for item in random.Random(8).choices(range(6000), k=6000)]
    seen: Counter[int] = Counter()
    for (_, item, _, _), estimate in zip(rows, column("frequency(k)", rows), strict=True):
        seen[item] += 1
        assert seen[item] <= estimate <= seen[item] + 24


def test_priority_sample() -> None:
    chance = random.Random(9)
    rows = [(None if chance.random() < 0.05 else chance.random(), i, None, START) for i in range(250)]
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP) ORDER BY ts")
        query = db.sql("SELECT k, priority_sample(k, v, 4) OVER (ROWS 63 PRECEDING) FROM s")
        db.push("s", rows)
        db.finish()
        found: dict[int, set[tuple[int, float]]] = {}
        for row in query.fetch().to_pylist():
            number, item, priority = row.values()
            found.setdefault(number, set()).add((item, priority))
    for i in range(len(rows)):
        held = sorted((row[0], row[1]) for row in rows[max(0, i - 63) : i + 1] if row[0] is not None)
        assert found.get(i, set()) == {(item, priority) for priority, item in held[-4:]}


def histogram(bits: list[int], width: int, k: int) -> list[float]:
    """The exponential histogram as it is specified: a list of (time, size), oldest first."""
    half, estimates = -(-k // 2), []
    buckets: list[tuple[int, int]] = []
    for now, bit in enumerate(bits, 1):
        if buckets and buckets[0][0] <= now - width:
            buckets.pop(0)
        if bit == 1:
            buckets.append((now, 1))
            size = 1
            while (same := [i for i, bucket in enumerate(buckets) if bucket[1] == size]) and len(same) == half + 2:
                first, second = same[:2]
                buckets[second] = (buckets[second][0], 2 * size)
                del buckets[first]
                size *= 2
        last = buckets[0][1] if buckets else 1
        estimates.append(sum(size for _, size in buckets) - last + (last + 1) / 2 if buckets else 0.0)
    return estimates


def test_ones_in_last_by_hand() -> None:
    bits = [1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1]
    rows = [(None, bit, None, START) for bit in bits]
    expected = [1, 1, 2, 2.5, 3.5, 3.5, 4.5, 5.5, 4.5, 5.5, 3.5, 3.5, 4.5]
    assert column("ones_in_last(k, 6, 2)", rows) == expected == histogram(bits, 6, 2)


@pytest.mark.parametrize("k", [2, 4, 10])
def test_ones_in_last(k: int) -> None:
    chance = random.Random(k)
    bits = [int(chance.random() < (0.9 if i // 150 % 2 else 0.3)) for i in range(900)]
    given = [None if bit == 0 and chance.random() < 0.2 else bit for bit in bits]
    found = column(f"ones_in_last(k, 200, {k})", [(None, bit, None, START) for bit in given])
    assert found == histogram(bits, 200, k)
    for i, estimate in enumerate(found):
        exact = sum(bits[max(0, i - 199) : i + 1])
        assert abs(estimate - exact) <= exact / k


def test_sessionise() -> None:
    rows = values(200, seed=10)
    expected, number = [], 1
    for i, row in enumerate(rows):
        number += i > 0 and row[3] - rows[i - 1][3] > timedelta(seconds=2)
        expected.append(number)
    assert column("sessionise(ts, INTERVAL '2' SECOND)", rows) == expected
    # for each key alone, and of integers
    found = run("SELECT k, sessionise(epoch_ms(ts), 20000) AS n FROM s GROUP BY k", rows)
    latest: dict[int | None, tuple[datetime, int]] = {}
    for row, (key, session) in zip(rows, found, strict=True):
        before, counted = latest.get(row[1], (row[3], 1))
        counted += row[3] - before > timedelta(seconds=20)
        latest[row[1]] = (row[3], counted)
        assert (key, session) == (row[1], counted)


def test_gap_fill() -> None:
    rows, step = values(120, seed=11), timedelta(seconds=1)
    expected: list[Row] = []
    before: tuple[float, datetime] | None = None
    for value, _, _, at in rows:
        if value is None:
            continue
        if before is not None:
            point = before[1] + step
            while point < at:
                share = (point - before[1]) / (at - before[1])
                expected.append((point, before[0] + (value - before[0]) * share, True))
                point += step
        expected.append((at, value, False))
        before = (value, at)
    found = run("SELECT gap_fill(v, ts, INTERVAL '1' SECOND) FROM s", rows)
    assert [(row[0], row[2]) for row in found] == [(row[0], row[2]) for row in expected]
    assert_close([row[1] for row in found], [row[1] for row in expected])


def test_gap_fill_of_a_long_gap() -> None:
    rows = [(0.0, None, None, START), (500.0, None, None, START + timedelta(seconds=500))]
    found = run("SELECT gap_fill(v, ts, INTERVAL '1' SECOND) FROM s", rows)
    assert [row[1] for row in found] == [float(i) for i in range(501)]


def test_names_are_free() -> None:
    """A library aggregate never hides a function or a built-in aggregate."""
    from millstream.plan import aggregates

    for name in library.TOPICS:
        assert aggregates.canonical_name(name) is None
        assert functions.lookup(name) is None


def test_every_file_is_listed() -> None:
    for name, topic in library.TOPICS.items():
        assert f"AGGREGATE {name}(" in library.text(topic)


def test_own_definitions_win() -> None:
    own = "CREATE AGGREGATE median(x DOUBLE) : DOUBLE { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x + 1); } }"
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v DOUBLE, ts TIMESTAMP) ORDER BY ts")
        assert db.execute("SHOW AGGREGATES").arrow().num_rows == 0
        old = db.sql("SELECT median(v) OVER (ROWS UNBOUNDED PRECEDING) AS m FROM s", name="old")
        shown = db.execute("SHOW AGGREGATES").arrow().to_pylist()
        assert [(row["name"], row["version"]) for row in shown] == [("median", "base"), ("median", "window")]
        with pytest.raises(ms.MillstreamError, match="aggregate median is used by old"):
            db.execute(own)
        db.push("s", [(1.0, START), (2.0, START)])
        db.finish()
        assert old.fetch().column("m").to_pylist() == [1.0, 1.5]
        old.stop()
        db.execute(own)
        assert [row["version"] for row in db.execute("SHOW AGGREGATES").arrow().to_pylist()] == ["base"]
        assert "as rows come" in db.sql("SELECT median(v) AS m FROM s").explain()


def test_load() -> None:
    with ms.connect() as db:
        library.load(db, "median", "top_k")
        shown = db.execute("SHOW AGGREGATES").arrow().to_pylist()
        assert [(row["name"], row["version"]) for row in shown] == [
            ("median", "base"),
            ("median", "window"),
            ("top_k", "base"),
            ("top_k", "window"),
        ]
        with pytest.raises(ms.MillstreamError, match="no aggregate mode in the library"):
            library.load(db, "mode")
    with ms.connect() as db:
        library.load(db)
        assert {row["name"] for row in db.execute("SHOW AGGREGATES").arrow().to_pylist()} == set(library.TOPICS)


COMPILED = [
    "decayed_avg(v, ts, 60.0)",
    "welford_variance(v) OVER (ROWS 9 PRECEDING)",
    "welford_stddev(v) OVER (ROWS UNBOUNDED PRECEDING)",
    "median(v) OVER (RANGE 9 SECONDS PRECEDING)",
    "quantile(v, 0.5) OVER (ROWS UNBOUNDED PRECEDING)",
    "top_k(v, 5) OVER (ROWS 9 PRECEDING)",
    "frequency(k) OVER (ROWS 9 PRECEDING)",
    "priority_sample(k, v, 3) OVER (ROWS 9 PRECEDING)",
    "ones_in_last(k, 100, 10)",
    "sessionise(ts, INTERVAL '2' SECOND)",
    "gap_fill(v, ts, INTERVAL '2' SECOND)",
]


@pytest.mark.parametrize("call", COMPILED, ids=[call.partition("(")[0] for call in COMPILED])
def test_they_compile(call: str) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP) ORDER BY ts")
        assert "(compiled" in db.sql(f"SELECT {call} FROM s").explain()
        joined = db.sql("SELECT string_agg(t, ', ') OVER (ROWS 9 PRECEDING) AS t FROM s").explain()
        assert "row by row" in joined and "needs the text itself" in joined


def test_the_window_of_a_sample_stays_small() -> None:
    """About k log n rows are held of a window of n: the others can never be in the sample again."""
    import numpy as np
    import pyarrow as pa

    from millstream.bind.context import Context
    from millstream.bind.programs import bind_program
    from millstream.bind.programs.library import definitions
    from millstream.catalog import Catalog
    from millstream.kernels.programs.compiled import CompiledEngine
    from millstream.plan.programs.modes import Sliding
    from millstream.types import BIGINT, DOUBLE

    catalog, count, window, k = Catalog(), 4000, 2000, 4
    [definition] = definitions("priority_sample", catalog)
    program = bind_program(definition, (BIGINT, DOUBLE, BIGINT), Context(catalog, ""))
    engine = CompiledEngine(program, Sliding("rows", window), keyed=False)
    state = engine.open()
    priorities = np.random.default_rng(3).random(count)
    arguments = [pa.array(np.arange(count)), pa.array(priorities), pa.array(np.full(count, k))]
    numbers = np.arange(count)
    engine.arrive(state, np.zeros(count, dtype=np.int32), numbers, numbers, arguments, count)
    # each tuple is in the window and in a table: on the average k (1 + ln(n / k)) are held
    expected = 2 * k * (1 + math.log(window / k))
    assert 2 * k <= engine.rows_held(state) <= 2 * expected


def test_importing_reads_no_file() -> None:
    code = "import sys, millstream; sys.exit('millstream.library' in sys.modules or 'sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reference_windows() -> None:
    """The helper above, by hand."""
    rows = [(1.0,), (None,), (3.0,), (4.0,)]
    assert windows(rows, 1) == [[1.0], [1.0], [3.0], [3.0, 4.0]]
    assert windows(rows, None) == [[1.0], [1.0], [1.0, 3.0], [1.0, 3.0, 4.0]]


def test_one_tuple_at_a_time_takes_no_more_room() -> None:
    """What may return many rows asks for room to return them, not for larger tables."""
    with ms.connect(batch_rows=1) as db:
        db.execute("CREATE STREAM s (v DOUBLE, k BIGINT, t VARCHAR, ts TIMESTAMP) ORDER BY ts")
        query = db.sql("SELECT gap_fill(v, ts, INTERVAL '1' SECOND) FROM s")
        # each tuple may return a thousand rows; if that doubled the tables, thirty would fill any memory
        for i in range(30):
            db.push("s", [(float(i), None, None, START + timedelta(seconds=i))])
        db.finish()
        assert query.fetch().num_rows == 30

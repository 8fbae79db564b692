"""Groups made of panes: the same rows as programs over the rows of each window."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_scenarios import Scenario, batches, window_group_scenarios

import millstream as ms
from millstream.errors import DataError
from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.contract import Kernel
from millstream.kernels.programs.engine import Closing
from millstream.kernels.programs.spec import AggregateSpec
from millstream.kernels.saving import states as saving
from millstream.kernels.streams.hop import WindowStage
from millstream.kernels.window_groups import WindowGroupSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import BESIDE, result_type
from millstream.plan.programs.product import product
from millstream.plan.window_tables import Cumulating, Hopping, Windows
from millstream.schema import Schema
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, VARCHAR, SqlType
from tests.support.builtin_programs import builtin_program
from tiers import examples

BOUNDS = {"begin": "window_start", "end": "window_end"}


def by_programs(spec: WindowGroupSpec) -> tuple[WindowStage, AggregateSpec]:
    """Each row once for every window, and a program for each group."""
    stage = WindowStage(spec.input, spec.windows, spec.type)
    programs = [
        call.program
        or builtin_program(call.fn, spec.input[call.arg].type if call.arg else None, call.type, call.counts_once)
        for call in spec.calls
    ]
    keys = tuple(BOUNDS.get(name, name) for name in spec.keys_out)
    args = tuple(call.arg for call in spec.calls if call.arg is not None)
    results = tuple(call.names[0] for call in spec.calls)
    return stage, AggregateSpec(stage.output, keys, product(programs), args, Closing(), results, "window_end")


def run(kernel: Kernel, inputs: list[Batch]) -> list[tuple[Any, ...]]:
    state = kernel.open()
    outputs = [kernel.step(state, batch) for batch in inputs]
    return [
        (time, seq, *row.values())
        for batch in outputs
        for time, seq, row in zip(batch.time.tolist(), batch.seq.tolist(), batch.rows.to_pylist(), strict=True)
    ]


def same(left: Any, right: Any) -> bool:
    """Equal, but that sums of floats depend on what is added first, and infinities may meet later."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-3) or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


def assert_same(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert all(map(same, mine, other)), (mine, other)


@settings(deadline=None, max_examples=examples(50))
@given(data=st.data())
def test_same_rows_as_programs(data: st.DataObject) -> None:
    scenario: Scenario = data.draw(window_group_scenarios())
    spec = scenario.spec
    assert isinstance(spec, WindowGroupSpec)
    # those of two arguments were never programs: test_accumulators has another opinion of them
    assume(not any(call.fn in BESIDE for call in spec.calls))
    tame = [_tame(batch, spec.input) for batch in data.draw(batches(scenario))]
    stage, programs = by_programs(spec)
    with jit.using("off"):
        ours = run(spec.build(), tame)
        theirs = run(programs.build(), [stage.step(batch) for batch in tame])
    assert_same(ours, theirs)


@pytest.mark.parametrize("values", [[math.nan], [None, math.nan], [math.nan, 1.0], [1.0, math.nan]])
def test_what_is_no_number_has_no_spread(values: list[float | None]) -> None:
    """Wherever it stands, also first of its group."""
    schema = Schema.of(x=DOUBLE)
    call = AggregateCall.builtin("spread", "stddev_pop", "x", DOUBLE)
    spec = WindowGroupSpec(schema, (), Hopping(10, 10), BIGINT, ("begin", "end"), ("begin",), ("end",), (call,))
    rows = pa.record_batch([pa.array(values, pa.float64(), from_pandas=False)], schema=schema.arrow)
    batch = Batch(rows, np.arange(len(values)), np.arange(len(values)), FOREVER)
    stage, programs = by_programs(spec)
    for (*_, spread), *others in (run(spec.build(), [batch]), run(programs.build(), [stage.step(batch)])):
        assert math.isnan(spread) and not others


def _tame(batch: Batch, schema: Schema) -> Batch:
    """Without infinities and huge numbers, whose sums depend on the order."""
    place = schema.index("x")
    floats = batch.rows.column(place).to_pylist()
    kept = [x if x is None or math.isnan(x) or abs(x) < 1e10 else 1.0 for x in floats]
    return batch.with_rows(batch.rows.set_column(place, schema.arrow.field(place), pa.array(kept, pa.float64())))


ALL = ("count", "sum", "avg", "min", "max", "stddev_samp", "var_pop")


@pytest.mark.parametrize("windows", [Hopping(700, 100, 30), Hopping(500, 500), Cumulating(600, 100), Hopping(500, 200)])
def test_compiled_in_many_batches(windows: Windows) -> None:
    """Compiled loops, restarts between batches, and enough rows for arrays to grow and move."""
    schema = Schema.of(k=BIGINT, x=DOUBLE, i=INTEGER)
    calls = [AggregateCall.builtin("n", "count", None, BIGINT)]
    for arg in ("x", "i"):
        for fn in ALL:
            type_ = result_type(fn, False, schema[arg].type)
            assert type_ is not None
            calls.append(AggregateCall.builtin(f"{fn}_{arg}", fn, arg, type_))
    spec = WindowGroupSpec(schema, ("k",), windows, BIGINT, ("k", "begin", "end"), ("begin",), ("end",), tuple(calls))
    chance = np.random.default_rng(5)
    size = 6_000
    columns = [
        pa.array(chance.integers(0, 300, size), mask=chance.random(size) < 0.01),
        pa.array(np.round(chance.normal(0, 100, size), 3), mask=chance.random(size) < 0.1),
        pa.array(chance.integers(-9, 9, size).astype(np.int32), mask=chance.random(size) < 0.1),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    whole = Batch(rows, np.sort(chance.integers(0, 8_000, size)), np.arange(size), FOREVER)
    parts = [whole.slice(start, start + 500) for start in range(0, size, 500)]
    parts = [part.with_upto(int(part.time[-1])) for part in parts]
    inputs = [*parts, replace(whole.slice(0, 0), upto=FOREVER)]
    stage, programs = by_programs(spec)
    with jit.using("on"):
        ours = run(spec.build(), inputs)
        assert_same(ours, run(programs.build(), [stage.step(batch) for batch in inputs]))
        kernel = spec.build()
        state = kernel.open()
        outputs = []
        for batch in inputs:
            outputs.append(kernel.step(state, batch))
            state = saving.restore(kernel, saving.snapshot(kernel, state))
            assert len(state.panes) <= 300 * (windows.most * 2 + 2)
        assert sum(map(len, outputs)) == len(ours)
        assert state.keys is not None and len(state.keys) == len(state.panes) == 0
    with jit.using("off"):
        assert [repr(row) for row in run(spec.build(), inputs)] == [repr(row) for row in ours]


def test_strings_that_no_window_has_are_given_up() -> None:
    schema = Schema.of(k=BIGINT, v=VARCHAR)
    calls = tuple(AggregateCall.builtin(fn, fn, "v", VARCHAR) for fn in ("min", "max", "first_value", "last_value"))
    spec = WindowGroupSpec(schema, ("k",), Hopping(20, 10), BIGINT, ("k", "end"), (), ("end",), calls)
    chance = np.random.default_rng(2)
    size = 8_000
    values = [f"é{value}" if value % 7 else None for value in chance.integers(0, 10**9, size).tolist()]
    columns = [pa.array(chance.integers(0, 5, size)), pa.array(values, pa.string())]
    whole = Batch(pa.RecordBatch.from_arrays(columns, schema=schema.arrow), np.arange(size), np.arange(size), FOREVER)
    parts = [whole.slice(start, start + 400) for start in range(0, size, 400)]
    inputs = [*(part.with_upto(int(part.time[-1])) for part in parts), replace(whole.slice(0, 0), upto=FOREVER)]
    stage, programs = by_programs(spec)
    kernel = spec.build()
    state = kernel.open()
    for batch in inputs:
        kernel.step(state, batch)
        assert len(state.texts["v"]) < 3_000
        state = saving.restore(kernel, saving.snapshot(kernel, state))
    assert run(spec.build(), inputs) == run(programs.build(), [stage.step(batch) for batch in inputs])


def summed(type_: SqlType, values: list[Any]) -> Any:
    schema = Schema.of(v=type_)
    result = result_type("sum", False, type_)
    assert result is not None
    call = AggregateCall.builtin("total", "sum", "v", result)
    spec = WindowGroupSpec(schema, (), Hopping(10, 5), BIGINT, ("end",), (), ("end",), (call,))
    rows = pa.RecordBatch.from_arrays([pa.array(values, type_.arrow)], schema=schema.arrow)
    times = np.arange(len(values), dtype=np.int64)
    return run(spec.build(), [Batch(rows, times, times, FOREVER)])[0][-1]


def test_sums_need_room_for_their_result_only() -> None:
    assert summed(BIGINT, [2**63 - 1, 5, -7]) == 2**63 - 3
    assert summed(BIGINT, [-(2**63), -1, 1]) == -(2**63)
    assert summed(DECIMAL(18, 2), [Decimal(10**15), Decimal("9e15") - Decimal("0.01")]) == Decimal(
        "9999999999999999.99"
    )


@pytest.mark.parametrize(
    "type_, values",
    [(BIGINT, [2**63 - 1, 1]), (BIGINT, [-(2**63), -1]), (DECIMAL(18, 2), [Decimal(10**15), Decimal("9e15")])],
)
def test_sums_that_overflow_are_refused(type_: SqlType, values: list[Any]) -> None:
    with pytest.raises(DataError, match="sum overflows"):
        summed(type_, values)


@pytest.fixture
def db() -> ms.Session:
    session = ms.connect()
    session.execute("CREATE STREAM s (k VARCHAR, x INT, d DOUBLE, ts TIMESTAMP) ORDER BY ts")
    return session


def plan_of(db: ms.Session, query: str) -> str:
    return db.sql(query).explain()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(*), sum(x + 1), stddev(d) FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY k, window_end",
        "SELECT w, max(d) FROM (SELECT window_start AS w, d FROM TUMBLE(s, ts, 2 SECONDS) WHERE x > 1) GROUP BY w",
        "SELECT lower(k), avg(x) FILTER (WHERE d > 0) FROM CUMULATE(s, ts, 1 SECOND, 6 SECONDS) GROUP BY 1, window_end",
        "SELECT max(k), any_value(x) FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY window_end",
        "SELECT first_value(x), last_value(k) FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY window_end",
    ],
)
def test_what_runs_by_panes(db: ms.Session, query: str) -> None:
    assert "by panes" in plan_of(db, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(DISTINCT x) FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY window_end",
        "SELECT count(*) FROM CUMULATE(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY window_start",
        "SELECT count(*) FROM SESSION(s, ts, 2 SECONDS) GROUP BY window_start, window_end",
        "SELECT count(*) FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) WHERE window_start < ts - INTERVAL 1 SECOND "
        "GROUP BY window_end",
        "SELECT sum(x) FILTER (WHERE window_start < ts) FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY window_end",
        "SELECT sum(CAST(k AS INT)) FROM HOP(s, ts, 10 SECONDS, 2 SECONDS) GROUP BY window_end",
    ],
)
def test_what_needs_the_rows_of_each_window(db: ms.Session, query: str) -> None:
    assert "by panes" not in plan_of(db, query)


def test_own_aggregate_with_the_name_of_a_builtin(db: ms.Session) -> None:
    db.execute(
        "CREATE AGGREGATE sum(v INT) RETURNS INT { TABLE t(n INT); INITIALIZE: { INSERT INTO t VALUES (v); } "
        "ITERATE: { UPDATE t SET n = v; } TERMINATE: { INSERT INTO RETURN SELECT n FROM t; } }"
    )
    query = db.sql("SELECT sum(x) AS last FROM TUMBLE(s, ts, 2 SECONDS) GROUP BY window_end")
    db.push("s", [("a", 1, 0.0, "2020-01-01 00:00:00"), ("a", 5, 0.0, "2020-01-01 00:00:01")])
    db.finish()
    assert query.fetch().to_pylist() == [{"last": 5}]
    assert "by panes" not in query.explain()

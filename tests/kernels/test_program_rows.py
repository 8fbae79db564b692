"""The general engine against DuckDB, under any batching and through exports, and what its statements mean."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.expressions.evaluator import compile_arrow
from millstream.expressions.functions import can_fail, cast, resolve
from millstream.expressions.nodes import Expr, Literal
from millstream.expressions.object_values import to_arrow, to_values
from millstream.kernels.programs.engine import Closing, Engine, Mode, Running, Sliding, Tumbling
from millstream.kernels.programs.rows import RowEngine
from millstream.kernels.source.objects import compile_objects
from millstream.plan.programs.nodes import AggregateValue, Insert, Order, Program, Rows, ScalarQuery
from millstream.schema import Schema
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, VARCHAR
from tests.support.expressions import SCHEMA, batches, expressions, is_exact, same
from tests.support.program_reference import Result, Tuple
from tests.support.programs import (
    BASE_PROGRAMS,
    WINDOW_PROGRAMS,
    Builder,
    algebraic_max,
    bidder_wcount,
    call,
    cum_avg,
    find_pattern,
    item_alarm,
    modes_for,
    myavg,
    naive_avg,
    programs,
    run_engine,
    run_reference,
    same_results,
    tumble_avg,
    tuples_for,
    window_avg,
    window_max,
)
from tiers import examples

PAPER = {**BASE_PROGRAMS, **WINDOW_PROGRAMS}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def run(program: Program, mode: Mode, tuples: list[Tuple], **how: Any) -> list[Result]:
    return run_engine(RowEngine(program, mode), program, mode, tuples, **how)


def values(program: Program, mode: Mode, *numbers: float | None) -> list[Any]:
    """The first column of what comes of numbers at the times 0, 1, … in one group."""
    return [row[0] for _, _, row in run(program, mode, [(0, i, (x,)) for i, x in enumerate(numbers)])]


@pytest.mark.parametrize("name", sorted(PAPER))
@settings(max_examples=examples(5), deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_paper_aggregates_do_what_duckdb_does(name: str, data: st.DataObject) -> None:
    program = PAPER[name]()
    mode = data.draw(modes_for(program))
    tuples = data.draw(tuples_for(program, 10))
    found = run(program, mode, tuples)
    assert same_results(found, run_reference(program, mode, tuples)), f"{program}\n{mode}\n{tuples}\n{found}"


@settings(max_examples=examples(50), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_random_programs_do_what_duckdb_does(data: st.DataObject) -> None:
    program = data.draw(programs())
    mode = data.draw(modes_for(program))
    tuples = data.draw(tuples_for(program, 6))
    found = run(program, mode, tuples)
    assert same_results(found, run_reference(program, mode, tuples)), f"{program}\n{mode}\n{tuples}\n{found}"


@settings(max_examples=examples(150), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_batches_and_exports_change_nothing(data: st.DataObject) -> None:
    program = data.draw(st.sampled_from(sorted(PAPER)).map(lambda name: PAPER[name]()) | programs())
    mode = data.draw(modes_for(program))
    tuples = data.draw(tuples_for(program, 20))
    cuts = data.draw(st.lists(st.integers(0, 20), max_size=6))
    whole = run(program, mode, tuples)
    assert same_results(run(program, mode, tuples, cuts=cuts), whole), f"{program}\n{mode}\n{tuples}\n{cuts}"
    assert same_results(run(program, mode, tuples, cuts=cuts, reload=True), whole), (
        f"{program}\n{mode}\n{tuples}\n{cuts}"
    )


@settings(max_examples=examples(80), deadline=None, suppress_health_check=SLOW)
@given(batches(max_rows=3), expressions())
def test_expressions_mean_what_they_mean_on_batches(rows: Any, expr: Expr) -> None:
    columns = {f.name: to_values(rows.column(i), f.type) for i, f in enumerate(SCHEMA)}

    evaluate = compile_objects(expr, lambda module, part: f"row[{module.constant(part.name)}]")
    for i in range(rows.num_rows):
        try:
            (wanted,) = compile_arrow((expr,), SCHEMA)(rows.slice(i, 1))
            found = to_arrow([evaluate({name: values[i] for name, values in columns.items()})], expr.type)
        except DataError:
            # Either may leave out what a NULL beside it makes unnecessary, and so not fail.
            assert can_fail(expr)
            continue
        assert same(found, wanted, is_exact(expr)), (expr, columns, i)


def test_averages_by_hand() -> None:
    assert values(cum_avg(), Running(), 2.0, 4.0, 6.0) == [2.0, 3.0, 4.0]
    assert values(myavg(), Running(total=True), 2.0, 4.0, 6.0) == [2.0, 3.0, 4.0]
    assert values(myavg(), Closing(), 2.0, 4.0, 6.0) == [4.0]
    assert values(myavg(), Tumbling(2, 3), 100.0, 4.0, 6.0, 100.0, 1.0, 2.0, 100.0) == [5.0, 1.5]
    assert values(tumble_avg(2), Running(), 1, 2, 3, 5) == [1.5, 4.0]
    assert values(cum_avg(), Tumbling(2, 2), 2.0, 4.0, 6.0, 10.0) == [3.0, 8.0]


def test_windows_by_hand() -> None:
    numbers = (2.0, 4.0, 6.0, 8.0, 10.0)
    for program in (window_avg(), naive_avg(), naive_avg(program=False)):
        assert values(program, Sliding("rows", 3), *numbers) == [2.0, 3.0, 4.0, 6.0, 8.0]
        assert values(program, Sliding("range", 1), *numbers) == [2.0, 3.0, 5.0, 7.0, 9.0]
        assert values(program, Sliding("rows", 3, every=2), *numbers) == [3.0, 6.0]


def test_deleted_tuples_keep_their_place_in_a_window_of_rows() -> None:
    assert values(window_max(), Sliding("rows", 3), 9.0, 1.0, 2.0, 3.0, 1.0, 1.0, 1.0) == [9, 9, 9, 3, 3, 3, 1]
    assert values(window_max("<="), Sliding("rows", 3), 9.0, 1.0, 9.0) == [9.0, 9.0, None]


def test_active_expiry_has_its_own_time_and_comes_after_arrivals_of_that_time() -> None:
    mode = Sliding("range", 5, active=True)
    tuples: list[Tuple] = [(0, 0, (1.0,)), (1, 0, (2.0,)), (0, 5, (0.5,)), (1, 9, (7.0,))]
    assert run(algebraic_max(), mode, tuples) == [
        (0, 0, (1.0,)), (1, 0, (2.0,)), (-1, 5, (1.0,)), (-2, 5, (2.0,)), (-3, 10, (0.5,)), (-4, 14, (7.0,)),
    ]  # fmt: skip


def test_theft_alarm() -> None:
    tags = [("i1", "item", 0), ("p1", "ap", 3), ("i2", "item", 10), ("p2", "ap", 20), ("i3", "item", 22)]
    tuples = [(0, time, (name, kind, time)) for name, kind, time in tags]
    assert run(item_alarm(), Sliding("range", 5, active=True), tuples) == [(-3, 15, ("larceny alarm",))]


def test_bidders_and_pattern() -> None:
    minute = 60_000_000
    bids = [(1, 0), (2, minute), (1, 2 * minute), (3, 32 * minute), (4, 33 * minute)]
    tuples: list[Tuple] = [(0, time, (bidder, time, 30)) for bidder, time in bids]
    assert [row for _, _, row in run(bidder_wcount(), Running(), tuples)] == [(1,), (2,), (2,), (2,), (2,)]
    clicks: list[Tuple] = [(0, i, (i, f"t{i}", page)) for i, page in enumerate("xadpadp")]
    assert run(find_pattern(), Running(), clicks) == [(3, 3, (2, "t3")), (6, 6, (5, "t6"))]


def test_slots_are_used_again_after_close() -> None:
    engine: Engine = RowEngine(myavg(), Closing())
    state = engine.open()

    def arrive(number: float) -> None:
        args = [to_arrow([number], DOUBLE)]
        engine.arrive(state, np.array([3], np.int32), np.array([0]), np.array([0]), args, 0)

    arrive(1.0)
    assert engine.rows_held(state) == 1
    assert engine.close(state, np.array([3, 4])).columns[0].to_pylist() == [1.0]
    assert engine.rows_held(state) == 0
    arrive(7.0)
    assert engine.export(state, np.array([0, 3])).seen.tolist() == [-1, 1]
    assert engine.close(state, np.array([3])).columns[0].to_pylist() == [7.0]


def collected(*statements: Insert, result: Schema) -> Program:
    """A program that keeps its tuples in a table `t` and returns by these statements at the end."""
    b = Builder("collected", Schema.of(x=DOUBLE, s=VARCHAR), result, t=Schema.of(x=DOUBLE, s=VARCHAR))
    keep = [b.values("t", b.param("x"), b.param("s"))]
    return b.program(keep, keep, terminate=statements)


T = Builder("t", Schema.of(x=DOUBLE), Schema.of(x=DOUBLE), t=Schema.of(x=DOUBLE, s=VARCHAR)).use("t")


def returned(query: Rows, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The rows of a query over the table `t` with these rows."""
    result = Schema.of(**{f"c{i}": column.type for i, column in enumerate(query.columns)})
    program = collected(Insert(None, (query,)), result=result)
    return [row for _, _, row in run(program, Closing(), [(0, 0, row) for row in rows])]


def test_nan_is_one_value_and_the_greatest() -> None:
    rows = [(math.nan, "a"), (1.0, "b"), (None, "c"), (math.nan, "d")]
    texts = [s for (s,) in returned(Rows((T["s"],), (T.range,), order=(Order(T["x"], descending=True),)), *rows)]
    assert texts == ["a", "d", "b", "c"]
    first = Rows((T["s"],), (T.range,), order=(Order(T["x"], nulls_first=True),), limit=2)
    assert returned(first, *rows) == [("c",), ("b",)]
    counted = Rows((AggregateValue(BIGINT, "count", (T["x"],), True),), (T.range,))
    assert returned(counted, *rows) == [(2,)]
    grouped = Rows((AggregateValue(BIGINT, "count", ()),), (T.range,), group=(T["x"],))
    assert returned(grouped, *rows) == [(2,), (1,), (1,)]
    assert returned(Rows((T["s"],), (T.range,), call("=", T["x"], math.nan)), *rows) == [("a",), ("d",)]


def test_a_program_in_a_query_gives_its_rows_or_its_last_value() -> None:
    running = AggregateValue(DOUBLE, "cum_avg", (T["x"],), program=cum_avg())
    rows = [(2.0, "a"), (4.0, "b"), (6.0, "a")]
    assert returned(Rows((running,), (T.range,)), *rows) == [(2.0,), (3.0,), (4.0,)]
    assert returned(Rows((running,), (T.range,), group=(T["s"],)), *rows) == [(2.0,), (4.0,), (4.0,)]
    assert returned(Rows((running, AggregateValue(BIGINT, "count", ())), (T.range,)), *rows) == [(4.0, 3)]
    assert returned(Rows((running,), (T.range,), call("=", T["s"], "z")), *rows) == []


def test_values_that_do_not_fit_are_errors_of_the_data() -> None:
    several = Rows((cast(ScalarQuery(DOUBLE, Rows((T["x"],), (T.range,))), DOUBLE),))
    assert returned(several, (1.0, "a")) == [(1.0,)]
    with pytest.raises(DataError, match="returned 2 rows"):
        returned(several, (1.0, "a"), (1.0, "b"))
    with pytest.raises(DataError, match="cannot evaluate"):
        returned(Rows((call("+", Literal(BIGINT, 2**63 - 1), 1),), (T.range,)), (1.0, "a"))
    with pytest.raises(DataError, match=r"cannot evaluate CAST\(t.s AS INTEGER\)"):
        returned(Rows((cast(T["s"], INTEGER),), (T.range,)), (1.0, "no number"))
    guarded = Rows((T["x"],), (T.range,), call("and", call("<>", T["s"], "no"), call("=", cast(T["s"], INTEGER), 7)))
    assert returned(guarded, (1.0, "no"), (2.0, "7")) == [(2.0,)]


def test_functions_of_text_and_decimals_that_have_no_python_form() -> None:
    query = Rows((resolve("upper", (T["s"],)), resolve("regexp_replace", (T["s"], Literal(VARCHAR, "a+"),
                 Literal(VARCHAR, "-")))), (T.range,))  # fmt: skip
    assert returned(query, (1.0, "baab"), (1.0, "é"), (1.0, None)) == [("BAAB", "b-b"), ("É", "é"), (None, None)]
    cents = Literal(DECIMAL(10, 2), Decimal("1.25"))
    assert returned(Rows((call("+", cents, cents),), (T.range,)), (1.0, "a")) == [(Decimal("2.50"),)]
    assert returned(Rows((call("round", cents, 1),), (T.range,)), (1.0, "a")) == [(Decimal("1.3"),)]

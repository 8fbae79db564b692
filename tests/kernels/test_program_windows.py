"""Programs over windows of different lengths that share their rows, against each program by itself: on random programs
in both engines, cut and saved anywhere."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.expressions.nodes import Column
from millstream.kernels import jit
from millstream.kernels.programs.compiled import CompiledEngine, why_not_compiled
from millstream.kernels.programs.engine import Engine, Mode, Sliding
from millstream.kernels.programs.rows import RowEngine
from millstream.plan.programs.nodes import (
    OLDEST,
    WINDOW,
    AggregateValue,
    Delete,
    Insert,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Statement,
)
from millstream.plan.programs.product import shared, window_product
from millstream.rules.merge_aggregates import why_alone
from millstream.schema import Field, Schema
from millstream.types import BIGINT, DOUBLE
from tests.support.paper_programs import naive_avg, window_avg
from tests.support.program_reference import Tuple
from tests.support.program_runs import run_engine, same_results
from tests.support.program_strategies import programs, tuples_for
from tiers import examples

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def returning(program: Program) -> Program:
    """The program without what cannot share a window, and with one row at the end of INITIALIZE and ITERATE: how many
    tuples the window holds, a value of the oldest one, and what the first table has come to."""

    def kept(state: tuple[Statement, ...]) -> tuple[Statement, ...]:
        gone = (s for s in state if isinstance(s, Delete) and s.range.table == WINDOW)
        returned = (s for s in state if isinstance(s, Insert) and s.table is None)
        left = [*gone, *returned]
        return tuple(statement for statement in state if statement not in left)

    table, counted, added = Range("all", "t"), Range("counted", WINDOW), Range("added", WINDOW)
    summaries = (
        Rows((AggregateValue(BIGINT, "count", ()),), (counted,)),
        Rows((AggregateValue(BIGINT, "sum", (Column(BIGINT, "added.wx"),)),), (added,)),
        Rows((AggregateValue(DOUBLE, "max", (Column(DOUBLE, "all.b"),)),), (table,)),
    )
    values = (*(ScalarQuery(query.columns[0].type, query) for query in summaries), Column(DOUBLE, f"{OLDEST}wy"))
    end = Insert(None, (Rows(values),))
    result = Schema(tuple(Field(f"r{i}", value.type) for i, value in enumerate(values)))
    return replace(
        program,
        result=result,
        initialize=(*kept(program.initialize), end),
        iterate=(*kept(program.iterate), end),
        expire=kept(program.expire),
    )


def outcome(engine: Engine, program: Program, mode: Mode, tuples: list[Tuple], **how: Any) -> Any:
    try:
        return run_engine(engine, program, mode, tuples, **how)
    except DataError:
        return "an error"


def side_by_side(parts: list[Any]) -> Any:
    if "an error" in parts:
        return "an error"
    return [(*rows[0][:2], tuple(value for row in rows for value in row[2])) for rows in zip(*parts, strict=True)]


@given(data=st.data(), cuts=st.lists(st.integers(0, 30), max_size=3), reload=st.booleans(), keyed=st.booleans())
@settings(deadline=None, max_examples=examples(40), suppress_health_check=SLOW)
def test_windows_that_share_their_rows_agree_with_windows_of_their_own(
    data: st.DataObject, cuts: list[int], reload: bool, keyed: bool
) -> None:
    unit = data.draw(st.sampled_from(("rows", "range")))
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=2, max_size=3))
    own = [returning(data.draw(programs(grouping=False, text=False, window=True))) for _ in sizes]
    assume(all(why_alone(program, Sliding(unit, size)) is None for program, size in zip(own, sizes, strict=True)))
    tuples = data.draw(tuples_for(own[0], max_size=30))
    if not keyed:
        tuples = [(0, time, values) for _, time, values in tuples]
    # two and two, as the rule does it
    program, lengths = own[0], (sizes[0],)
    for other, size in zip(own[1:], sizes[1:], strict=True):
        program = window_product((program, other), (lengths, (size,)))
        lengths = tuple(sorted({*lengths, size}, reverse=True))
    args = tuple(field.name.partition("_")[0] for field in program.parameters)
    program, args = shared(program, args)
    assert args == ("x", "y")
    mode = Sliding(unit, lengths[0], shorter=lengths[1:])
    with jit.using("off"):
        parts = [Sliding(unit, size) for size in sizes]
        expected = side_by_side(
            [outcome(RowEngine(p, part), p, part, tuples) for p, part in zip(own, parts, strict=True)]
        )
        engines: list[Engine] = [RowEngine(program, mode)]
        if why_not_compiled(program, mode) is None:
            engines.append(CompiledEngine(program, mode, keyed))
        for engine in engines:
            got = outcome(engine, program, mode, tuples, cuts=cuts, reload=reload)
            if "an error" in (got, expected):
                assert got == expected
            else:
                assert same_results(got, expected), (got, expected)


@pytest.mark.parametrize(("unit", "keyed"), [("rows", True), ("rows", False), ("range", False), ("range", True)])
def test_machine_code_gives_what_python_gives_for_shared_windows(unit: Any, keyed: bool) -> None:
    """The window outgrows its ring several times while the shorter ones are somewhere in it."""
    sizes = (300, 40, 1)
    own = (window_avg(), naive_avg(), window_avg())
    program = window_product(own, [(size,) for size in sizes])
    program, _ = shared(program, ("x",) * 3)
    mode = Sliding(unit, sizes[0], shorter=sizes[1:])
    random = Random(5)
    tuples: list[Tuple] = [
        (random.randint(0, 3) if keyed else 0, i // 2, (None if i > 900 and i % 11 == 0 else random.randint(0, 9) / 4,))
        for i in range(1200)
    ]
    with jit.using("off"):
        parts = [
            run_engine(RowEngine(p, Sliding(unit, s)), p, Sliding(unit, s), tuples)
            for p, s in zip(own, sizes, strict=True)
        ]
    with jit.using("on"):
        engine = CompiledEngine(program, mode, keyed)
        got = run_engine(engine, program, mode, tuples, cuts=[1, 500, 901], reload=True)
    assert same_results(got, side_by_side(parts))


@pytest.mark.parametrize("engine", [CompiledEngine, RowEngine])
def test_rows_of_shared_windows_are_held_once(engine: Any) -> None:
    program = window_product((window_avg(), window_avg()), ((100,), (10,)))
    program, _ = shared(program, ("x", "x"))
    running = engine(program, Sliding("rows", 100, shorter=(10,)))
    with jit.using("off"):
        state = running.open()
        times, slots = np.arange(500), (np.arange(500) % 2).astype(np.int32)
        running.arrive(state, slots, times, times, [pa.array(np.ones(500))], 500)
    # a hundred tuples and two averages for each of two groups
    assert running.rows_held(state) == 2 * (100 + 2)

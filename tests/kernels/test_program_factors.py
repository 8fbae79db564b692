"""Programs by their factors: the same rows and the same saved state as by one engine for all."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.expressions.nodes import Column
from millstream.expressions.object_values import to_arrow
from millstream.kernels import jit
from millstream.kernels.programs.compiled import CompiledEngine
from millstream.kernels.programs.engine import Closing, Running
from millstream.kernels.programs.factored import FactoredEngine
from millstream.kernels.programs.factors import factors
from millstream.kernels.programs.kernel import engine_of
from millstream.kernels.programs.rows import RowEngine
from millstream.plan.programs.nodes import AggregateValue, Insert, Program, Range, Rows, ScalarQuery, Statement
from millstream.plan.programs.product import product, shared
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR
from tests.support.builtin_programs import builtin_program
from tests.support.programs import Builder, call, programs, run_engine, same_results, tuples_for
from tiers import examples

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
CLOSING = Closing()

CALLS = {
    "count(*)": builtin_program("count", None, BIGINT),
    "count(b)": builtin_program("count", BIGINT, BIGINT),
    "sum(i)": builtin_program("sum", BIGINT, BIGINT),
    "avg(x)": builtin_program("avg", DOUBLE, DOUBLE),
    "stddev(x)": builtin_program("stddev_samp", DOUBLE, DOUBLE),
    "max(x)": builtin_program("max", DOUBLE, DOUBLE),
    "count(distinct i)": builtin_program("count", BIGINT, BIGINT, distinct=True),
    "sum(distinct x)": builtin_program("sum", DOUBLE, DOUBLE, distinct=True),
    "count(distinct s)": builtin_program("count", VARCHAR, BIGINT, distinct=True),
    "max(s)": builtin_program("max", VARCHAR, VARCHAR),
}


def together(*names: str) -> Program:
    return product([CALLS[name] for name in names])


def outcome(engine: Any, program: Program, tuples: Any, **how: Any) -> Any:
    try:
        return run_engine(engine, program, CLOSING, tuples, **how)
    except DataError:
        return "an error"


@given(
    names=st.lists(st.sampled_from(sorted(CALLS)), min_size=2, max_size=8),
    cuts=st.lists(st.integers(0, 12), max_size=2),
    reload=st.booleans(),
    data=st.data(),
)
@settings(deadline=None, max_examples=examples(80), suppress_health_check=SLOW)
def test_products_agree(names: list[str], cuts: list[int], reload: bool, data: st.DataObject) -> None:
    program = together(*names)
    tuples = data.draw(tuples_for(program))
    with jit.using("off"):
        made = run_engine(engine_of(program, CLOSING, True), program, CLOSING, tuples, cuts=cuts, reload=reload)
        assert same_results(made, run_engine(RowEngine(program, CLOSING), program, CLOSING, tuples))


@given(data=st.data())
@settings(deadline=None, max_examples=examples(200), suppress_health_check=SLOW)
def test_random_programs_agree(data: st.DataObject) -> None:
    """Random statements on two tables, of which the end of a group tells how much they hold."""
    random = data.draw(programs(window=False, subqueries=False))
    tables = {table.name: table.schema.fields[0] for table in random.tables}
    assume(len(tables) == 2)
    columns = []
    for name, field in tables.items():
        rows = Range(f"{name}#end", name)
        held = AggregateValue(BIGINT, "max", (Column(BIGINT, f"{rows.alias}.{field.name}"),))
        columns += [
            ScalarQuery(BIGINT, Rows((value,), (rows,))) for value in (AggregateValue(BIGINT, "count", ()), held)
        ]
    program = replace(
        random,
        result=Schema.of(n=BIGINT, a=BIGINT, m=BIGINT, b=BIGINT),
        initialize=silent(random.initialize),
        iterate=silent(random.iterate),
        terminate=(Insert(None, (Rows(tuple(columns)),)),),
    )
    event(f"{len(factors(program, CLOSING))} factors")
    tuples = data.draw(tuples_for(program))
    with jit.using("off"):
        made = outcome(engine_of(program, CLOSING, True), program, tuples)
        general = outcome(RowEngine(program, CLOSING), program, tuples)
    assert made == general if "an error" in (made, general) else same_results(made, general)


def silent(state: tuple[Statement, ...]) -> tuple[Statement, ...]:
    return tuple(s for s in state if not (isinstance(s, Insert) and s.table is None))


def test_machine_code_gives_what_python_gives() -> None:
    program = together("count(*)", "count(distinct i)", "sum(i)", "count(distinct i)", "avg(x)", "max(x)", "max(s)")
    random = Random(3)

    def values() -> tuple[Any, ...]:
        number, other = random.randint(-9, 9), random.randint(-9, 9)
        known = None if random.random() < 0.1 else random.randint(0, 50) / 4
        return number, number, other, known, known, f"s{other}"

    tuples: Any = [(random.randint(0, 2), i, values()) for i in range(400)]
    with jit.using("off"):
        expected = run_engine(RowEngine(program, CLOSING), program, CLOSING, tuples)
    with jit.using("on"):
        made = run_engine(engine_of(program, CLOSING, True), program, CLOSING, tuples, cuts=[150], reload=True)
    assert same_results(made, expected)


def test_saved_groups_are_those_of_the_whole() -> None:
    program = together("sum(i)", "count(distinct i)", "sum(distinct x)", "max(s)")
    columns = {BIGINT: [4, None, 4, 7], DOUBLE: [0.5, 2.0, None, 0.5], VARCHAR: ["b", "a", None, "c"]}
    args = [to_arrow(columns[field.type], field.type) for field in program.parameters]
    slots, time = np.array([0, 0, 1, 0], dtype=np.int32), np.arange(4)
    factored, whole = engine_of(program, CLOSING, True), RowEngine(program, CLOSING)
    assert isinstance(factored, FactoredEngine)
    with jit.using("off"):
        exported = []
        for engine in (factored, whole):
            state = engine.open()
            engine.arrive(state, slots, time, time, args, 4)
            exported.append((engine.export(state, np.arange(2)), engine.rows_held(state)))
        (mine, held), (theirs, general) = exported
        assert held == general and mine.seen.tolist() == theirs.seen.tolist() and set(mine.tables) == set(theirs.tables)
        for name, table in mine.tables.items():
            assert table.owner.tolist() == theirs.tables[name].owner.tolist()
            assert table.rows.equals(theirs.tables[name].rows)
        # and either reads what the other saved
        results = [engine.close(engine.load(groups), np.arange(2)) for engine, groups in
                   ((factored, theirs), (whole, mine), (whole, theirs))]  # fmt: skip
    first, *others = ([column.to_pylist() for column in returned.columns] for returned in results)
    assert all(other == first for other in others) and first[0] == [11, 4]


def test_alike_aggregates_have_one_text() -> None:
    program = together("count(distinct i)", "count(*)", "count(distinct i)", "count(b)", "count(distinct i)")
    parts = factors(program, CLOSING)
    assert [part.results for part in parts] == [(0,), (2,), (4,), (1, 3)]
    texts = {CompiledEngine(part.program, CLOSING).generated.source for part in parts[:3]}
    assert len(texts) == 1


def test_few_registers_stay_together() -> None:
    names = ("count(*)", "sum(i)", "avg(x)", "max(x)")
    assert len(factors(together(*names), CLOSING)) == 1
    assert [part.results for part in factors(together(*names, "count(b)"), CLOSING)] == [(0, 1, 2, 3), (4,)]


def test_what_has_no_loop_keeps_nobody_from_theirs() -> None:
    engine = engine_of(together("count(distinct i)", "max(s)", "sum(i)"), CLOSING, True)
    assert isinstance(engine, FactoredEngine)
    assert [type(part.engine) for part in engine._parts] == [CompiledEngine, CompiledEngine, RowEngine]
    assert engine.numbers_tuples


def test_strings_are_told_apart_once() -> None:
    texts = [CALLS["count(distinct s)"], CALLS["count(distinct s)"]]
    apart, args = shared(product(texts), ("one", "other"))
    assert args == ("one", "other") and len(factors(apart, CLOSING)) == 2
    same, args = shared(product(texts), ("one", "one"))
    assert args == ("one",) and len(factors(same, CLOSING)) == 1


@pytest.mark.parametrize("tie", ["sqlcode", "value", "result", "none"])
def test_what_looks_at_another_table_stays_with_it(tie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.kernels.programs.factors._REGISTERS", 1)
    b = Builder("two", Schema.of(x=BIGINT), Schema.of(r=BIGINT, q=BIGINT), None,
                t=Schema.of(n=BIGINT), u=Schema.of(n=BIGINT, m=BIGINT), v=Schema.of(n=BIGINT))  # fmt: skip
    x, t, u = b.param("x"), b.use("t"), b.use("u")
    begin = [b.values("t", x), b.values("u", x, x), *(b.values("v", x) for _ in range(2))]
    value = call("+", u["n"], x)
    where = call("=", b.sqlcode, 0) if tie == "sqlcode" else None
    then = [b.update(t, call(">", x, 3), n=x), b.update(u, where, n=value)]
    if tie == "value":
        then = [b.update(t, n=x), b.select("v", t["n"], of=[t])]
    last_t, last_u = b.use("t"), b.use("u")
    results = [last_t["n"], call("+", last_u["n"], last_t["n"]) if tie == "result" else last_u["n"]]
    program = b.program(begin, then, terminate=[b.select(None, *results, of=[last_t, last_u])])
    parts = [set(part.tables) for part in factors(program, CLOSING)]
    expected = {"value": [{"t", "v"}, {"u"}], "none": [{"t"}, {"v"}, {"u"}]}
    assert parts == expected.get(tie, [{"v"}, {"t", "u"}])
    assert len(factors(program, Running(total=True))) == 1
    with jit.using("off"):
        tuples: Any = [(i % 2, i, (i,)) for i in range(9)]
        made = run_engine(engine_of(program, CLOSING, True), program, CLOSING, tuples)
        assert same_results(made, run_engine(RowEngine(program, CLOSING), program, CLOSING, tuples))

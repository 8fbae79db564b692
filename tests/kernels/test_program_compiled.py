"""The compiled engine against the general one: on the papers' aggregates, and on random programs."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.kernels import jit
from millstream.kernels.programs.compiled import CompiledEngine, why_not_compiled
from millstream.kernels.programs.engine import Groups, Mode, Running, Sliding, TableRows, Tumbling
from millstream.kernels.programs.rows import RowEngine
from millstream.kernels.programs.rows_values import to_arrow
from millstream.plan.programs import Delete, Insert, Program, Rows, parameter
from millstream.schema import Schema
from millstream.testing.program_reference import Tuple
from millstream.testing.programs import (
    BASE_PROGRAMS,
    WINDOW_PROGRAMS,
    Builder,
    algebraic_max,
    call,
    modes_for,
    naive_avg,
    programs,
    run_engine,
    same_results,
    tuples_for,
)
from millstream.types import BIGINT, DOUBLE, INTEGER, VARCHAR, SqlType

PAPER = {**BASE_PROGRAMS, **WINDOW_PROGRAMS}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def outcome(engine: Any, program: Program, mode: Mode, tuples: list[Tuple], **how: Any) -> Any:
    """What comes out, or that values do not fit or a subquery has several rows."""
    try:
        return run_engine(engine, program, mode, tuples, **how)
    except DataError:
        return "an error"


def agree(program: Program, mode: Mode, tuples: list[Tuple], **how: Any) -> None:
    compiled = outcome(CompiledEngine(program, mode), program, mode, tuples, **how)
    general = outcome(RowEngine(program, mode), program, mode, tuples)
    if "an error" in (compiled, general):
        assert compiled == general
    else:
        assert same_results(compiled, general), (compiled, general)


@pytest.mark.parametrize("name", PAPER)
@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=SLOW)
def test_papers_aggregates_compile_and_agree(name: str, data: st.DataObject) -> None:
    program = PAPER[name]()
    mode = data.draw(modes_for(program))
    assert why_not_compiled(program, mode) is None
    tuples = data.draw(tuples_for(program))
    cuts = data.draw(st.lists(st.integers(0, 12), max_size=3))
    with jit.using("off"):
        agree(program, mode, tuples, cuts=cuts, reload=data.draw(st.booleans()))


@given(data=st.data())
@settings(deadline=None, max_examples=80, suppress_health_check=SLOW)
def test_random_programs_agree(data: st.DataObject) -> None:
    program = data.draw(programs(grouping=False))
    mode = data.draw(modes_for(program))
    assume(why_not_compiled(program, mode) is None)
    tuples = data.draw(tuples_for(program))
    cuts = data.draw(st.lists(st.integers(0, 12), max_size=3))
    with jit.using("off"):
        agree(program, mode, tuples, cuts=cuts, reload=data.draw(st.booleans()))


JITTED: dict[str, Mode] = {
    "window_avg": Sliding("rows", 3),
    "bidder_wcount": Running(),
    "item_alarm": Sliding("range", 4, active=True),
    "tumble_avg": Tumbling(2, 3),
}


@pytest.mark.parametrize("name", JITTED)
def test_machine_code_gives_what_python_gives(name: str) -> None:
    program, mode = PAPER[name](), JITTED[name]
    random = Random(7)
    for chance in (0.0, 0.2):
        tuples = [
            (
                random.choice([0, 1, 2]),
                i // 2,
                tuple(_value(random, field.type, chance) for field in program.parameters),
            )
            for i in range(60)
        ]
        with jit.using("off"):
            expected = run_engine(CompiledEngine(program, mode), program, mode, tuples, cuts=[7, 30])
        with jit.using("on"):
            got = run_engine(CompiledEngine(program, mode), program, mode, tuples, cuts=[11])
        assert same_results(got, expected)


def _value(random: Random, type_: SqlType, chance: float) -> Any:
    if random.random() < chance:
        return None
    if type_.is_text:
        return random.choice(["item", "ap", "a", "d"])
    return random.randint(0, 5) if type_ != DOUBLE else random.randint(0, 5) / 4


def test_a_value_that_does_not_fit_is_an_error() -> None:
    program, mode = BASE_PROGRAMS["tumble_avg"](), Running()
    state_type = program.tables[0].schema.fields[1].type
    assert state_type == INTEGER
    engine = CompiledEngine(program, mode)
    state = engine.open()
    none = np.zeros(1, dtype=np.int64)
    with jit.using("off"):
        engine.arrive(state, none.astype(np.int32), none, none, [to_arrow([1], program.parameters.fields[0].type)], 0)
        groups = engine.export(state, none)
        table = groups.tables["state"]
        rows = table.rows.set_column(1, "cnt", pa.array([2**31 - 1], pa.int32()))
        full = engine.load(Groups(groups.seen, {"state": TableRows(table.owner, rows)}))
        with pytest.raises(DataError, match="does not fit"):
            engine.arrive(
                full, none.astype(np.int32), none, none, [to_arrow([1], program.parameters.fields[0].type)], 0
            )


def test_explain_tells_what_keeps_a_program_from_machine_code() -> None:
    text = naive_avg()
    assert why_not_compiled(text, Sliding("rows", 3)) is None
    joined = Program(
        "joined", Schema.of(s=VARCHAR), Schema.of(r=VARCHAR), (), None,
        (Insert(None, (Rows((call("||", parameter(VARCHAR, "s"), "x"),)),)),),
        (Insert(None, (Rows((call("||", parameter(VARCHAR, "s"), "x"),)),)),),
    )  # fmt: skip
    assert "text" in (why_not_compiled(joined, Running()) or "")


def test_many_tuples_that_expire_at_once_have_room() -> None:
    """EXPIRE runs for each of them before the tuple that drove them out is worked on, and returns a row."""
    program, mode = algebraic_max(), Sliding("range", 5)
    tuples: list[Tuple] = [(0, 0, (float(-i),)) for i in range(300)]
    with jit.using("off"):
        agree(program, mode, [*tuples, (0, 1000, (1.0,))], cuts=[300])


def test_rows_copied_from_one_table_to_another_have_room() -> None:
    build = Builder(
        "copied", Schema.of(x=BIGINT), Schema.of(r=BIGINT), None, t=Schema.of(a=BIGINT), u=Schema.of(a=BIGINT)
    )
    keep, kept, filled = build.values("u", build.param("x")), build.use("u"), build.use("t")
    copy = build.select("t", kept["a"], of=[kept])
    program = build.program(
        [keep], [keep, copy, build.select(None, filled["a"], of=[filled]), Delete(build.use("t").range)]
    )
    with jit.using("off"):
        agree(program, Running(), [(0, i, (i,)) for i in range(120)])

"""The compiled engine against the general one: on the papers' aggregates, and on random programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.kernels import jit
from millstream.kernels.programs.compiled import CompiledEngine, why_not_compiled
from millstream.kernels.programs.engine import Mode
from millstream.kernels.programs.rows import RowEngine
from millstream.plan.programs import Program
from millstream.testing.program_reference import Tuple
from millstream.testing.programs import (
    BASE_PROGRAMS,
    WINDOW_PROGRAMS,
    modes_for,
    programs,
    run_engine,
    same_results,
    tuples_for,
)

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

"""Saved state is known by what it is: columns by place and type, not by name; a kernel that computes something else has
another one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_scenarios import batches
from test_laws import SCENARIOS, content, expected, outcome

from millstream.errors import StateError
from millstream.expressions.nodes import Call, Column
from millstream.kernels import jit
from millstream.kernels.batch import Batch
from millstream.kernels.events.spec import AutomatonSpec
from millstream.kernels.registry import registered
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.signs import SIGN
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.saving import states as saving
from millstream.kernels.saving.signatures import signature_of
from millstream.kernels.streams.reorder import ReorderSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.events.automata import EVENT, INSTANCE
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT
from millstream.plan.programs.nodes import Program
from millstream.plan.window_tables import END, START
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN, INTEGER, VARCHAR
from tiers import examples

OWN_NAMES = {SIGN.name, START, END, CLASSIFIER, MATCH_NUMBER, TIMED_OUT}
"""columns that the engine names"""

NOT_NAMES = {
    "fn",
    "how",
    "op",
    "unit",
    "form",
    "stream",
    "side",
    "variable",
    "variables",
    "all",
    "skip",
    "given",
}


def other_name(name: str) -> str:
    return name if name in OWN_NAMES else f"other {name}"


def renamed(value: Any, names: frozenset[str]) -> Any:
    """A spec whose columns are called something else."""
    if isinstance(value, str):
        if value[:2] in (EVENT, INSTANCE) and value[2:] in names:
            return value[:2] + other_name(value[2:])
        return other_name(value) if value in names else value
    if isinstance(value, tuple):
        return tuple(renamed(part, names) for part in value)
    if isinstance(value, Schema):
        return Schema(tuple(Field(other_name(field.name), field.type) for field in value))
    if isinstance(value, Program) or not is_dataclass(value):
        return value
    if hasattr(value, "inputs") and hasattr(value, "output"):
        states = tuple(state.columns for state in value.states) if isinstance(value, AutomatonSpec) else ()
        names = frozenset(name for schema in (*value.inputs, value.output, *states) for name in schema.names)
    own = (field.name for field in fields(value) if field.init and field.name not in NOT_NAMES)
    return replace(value, **{name: renamed(getattr(value, name), names) for name in own})  # type: ignore[type-var]


def called_otherwise(batch: Batch) -> Batch:
    return batch.with_rows(batch.rows.rename_columns([other_name(name) for name in batch.rows.schema.names]))


@pytest.mark.parametrize("name", registered())
@settings(deadline=None, max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_state_goes_on_under_other_names(name: str, data: st.DataObject) -> None:
    scenario = data.draw(SCENARIOS[name])
    inputs = data.draw(batches(scenario))
    stop = data.draw(st.integers(0, len(inputs)))
    spec = renamed(scenario.spec, frozenset())
    assert spec.output.names == tuple(map(other_name, scenario.spec.output.names))
    assert signature_of(spec).text == signature_of(scenario.spec).text

    def with_other_names() -> list[Any]:
        first, then = scenario.spec.build(), spec.build()
        state = first.open()
        outputs = [first.step(state, batch) for batch in inputs[:stop]]
        state = saving.restore(then, saving.snapshot(first, state))
        later = [then.step(state, called_otherwise(batch)) for batch in inputs[stop:]]
        for batch in later:
            assert batch.rows.schema.equals(spec.output.arrow)
        return content([*outputs, *later])

    with jit.using("off", threads=1):
        assert outcome(with_other_names) == expected(scenario)


QUOTES = Schema.of(k=INTEGER, v=INTEGER, name=VARCHAR)


def summary(fn: str = "sum", arg: str = "v", by: tuple[str, ...] = ("k",)) -> SummarySpec:
    return SummarySpec(QUOTES, by, (AggregateCall(("s",), fn, (arg,), (BIGINT,)),))


def test_another_computation_has_another_signature() -> None:
    others = [summary(), summary("max"), summary(arg="k"), summary(by=("name",)), summary(by=())]
    others.append(replace(summary(), form="changes"))
    others.append(replace(summary(), input=Schema.of(k=BIGINT, v=INTEGER, name=VARCHAR)))
    assert len({signature_of(spec).digest for spec in others}) == len(others)


def test_a_function_is_not_taken_for_a_column_of_its_name() -> None:
    def called(fn: str) -> SummarySpec:
        input = Schema.of(k=INTEGER, sum=BIGINT, max=BIGINT)
        return SummarySpec(input, ("k",), (AggregateCall(("$1",), fn, ("sum",), (BIGINT,)),))

    assert signature_of(called("sum")).digest != signature_of(called("max")).digest


def test_what_is_no_state_may_change() -> None:
    assert signature_of(ReorderSpec(QUOTES, 0)).digest == signature_of(ReorderSpec(QUOTES, 5)).digest
    left, right = Schema.of(k=INTEGER, v=INTEGER), Schema.of(k=INTEGER, w=INTEGER)
    both = (Column(INTEGER, "v"), Column(INTEGER, "w"))
    conditions = [Call(BOOLEAN, op, both) for op in ("<", ">")]
    for how, count in (("inner", 1), ("left", 2)):
        specs = [JoinSpec(left, right, ("k",), (("left", "v"), ("right", "w")), how, each) for each in conditions]  # type: ignore[arg-type]
        assert len({signature_of(spec).digest for spec in specs}) == count


def test_state_of_another_computation_is_refused() -> None:
    saved = saving.snapshot(summary().build(), summary().build().open())
    with pytest.raises(StateError, match="belongs to another query"):
        saving.restore(summary(by=("name",)).build(), saved)

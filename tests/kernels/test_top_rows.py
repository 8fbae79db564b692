"""ORDER BY … LIMIT on relations: groups that keep their rows in order give what sorting them anew gives."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_scenarios import COLUMNS
from sweep_scenarios import as_changes, relations

from millstream.kernels.batch import Batch
from millstream.kernels.programs.kernel import engine_of_calls
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.summary_rows import RowSummaryKernel
from millstream.kernels.relations.top_rows import OrderedRows, TopRows
from millstream.kernels.saving import states as saving
from millstream.plan.arrangements import Arrangement
from millstream.plan.relations import arranged_call
from millstream.plan.ties import SortKey
from millstream.schema import Schema
from tiers import examples


@st.composite
def cases(draw: st.DrawFn) -> tuple[SummarySpec, Batch]:
    others = draw(st.lists(st.sampled_from(COLUMNS.fields[2:-1]), min_size=1, max_size=3, unique=True))
    schema = Schema((*COLUMNS.fields[:2], *others))
    by = draw(st.sampled_from([(), ("k",)]))
    keys = draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=3, unique=True))
    order = tuple(SortKey(key, draw(st.booleans()), draw(st.booleans())) for key in keys)
    cut = Arrangement(order, (), schema.names, draw(st.integers(0, 2)), draw(st.integers(0, 4)))
    form = draw(st.sampled_from(["intervals", "changes"]))
    batch = draw(relations(schema, wild=True))
    spec = SummarySpec(schema, by, (arranged_call(schema, by, cut),), form)
    return spec, as_changes(batch, schema) if form == "changes" else batch


@settings(max_examples=examples(20), deadline=None)
@given(cases(), st.integers(0, 24))
def test_the_first_rows_are_those_of_sorted_groups(case: tuple[SummarySpec, Batch], cut: int) -> None:
    spec, batch = case
    ordered, sorted_anew = RowSummaryKernel(spec), RowSummaryKernel(spec)
    assert ordered.top is not None
    sorted_anew.top, sorted_anew.engine = None, engine_of_calls(spec.calls, spec.input, keyed=True)
    expected = sorted_anew.step(sorted_anew.open(), batch)
    given = ordered.step(ordered.open(), batch)
    assert _listed(given) == _listed(expected)
    # in two batches, the second from a saved state
    cut = min(cut, len(batch))
    state = ordered.open()
    upto = int(batch.time[cut]) if cut < len(batch) else batch.upto
    first = ordered.step(state, replace(batch.slice(0, cut), upto=upto))
    second = ordered.step(saving.copy(ordered, state), batch.slice(cut, len(batch)))
    assert sorted(_listed(first) + _listed(second)) == sorted(_listed(expected))


def _listed(batch: Batch) -> list[str]:
    ends = [None] * len(batch) if batch.other is None else batch.other.tolist()
    rows = [tuple(row.values()) for row in batch.rows.to_pylist()]
    return [repr(each) for each in zip(batch.time.tolist(), ends, rows, strict=True)]


def test_runs_are_divided_and_stay_in_order() -> None:
    chance = random.Random(4)
    rows, kept = OrderedRows(), []
    for number in range(6_000):
        place = (bytes([chance.randrange(256), chance.randrange(256)]), number)
        rows.add(place)
        kept.append(place)
        if number % 3 == 2:
            rows.remove(kept.pop(chance.randrange(len(kept))))
    kept.sort()
    assert rows.numbers(0, len(kept)) == [number for _, number in kept]
    assert rows.numbers(700, 3) == [number for _, number in kept[700:703]]
    for place in kept:
        rows.remove(place)
    assert rows.numbers(0, 5) == []


@pytest.mark.parametrize("count", [None, 3])
def test_without_a_limit_groups_are_sorted_as_before(count: int | None) -> None:
    schema = Schema(COLUMNS.fields[:2])
    call = arranged_call(schema, (), Arrangement((SortKey("k"),), (), schema.names, 0, count))
    assert (TopRows.of(SummarySpec(schema, (), (call,))) is None) == (count is None)

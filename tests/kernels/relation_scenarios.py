"""Random relations as input of kernels, as intervals and as changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from kernel_scenarios import SMALL, Scenario, ordered

from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.coalesce import CoalesceSpec
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.rows_window import RowsWindowSpec
from millstream.kernels.relations.signs import signed, with_signs
from millstream.kernels.relations.time_changes import RangeChangesSpec
from millstream.kernels.relations.unroll import SplitSpec
from millstream.plan.relations import RangeWindow, RowsWindow
from millstream.schema import Schema
from millstream.types import BIGINT

FORMS = st.sampled_from(["intervals", "changes"])
VALUES = Schema.of(k=BIGINT)


@st.composite
def relation(draw: st.DrawFn, schema: Schema = SMALL, max_size: int = 16) -> Batch:
    """Rows in order of start, their ends in any order, some open."""
    batch = draw(ordered(schema, max_size, wild=False))
    lengths = draw(st.lists(st.integers(1, 9) | st.just(0), min_size=len(batch), max_size=len(batch)))
    length = np.array(lengths, dtype=np.int64)
    other = np.where(length == 0, FOREVER, batch.time + length)
    return replace(batch, seq=np.zeros(len(batch), dtype=np.int64), other=other)


def as_changes(batch: Batch, schema: Schema) -> Batch:
    """A relation's rows as changes, in order of time."""
    assert batch.other is not None
    ends = np.flatnonzero(batch.other != FOREVER)
    rows = np.concatenate([np.arange(len(batch)), ends])
    time = np.concatenate([batch.time, batch.other[ends]])
    order = np.argsort(time, kind="stable")
    signs = np.where(np.arange(len(rows)) < len(batch), 1, -1)[order]
    made = replace(batch.take(rows[order]), time=time[order], other=None)
    return made.with_rows(with_signs(made.rows, signs, signed(schema)))


@st.composite
def rows_window_scenarios(draw: st.DrawFn) -> Scenario:
    by = draw(st.sampled_from([(), ("k",), ("k", "s")]))
    window = RowsWindow(draw(st.none() | st.integers(1, 4)), by, draw(st.integers(1, 3)))
    return Scenario(RowsWindowSpec(SMALL, window, draw(FORMS)), (draw(ordered(SMALL)),))


@st.composite
def range_changes_scenarios(draw: st.DrawFn) -> Scenario:
    window = RangeWindow(draw(st.none() | st.integers(1, 9)), draw(st.sampled_from([1, 1, 2, 5])))
    return Scenario(RangeChangesSpec(SMALL, window, draw(st.sampled_from([(), ("k",)]))), (draw(ordered(SMALL)),))


@st.composite
def to_events_scenarios(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from([VALUES, SMALL]))
    batch = draw(relation(schema))
    how = draw(st.sampled_from(["istream", "dstream", "rstream"]))
    if how == "rstream":
        return Scenario(ToEventsSpec(schema, how, draw(st.sampled_from([1, 2, 5]))), (batch,))
    form = draw(FORMS)
    given = batch if form == "intervals" else as_changes(batch, schema)
    return Scenario(ToEventsSpec(schema, how, 1, form), (given,))


@st.composite
def split_scenarios(draw: st.DrawFn) -> Scenario:
    return Scenario(SplitSpec(SMALL, draw(st.integers(1, 5))), (draw(relation()),))


@st.composite
def coalesce_scenarios(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from([VALUES, SMALL]))
    return Scenario(CoalesceSpec(schema, draw(st.sampled_from([1, 4, 1000]))), (draw(relation(schema)),))


RELATION_SCENARIOS: dict[str, st.SearchStrategy[Scenario]] = {
    "CoalesceSpec": coalesce_scenarios(),
    "RangeChangesSpec": range_changes_scenarios(),
    "RowsWindowSpec": rows_window_scenarios(),
    "SplitSpec": split_scenarios(),
    "ToEventsSpec": to_events_scenarios(),
}

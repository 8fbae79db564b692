"""Reordering arrivals, against the rule written out row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from kernel_scenarios import SMALL, Scenario, arrivals, whole

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.streams.reorder import LateSpec, ReorderSpec
from tiers import examples


def by_the_rule(scenario: Scenario, slack: int) -> tuple[list[Any], list[Any]]:
    """The numbers of the rows in time, in order, and those of late rows with the time that had been reached."""
    beat, highest = BEGIN, BEGIN
    in_time, late = [], []
    for batch in whole(scenario):
        for time, seq in zip(batch.time.tolist(), batch.seq.tolist(), strict=True):
            reached = max(beat, highest - slack, BEGIN)
            if time < reached:
                late.append((reached, seq))
            else:
                in_time.append((time, seq))
            highest = max(highest, time)
        beat = max(beat, batch.upto)
    return sorted(in_time), late


def rows(numbers: list[int], times: list[int], upto: int) -> Batch:
    table = pa.RecordBatch.from_pylist([{"k": n, "x": None, "s": None} for n in numbers], schema=SMALL.arrow)
    return Batch(table, np.array(times, dtype=np.int64), np.array(numbers, dtype=np.int64), upto)


@settings(deadline=None, max_examples=examples(100))
@given(arrivals(ReorderSpec))
def test_rows_in_time_come_out_in_order(scenario: Scenario) -> None:
    assert isinstance(scenario.spec, ReorderSpec)
    kernel = scenario.spec.build()
    state = kernel.open()
    outputs = [kernel.step(state, batch) for batch in whole(scenario)]
    in_time, late = by_the_rule(scenario, scenario.spec.slack)
    assert [(int(t), int(s)) for batch in outputs for t, s in zip(batch.time, batch.seq, strict=True)] == in_time
    assert state.late_count == len(late)


@settings(deadline=None, max_examples=examples(100))
@given(arrivals(LateSpec))
def test_late_rows_come_out_at_the_time_reached(scenario: Scenario) -> None:
    assert isinstance(scenario.spec, LateSpec)
    kernel = scenario.spec.build()
    state = kernel.open()
    outputs = [kernel.step(state, batch) for batch in whole(scenario)]
    _, late = by_the_rule(scenario, scenario.spec.slack)
    assert [(int(t), int(s)) for batch in outputs for t, s in zip(batch.time, batch.seq, strict=True)] == late


def test_slack_releases_up_to_the_frontier() -> None:
    kernel = ReorderSpec(SMALL, 5).build()
    state = kernel.open()
    first = kernel.step(state, rows([0, 1, 2], [10, 8, 12], BEGIN))
    assert (first.seq.tolist(), first.upto) == ([], 7)
    second = kernel.step(state, rows([3, 4], [6, 15], BEGIN))
    assert (second.seq.tolist(), second.upto, state.late_count) == ([1, 0], 10, 1)
    third = kernel.step(state, rows([], [], FOREVER))
    assert (third.seq.tolist(), third.upto) == ([2, 4], FOREVER)


def test_without_slack_nothing_is_copied() -> None:
    kernel = ReorderSpec(SMALL, 0).build()
    batch = rows([0, 1], [1, 2], BEGIN)
    output = kernel.step(kernel.open(), batch)
    assert output.rows is batch.rows
    assert output.upto == 2


def test_many_small_arrivals_wait_in_few_runs() -> None:
    kernel = ReorderSpec(SMALL, 1_000_000).build()
    state = kernel.open()
    for i in range(300):
        kernel.step(state, rows([i], [(i * 37) % 1000], BEGIN))
    assert len(state.waiting) == 300
    assert len(state.waiting._runs) < 12
    assert kernel.step(state, rows([], [], FOREVER)).time.tolist() == sorted((i * 37) % 1000 for i in range(300))

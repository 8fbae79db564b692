"""UNION's kernels: the order of a merge does not depend on who is first, equal rows of an instant are one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from kernel_scenarios import Scenario, distinct_scenarios, merge_scenarios

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.saving import states as saving
from millstream.kernels.streams.distinct import DistinctSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE
from tiers import examples

ONE = Schema.of(v=BIGINT)


def rows(values: list[Any], times: list[int], upto: int, port: int = 0, schema: Schema = ONE) -> Batch:
    table = pa.RecordBatch.from_arrays([pa.array(values, schema.fields[0].type.arrow)], schema=schema.arrow)
    return Batch(table, np.array(times, dtype=np.int64), np.arange(len(times), dtype=np.int64), upto, port=port)


@settings(deadline=None, max_examples=examples(60))
@given(merge_scenarios())
def test_merge_orders_by_time_then_port(scenario: Scenario) -> None:
    kernel = scenario.spec.build()
    state = kernel.open()
    outputs = [kernel.step(state, batch) for batch in scenario.ports]
    found = [(int(t), int(s) >> 59, int(s) & (2**59 - 1)) for b in outputs for t, s in zip(b.time, b.seq, strict=True)]
    wanted = [(int(t), b.port, int(s)) for b in scenario.ports for t, s in zip(b.time, b.seq, strict=True)]
    assert found == sorted(wanted)


def test_merge_waits_for_what_may_come_before() -> None:
    kernel = MergeSpec(ONE, 2).build()
    state = kernel.open()
    assert len(kernel.step(state, rows([1], [5], 5, port=1))) == 0
    at_five = kernel.step(state, rows([], [], 5, port=0))
    assert (len(at_five), at_five.upto) == (0, 5)
    past_five = kernel.step(state, rows([2], [6], 6, port=0))
    assert past_five.rows.column("v").to_pylist() == [1]
    assert past_five.upto == 5
    at_six = kernel.step(state, rows([3], [6], 6, port=1))
    assert at_six.rows.column("v").to_pylist() == [2]
    assert kernel.step(state, rows([], [], FOREVER, port=0)).rows.column("v").to_pylist() == [3]


def test_merge_takes_the_names_of_its_schema() -> None:
    kernel = MergeSpec(ONE, 1).build()
    other = Schema.of(another=BIGINT)
    output = kernel.step(kernel.open(), rows([1], [1], FOREVER, schema=other))
    assert output.rows.schema.names == ["v"]


@pytest.mark.parametrize("ports", [0, 17])
def test_merge_has_room_for_sixteen_ports(ports: int) -> None:
    with pytest.raises(ValueError, match="1 to 16"):
        MergeSpec(ONE, ports)


def test_indivisible_state_is_not_divided() -> None:
    kernel = MergeSpec(ONE, 2).build()
    with pytest.raises(ValueError, match="cannot be divided"):
        saving.split(kernel, kernel.open(), 2)


@settings(deadline=None, max_examples=examples(60))
@given(distinct_scenarios())
def test_distinct_keeps_the_first_of_equal_rows(scenario: Scenario) -> None:
    batch = scenario.ports[0]
    seen: set[Any] = set()
    wanted = []
    for time, seq, row in zip(batch.time.tolist(), batch.seq.tolist(), batch.rows.to_pylist(), strict=True):
        values = ("nan" if isinstance(v, float) and math.isnan(v) else v for v in row.values())
        key = (time, *values)
        if key not in seen:
            seen.add(key)
            wanted.append(seq)
    kernel = scenario.spec.build()
    assert kernel.step(kernel.open(), batch).seq.tolist() == wanted


def test_distinct_emits_at_once_and_forgets() -> None:
    kernel = DistinctSpec(Schema.of(v=DOUBLE)).build()
    state = kernel.open()
    schema = Schema.of(v=DOUBLE)
    assert kernel.step(state, rows([1.0, None, 1.0], [1, 1, 1], 1, schema=schema)).seq.tolist() == [0, 1]
    assert kernel.step(state, rows([None, 2.0, 1.0], [1, 1, 2], 2, schema=schema)).seq.tolist() == [1, 2]
    kernel.step(state, rows([], [], 3, schema=schema))
    assert len(state.seen) == 0


def test_distinct_rows_with_other_beginnings_differ() -> None:
    kernel = DistinctSpec(ONE).build()
    batch = Batch(rows([1, 1, 1], [5, 5, 5], BEGIN).rows, np.array([5, 5, 5]), np.arange(3), 5, np.array([1, 2, 1]))
    assert kernel.step(kernel.open(), batch).seq.tolist() == [0, 1]

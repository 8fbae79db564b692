"""Aggregates that go on from saved state before any time has been told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.programs.spec import AggregateSpec
from millstream.kernels.saving import states as saving
from millstream.plan.programs.modes import Sliding
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE
from tests.support.paper_programs import algebraic_max, naive_avg

ROWS = Schema.of(x=DOUBLE)


def arriving(values: list[float], times: list[int], first: int, upto: int) -> Batch:
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], schema=ROWS.arrow)
    return Batch(rows, np.array(times), np.arange(first, first + len(times)), upto)


@pytest.mark.parametrize("restart", [False, True])
def test_a_group_without_keys_is_saved_before_time_is_told(restart: bool) -> None:
    spec = AggregateSpec(ROWS, (), algebraic_max(), ("x",), Sliding("range", 0), ("greatest",))
    with jit.using("off"):
        kernel = spec.build()
        state = kernel.open()
        kernel.step(state, arriving([3.0, 0.0], [16, 16], 0, BEGIN))
        if restart:
            state = saving.restore(kernel, saving.snapshot(kernel, state))
        out = kernel.step(state, arriving([2.25, -1.5], [16, 23], 2, FOREVER))
    # 3.0 has not left the window when 2.25 comes; it is returned when it leaves, and so is the next one
    assert out.rows.column(1).to_pylist() == [3.0, 2.25]


@pytest.mark.parametrize("how", ["on", "restored", "assembled", "split and merged"])
def test_rows_that_wait_for_the_end_of_their_slot_are_saved(how: str) -> None:
    keyed = Schema.of(k=BIGINT, x=DOUBLE)
    spec = AggregateSpec(keyed, ("k",), naive_avg(), ("x",), Sliding("range", 3, every=4), ("mean",))

    def arrive(keys: list[int], values: list[float], times: list[int], first: int, upto: int) -> Batch:
        rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(values)], schema=keyed.arrow)
        return Batch(rows, np.array(times), np.arange(first, first + len(times)), upto)

    with jit.using("off"):
        kernel = spec.build()
        state = kernel.open()
        # nothing is known of the time yet, so that all rows wait
        assert not len(kernel.step(state, arrive([1, 2, 1], [1.0, 2.0, 3.0], [0, 1, 2], 0, BEGIN)))
        if how == "restored":
            state = saving.restore(kernel, saving.snapshot(kernel, state))
        elif how == "assembled":
            pieces = {number: piece for number, piece in saving.changes(kernel, state).items() if piece is not None}
            state = saving.assemble(kernel, pieces)
        elif how == "split and merged":
            state = saving.merge(kernel, saving.split(kernel, state, 2))
        out = kernel.step(state, arrive([2, 1], [6.0, 5.0], [3, 5], 3, 5))
        rest = kernel.step(state, arrive([], [], [], 5, FOREVER))
    assert list(zip(out.time.tolist(), out.rows.column(2).to_pylist(), strict=True)) == [(2, 2.0), (3, 4.0)]
    assert out.upto == 4
    assert rest.rows.column(2).to_pylist() == [4.0]

"""Aggregates that go on from saved state before any time has been told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.programs.spec import AggregateSpec
from millstream.plan.modes import Sliding
from millstream.schema import Schema
from millstream.testing.paper_programs import algebraic_max
from millstream.types import DOUBLE

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
            state = kernel.restore(kernel.snapshot(state))
        out = kernel.step(state, arriving([2.25, -1.5], [16, 23], 2, FOREVER))
    # 3.0 has not left the window when 2.25 comes; it is returned when it leaves, and so is the next one
    assert out.rows.column(1).to_pylist() == [3.0, 2.25]

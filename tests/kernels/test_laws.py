"""The laws of kernels, over every registered one: batching, snapshots, sharding, compiled = Python, threads."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_scenarios import SCENARIOS, Scenario, batches, whole

from millstream.errors import DataError
from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.contract import Kernel
from millstream.kernels.keys import bucket_of
from millstream.kernels.registry import registered

laws = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
each_kernel = pytest.mark.parametrize("name", registered())


def bits(value: Any) -> Any:
    """A value such that equal floats are those with equal bits; all NaNs are one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    return value


def content(outputs: list[Batch]) -> list[Any]:
    """All rows of the outputs with their times and numbers."""
    return [
        (int(time), int(seq), *(bits(value) for value in row.values()))
        for batch in outputs
        for time, seq, row in zip(batch.time, batch.seq, batch.rows.to_pylist(), strict=True)
    ]


def run(kernel: Kernel, inputs: list[Batch]) -> list[Batch]:
    state = kernel.open()
    return [kernel.step(state, batch) for batch in inputs]


def expected(scenario: Scenario) -> list[Any]:
    """What the input gives in as few batches as can be; overflow is an outcome too."""
    return outcome(lambda: content(run(scenario.spec.build(), whole(scenario))))


def outcome(work: Any) -> Any:
    try:
        return work()
    except DataError as error:
        return error.message


def test_every_kernel_is_covered() -> None:
    assert set(SCENARIOS) == set(registered())


@each_kernel
@laws
@given(data=st.data())
def test_batching(name: str, data: st.DataObject) -> None:
    scenario = data.draw(SCENARIOS[name])
    inputs = data.draw(batches(scenario))
    with jit.using("off", threads=data.draw(st.sampled_from([1, 4]))):
        assert outcome(lambda: content(run(scenario.spec.build(), inputs))) == expected(scenario)


@each_kernel
@laws
@given(data=st.data())
def test_outputs_keep_the_promise(name: str, data: st.DataObject) -> None:
    scenario = data.draw(SCENARIOS[name])
    inputs = data.draw(batches(scenario))
    with jit.using("off", threads=1):
        outputs = outcome(lambda: run(scenario.spec.build(), inputs))
    if isinstance(outputs, str):
        return
    upto, last = BEGIN, (BEGIN, BEGIN)
    for batch in outputs:
        assert batch.rows.schema.equals(scenario.spec.output.arrow)
        for place in zip(batch.time.tolist(), batch.seq.tolist(), strict=True):
            assert place[0] >= upto
            assert place >= last
            last = place
        assert batch.upto >= upto
        upto = batch.upto
    assert upto == FOREVER


@each_kernel
@laws
@given(data=st.data())
def test_snapshots(name: str, data: st.DataObject) -> None:
    scenario = data.draw(SCENARIOS[name])
    inputs = data.draw(batches(scenario))
    saves = data.draw(st.lists(st.booleans(), min_size=len(inputs), max_size=len(inputs)))

    def with_restarts() -> list[Any]:
        kernel = scenario.spec.build()
        state = kernel.open()
        outputs = []
        for batch, save in zip(inputs, saves, strict=True):
            outputs.append(kernel.step(state, batch))
            if save:
                saved = kernel.snapshot(state)
                kernel = scenario.spec.build()
                state = kernel.restore(saved)
        return content(outputs)

    with jit.using("off", threads=data.draw(st.sampled_from([1, 2]))):
        assert outcome(with_restarts) == expected(scenario)


@each_kernel
@laws
@given(data=st.data())
def test_sharding(name: str, data: st.DataObject) -> None:
    scenario = data.draw(SCENARIOS[name])
    spec = scenario.spec
    if spec.keys is None:
        return
    inputs = data.draw(batches(scenario))
    parts = data.draw(st.integers(1, 3))
    split_at, merge_at = sorted(data.draw(st.tuples(*[st.integers(0, len(inputs))] * 2)))

    def route(batch: Batch) -> list[Batch]:
        columns = [batch.rows.column(spec.inputs[batch.port].index(key)) for key in spec.keys or ()]
        buckets = bucket_of(columns, parts) if columns else np.zeros(len(batch), dtype=np.int32)
        return [batch.take(np.flatnonzero(buckets == part)) for part in range(parts)]

    def divided() -> list[Any]:
        kernel = spec.build()
        state = kernel.open()
        outputs = [kernel.step(state, batch) for batch in inputs[:split_at]]
        states = kernel.split(state, parts)
        kernels = [spec.build() for _ in range(parts)]
        for batch in inputs[split_at:merge_at]:
            outputs += [k.step(s, piece) for k, s, piece in zip(kernels, states, route(batch), strict=True)]
        state = kernel.merge(states)
        outputs += [kernel.step(state, batch) for batch in inputs[merge_at:]]
        return sorted(content(outputs), key=lambda row: row[:2])

    with jit.using("off", threads=data.draw(st.sampled_from([1, 2]))):
        assert outcome(divided) == expected(scenario)

"""The laws of kernels, over every registered one: batching, snapshots, pieces, sharding, compiled = Python, threads."""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from automaton_scenarios import AUTOMATON_SCENARIOS
from event_join_scenarios import EVENT_JOIN_SCENARIOS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from join_scenarios import JOIN_SCENARIOS
from kernel_scenarios import COLUMNS, Scenario, batches, whole
from kernel_scenarios import SCENARIOS as EVENT_SCENARIOS
from pattern_scenarios import PATTERN_SCENARIOS
from relation_scenarios import RELATION_SCENARIOS
from sweep_scenarios import SWEEP_SCENARIOS, summary_scenarios

from millstream.errors import DataError
from millstream.kernels import jit, relations
from millstream.kernels.batch import BEGIN, FOREVER, Batch, concat
from millstream.kernels.contract import PARTIALS, Kernel, partials_of
from millstream.kernels.keys import bucket_of
from millstream.kernels.over import Frame, OverSpec
from millstream.kernels.registry import registered
from millstream.kernels.relations.signs import SIGN
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.saving import states as saving
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import result_type
from millstream.schema import Schema
from tiers import examples

SCENARIOS = {
    **AUTOMATON_SCENARIOS, **EVENT_SCENARIOS, **EVENT_JOIN_SCENARIOS, **JOIN_SCENARIOS, **PATTERN_SCENARIOS,
    **RELATION_SCENARIOS,
    **SWEEP_SCENARIOS,
}  # fmt: skip


laws = settings(
    deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def bits(value: Any) -> Any:
    """A value such that equal floats are those with equal bits; all NaNs are one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    return value


def content(outputs: list[Batch]) -> list[Any]:
    """All rows of the outputs with their times and numbers. A relation's rows have none: their order is free."""
    rows = [
        (int(time), int(seq), int(other), *(bits(value) for value in row.values()))
        for batch in outputs
        for time, seq, other, row in zip(
            batch.time,
            batch.seq,
            batch.time if batch.other is None else batch.other,
            batch.rows.to_pylist(),
            strict=True,
        )
    ]
    return rows if any(row[1] for row in rows) else sorted(rows, key=lambda row: (row[0], repr(row)))


def run(kernel: Kernel, inputs: list[Batch]) -> list[Batch]:
    state = kernel.open()
    return [kernel.step(state, batch) for batch in inputs]


def fold(saved: dict[int, bytes], changes: dict[int, bytes | None]) -> None:
    """Take changes into what was saved."""
    for number, piece in changes.items():
        if piece is None:
            del saved[number]
        else:
            saved[number] = piece


def expected(scenario: Scenario) -> list[Any]:
    """What the input gives in as few batches as can be; overflow is an outcome too."""

    def work() -> list[Any]:
        outputs = run(scenario.spec.build(), whole(scenario))
        if type(scenario.spec).__module__.startswith(relations.__name__):
            check_relation(outputs)
        return content(outputs)

    return outcome(work)


def check_relation(outputs: list[Batch]) -> None:
    """Every row of a relation lasts, and none goes that is not there once its instant is complete. So operators that
    look up the rows that end, or go, find them (`summary_rows._events`)."""
    for batch in outputs:
        assert batch.other is None or (batch.other > batch.time).all()
    if SIGN.name not in outputs[0].rows.schema.names:
        return
    there: Counter[Any] = Counter()
    for _, instant in groupby(content(outputs), key=lambda row: row[0]):
        for *row, sign in instant:
            there[tuple(row[3:])] += sign
        assert min(there.values()) >= 0


def outcome(work: Any) -> Any:
    try:
        return work()
    except DataError as error:
        return error.message


def test_every_kernel_is_covered() -> None:
    assert set(SCENARIOS) == set(registered())


@pytest.mark.parametrize("name", registered())
@laws
@given(data=st.data())
def test_laws(name: str, data: st.DataObject) -> None:
    """All laws on one example: it is drawn, and its outcome known, once for all of them."""
    scenario = data.draw(SCENARIOS[name])
    inputs = data.draw(batches(scenario))
    with jit.using("off", threads=data.draw(st.sampled_from([1, 2, 4]))):
        wanted = expected(scenario)
        check_batching(scenario, inputs, wanted)
        check_snapshots(scenario, inputs, wanted, data)
        check_pieces(scenario, inputs, wanted, data)
        if scenario.spec.keys is not None:
            check_sharding(scenario, inputs, wanted, data)


def check_batching(scenario: Scenario, inputs: list[Batch], wanted: Any) -> None:
    outputs = outcome(lambda: run(scenario.spec.build(), inputs))
    if isinstance(outputs, str):
        assert outputs == wanted
        return
    assert content(outputs) == wanted
    # outputs keep their promise
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


def check_snapshots(scenario: Scenario, inputs: list[Batch], wanted: Any, data: st.DataObject) -> None:
    saves = data.draw(st.lists(st.booleans(), min_size=len(inputs), max_size=len(inputs)))

    def with_restarts() -> list[Any]:
        kernel = scenario.spec.build()
        state = kernel.open()
        outputs = []
        for batch, save in zip(inputs, saves, strict=True):
            outputs.append(kernel.step(state, batch))
            if save:
                saved = saving.snapshot(kernel, state)
                kernel = scenario.spec.build()
                state = saving.restore(kernel, saved)
        return content(outputs)

    assert outcome(with_restarts) == wanted


def check_pieces(scenario: Scenario, inputs: list[Batch], wanted: Any, data: st.DataObject) -> None:
    actions = ["nothing", "save", "restart", "rescale"] if scenario.spec.keys is not None else ["save", "restart"]
    done = data.draw(st.lists(st.sampled_from(actions), min_size=len(inputs), max_size=len(inputs)))

    def with_restarts() -> list[Any]:
        kernel = scenario.spec.build()
        state = kernel.open()
        assert saving.changes(kernel, state) == {}
        assert saving.changes(kernel, saving.assemble(kernel, {})) == {}
        saved: dict[int, bytes] = {}
        outputs = []
        for batch, action in zip(inputs, done, strict=True):
            outputs.append(kernel.step(state, batch))
            if action == "rescale":
                state = saving.merge(kernel, saving.split(kernel, state, 2))
                saved = {}
            if action != "nothing":
                fold(saved, saving.changes(kernel, state))
                assert saving.changes(kernel, state) == {}
            if action == "restart":
                kernel = scenario.spec.build()
                state = saving.assemble(kernel, saved)
                assert saving.changes(kernel, state) == {}
        return content(outputs)

    # Few keys make many pieces, so that they are given up, put together and numbered again.
    most = data.draw(st.sampled_from([1, 2, 1024]))
    with patch.multiple("millstream.kernels.saving.pieces", KEYS_PER_PIECE=most, _SPARE_PIECES=0):
        assert outcome(with_restarts) == wanted


def check_sharding(scenario: Scenario, inputs: list[Batch], wanted: Any, data: st.DataObject) -> None:
    spec = scenario.spec
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
        states = saving.split(kernel, state, parts)
        kernels = [spec.build() for _ in range(parts)]
        for batch in inputs[split_at:merge_at]:
            outputs += [k.step(s, piece) for k, s, piece in zip(kernels, states, route(batch), strict=True)]
        state = saving.merge(kernel, states)
        outputs += [kernel.step(state, batch) for batch in inputs[merge_at:]]
        return sorted(content(outputs), key=lambda row: row[:2])

    assert outcome(divided) == wanted


@pytest.mark.parametrize("name", ["ChainSpec", "SummarySpec", "WindowGroupSpec"])
@laws
@given(data=st.data())
def test_partials(name: str, data: st.DataObject) -> None:
    """Rows that were put together where several tasks read them, mixed with rows that were not."""
    scenario = data.draw(summary_scenarios(merges=True) if name == "SummarySpec" else SCENARIOS[name])
    spec = scenario.spec
    if isinstance(spec, SummarySpec):
        # what is right is what rows give that are kept as they are
        scenario, spec = replace(scenario, spec=replace(spec, put_together=False)), replace(spec, put_together=True)
    partials = partials_of(spec)[0]
    inputs = data.draw(batches(scenario))
    if partials is None:
        return

    def together(batch: Batch) -> Batch:
        task = np.array([data.draw(st.integers(0, 2)) for _ in range(len(batch))], dtype=np.int64)
        parts = [batch.take(np.flatnonzero(task == number)) for number in range(3)]
        if not len(batch) or data.draw(st.booleans()):
            return batch
        ways = [data.draw(st.sampled_from([partials.step, partials.each])) for _ in parts]
        made = [way(part) for way, part in zip(ways, parts, strict=True) if len(part)]
        assert sum(partials.counted(part.rows) for part in made) == len(batch)
        whole_batch = concat(made, batch.upto)
        return whole_batch.take(np.lexsort((whole_batch.seq, whole_batch.time))).on_port(PARTIALS)

    def unsigned(rows: Any) -> Any:
        # which of two zeros is the least is not said of rows whose order is lost
        zero = struct.pack("d", -0.0)
        return rows if isinstance(rows, str) else [tuple(0.0 if v in (zero, bits(0.0)) else v for v in r) for r in rows]

    with jit.using("off", threads=1):
        kernel = spec.build()
        given = [together(batch) for batch in inputs]
        assert unsigned(outcome(lambda: content(run(kernel, given)))) == unsigned(expected(scenario))


def many_rows(spec: OverSpec, size: int, keys: int, seed: int) -> Batch:
    """Rows with ties, NULLs, infinities and repeated values, more than hypothesis would like to draw."""
    chance = np.random.default_rng(seed)

    def sparse(values: pa.Array) -> pa.Array:
        return pa.compute.if_else(pa.array(chance.random(size) < 0.1), pa.scalar(None, values.type), values)

    floats = np.round(chance.normal(0, 100, size), 2)
    floats[chance.random(size) < 0.01] = chance.choice([np.inf, -np.inf, np.nan, 1e300, -0.0])
    columns = {
        "k": pa.array(chance.integers(0, keys, size)),
        "name": pa.array([f"name {i}" for i in chance.integers(0, keys, size)]),
        "x": pa.array(floats),
        "i": pa.array(chance.integers(-5, 5, size).astype(np.int32)),
        "b": pa.array(chance.integers(-(2**40), 2**40, size)),
        "s": pa.array([f"{'é' * (i % 3)}{i}" for i in chance.integers(0, 50, size)]),
    }
    arrays = [sparse(columns[field.name]) for field in spec.input]
    time = np.cumsum(chance.integers(0, 3, size))
    return Batch(pa.RecordBatch.from_arrays(arrays, schema=spec.input.arrow), time, np.arange(size), FOREVER)


def compiled_specs() -> list[OverSpec]:
    """Few sources, since each takes the compiler a second, that together have every part of the generator."""
    schema = Schema(tuple(COLUMNS[name] for name in ("k", "name", "x", "i", "b", "s")))
    near, past, all_rows, all_time = Frame("rows", 7), Frame("range", 400), Frame("rows", None), Frame("range", None)
    groups: list[tuple[tuple[str, ...], list[tuple[str, str | None, Frame, bool]]]] = [
        (("k",), [("avg", "x", near, False), ("max", "x", near, False), ("count", None, near, False)]),
        (
            ("k", "name"),
            [
                ("stddev_samp", "x", past, False), ("sum", "b", past, False), ("min", "s", past, False),
                ("count", "s", past, True), ("sum", "x", past, True), ("last_value", "i", past, False),
                ("var_pop", "i", near, False), ("first_value", "s", near, False), ("max", "b", near, False),
            ],
        ),
        (
            ("name",),
            [
                ("sum", "x", all_time, False), ("min", "x", all_rows, False), ("max", "s", all_rows, False),
                ("first_value", "x", all_time, False), ("count", "i", all_rows, True), ("avg", "i", all_time, False),
            ],
        ),
    ]  # fmt: skip
    specs = []
    for keys, items in groups:
        made = []
        for i, (fn, arg, frame, distinct) in enumerate(items):
            type_ = result_type(fn, distinct, schema[arg].type if arg else None)
            assert type_ is not None
            made.append(AggregateCall.over(f"c{i}", fn, arg, frame, distinct, type_))
        specs.append(OverSpec(schema, keys, tuple(made)))
    return specs


def cut(batch: Batch, size: int) -> list[Batch]:
    """Batches of a size, each promising no more than its last row shows."""
    parts = []
    for start in range(0, len(batch), size):
        part = batch.slice(start, min(start + size, len(batch)))
        parts.append(part.with_upto(int(part.time[-1])))
    return [*parts[:-1], parts[-1].with_upto(FOREVER)]


@pytest.mark.parametrize("spec", compiled_specs(), ids=lambda spec: "+".join(spec.keys))
def test_compiled_equals_python(spec: OverSpec) -> None:
    inputs = cut(many_rows(spec, 2_500, 5, 1), 700)
    with jit.using("off", threads=1):
        python = content(run(spec.build(), inputs))
    with jit.using("on", threads=1):
        compiled = content(run(spec.build(), inputs))
    assert compiled == python


@pytest.mark.parametrize("spec", compiled_specs(), ids=lambda spec: "+".join(spec.keys))
def test_threads_change_nothing(spec: OverSpec) -> None:
    batch = many_rows(spec, 60_000, 40, 2)
    with jit.using("on", threads=1):
        alone = content(run(spec.build(), cut(batch, 25_000)))
    with jit.using("on", threads=4):
        together = content(run(spec.build(), cut(batch, 25_000)))
        in_small_batches = content(run(spec.build(), cut(batch, 5_000)))
    assert together == alone
    assert in_small_batches == alone


@pytest.mark.parametrize("spec", compiled_specs(), ids=lambda spec: "+".join(spec.keys))
def test_full_rings_survive_restarts_and_sharding(spec: OverSpec) -> None:
    inputs = cut(many_rows(spec, 6_000, 4, 3), 500)
    with jit.using("on", threads=2):
        undisturbed = content(run(spec.build(), inputs))
        kernel = spec.build()
        state = kernel.open()
        outputs = []
        for batch in inputs:
            state = saving.restore(kernel, saving.snapshot(kernel, state))
            state = saving.merge(kernel, saving.split(kernel, state, 3))
            outputs.append(kernel.step(state, batch))
        assert content(outputs) == undisturbed
        states = [kernel.open() for _ in range(3)]
        outputs = []
        for batch in inputs:
            buckets = bucket_of([batch.rows.column(spec.input.index(key)) for key in spec.keys], 3)
            pieces = [batch.take(np.flatnonzero(buckets == part)) for part in range(3)]
            states = saving.split(kernel, saving.merge(kernel, states), 3)
            outputs += [kernel.step(part, piece) for part, piece in zip(states, pieces, strict=True)]
        assert sorted(content(outputs), key=lambda row: row[:2]) == undisturbed

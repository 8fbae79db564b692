"""A kernel that opens, steps, exports and loads has all else: it is saved, whole and in pieces, split and merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.keys import KeyTable, bucket_of
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.programs.spec import AggregateSpec
from millstream.kernels.saving import states as saving
from millstream.kernels.saving.content import Content, Ledger, Slots
from millstream.kernels.saving.kept import KeptBatches
from millstream.kernels.saving.snapshots import Saved
from millstream.plan.programs.modes import Sliding
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR
from tests.support.paper_programs import algebraic_max

ROWS = Schema.of(k=VARCHAR, x=BIGINT)
LAG = 10


@dataclass(frozen=True)
class LaterSpec(KeepsColumns):
    """Rows some time after they came, numbered within their keys in place of their arrival."""

    @property
    def keys(self) -> tuple[str, ...]:
        return ("k",)

    def build(self) -> LaterKernel:
        return LaterKernel(self)

    def describe(self) -> str:
        return "later"


@dataclass
class LaterState:
    keys: KeyTable = field(default_factory=lambda: KeyTable([VARCHAR]))
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    waiting: KeptBatches = field(default_factory=KeptBatches)
    upto: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)


class LaterKernel:
    """Has a part of each kind: keys, rows, and a number that belongs to no key."""

    def __init__(self, spec: LaterSpec) -> None:
        self.spec = spec

    def open(self) -> LaterState:
        return LaterState()

    def step(self, state: LaterState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        slots = state.keys.encode([batch.rows.column(0)])
        state.counts = np.append(state.counts, np.zeros(state.keys.size - len(state.counts), dtype=np.int64))
        np.add.at(state.counts, slots, 1)
        state.ledger.touch(slots, state.keys.size)
        state.waiting.add(batch)
        rows = state.waiting.all() or batch
        ready = int(np.searchsorted(rows.time, state.upto - LAG))
        state.waiting.drop(ready)
        given = rows.slice(0, ready)
        counted = pa.array(state.counts[state.keys.lookup([given.rows.column(0)])])
        return given.with_rows(given.rows.set_column(1, "x", counted)).with_upto(state.upto - LAG)

    def export(self, state: LaterState) -> Content:
        def take(slots: Ints) -> pa.StructArray:
            return Slots.rows(state.keys, slots, {"count": pa.array(state.counts[slots])})

        slots = Slots(state.keys.live().astype(np.int64), state.ledger, take, 1)
        return {"upto": np.array([state.upto]), "slots": slots, "waiting": state.waiting.kept()}

    def load(self, parts: Saved) -> LaterState:
        state = LaterState(upto=int(parts.array("upto")[0]))
        if "slots" in parts:
            saving.load_keys(state.keys, parts.rows("slots"))
            state.counts = np.array(parts.rows("slots").column("count"))
        if "waiting" in parts:
            state.waiting.add(parts.batch("waiting", BEGIN), parts.numbers("waiting"))
        return state


def rows(turn: int, keys: list[str]) -> Batch:
    time = np.full(len(keys), turn)
    columns = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(time)], schema=ROWS.arrow)
    return Batch(columns, time, turn * 100 + np.arange(len(keys)), turn + 1)


def told(batch: Batch) -> list[Any]:
    times = zip(batch.time.tolist(), batch.seq.tolist(), batch.rows.to_pylist(), strict=True)
    return [(time, seq, *row.values()) for time, seq, row in times]


def present(changes: dict[int, bytes | None]) -> dict[int, bytes]:
    return {number: piece for number, piece in changes.items() if piece is not None}


AGAIN: dict[str, Callable[[LaterKernel, LaterState], LaterState]] = {
    "restored": lambda kernel, state: saving.restore(kernel, saving.snapshot(kernel, state)),
    "copied": saving.copy,
    "split and merged": lambda kernel, state: saving.merge(kernel, saving.split(kernel, state, 3)),
}


@pytest.mark.parametrize("how", [*AGAIN, "assembled"])
def test_a_state_goes_on_as_it_was(how: str) -> None:
    kernel = LaterKernel(LaterSpec(ROWS))
    alone, state = kernel.open(), kernel.open()
    pieces: dict[int, bytes | None] = {}
    for turn in range(40):
        batch = rows(turn, [f"key {(turn * step) % 7}" for step in range(1, 5)])
        assert told(kernel.step(state, batch)) == told(kernel.step(alone, batch))
        if turn % 3 == 0 and how == "assembled":
            pieces |= saving.changes(kernel, state)
            state = saving.assemble(kernel, present(pieces))
        elif turn % 3 == 0:
            state = AGAIN[how](kernel, state)


def test_a_part_has_its_keys_and_their_rows() -> None:
    kernel = LaterKernel(LaterSpec(ROWS))
    state = kernel.open()
    names = [f"key {i}" for i in range(20)]
    kernel.step(state, rows(0, names))
    buckets = bucket_of([pa.array(names)], 3)
    for part, own in enumerate(saving.split(kernel, state, 3)):
        mine = [name for name, bucket in zip(names, buckets, strict=True) if bucket == part]
        assert own.keys.keys().column(0).to_pylist() == mine
        waiting = own.waiting.all()
        assert waiting is not None and waiting.rows.column(0).to_pylist() == mine
        assert own.upto == state.upto


def test_what_a_batch_touches_is_written() -> None:
    kernel = LaterKernel(LaterSpec(ROWS))
    state = kernel.open()
    assert saving.changes(kernel, state) == {}
    kernel.step(state, rows(0, [f"key {i}" for i in range(5_000)]))
    whole = sum(map(len, present(saving.changes(kernel, state)).values()))
    kernel.step(state, rows(1, ["key 3", "another"]))
    assert sum(map(len, present(saving.changes(kernel, state)).values())) < whole / 20
    assert saving.changes(kernel, state) == {}


def test_rows_of_an_active_window_are_written_with_their_keys() -> None:
    schema = Schema.of(k=BIGINT, x=DOUBLE)
    spec = AggregateSpec(schema, ("k",), algebraic_max(), ("x",), Sliding("range", 1_000), ("greatest",))

    def arrive(keys: Ints, time: int) -> Batch:
        columns = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys / 2)], schema=schema.arrow)
        return Batch(columns, np.full(len(keys), time), np.arange(len(keys)), time + 1)

    with jit.using("off"):
        kernel = spec.build()
        state = kernel.open()
        for time in range(3):
            kernel.step(state, arrive(np.arange(2_000), time))
        pieces = present(saving.changes(kernel, state))
        kernel.step(state, arrive(np.array([5, 700]), 10))
        changes = saving.changes(kernel, state)
        assert sum(map(len, present(changes).values())) < sum(map(len, pieces.values())) / 20
        again = saving.assemble(kernel, pieces | present(changes))
        late = arrive(np.array([5]), 1_005)
        assert told(kernel.step(again, late)) == told(kernel.step(state, late)) != []

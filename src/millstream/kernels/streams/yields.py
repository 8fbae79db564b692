"""SLIDE: emits the last row of each slot, for each key."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger, Slots
from millstream.kernels.saving.kept import KeptBatches
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.saving.states import load_keys
from millstream.kernels.streams import yield_loops
from millstream.plan.lengths import length_told
from millstream.plan.node import by_told
from millstream.records import dataclass

_mark_every = compile_kernel(source_of(yield_loops), "mark_every")


def last_in_slots(slot: Ints, key: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Which rows are the last of their key in their slot; slots come in order."""
    groups = int(key.max(initial=0)) + 1
    number = np.cumsum(np.diff(slot, prepend=slot[:1]) != 0) * groups + key
    if len(slot) and number[-1] < 4 * len(slot):
        # few enough to note for each where its last row is
        last = np.full(number[-1] + groups, -1, dtype=np.int64)
        last[number] = np.arange(len(slot))
        chosen = np.zeros(len(slot), dtype=np.bool_)
        chosen[last[last >= 0]] = True
        return chosen
    order = np.lexsort((np.arange(len(slot)), key, slot))
    is_last = np.ones(len(slot), dtype=np.bool_)
    is_last[:-1] = (slot[order][1:] != slot[order][:-1]) | (key[order][1:] != key[order][:-1])
    chosen = np.zeros(len(slot), dtype=np.bool_)
    chosen[order[is_last]] = True
    return chosen


@register
@dataclass(frozen=True)
class YieldSpec(KeepsColumns):
    """ROWS: every `every`-th row of a key, at once. RANGE: the last row of a key in each slot of `every` µs (slots
    begin at multiples of that), when the slot has ended."""

    keys: tuple[str, ...]
    unit: Literal["rows", "range"]
    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError("a window slides on")

    def build(self) -> YieldKernel:
        return YieldKernel(self)

    def describe(self) -> str:
        what = f"every {self.every} rows" if self.unit == "rows" else f"the last row in every {length_told(self.every)}"
        return f"slide{by_told(self.keys)}: {what}"


@dataclass
class YieldState:
    """How many rows of each key have come since its last that was kept; or the last row of each key in the slots that
    have not ended."""

    keys: KeyTable | None
    counts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    pending: KeptBatches = field(default_factory=KeptBatches)
    upto: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)


class YieldKernel:
    """Runs a YieldSpec."""

    def __init__(self, spec: YieldSpec) -> None:
        self.spec = spec
        self._types = [spec.input[key].type for key in spec.keys]
        self._keys = [spec.input.index(key) for key in spec.keys]

    def open(self) -> YieldState:
        return YieldState(self._new_keys())

    def step(self, state: YieldState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        return self._every(state, batch) if self.spec.unit == "rows" else self._last_of_slots(state, batch)

    def _new_keys(self) -> KeyTable | None:
        return KeyTable(self._types) if self._types else None

    def _slots(self, keys: KeyTable | None, rows: pa.RecordBatch) -> Ints:
        if keys is None or not rows.num_rows:
            return np.zeros(rows.num_rows, dtype=np.int64)
        return keys.encode([rows.column(index) for index in self._keys]).astype(np.int64)

    def _every(self, state: YieldState, batch: Batch) -> Batch:
        slots = self._slots(state.keys, batch.rows)
        size = 1 if state.keys is None else state.keys.size
        if size > len(state.counts):
            state.counts = np.append(state.counts, np.zeros(size, dtype=np.int64))
        kept = np.empty(len(batch), dtype=np.bool_)
        _mark_every(len(batch), slots, state.counts, self.spec.every, kept)
        state.ledger.touch(slots, size)
        return batch.take(np.flatnonzero(kept))

    def _last_of_slots(self, state: YieldState, batch: Batch) -> Batch:
        every = self.spec.every
        state.pending.add(batch)
        batch = state.pending.all() or batch
        slot = batch.time // every
        key = self._slots(self._new_keys(), batch.rows)
        kept = np.flatnonzero(last_in_slots(slot, key))
        open_from = FOREVER if state.upto == FOREVER else state.upto // every
        done = int(np.searchsorted(slot[kept], open_from))
        state.pending.keep(kept[done:])
        # Rows of the slot that time is in are still to be given.
        upto = FOREVER if state.upto == FOREVER else max(BEGIN, open_from * every)
        return batch.take(kept[:done]).with_upto(upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: YieldState) -> Content:
        live = np.flatnonzero(state.counts[:1]) if state.keys is None else state.keys.live().astype(np.int64)

        def take(slots: Ints) -> pa.StructArray:
            return Slots.rows(state.keys, slots, {"count": pa.array(state.counts[slots])})

        slots = Slots(live, state.ledger, take, len(self._keys))
        return {"upto": np.array([state.upto]), "pending": state.pending.kept(), "slots": slots}

    def load(self, parts: Saved) -> YieldState:
        state = YieldState(self._new_keys(), upto=int(parts.array("upto")[0]))
        if "pending" in parts:
            state.pending.add(parts.batch("pending", BEGIN), parts.numbers("pending"))
        if "slots" in parts:
            rows = parts.rows("slots")
            load_keys(state.keys, rows)
            state.counts = np.array(rows.column("count"))
        return state

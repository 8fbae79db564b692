"""SLIDE: of the rows of each key only those that yield, the last one of each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels import snapshots, yield_loops
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable, bucket_of
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.one_piece import OnePiece
from millstream.kernels.registry import register

_mark_every = compile_kernel(source_of(yield_loops), "mark_every")


def last_in_slots(slot: Ints, key: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Which rows are the last of their key in their slot."""
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
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        what = f"every {self.every} rows" if self.unit == "rows" else f"the last row in every {self.every} µs"
        return f"slide{by}: {what}"


@dataclass
class YieldState:
    """How many rows of each key have come since its last that was kept; or the last row of each key in the slots that
    have not ended."""

    keys: KeyTable | None
    counts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    pending: Batch | None = None
    upto: int = BEGIN
    changed: bool = True


class YieldKernel(OnePiece):
    """Runs a YieldSpec."""

    def __init__(self, spec: YieldSpec) -> None:
        self.spec = spec
        self._types = [spec.input[key].type for key in spec.keys]
        self._keys = [spec.input.index(key) for key in spec.keys]

    def open(self) -> YieldState:
        return YieldState(self._new_keys(), changed=False)

    def step(self, state: YieldState, batch: Batch) -> Batch:
        if len(batch) or batch.upto > state.upto:
            state.changed = True
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
        return batch.take(np.flatnonzero(kept))

    def _last_of_slots(self, state: YieldState, batch: Batch) -> Batch:
        every = self.spec.every
        if state.pending is not None:
            batch = concat([state.pending, batch], batch.upto)
        slot = batch.time // every
        key = self._slots(self._new_keys(), batch.rows)
        kept = np.flatnonzero(last_in_slots(slot, key))
        open_from = FOREVER if state.upto == FOREVER else state.upto // every
        done = int(np.searchsorted(slot[kept], open_from))
        state.pending = batch.take(kept[done:]) if done < len(kept) else None
        # Rows of the slot that time is in are still to be given.
        upto = FOREVER if state.upto == FOREVER else max(BEGIN, open_from * every)
        return batch.take(kept[:done]).with_upto(upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def snapshot(self, state: YieldState) -> bytes:
        parts: dict[str, object] = {"upto": np.array([state.upto])}
        if state.keys is None:
            parts["counts"] = state.counts[:1]
        else:
            live = state.keys.live()
            parts |= {"counts": state.counts[live], "keys": state.keys.keys(live)}
        if state.pending is not None:
            parts["pending"] = state.pending
        return snapshots.save(self.spec, parts)

    def restore(self, saved: bytes) -> YieldState:
        parts = snapshots.load(self.spec, saved)
        upto = int(parts.array("upto")[0])
        pending = parts.batch("pending", upto) if "pending" in parts else None
        keys = parts.rows("keys") if self._types else None
        return self._state(keys, parts.array("counts"), pending, upto)

    def split(self, state: YieldState, parts: int) -> list[YieldState]:
        if state.keys is None:
            return [state, *(self._state(None, np.zeros(1, np.int64), None, state.upto) for _ in range(parts - 1))]
        live = state.keys.live()
        keys = state.keys.keys(live)
        owner = bucket_of(keys.columns, parts) if len(live) else np.zeros(0, dtype=np.int32)
        waits = np.zeros(0, dtype=np.int32)
        if state.pending is not None:
            waits = bucket_of([state.pending.rows.column(index) for index in self._keys], parts)
        divided = []
        for part in range(parts):
            own, waiting = np.flatnonzero(owner == part), np.flatnonzero(waits == part)
            pending = state.pending.take(waiting) if state.pending is not None and len(waiting) else None
            divided.append(self._state(keys.take(pa.array(own)), state.counts[live[own]], pending, state.upto))
        return divided

    def merge(self, states: Sequence[YieldState]) -> YieldState:
        pending = [state.pending for state in states if state.pending is not None]
        together = concat(pending, pending[0].upto) if pending else None
        if together is not None:
            together = together.take(np.lexsort((together.seq, together.time)))
        upto = max(state.upto for state in states)
        if not self._types:
            return self._state(None, sum((state.counts[:1] for state in states), np.zeros(1, np.int64)), together, upto)
        merged = self._state(None, np.zeros(0, np.int64), together, upto)
        for state in states:
            assert state.keys is not None
            self._add(merged, state.keys.keys(), state.counts[state.keys.live()])
        return merged

    def _state(self, keys: pa.RecordBatch | None, counts: Ints, pending: Batch | None, upto: int) -> YieldState:
        state = YieldState(self._new_keys(), np.array(counts[:1]), pending, upto)
        if keys is not None:
            self._add(state, keys, counts)
        return state

    def _add(self, state: YieldState, keys: pa.RecordBatch, counts: Ints) -> None:
        assert state.keys is not None
        if len(keys):
            slots = state.keys.encode(keys.columns)
            state.counts = np.append(state.counts, np.zeros(max(0, state.keys.size - len(state.counts)), np.int64))
            state.counts[slots] = counts

"""Equal rows of one instant, once: what UNION removes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.keys import KeyTable, bucket_of
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.one_piece import OnePiece
from millstream.kernels.registry import register
from millstream.types import BIGINT


@register
@dataclass(frozen=True)
class DistinctSpec(KeepsColumns):
    """The first of the equal rows at each time; NULL equals NULL."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self.input.names

    def build(self) -> DistinctKernel:
        return DistinctKernel(self)

    def describe(self) -> str:
        return "distinct rows at each time"


@dataclass
class DistinctState:
    """The rows seen at `time`; the table may still hold some of earlier times."""

    seen: KeyTable
    time: int = BEGIN
    changed: bool = True


class DistinctKernel(OnePiece):
    """Runs a DistinctSpec."""

    def __init__(self, spec: DistinctSpec) -> None:
        self.spec = spec
        # The interval's other end and the time are part of what makes rows equal.
        self._types = [*(field.type for field in spec.input), BIGINT, BIGINT]

    def open(self) -> DistinctState:
        return DistinctState(KeyTable(self._types), changed=False)

    def step(self, state: DistinctState, batch: Batch) -> Batch:
        if len(batch):
            state.changed = True
            if int(batch.time[0]) > state.time and len(state.seen):
                state.seen = KeyTable(self._types)
            known = state.seen.size
            other = batch.time if batch.other is None else batch.other
            slots = state.seen.encode([*batch.rows.columns, pa.array(other), pa.array(batch.time)])
            # New rows get slots in the order they come, so each first one raises the highest slot.
            highest = np.maximum.accumulate(slots)
            first = np.flatnonzero(np.diff(highest, prepend=np.int32(-1)) > 0)
            first = first[slots[first] >= known]
            state.time = int(batch.time[-1])
            if len(first) < len(batch):
                batch = batch.take(first)
        if batch.upto > state.time and len(state.seen):
            state.changed = True
            state.seen = KeyTable(self._types)
        return batch

    def snapshot(self, state: DistinctState) -> bytes:
        return snapshots.save(self.spec, {"time": np.array([state.time]), "seen": self._current(state)})

    def restore(self, saved: bytes) -> DistinctState:
        parts = snapshots.load(self.spec, saved)
        return self._state(parts.rows("seen"), int(parts.array("time")[0]))

    def split(self, state: DistinctState, parts: int) -> list[DistinctState]:
        seen = self._current(state)
        buckets = bucket_of(seen.columns[: len(self.spec.input)], parts)
        return [self._state(seen.take(pa.array(np.flatnonzero(buckets == part))), state.time) for part in range(parts)]

    def merge(self, states: Sequence[DistinctState]) -> DistinctState:
        time = max(state.time for state in states)
        seen = [self._current(state) for state in states if state.time == time]
        merged = self._state(seen[0], time)
        for rows in seen[1:]:
            merged.seen.encode(rows.columns)
        return merged

    def _current(self, state: DistinctState) -> pa.RecordBatch:
        rows = state.seen.keys()
        at = rows.column(rows.num_columns - 1).to_numpy()
        return rows.take(pa.array(np.flatnonzero(at == state.time)))

    def _state(self, seen: pa.RecordBatch, time: int) -> DistinctState:
        state = DistinctState(KeyTable(self._types), time)
        state.seen.encode(seen.columns)
        return state

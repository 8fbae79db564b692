"""Equal rows of one instant, once: what UNION removes."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import ByRow, KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, KeptRows, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.records import dataclass
from millstream.types import BIGINT


@register
@dataclass(frozen=True)
class DistinctSpec(ByRow, KeepsColumns):
    """The first of the equal rows at each time; NULL equals NULL."""

    def build(self) -> DistinctKernel:
        return DistinctKernel(self)

    def describe(self) -> str:
        return "distinct rows at each time"


@dataclass
class DistinctState:
    """The rows seen at `time`, in slots from `since` on; the table may still hold some of earlier times. `before` is
    how many rows other tables had."""

    seen: KeyTable
    time: int = BEGIN
    since: int = 0
    before: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def forget(self, seen: KeyTable) -> None:
        """Go on with another table."""
        self.before += self.seen.size
        self.seen, self.since = seen, 0

    def current(self) -> Ints:
        """The slots of the rows seen at this time."""
        return np.arange(self.since, self.seen.size)


class DistinctKernel:
    """Runs a DistinctSpec."""

    def __init__(self, spec: DistinctSpec) -> None:
        self.spec = spec
        # The interval's other end and the time are part of what makes rows equal.
        self._types = [*(field.type for field in spec.input), BIGINT, BIGINT]

    def open(self) -> DistinctState:
        return DistinctState(KeyTable(self._types))

    def step(self, state: DistinctState, batch: Batch) -> Batch:
        if len(batch):
            if int(batch.time[0]) > state.time and len(state.seen):
                state.forget(KeyTable(self._types))
            known = state.seen.size
            other = batch.time if batch.other is None else batch.other
            slots = state.seen.encode([*batch.rows.columns, pa.array(other), pa.array(batch.time)])
            # New rows get slots in the order they come, so each first one raises the highest slot.
            highest = np.maximum.accumulate(slots)
            first = np.flatnonzero(np.diff(highest, prepend=np.int32(-1)) > 0)
            first = first[slots[first] >= known]
            if int(batch.time[-1]) > state.time:
                state.time = int(batch.time[-1])
                state.since = int(slots[np.searchsorted(batch.time, state.time)])
            if len(first) < len(batch):
                batch = batch.take(first)
        if batch.upto > state.time and len(state.seen):
            state.forget(KeyTable(self._types))
        return batch

    def export(self, state: DistinctState) -> Content:
        slots = state.current()
        columns = tuple(f"k{i}" for i in range(len(self.spec.input)))
        seen = KeptRows(
            state.before + slots, lambda places: state.seen.keys(slots[places]).to_struct_array(), by=columns
        )
        return {"time": np.array([state.time]), "seen": seen}

    def load(self, parts: Saved) -> DistinctState:
        state = DistinctState(KeyTable(self._types), int(parts.array("time")[0]))
        if "seen" in parts:
            seen, numbers = parts.rows("seen"), parts.numbers("seen")
            # States that are put together need not have come equally far.
            now = np.flatnonzero(seen.columns[-1].to_numpy() == state.time)
            state.seen.encode(seen.take(pa.array(now)).columns)
            state.before = 0 if numbers is None else int(numbers[0])
        return state

"""SESSION: rows wait until their session has ended, and are emitted with its start and end."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import ByKeys, OneInput
from millstream.kernels.own_lengths import lengths
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.kept import KeptBatches
from millstream.kernels.saving.snapshots import Saved
from millstream.plan.lengths import RowLength
from millstream.plan.node import by_told
from millstream.plan.window_tables import END, START, length_text
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType, from_kernel


@register
@dataclass(frozen=True)
class SessionSpec(ByKeys, OneInput):
    """The rows with the start and the end of their session, once it has ended.

    A row of a key belongs to the session before it if it comes less than `gap` after the last row of that. A session
    is [first time, last time + gap). Its rows are delivered at the last instant in it, in order of their times.
    """

    by: tuple[str, ...]
    gap: RowLength | int
    type: SqlType

    def __post_init__(self) -> None:
        if isinstance(self.gap, int) and not 0 < self.gap < 2**62:
            raise ValueError(f"a gap of {self.gap}")
        _ = self.output

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, Field(START, self.type), Field(END, self.type)))

    def build(self) -> SessionKernel:
        return SessionKernel(self)

    def describe(self) -> str:
        return f"sessions{by_told(self.by)} with a gap of {length_text(self.gap, self.type)}"


@dataclass
class SessionState:
    """The rows of open sessions in order of time, with their keys' slots; the last rows, which have none, have not been
    looked at. No session ends before `due`."""

    keys: KeyTable | None
    rows: KeptBatches = field(default_factory=KeptBatches)
    slots: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    due: int = FOREVER
    ledger: Ledger = field(default_factory=Ledger)


class SessionKernel:
    """Runs a SessionSpec."""

    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self._keys = [spec.input.index(name) for name in spec.by]
        self._types = [spec.input[name].type for name in spec.by]

    def open(self) -> SessionState:
        return SessionState(KeyTable(self._types) if self._types else None)

    def step(self, state: SessionState, batch: Batch) -> Batch:
        if len(batch):
            gap = self._gap(batch)
            if int(batch.time[-1]) > FOREVER - int(np.max(gap)):
                raise DataError(
                    "a session would end beyond the largest possible time", detail=f"its gap is {np.max(gap)}"
                )
            state.rows.add(batch.with_upto(BEGIN))
            state.due = min(state.due, int(batch.time[0] + np.min(gap)))
        if batch.upto < state.due or not len(state.rows):
            return Batch.empty(self.spec.output.arrow, batch.upto)
        return self._ended(state, batch.upto)

    def _ended(self, state: SessionState, upto: int) -> Batch:
        """The rows of the sessions that have ended; the others are held."""
        rows = self._look(state)
        start, end, session = _sessions(rows.time, state.slots, self._gap(rows))
        done = end[session] <= upto
        state.due = int(end[end > upto].min(initial=FOREVER))
        if not done.any():
            return Batch.empty(self.spec.output.arrow, upto)
        result = self._delivered(rows, np.flatnonzero(done), start, end, session, upto)
        left = np.flatnonzero(~done)
        gone = np.setdiff1d(state.slots[done], state.slots[left])
        state.rows.keep(left)
        state.slots = state.slots[left]
        if state.keys is not None and len(gone):
            state.keys.release(gone)
        return result

    def _look(self, state: SessionState) -> Batch:
        """All rows, with their slots known."""
        rows = state.rows.all()
        assert rows is not None
        known = len(state.slots)
        if known < len(rows):
            state.slots = np.concatenate([state.slots, self._slots(state, rows.slice(known, len(rows)))])
        return rows

    def _gap(self, batch: Batch) -> Ints | int:
        """The gap of all sessions, or of those of each row."""
        return lengths(batch.rows, self.spec.input, self.spec.gap)

    def _slots(self, state: SessionState, batch: Batch) -> npt.NDArray[np.int32]:
        if state.keys is None:
            return np.zeros(len(batch), dtype=np.int32)
        return state.keys.encode([batch.rows.column(index) for index in self._keys])

    def _delivered(self, rows: Batch, done: Ints, start: Ints, end: Ints, session: Ints, upto: int) -> Batch:
        # A session's rows share one time now. So that they stay in the order they had, they share out their numbers
        # of arrival anew: the first row gets the lowest.
        number = session[done]
        seq = np.empty(len(done), dtype=np.int64)
        seq[np.argsort(number, kind="stable")] = rows.seq[done][np.lexsort((rows.seq[done], number))]
        order = np.lexsort((seq, end[number]))
        chosen, number = rows.take(done[order]), number[order]
        bounds = [from_kernel(bound[number], None, self.spec.type) for bound in (start, end)]
        columns = pa.RecordBatch.from_arrays([*chosen.rows.columns, *bounds], schema=self.spec.output.arrow)
        return Batch(columns, end[number] - 1, seq[order], upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: SessionState) -> Content:
        return {"held": state.rows.kept()}

    def load(self, parts: Saved) -> SessionState:
        state = self.open()
        if "held" in parts:
            held = parts.batch("held", BEGIN)
            state.rows.add(held, parts.numbers("held"))
            state.due = int(held.time[0] + np.min(self._gap(held)))
        return state


def _sessions(time: Ints, slots: npt.NDArray[np.int32], gap: Ints | int) -> tuple[Ints, Ints, Ints]:
    """The start and the end of each session, and the session of each row, for rows in order of time."""
    order = np.argsort(slots, kind="stable")
    sorted_time, sorted_slots = time[order], slots[order]
    until = (time + gap)[order]
    first = np.ones(len(time), dtype=np.bool_)
    first[1:] = (sorted_slots[1:] != sorted_slots[:-1]) | (sorted_time[1:] >= until[:-1])
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(time)) - 1
    session = np.empty(len(time), dtype=np.int64)
    session[order] = np.cumsum(first) - 1
    return sorted_time[begins], until[ends], session

"""Rows again and again while they are valid: in pieces of a length (split), or as events of every instant (rstream)."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from millstream import limits
from millstream.errors import DataError
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.contract import KernelSpec
from millstream.kernels.keys import bucket_of
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.relations.stages import ends_of
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.kept import KeptBatches
from millstream.kernels.saving.snapshots import Saved
from millstream.records import dataclass

_MOST = 100_000_000


@register
@dataclass(frozen=True)
class SplitSpec(KeepsColumns):
    """The same relation in pieces of at most `length`, cut at that distance from each row's start.

    What stays to the end of all input is cut until the last instant at which anything changes.
    """

    keys = ()

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError("pieces have a length")

    def build(self) -> UnrollKernel:
        return UnrollKernel(self, None, self.length)

    def describe(self) -> str:
        return f"split into pieces of {self.length}"


@dataclass
class UnrollState:
    """Rows at the first time that they are given at; what was to be given before `done` has been. `last` is the last
    known instant at which anything changes, `due` the first at which something is to be given."""

    held: KeptBatches = field(default_factory=KeptBatches)
    last: int = BEGIN
    due: int = FOREVER
    upto: int = BEGIN
    done: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)


class UnrollKernel:
    """Gives rows at multiples of `granule`, as events, or cuts them into pieces of `length`."""

    def __init__(self, spec: KernelSpec, granule: int | None, length: int | None) -> None:
        self.spec = spec
        self._granule = granule
        self._step = granule or length or 1

    def open(self) -> UnrollState:
        return UnrollState()

    def step(self, state: UnrollState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        if len(batch):
            self._arrive(state, batch)
        if not len(state.held) or state.upto <= state.due:
            return Batch.empty(self.spec.output.arrow, state.upto)
        return self._unroll(state)

    def _arrive(self, state: UnrollState, batch: Batch) -> None:
        ends = ends_of(batch)
        first = batch.time
        if int(first[-1]) >= FOREVER - self._step:
            raise DataError("a row would be valid beyond the largest possible time")
        if self._granule is not None:
            first = -(-first // self._step) * self._step
        finite = ends[ends != FOREVER]
        state.last = max(state.last, int(batch.time[-1]), int(finite.max(initial=BEGIN + 1)) - 1)
        state.due = min(state.due, int(first[0]))
        state.held.add(Batch(batch.rows, first, np.zeros(len(batch), dtype=np.int64), BEGIN, ends))

    def _unroll(self, state: UnrollState) -> Batch:
        """All that is to be given before `upto`."""
        rows = self._left(state)
        assert rows is not None
        ends = ends_of(rows)
        limit = state.upto if state.upto != FOREVER else state.last + 1
        # rows that end are given in full when all input has ended
        stop = np.where(ends == FOREVER, limit, ends)
        if state.upto != FOREVER:
            stop = np.minimum(stop, limit)
        first, step = rows.time, self._step
        copies = np.maximum((stop - first + (step - 1)) // step, 0)
        total = int(copies.sum())
        if total > _MOST:
            raise DataError(f"{total} rows at once", hint="use a coarser GRANULARITY, or ISTREAM or DSTREAM")
        limits.check_made(total)
        which = np.repeat(np.arange(len(rows)), copies)
        turn = np.arange(total) - np.repeat(np.cumsum(copies) - copies, copies)
        time = first[which] + turn * step
        after = first + copies * step
        out = self._given(state, rows, which, time, after)
        left = np.flatnonzero(after < ends) if state.upto != FOREVER else np.zeros(0, dtype=np.int64)
        state.held.keep(left)
        state.due, state.done = int(after[left].min(initial=FOREVER)), state.upto
        return out

    def _left(self, state: UnrollState) -> Batch | None:
        """The rows at the next time that they are given at."""
        rows = state.held.all()
        if rows is None or state.done == BEGIN:
            return rows
        behind = np.maximum(rows.time, state.done) - rows.time
        return replace(rows, time=rows.time + -(-behind // self._step) * self._step)

    def _given(self, state: UnrollState, rows: Batch, which: Ints, time: Ints, after: Ints) -> Batch:
        if self._granule is not None:
            return events(rows.rows, which, time, state.upto)
        ends = ends_of(rows)
        end = np.minimum(time + self._step, ends[which])
        if state.upto == FOREVER:
            # the last piece of what stays has no end
            stays = np.flatnonzero((ends == FOREVER) & (after < FOREVER))
            which, time, end = (
                np.concatenate(pair)
                for pair in ((which, stays), (time, after[stays]), (end, np.full(len(stays), FOREVER)))
            )
        order = np.lexsort((end, time))
        which = which[order]
        zeros = np.zeros(len(which), dtype=np.int64)
        return Batch(rows.rows.take(pa.array(which)), time[order], zeros, state.upto, end[order])

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: UnrollState) -> Content:
        return {"numbers": np.array([state.last, state.upto, state.done]), "rows": state.held.kept()}

    def load(self, parts: Saved) -> UnrollState:
        last, upto, done = (int(value) for value in parts.array("numbers"))
        state = UnrollState(last=last, upto=upto, done=done)
        if "rows" in parts:
            state.held.add(parts.batch("rows", BEGIN), parts.numbers("rows"))
            rows = self._left(state)
            assert rows is not None
            state.due = int(rows.time.min())
        return state


def events(rows: pa.RecordBatch, which: Ints, time: Ints, upto: int) -> Batch:
    """The chosen rows as events at these times. Those of one instant have an order that depends on nothing but
    themselves: their numbers are hashes."""
    if np.any(time[1:] < time[:-1]):
        order = np.argsort(time, kind="stable")
        which, time = which[order], time[order]
    chosen = rows.take(pa.array(which))
    seq = np.zeros(len(which), dtype=np.int64)
    if chosen.num_columns:
        seq = bucket_of(chosen.columns, 2**31 - 1).astype(np.int64)
    # the number of the instant above, that of the row below: one sort by both
    place = (np.cumsum(np.diff(time, prepend=time[:1]) != 0) << 31) | seq
    if np.any(place[1:] < place[:-1]):
        order = np.argsort(place, kind="stable")
        chosen, seq = chosen.take(pa.array(order)), seq[order]
    return Batch(chosen, time, seq, upto)

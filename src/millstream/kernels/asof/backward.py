"""ASOF joins with the latest row before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.kernels.asof import loops
from millstream.kernels.asof.rows import FEW, AsofKernel, AsofState
from millstream.kernels.asof.spec import RIGHT
from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.streams.runs import in_order

_latest_before = compile_kernel(source_of(loops), "latest_before")


class BackwardKernel(AsofKernel):
    """Runs an AsofSpec for >= and >: holds the latest right row of each key, and those that no left row has passed.

    A left row is answered, in order, as soon as no right row can come any more that would be its answer.
    """

    held = RIGHT

    def step(self, state: AsofState, batch: Batch) -> Batch:
        self._take_in(state, batch)
        left_upto, right_upto = state.upto
        last = right_upto if self.spec.is_strict else right_upto - 1
        answered = state.waiting.release(last) if right_upto > BEGIN else []
        # No left row that is to come, or waits still, is before this.
        passed = min(left_upto, state.waiting.earliest)
        if not answered:
            self._nearest(state, None, passed)
            self._forget(state)
            return Batch.empty(self.spec.output.arrow, passed)
        rows = in_order(answered)
        found = self._nearest(state, rows, passed)
        if not self.spec.outer:
            chosen = np.flatnonzero(found >= 0)
            rows, found = rows.take(chosen), found[chosen]
        result = self._made(rows.rows, self._answers(state, found), rows.time, rows.seq, passed)
        self._forget(state)
        return result

    def _nearest(self, state: AsofState, rows: Batch | None, passed: int) -> Ints:
        """The number of each row's answer, -1 for none; right rows that all rows to come are after are then known."""
        held = state.held
        time = held.time[:0] if rows is None else rows.time
        slots = time if rows is None else self._found(state, rows.rows)
        stop = int(np.searchsorted(held.time, passed, side="left" if self.spec.is_strict else "right"))
        found = np.empty(len(time), dtype=np.int64)
        state.done = _latest_before(
            len(time) + max(stop - state.done, 0),
            time, slots, held.time, held.slot, state.done, stop, self.spec.is_strict, state.of_key, found,
        )  # fmt: skip
        return found

    def _answers(self, state: AsofState, numbers: Ints) -> pa.RecordBatch | None:
        """The rows of these numbers, NULLs for -1."""
        missing = numbers < 0
        if missing.all():
            return None
        if not missing.any():
            return state.held.rows(numbers)
        used = np.unique(numbers[~missing])
        return state.held.rows(used).take(pa.array(np.searchsorted(used, numbers), mask=missing))

    def _forget(self, state: AsofState) -> None:
        """Drop right rows that have been followed by later ones of their key, if that is worth it."""
        if len(state.held) < state.enough:
            return
        live = self._live(state)
        known = np.flatnonzero(state.of_key >= 0)
        state.of_key[known] = np.searchsorted(live, state.of_key[known])
        state.done = len(known)
        state.held.keep(live)
        state.enough = max(FEW, 2 * len(live))

    def _live(self, state: AsofState) -> Ints:
        latest = np.sort(state.of_key[state.of_key >= 0])
        return np.concatenate([latest, np.arange(state.done, len(state.held))])

"""The latest row before: what was known of a key when something happened."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.kernels.asof import loops
from millstream.kernels.asof.rows import AsofKernel, AsofState
from millstream.kernels.asof.spec import LEFT, RIGHT
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.runs import in_order

_latest_before = compile_kernel(source_of(loops), "latest_before")

_FEW = 1_024


class BackwardKernel(AsofKernel):
    """Runs an AsofSpec for >= and >: holds the latest right row of each key, and later ones that no left row has passed.

    A left row is answered, in order, as soon as no right row can come any more that would be its answer.
    """

    held = RIGHT

    def step(self, state: AsofState, batch: Batch) -> Batch:
        self._take_in(state, batch)
        left_upto, right_upto = state.upto
        answered = state.waiting.release(right_upto if self.spec.is_strict else right_upto - 1)
        # No left row that is to come, or waits still, is before this.
        passed = min(left_upto, right_upto) if len(state.waiting) else left_upto
        rows = in_order(answered) if answered else None
        found = self._nearest(state, rows, passed)
        self._forget(state)
        if rows is None:
            return Batch.empty(self.spec.output.arrow, passed)
        chosen = np.arange(len(rows)) if self.spec.outer else np.flatnonzero(found >= 0)
        if len(chosen) < len(rows):
            rows, found = rows.take(chosen), found[chosen]
        return self._made(rows.rows, self._taken, rows.time, rows.seq, passed)

    def _nearest(self, state: AsofState, rows: Batch | None, passed: int) -> Ints:
        """The number of each row's answer, -1 for none; and take into account all that `passed` has passed."""
        held = state.held
        time = rows.time if rows is not None else held.time[:0]
        slots = self._found(state, rows.rows) if rows is not None else time
        side = "left" if self.spec.is_strict else "right"
        stop = int(np.searchsorted(held.time, passed, side=side))
        found = np.empty(len(time), dtype=np.int64)
        _latest_before(
            len(time) + stop - state.done,
            time, slots, held.time, held.slot, state.done, stop, self.spec.is_strict, state.of_key, found,
        )  # fmt: skip
        answers = found if self.spec.outer else found[found >= 0]
        self._taken = self._answers(state, answers)
        state.done = max(state.done, stop)
        return found

    def _answers(self, state: AsofState, numbers: Ints) -> pa.RecordBatch | None:
        if not len(state.held):
            return None
        if (numbers >= 0).all():
            return state.held.rows(numbers)
        places = pa.array(numbers, mask=numbers < 0)
        unique = state.held.rows(np.unique(numbers[numbers >= 0]))
        return unique.take(places)

    def _forget(self, state: AsofState) -> None:
        """Drop right rows that have been followed by later ones of their key, if that is worth it."""
        live = self._live(state)
        if len(state.held) < max(_FEW, 2 * len(live)):
            return
        latest = np.flatnonzero(state.of_key >= 0)
        state.of_key[latest] = np.searchsorted(live, state.of_key[latest])
        state.done = int(np.searchsorted(live, state.done))
        state.held.keep(live)

    def _live(self, state: AsofState) -> Ints:
        latest = np.sort(state.of_key[state.of_key >= 0])
        return np.concatenate([latest, np.arange(state.done, len(state.held))])

"""ASOF joins with the first row after."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.kernels.asof import loops
from millstream.kernels.asof.rows import FEW, AsofKernel, AsofState
from millstream.kernels.asof.spec import LEFT, UNMATCHED
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.streams.runs import in_order

_first_after = compile_kernel(source_of(loops), "first_after")
_chain = compile_kernel(source_of(loops), "chain")

_GONE = -2
"""In place of a slot: the row has had its match."""


class ForwardKernel(AsofKernel):
    """Runs an AsofSpec for <= and <: holds the left rows that wait for a right row of their key.

    A right row is the match of all that wait for it. It counts once its instant is over on both sides.
    """

    held = LEFT

    def step(self, state: AsofState, batch: Batch) -> Batch:
        self._take_in(state, batch)
        now = min(state.upto)
        due = state.waiting.release(now - 1) if now > BEGIN else []
        results = [self._matched(state, in_order(due) if due else None, now)] if now > BEGIN else []
        if now == FOREVER and self.spec.outer:
            results.append(self._unmatched(state))
        self._forget(state)
        results = [result for result in results if len(result)]
        return concat(results, now) if results else Batch.empty(self.spec.output.arrow, now)

    def _matched(self, state: AsofState, others: Batch | None, now: int) -> Batch:
        held = state.held
        stop = int(np.searchsorted(held.time, now)) if now < FOREVER else len(held)
        time = held.time[:0] if others is None else others.time
        slots = time if others is None else self._found(state, others.rows)
        found, places = (np.empty(stop if len(time) else 0, dtype=np.int64) for _ in range(2))
        count = _first_after(
            len(time) + stop - state.done,
            held.time, held.slot, state.done, stop, time, slots, self.spec.is_strict,
            state.of_key, held.links, found, places,
        )  # fmt: skip
        state.done = stop
        if others is None or not count:
            return Batch.empty(self.spec.output.arrow, now)
        found, places = found[:count], places[:count]
        held.slot[found] = _GONE
        order = np.lexsort((held.seq[found], time[places]))
        found, places = found[order], places[order]
        right = others.rows.take(pa.array(places))
        return self._made(held.rows(found), right, time[places], held.seq[found], now)

    def _unmatched(self, state: AsofState) -> Batch:
        """What is left when nothing comes any more."""
        rows = self._live(state)
        rows = rows[np.argsort(state.held.seq[rows], kind="stable")]
        state.held.slot[rows] = _GONE
        state.of_key[:] = -1
        time = np.full(len(rows), UNMATCHED, dtype=np.int64)
        return self._made(state.held.rows(rows), None, time, state.held.seq[rows], FOREVER)

    def _forget(self, state: AsofState) -> None:
        """Drop left rows that have had their match, and keys that nobody waits for, if that is worth it."""
        if len(state.held) < state.enough:
            return
        live = self._live(state)
        state.done = int(np.searchsorted(live, state.done))
        state.held.keep(live)
        state.enough = max(FEW, 2 * len(live))
        state.of_key[:] = -1
        _chain(state.done, state.held.slot, state.done, state.of_key, state.held.links)
        if state.keys is not None:
            state.keys.release(np.setdiff1d(state.keys.live(), state.held.slot))

    def _live(self, state: AsofState) -> Ints:
        return np.flatnonzero(state.held.slot != _GONE)

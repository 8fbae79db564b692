"""Aggregates over rows that come after each row: a row waits for them, then gets what an ordinary OVER says there."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.keys import KeyTable
from millstream.kernels.over.spec import AheadSpec
from millstream.kernels.over.state import OverState
from millstream.kernels.saving.content import Content, Ledger, within
from millstream.kernels.saving.kept import KeptBatches
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import Runs
from millstream.records import dataclass

Places = npt.NDArray[np.int64]


@dataclass
class AheadState:
    """The state of the ordinary OVER; rows that wait for later ones; rows with results that wait for their turn."""

    behind: OverState
    waiting: KeptBatches = field(default_factory=KeptBatches)
    ready: Runs = field(default_factory=Runs)
    upto: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)


class AheadKernel:
    """Runs an AheadSpec.

    ROWS: the results of a row are those of the `reach`-th row after it, as seen from there. Behind the last row of a
    partition stand as many rows with NULL arguments. RANGE: for each row another one with NULL arguments comes
    `reach` later, which sees what the row should.
    """

    def __init__(self, spec: AheadSpec) -> None:
        self.spec = spec
        self._behind = spec.behind.build()
        self._key_columns = [spec.input.index(key) for key in spec.keys]
        self._arg_columns = [spec.input.index(arg) for arg in spec.args]
        self._last_columns = [spec.input.index(arg) for arg in spec.lasts]

    def open(self) -> AheadState:
        return AheadState(self._behind.open())

    def step(self, state: AheadState, batch: Batch) -> Batch:
        before, state.upto = state.upto, max(state.upto, batch.upto)
        old = len(state.waiting)
        state.waiting.add(batch)
        rows = state.waiting.all() or batch
        return self._range(state, rows, before) if self.spec.unit == "range" else self._rows(state, rows, old)

    def _rows(self, state: AheadState, rows: Batch, old: int) -> Batch:
        reach, codes = self.spec.reach, self._codes(rows)
        last = self._complete(rows, codes, state.upto)
        places = np.concatenate([np.arange(old, len(rows)), np.repeat(last, reach)])
        is_real = np.arange(len(places)) < len(rows) - old
        results = self._seen(state, rows, places, is_real, rows.time[places])
        # Rows of a key one after the other, with those that only stand behind its last one.
        every = np.concatenate([codes, codes[np.repeat(last, reach)]])
        order = np.argsort(every, kind="stable")
        found = np.flatnonzero(every[order][:-reach] == every[order][reach:]) if len(order) > reach else order[:0]
        answered = np.full(len(every), -1, dtype=np.int64)
        answered[order[found]] = order[found + reach] - old
        done = np.flatnonzero(answered >= 0)
        state.ready.add(self._with_results(rows.take(done), results.take(pa.array(answered[done]))))
        waits = np.flatnonzero(answered[: len(rows)] < 0)
        state.waiting.keep(waits)
        return self._in_turn(state)

    def _complete(self, rows: Batch, codes: Ints, upto: int) -> Places:
        """Where the last rows are of the keys that get no more."""
        if upto < FOREVER and self.spec.ends is None:
            return np.empty(0, dtype=np.int64)
        last = np.sort(len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]).astype(np.int64)
        return last if upto == FOREVER else last[rows.time[last] < upto]

    def _in_turn(self, state: AheadState) -> Batch:
        """The rows with results before which none waits."""
        first = state.waiting.all()
        limit = FOREVER if first is None else int(first.time[0])
        pieces = state.ready.release(limit)
        upto = min(state.upto, limit)
        if not pieces:
            return Batch.empty(self.spec.output.arrow, upto)
        given = concat(pieces, upto)
        given = given.take(np.lexsort((given.seq, given.time)))
        if first is not None:
            stop = len(given) - int(np.count_nonzero((given.time == limit) & (given.seq > first.seq[0])))
            state.ready.add(given.slice(stop, len(given)))
            given = given.slice(0, stop)
        return given

    def _range(self, state: AheadState, rows: Batch, before: int) -> Batch:
        reach, upto = self.spec.reach, state.upto
        later = np.minimum(rows.time, FOREVER - 1 - reach) + reach
        entering = np.arange(np.searchsorted(rows.time, before), np.searchsorted(rows.time, upto))
        leaving = np.arange(np.searchsorted(later, upto))
        times = np.concatenate([rows.time[entering], later[leaving]])
        order = np.argsort(times, kind="stable")
        is_real = order < len(entering)
        results = self._seen(state, rows, np.concatenate([entering, leaving])[order], is_real, times[order])
        given = self._with_results(rows.slice(0, len(leaving)), results.filter(pa.array(~is_real)))
        state.waiting.keep(np.arange(len(leaving), len(rows)))
        return given.with_upto(FOREVER if upto == FOREVER else max(upto, BEGIN + reach) - reach)

    def _seen(
        self, state: AheadState, rows: Batch, places: Places, is_real: npt.NDArray[np.bool_], times: Ints
    ) -> pa.RecordBatch:
        """What the calls give at these rows, of which some only stand for that time has come there."""
        taken = pa.array(places)
        known = pa.array(is_real)
        columns = [rows.rows.column(i).take(taken) for i in self._key_columns]
        for i in self._arg_columns:
            column = rows.rows.column(i).take(taken)
            columns.append(pc.if_else(known, column, pa.scalar(None, column.type)))
        columns += [rows.rows.column(i).take(taken) for i in self._last_columns]
        columns.append(pc.if_else(known, True, pa.scalar(None, pa.bool_())))
        schema = self._behind.spec.input.arrow
        given = Batch(pa.RecordBatch.from_arrays(columns, schema=schema), times, rows.seq[places], state.upto)
        seen = self._behind.step(state.behind, given).rows
        results = {}
        for i, call in enumerate(self.spec.calls):
            column = seen.column(f"call{i}")
            if call.fn == "last_value":
                column = pc.if_else(pc.greater(seen.column(f"rows{i}"), 0), column, pa.scalar(None, column.type))
            results[call.name] = column
        return pa.RecordBatch.from_pydict(results)

    def _with_results(self, rows: Batch, results: pa.RecordBatch) -> Batch:
        columns = [*rows.rows.columns, *results.columns]
        return rows.with_rows(pa.RecordBatch.from_arrays(columns, schema=self.spec.output.arrow))

    def _codes(self, rows: Batch) -> Ints:
        if not self._key_columns or not len(rows):
            return np.zeros(len(rows), dtype=np.int64)
        table = KeyTable([self.spec.input[key].type for key in self.spec.keys])
        return table.encode([rows.rows.column(i) for i in self._key_columns]).astype(np.int64)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: AheadState) -> Content:
        behind = within("behind", self._behind.export(state.behind), self._behind.spec)
        rows = {"waiting": state.waiting.kept(), "ready": state.ready.kept()}
        return {"upto": np.array([state.upto]), **rows, **behind}

    def load(self, parts: Saved) -> AheadState:
        state = AheadState(
            self._behind.load(parts.within("behind", self._behind.spec)), upto=int(parts.array("upto")[0])
        )
        for name, rows in (("waiting", state.waiting), ("ready", state.ready)):
            if name in parts:
                rows.add(parts.batch(name, BEGIN), parts.numbers(name))
        return state

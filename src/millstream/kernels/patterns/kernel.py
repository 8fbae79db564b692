"""The kernel that searches for a row pattern: keys to slots, rows to the log, what a machine finds to batches."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.keys import Slots as SlotNumbers
from millstream.kernels.patterns.chain import ChainMachine
from millstream.kernels.patterns.chain import why_not as why_no_chain
from millstream.kernels.patterns.coding import decode
from millstream.kernels.patterns.log import Array, Bools, RowLog
from millstream.kernels.patterns.machine import Found, Machine, far_shifts, needed_columns
from millstream.kernels.patterns.saving import loaded, taken
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.patterns.threads import ThreadMachine
from millstream.kernels.saving.content import Content, Ledger, Slots
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.saving.states import load_keys
from millstream.kernels.streams.failing import failed_rows
from millstream.plan.patterns.search import CLASSIFIER, Reach, Search
from millstream.plan.patterns.whole_runs import by_condition
from millstream.records import dataclass

KEPT_ROWS, IDLE_KEYS = 1_024, 1_024
"""How many rows, and keys, that nothing needs are not worth looking for."""


def machine_for(search: Search, general: bool = False, lenient: bool = False) -> Machine:
    """What runs a search: the machine for chains if it can, and the general one is not asked for."""
    if not general and why_no_chain(search) is None:
        return ChainMachine(search)
    return ThreadMachine(by_condition(search), lenient=lenient)


def describe_machine(search: Search) -> str:
    """Which machine runs a search and why, in a few words for EXPLAIN."""
    reason = why_no_chain(search)
    described = machine_for(search).describe()
    return described if reason is None else f"{described}; no chain: {reason}"


@dataclass
class MatchState:
    """The keys, the rows that may still be looked at, and what the machine remembers."""

    keys: KeyTable | None
    log: RowLog
    machine: Any
    upto: int = BEGIN
    began: bool = False
    """whether a row has come: without keys, there is a partition from then on"""
    kept: int = 0
    """how many rows were kept when they were last looked through"""
    kept_keys: int = 0
    ledger: Ledger = field(default_factory=Ledger)


class MatchKernel:
    """Runs a MatchSpec; `general` keeps it from choosing a machine that is made for simpler patterns."""

    def __init__(self, spec: MatchSpec, general: bool = False) -> None:
        self.spec = spec
        self.search = spec.search
        self.machine = (
            ThreadMachine(by_condition(spec.search), True, spec.lenient)
            if spec.failed
            else machine_for(spec.search, general, spec.lenient)
        )
        self._keys = [spec.input.index(key) for key in spec.keys]
        self._key_types = [spec.input[key].type for key in spec.keys]
        self._columns = {name: spec.input.index(name) for name in needed_columns(spec.search)}
        self._types = {name: spec.input[name].type for name in self._columns}
        self._holds_rows = spec.search.given.rows != "one"

    def open(self) -> MatchState:
        keys = KeyTable(self._key_types) if self._key_types else None
        return MatchState(keys, self._new_log(), self.machine.open())

    def _new_log(self) -> RowLog:
        rows = self.spec.input.arrow if self._holds_rows else None
        return RowLog(self._types, self.search.variables, rows, self.machine.needs_rows, far_shifts(self.search))

    def step(self, state: MatchState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        state.began = state.began or len(batch) > 0
        # Rows come in order of time, so the last one tells no less than a heartbeat.
        upto = max(batch.upto, int(batch.time[-1])) if len(batch) else batch.upto
        if not len(batch) and upto < FOREVER and self.machine.due(state.machine) >= upto:
            return Batch.empty(self.spec.output.arrow, batch.upto)
        log = state.log
        slots = self._slots(state, batch)
        log.hold_slots(self._size(state))
        columns = {name: log.encode(name, batch.rows.column(index)) for name, index in self._columns.items()}
        since = log.add(batch.time, batch.seq, slots, columns, batch.rows if self._holds_rows else None)
        if state.ledger.slots is not None:
            is_due = upto == FOREVER or self.machine.due(state.machine) < upto
            state.ledger.touch(self._live(state) if is_due else slots, self._size(state))
        found = self.machine.advance(state.machine, log, since, upto)
        output = self._reported(state, batch.upto) if self.spec.failed else self._batch(state, found, batch.upto)
        self._forget(state)
        return output

    def _slots(self, state: MatchState, batch: Batch) -> SlotNumbers:
        if state.keys is None or not len(batch):
            return np.zeros(len(batch), dtype=np.int32)
        return state.keys.encode([batch.rows.column(index) for index in self._keys])

    def _size(self, state: MatchState) -> int:
        return 1 if state.keys is None else state.keys.size

    def _batch(self, state: MatchState, found: Found, upto: int) -> Batch:
        if not len(found):
            return Batch.empty(self.spec.output.arrow, upto)
        found = found.in_order()
        if self._holds_rows:
            assert state.log.held is not None
            given = state.log.held.take(found.row).columns
        else:
            given = [] if state.keys is None else state.keys.keys(found.slot).columns
        columns = [
            column if isinstance(column, pa.Array) else self._column(state, name, *column)
            for name, column in zip(self.search.columns, found.columns, strict=True)
        ]
        arrays = [*given, *columns]
        if not arrays:
            # Without columns, only the batch itself tells its length.
            rows = pa.RecordBatch.from_arrays([pa.nulls(len(found))], names=[""]).select([])
            return Batch(rows, found.time, found.seq, upto)
        rows = pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, self.spec.output.arrow, strict=True)],
            schema=self.spec.output.arrow,
        )
        return Batch(rows, found.time, found.seq, upto)

    def _reported(self, state: MatchState, upto: int) -> Batch:
        """What could not be computed, in order of time."""
        assert isinstance(self.machine, ThreadMachine)
        found = sorted(self.machine.reported, key=lambda each: (each.time, each.seq))
        time, seq = (np.array(values, np.int64) for values in ([e.time for e in found], [e.seq for e in found]))
        slots = np.array([max(each.slot, 0) for each in found], np.int64)
        keys = [{}] * len(found) if state.keys is None else state.keys.keys(slots).to_pylist()
        values = [
            each.values if each.slot < 0 else {**dict(zip(self.spec.keys, key.values(), strict=True)), **each.values}
            for each, key in zip(found, keys, strict=True)
        ]
        return failed_rows(time, seq, [each.error for each in found], values).with_upto(upto)

    def _column(self, state: MatchState, name: str, values: Array, ok: Bools) -> pa.Array:
        value = self.search.named.get(name)
        table = None
        if isinstance(value, Reach) and value.column != CLASSIFIER:
            table = state.log.tables.get(value.column)
        return decode(values, ok, self.search.values[name], state.log.texts, table)

    def _forget(self, state: MatchState) -> None:
        """Forget rows and keys that nothing needs any more, once they may be half of all."""
        log = state.log
        if not self.machine.needs_rows:
            log.clear()
            if state.keys is not None and len(state.keys) > 2 * state.kept_keys + IDLE_KEYS:
                self._release(state, state.keys)
            return
        if len(log) <= 2 * state.kept + KEPT_ROWS:
            return
        chosen, below = log.needed(self.machine.floors(state.machine, log))
        state.kept = len(chosen)
        if 2 * state.kept <= len(log):
            self.machine.moved(state.machine, log.compact(chosen, below))
            if state.keys is not None and len(state.keys) > 2 * state.kept_keys + IDLE_KEYS:
                self._release(state, state.keys)

    def _release(self, state: MatchState, keys: KeyTable) -> None:
        live = keys.live().astype(np.int64)
        idle = self.machine.idle(state.machine, state.log)[live] & (state.log.last[live] < 0)
        gone = live[idle]
        if len(gone):
            self.machine.forget(state.machine, gone)
            state.log.forget(gone)
            keys.release(gone)
            state.ledger.release(gone)
        state.kept_keys = len(keys)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: MatchState) -> Content:
        slots = Slots(self._live(state), state.ledger, partial(self._taken, state), len(self._keys))
        return {"upto": np.array([state.upto]), "slots": slots}

    def _taken(self, state: MatchState, slots: Ints) -> pa.StructArray:
        state.log.hold_slots(self._size(state))
        return Slots.rows(state.keys, slots, taken(self.spec, self.machine, state.machine, state.log, slots))

    def load(self, parts: Saved) -> MatchState:
        state = self.open()
        state.upto = int(parts.array("upto")[0])
        if "slots" in parts:
            load_keys(state.keys, parts.rows("slots"))
            state.machine = loaded(self.machine, state.log, parts)
            state.began = True
        return state

    def _live(self, state: MatchState) -> Ints:
        if state.keys is not None:
            return state.keys.live().astype(np.int64)
        return np.zeros(1 if state.began else 0, dtype=np.int64)

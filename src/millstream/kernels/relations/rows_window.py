"""Windows of rows: each row is valid from its arrival until enough later ones of its partition have come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import OneInput
from millstream.kernels.own_lengths import lengths
from millstream.kernels.registry import register
from millstream.kernels.relations import rows_window_loops
from millstream.kernels.relations.held_rows import HeldRows
from millstream.kernels.relations.signs import signed, with_signs
from millstream.kernels.saving.content import Content, KeptRows, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.plan.relations import Form, RowsWindow
from millstream.records import dataclass
from millstream.schema import Schema

_slide_rows, _closed_prefix, _link_rows = (
    compile_kernel(source_of(rows_window_loops), name) for name in ("slide_rows", "closed_prefix", "link_rows")
)

_ALL = 2**62
_GONE = BEGIN
_FEW = 64
"""Rows that are gone are not worth forgetting before there are this many."""


@register
@dataclass(frozen=True)
class RowsWindowSpec(OneInput):
    """Events as a relation: the last rows of each partition, ties in order of arrival.

    As intervals, a row leaves once its end is known and those that began before it have left; as changes, once its
    instant is over. Rows of an unfinished slide never leave; those that stay to the end of all input stay for ever.
    """

    window: RowsWindow
    form: Form

    @property
    def output(self) -> Schema:
        return self.input if self.form == "intervals" else signed(self.input)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.window.by

    def build(self) -> RowsWindowKernel:
        return RowsWindowKernel(self)

    def describe(self) -> str:
        return f"window {self.window}{' as changes' if self.form == 'changes' else ''}"


class RowsWindowState:
    """Rows in windows, or on their way in or out, by number; chains of them and counts by key; see `slide_rows`.

    `end` is FOREVER for a row that is in its window or waits for its slide, and lower than any time for one that is
    gone. `log` holds what is to be delivered, from `head` on.
    """

    def __init__(self, schema: pa.Schema, keys: KeyTable | None) -> None:
        self.upto = BEGIN
        self.rows = HeldRows(schema)
        self.ledger = Ledger()
        self.clear(keys)

    def clear(self, keys: KeyTable | None) -> None:
        """Forget all rows and keys."""
        self.keys = keys
        self.rows.keep(np.zeros(0, dtype=np.int64))
        self.slots, self.start, self.end, self.after = (np.zeros(_FEW, dtype=np.int64) for _ in range(4))
        self.entered = np.zeros(_FEW, dtype=np.bool_)
        self.log: Ints = np.zeros(2 * _FEW, dtype=np.int64)
        self.head = self.logged = self.gone = 0
        self.by_key: list[Ints] = [np.zeros(0, dtype=np.int64) for _ in range(5)]
        self.hold_keys()

    def hold_keys(self) -> None:
        """Make room for all keys: how many rows each holds, its oldest and newest, how many wait, and the first."""
        size, known = (1 if self.keys is None else self.keys.size), len(self.by_key[0])
        if size > known:
            more = max(size, 2 * known) - known
            fresh = (0, -1, -1, 0, -1)
            self.by_key = [
                np.concatenate([array, np.full(more, value, dtype=np.int64)])
                for array, value in zip(self.by_key, fresh, strict=True)
            ]

    def hold_rows(self, count: int) -> None:
        """Make room for `count` more rows and what they put into the log."""
        size = len(self.rows) + count
        if size > len(self.start):
            more = max(size, 2 * len(self.start)) - len(self.start)
            self.slots, self.start, self.end, self.after = (
                np.concatenate([array, np.zeros(more, dtype=np.int64)])
                for array in (self.slots, self.start, self.end, self.after)
            )
            self.entered = np.concatenate([self.entered, np.zeros(more, dtype=np.bool_)])
        # Each row comes and goes once; rows that came already can only go.
        room = self.logged + 2 * size
        if room > len(self.log):
            fresh = np.zeros(max(room, 2 * (self.logged - self.head)), dtype=np.int64)
            fresh[: self.logged - self.head] = self.log[self.head : self.logged]
            self.log, self.logged, self.head = fresh, self.logged - self.head, 0

    def live(self) -> Ints:
        return np.flatnonzero(self.end[: len(self.rows)] != _GONE)

    def forget(self) -> None:
        """Number the rows that are left anew, if most are gone."""
        size = len(self.rows)
        if self.gone < _FEW or 2 * self.gone < size:
            return
        live = self.live()
        number = np.full(size + 1, -1, dtype=np.int64)
        number[live] = np.arange(len(live))
        for array in (self.slots, self.start, self.end, self.entered):
            array[: len(live)] = array[live]
        self.after[: len(live)] = number[self.after[live]]
        for place in (1, 2, 4):
            self.by_key[place] = number[self.by_key[place]]
        log = self.log[self.head : self.logged]
        self.log[: len(log)] = np.where(log < 0, ~number[np.where(log < 0, ~log, 0)], number[np.maximum(log, 0)])
        self.head, self.logged = 0, len(log)
        self.rows.keep(live)
        self.gone = 0


class RowsWindowKernel:
    """Runs a RowsWindowSpec."""

    def __init__(self, spec: RowsWindowSpec) -> None:
        self.spec = spec
        self._types = [spec.input[name].type for name in spec.window.by]
        self._keys = [spec.input.index(name) for name in spec.window.by]
        self._changes = spec.form == "changes"

    def open(self) -> RowsWindowState:
        return RowsWindowState(self.spec.input.arrow, self._new_keys())

    def step(self, state: RowsWindowState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        if len(batch):
            self._arrive(state, batch)
        out = self._changed(state) if self._changes else self._ended(state)
        if state.upto == FOREVER:
            state.clear(self._new_keys())
        else:
            state.forget()
        return out

    def _new_keys(self) -> KeyTable | None:
        return KeyTable(self._types) if self._types else None

    def _arrive(self, state: RowsWindowState, batch: Batch) -> None:
        window, count = self.spec.window, len(batch)
        slots = self._slots(state, batch.rows)
        state.hold_rows(count)
        first = len(state.rows)
        state.slots[first : first + count] = slots
        most = lengths(batch.rows, self.spec.input, _ALL if window.rows is None else window.rows)
        limits = np.full(count, most) if isinstance(most, int) else most
        state.logged = int(
            _slide_rows(
                count, as_input(slots), as_input(batch.time), first, as_input(limits), window.slide, self._changes,
                *state.by_key, state.start, state.end, state.after, state.entered, state.log, state.logged,
            )
        )  # fmt: skip
        state.rows.add(batch.rows)

    def _slots(self, state: RowsWindowState, rows: pa.RecordBatch) -> Ints:
        if state.keys is None:
            return np.zeros(rows.num_rows, dtype=np.int64)
        slots = state.keys.encode([rows.column(index) for index in self._keys]).astype(np.int64)
        state.hold_keys()
        return slots

    def _ended(self, state: RowsWindowState) -> Batch:
        """The rows whose end is known, up to the first whose end is not."""
        stop = state.logged
        if state.upto != FOREVER:
            stop = int(_closed_prefix(state.logged - state.head, state.log, state.head, state.logged, state.end))
        numbers = state.log[state.head : stop].copy()
        state.head = stop
        start, end = state.start[numbers], state.end[numbers]
        upto = state.upto
        if stop < state.logged:
            upto = min(upto, int(state.start[state.log[stop]]))
        state.end[numbers] = _GONE
        state.gone += len(numbers)
        kept = np.flatnonzero(end > start)
        rows = state.rows.take(numbers[kept])
        return Batch(rows, start[kept], np.zeros(len(kept), dtype=np.int64), upto, end[kept])

    def _changed(self, state: RowsWindowState) -> Batch:
        """What came and went at instants that are over; what came and went at the same one did neither."""
        log = state.log[state.head : state.logged]
        leaves = log < 0
        numbers = np.where(leaves, ~log, log)
        time = np.where(leaves, state.end[numbers], state.start[numbers])
        over = int(np.searchsorted(time, state.upto))
        state.head += over
        leaves, numbers, time = leaves[:over], numbers[:over], time[:over]
        kept = np.flatnonzero(state.start[numbers] != state.end[numbers])
        signs = np.where(leaves[kept], -1, 1)
        rows = with_signs(state.rows.take(numbers[kept]), signs, self.spec.output)
        state.end[numbers[leaves]] = _GONE
        state.gone += int(np.count_nonzero(leaves))
        return Batch(rows, time[kept], np.zeros(len(kept), dtype=np.int64), state.upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: RowsWindowState) -> Content:
        live = state.live()
        changing = {"start": state.start[live], "end": state.end[live], "entered": state.entered[live]}
        rows = KeptRows(state.rows.lasting[live], lambda places: state.rows.take(live[places]), changing)
        return {"upto": np.array([state.upto]), "rows": rows}

    def load(self, parts: Saved) -> RowsWindowState:
        state = self.open()
        state.upto = int(parts.array("upto")[0])
        if "rows" not in parts:
            return state
        rows, start, end, entered = parts.rows("rows"), parts.array("start"), parts.array("end"), parts.array("entered")
        count = len(rows)
        slots = self._slots(state, rows)
        state.hold_rows(count)
        state.rows.add(rows, parts.numbers("rows"))
        for array, values in (
            (state.slots, slots), (state.start, start), (state.end, end), (state.entered, entered)
        ):  # fmt: skip
            array[:count] = values
        arguments = (slots, state.entered[:count], state.end[:count])
        _link_rows(count, *map(as_input, arguments), *state.by_key, state.after)
        numbers = np.flatnonzero(entered)
        if self._changes:
            came = numbers[start[numbers] >= state.upto]
            left = numbers[end[numbers] != FOREVER]
            events = np.concatenate([came, ~left])
            order = np.argsort(np.concatenate([start[came], end[left]]), kind="stable")
        else:
            events, order = numbers, np.argsort(start[numbers], kind="stable")
        state.log[: len(events)] = events[order]
        state.logged = len(events)
        return state

"""The kernel that groups rows by key and window, pane by pane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property, partial
from math import gcd

import numpy as np
import pyarrow as pa

from millstream import limits
from millstream.kernels.accumulators.records import RecordLayout
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.contract import PARTIALS
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import ByteTable, KeyTable
from millstream.kernels.saving.content import Content, Ledger, Slots, struct
from millstream.kernels.saving.lists import fixed, lists, unfixed, unlisted
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.saving.states import load_keys
from millstream.kernels.streams.hop import check_range
from millstream.kernels.window_groups import loops
from millstream.kernels.window_groups.loops import GROUPS, PAIRS
from millstream.kernels.window_groups.panes import Panes
from millstream.kernels.window_groups.panes import Slots as SlotNumbers
from millstream.kernels.window_groups.partials import PanePartials
from millstream.kernels.window_groups.spec import WindowGroupSpec
from millstream.plan.window_tables import Cumulating, FixedWindows
from millstream.records import dataclass
from millstream.types import from_kernel

_find_entries = compile_kernel(source_of(loops), "find_entries")
_gather_windows = compile_kernel(source_of(loops), "gather_windows")
_count_rows = compile_kernel(source_of(loops), "count_rows")

_MOST_PAIRS = 1 << 18
"""about how many entries are put together at once"""


@dataclass(frozen=True)
class Shape:
    """Windows in panes: window w has `size` panes from pane w * `slide` on; if it grows, those from the last multiple
    of `size` up to pane w."""

    length: int
    offset: int
    size: int
    slide: int
    grows: bool

    @staticmethod
    def of(windows: FixedWindows) -> Shape:
        if isinstance(windows, Cumulating):
            return Shape(windows.step, windows.offset, windows.most, 1, True)
        length = gcd(windows.size, windows.slide)
        return Shape(length, windows.offset, windows.size // length, windows.slide // length, False)

    def last_ended(self, upto: int) -> int:
        """The last window that ends at `upto` or before."""
        panes = (upto - self.offset) // self.length
        return panes - 1 if self.grows else (panes - self.size) // self.slide

    def first_pane(self, window: int) -> int:
        return window // self.size * self.size if self.grows else window * self.slide

    def first_window(self, pane: int) -> int:
        """The first window that has this pane or a later one."""
        return pane if self.grows else (pane - self.size) // self.slide + 1

    def bounds(self, window: Ints) -> tuple[Ints, Ints]:
        """The start and the end of windows."""
        start = window // self.size * self.size if self.grows else window * self.slide
        end = window + 1 if self.grows else start + self.size
        return start * self.length + self.offset, end * self.length + self.offset


@dataclass
class WindowGroupState:
    """The keys, and their entries in the panes that windows still need. Windows that ended by `upto` are done."""

    keys: KeyTable | None
    panes: Panes
    texts: dict[str, ByteTable]
    """the strings of columns whose codes are in records"""
    upto: int = BEGIN
    kept_texts: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


class WindowGroupKernel:
    """Runs a WindowGroupSpec."""

    def __init__(self, spec: WindowGroupSpec) -> None:
        self.spec = spec
        self.shape = Shape.of(spec.windows)
        self.layout = RecordLayout(spec.input, spec.calls)
        self._keys = [spec.input.index(name) for name in spec.by]
        self._types = [spec.input[name].type for name in spec.by]

    def open(self) -> WindowGroupState:
        keys = KeyTable(self._types) if self._types else None
        return WindowGroupState(keys, Panes(self.layout), self.layout.tables())

    def step(self, state: WindowGroupState, batch: Batch) -> Batch:
        if len(batch) and batch.port == PARTIALS:
            self._merge_in(state, batch)
        elif len(batch):
            self.take_in(state, batch)
        done = self.shape.last_ended(state.upto)
        state.upto = max(state.upto, batch.upto)
        last = self.shape.last_ended(state.upto)
        panes = state.panes
        if not len(panes) or last == done:
            return Batch.empty(self.spec.output.arrow, batch.upto)
        parts = list(self._ended(state, done + 1, last))
        gone = panes.drop(min(self.shape.first_pane(last + 1), FOREVER))
        if len(gone):
            if state.keys is not None:
                state.keys.release(gone)
            state.ledger.release(gone)
        self.layout.forget(panes.records[panes.head : panes.count], state.texts, state.kept_texts)
        return concat(parts, batch.upto) if parts else Batch.empty(self.spec.output.arrow, batch.upto)

    def take_in(self, state: WindowGroupState, batch: Batch) -> Ints:
        """Take rows into the entries of their panes: the place of each row's entry."""
        places = self._places(state, batch, self._keys)
        self.layout.take_rows(places, batch.rows.column, state.panes.records, state.texts)
        return places

    def _merge_in(self, state: WindowGroupState, batch: Batch) -> None:
        """Take partials into the entries of their panes."""
        partials = self._partials
        places = self._places(state, batch, list(range(len(self._keys))))
        each = np.arange(len(batch))
        # the first row of each is counted with its place
        more = partials.rows_of(batch.rows) - 1
        _count_rows(len(batch), as_input(places), as_input(each), as_input(more), state.panes.rows_at)
        records = partials.records_of(batch.rows, state.texts)
        self.layout.merge(places, each, records, state.panes.records, state.texts)

    @cached_property
    def _partials(self) -> PanePartials:
        return PanePartials(self.spec)

    def _places(self, state: WindowGroupState, batch: Batch, keys: list[int]) -> Ints:
        """The places of the entries of rows, or of partials; those that were not there yet are made."""
        check_range(batch.time[[0, -1]], self.spec.windows)
        if state.keys is None:
            slots, size = np.zeros(len(batch), dtype=np.int32), 1
        else:
            slots = state.keys.encode([batch.rows.column(index) for index in keys])
            size = state.keys.size
        panes = state.panes
        panes.reserve(len(batch), size)
        places = np.empty(len(batch), dtype=np.int64)
        _find_entries(
            len(batch), as_input(slots), as_input(batch.time), as_input(batch.seq), self.shape.length,
            self.shape.offset, panes.meta, panes.newest, panes.slot_at, panes.pane_at, panes.first_at, panes.rows_at,
            places,
        )  # fmt: skip
        state.ledger.touch(slots, size)
        return places

    def _ended(self, state: WindowGroupState, next_window: int, last: int) -> Iterator[Batch]:
        """The groups of the windows from the next up to `last`, in order."""
        panes, shape = state.panes, self.shape
        next_window = max(next_window, shape.first_window(int(panes.pane_at[panes.head])))
        cursor = np.array([next_window, panes.head, 0, 0], dtype=np.int64)
        room = max(len(panes), min(_MOST_PAIRS, len(panes) * self.spec.windows.most))
        targets, sources, first, windows = (np.empty(room, dtype=np.int64) for _ in range(4))
        slots = np.empty(room, dtype=np.int32)
        made = 0
        while True:
            _gather_windows(
                len(panes), panes.slot_at, panes.pane_at, panes.first_at, panes.count, min(last, FOREVER), shape.grows,
                shape.size, shape.slide, cursor, panes.group_of, panes.groups, targets, sources, slots, first, windows,
            )  # fmt: skip
            pairs, groups = int(cursor[PAIRS]), int(cursor[GROUPS])
            if not groups:
                return
            panes.groups += groups
            made += groups
            limits.check_made(made)
            yield self._results(
                state, targets[:pairs], sources[:pairs], slots[:groups], first[:groups], windows[:groups]
            )

    def _results(
        self, state: WindowGroupState, targets: Ints, sources: Ints, slots: SlotNumbers, first: Ints, window: Ints
    ) -> Batch:
        """The rows of groups, each of which is made of the entries at the sources that are aimed at it."""
        panes = state.panes
        rows = np.zeros(len(slots), dtype=np.int64)
        _count_rows(len(targets), as_input(targets), as_input(sources), as_input(panes.rows_at), rows)
        records = self.layout.new(len(slots))
        self.layout.merge(targets, sources, panes.records, records, state.texts)
        if np.any((first[1:] < first[:-1]) & (window[1:] == window[:-1])):
            order = np.lexsort((first, window))
            slots, first, window, rows = slots[order], first[order], window[order], rows[order]
            records = records[order]
        start, end = self.shape.bounds(window)
        columns = self._key_columns(state, slots, start, end) + self.layout.columns(rows, records, state.texts)
        made = pa.RecordBatch.from_arrays(columns, schema=self.spec.output.arrow)
        return Batch(made, end, first.copy(), state.upto)

    def _key_columns(self, state: WindowGroupState, slots: SlotNumbers, start: Ints, end: Ints) -> list[pa.Array]:
        columns = {}
        if state.keys is not None:
            columns = dict(zip(self.spec.by, state.keys.keys(slots).columns, strict=True))
        for names, bound in ((self.spec.starts, start), (self.spec.ends, end)):
            columns |= dict.fromkeys(names, from_kernel(bound, None, self.spec.type) if names else None)
        return [columns[name] for name in self.spec.keys_out]

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: WindowGroupState) -> Content:
        live = state.panes.live().astype(np.int64)
        return {
            "upto": np.array([state.upto]),
            "slots": Slots(live, state.ledger, partial(self._taken, state), len(self._keys)),
        }

    def _taken(self, state: WindowGroupState, slots: Ints) -> pa.StructArray:
        """Keys with their entries, in order of panes."""
        panes = state.panes
        live = slice(panes.head, panes.count)
        place = np.full(len(panes.newest), -1, dtype=np.int64)
        place[slots] = np.arange(len(slots))
        owner = place[panes.slot_at[live]]
        own = np.flatnonzero(owner >= 0)
        own = own[np.argsort(owner[own], kind="stable")]
        values = {"pane": panes.pane_at, "first": panes.first_at, "rows": panes.rows_at}
        entries = {name: pa.array(lane[live][own]) for name, lane in values.items()}
        records = panes.records[live][own]
        if self.layout.width:
            entries["record"] = fixed(records)
        entries |= {f"text{i}": text for i, text in enumerate(self.layout.strings(records, state.texts))}
        return Slots.rows(state.keys, slots, {"entries": lists(owner[own], struct(entries), len(slots))})

    def load(self, parts: Saved) -> WindowGroupState:
        state = self.open()
        state.upto = int(parts.array("upto")[0])
        if "slots" not in parts:
            return state
        rows = parts.rows("slots")
        load_keys(state.keys, rows)
        slots, values = unlisted(rows.column("entries"))
        entries = pa.RecordBatch.from_struct_array(values)
        pane = entries.column("pane").to_numpy()
        # States that are put together need not have come equally far.
        needed = np.flatnonzero(pane >= self.shape.first_pane(self.shape.last_ended(state.upto) + 1))
        order = needed[np.argsort(pane[needed], kind="stable")]
        entries = entries.take(pa.array(order))
        pane, first, counts = (entries.column(name).to_numpy() for name in ("pane", "first", "rows"))
        records = unfixed(entries.column("record")) if self.layout.width else self.layout.new(len(order))
        texts = [entries.column(f"text{i}") for i in range(len(self.layout.text_lanes))]
        state.panes.load(slots[order], pane, first, counts, self.layout.coded(records, texts, state.texts))
        return state

"""SLIDE over rows: aggregates over the last rows of each slot, which start again in each slot."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.accumulators.records import RecordLayout, Records
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import ByteTable, KeyTable
from millstream.kernels.one_input import OneInput
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger, Slots
from millstream.kernels.saving.lists import fixed, unfixed
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.saving.states import load_keys
from millstream.kernels.streams import yield_loops
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.node import by_told
from millstream.records import dataclass
from millstream.schema import Schema

_find_slots = compile_kernel(source_of(yield_loops), "find_slots")


@register
@dataclass(frozen=True)
class RowSlotSpec(OneInput):
    """The last row of each slot of `every` rows of a key, with what calls come to over as many of the slot's last rows
    as their frames have."""

    keys: tuple[str, ...]
    calls: tuple[AggregateCall[str], ...]
    every: int

    def __post_init__(self) -> None:
        if not all(call.has_lanes and 0 < rows_of(call) <= self.every for call in self.calls):
            raise ValueError("a frame reaches beyond its slot")
        _ = self.output

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, *(field for call in self.calls for field in call.fields)))

    def build(self) -> RowSlotKernel:
        return RowSlotKernel(self)

    def describe(self) -> str:
        return f"slots of {self.every} rows{by_told(self.keys)}: {'; '.join(map(str, self.calls))}"


def rows_of(call: AggregateCall[str]) -> int:
    """How many rows the frame of a call has."""
    start = call.frame.start
    return 0 if call.frame.unit != "rows" or call.frame.end or start is None else start + 1


@dataclass
class _Tail:
    """What is known of the last rows of the slots that go on, by key."""

    records: Records
    texts: dict[str, ByteTable]
    kept_texts: dict[str, int] = field(default_factory=dict)


@dataclass
class RowSlotState:
    """How many rows of its slot each key has, and what is known of them, by the length of frames."""

    keys: KeyTable | None
    counts: Ints
    tails: dict[int, _Tail]
    ledger: Ledger = field(default_factory=Ledger)


class RowSlotKernel:
    """Runs a RowSlotSpec."""

    def __init__(self, spec: RowSlotSpec) -> None:
        self.spec = spec
        self._types = [spec.input[key].type for key in spec.keys]
        self._keys = [spec.input.index(key) for key in spec.keys]
        self._layouts = {
            rows: RecordLayout(spec.input, [call for call in spec.calls if rows_of(call) == rows])
            for rows in dict.fromkeys(map(rows_of, spec.calls))
        }

    def open(self) -> RowSlotState:
        tails = {rows: _Tail(layout.new(1), layout.tables()) for rows, layout in self._layouts.items()}
        return RowSlotState(KeyTable(self._types) if self._types else None, np.zeros(1, dtype=np.int64), tails)

    def step(self, state: RowSlotState, batch: Batch) -> Batch:
        keys = np.zeros(len(batch), dtype=np.int64)
        if state.keys is not None and len(batch):
            keys = state.keys.encode([batch.rows.column(index) for index in self._keys]).astype(np.int64)
        size = 1 if state.keys is None else state.keys.size
        self._reserve(state, size)
        begun = state.counts.copy()
        entries, places, owners, last = (np.empty(len(batch), dtype=np.int64) for _ in range(4))
        newest = np.full(len(state.counts), -1, dtype=np.int64)
        made = _find_slots(
            len(batch), keys, state.counts, newest, self.spec.every, entries, places, owners, last
        )  # fmt: skip
        state.ledger.touch(keys, size)
        owners, last = owners[:made], last[:made]
        # of several slots of a key, the first one goes on from what is known
        first = np.unique(owners, return_index=True)[1]
        went_on = first[begun[owners[first]] > 0]
        ended = np.flatnonzero(last >= 0)
        ended = ended[np.argsort(last[ended])]
        columns: dict[str, pa.Array] = {}
        for rows, layout in self._layouts.items():
            tail, records = state.tails[rows], layout.new(made)
            records[went_on] = tail.records[owners[went_on]]
            chosen = np.flatnonzero(places >= self.spec.every - rows)
            taken = batch.rows if len(chosen) == len(batch) else batch.rows.take(pa.array(chosen))
            layout.take_rows(entries[chosen], taken.column, records, tail.texts)
            counts = np.full(len(ended), rows, dtype=np.int64)
            made_of = layout.columns(counts, records[ended], tail.texts)
            columns |= dict(zip((call.name for call in layout.calls), made_of, strict=True))
            tail.records[owners] = 0
            tail.records[owners[last < 0]] = records[last < 0]
            layout.forget(tail.records, tail.texts, tail.kept_texts)
        given = batch.take(last[ended])
        values = [*given.rows.columns, *(columns[call.name] for call in self.spec.calls)]
        return Batch(
            pa.RecordBatch.from_arrays(values, schema=self.spec.output.arrow), given.time, given.seq, batch.upto
        )  # fmt: skip

    def _reserve(self, state: RowSlotState, size: int) -> None:
        if size > len(state.counts):
            more = max(size, 2 * len(state.counts)) - len(state.counts)
            state.counts = np.append(state.counts, np.zeros(more, dtype=np.int64))
            for rows, tail in state.tails.items():
                tail.records = np.concatenate([tail.records, self._layouts[rows].new(more)])

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: RowSlotState) -> Content:
        live = np.flatnonzero(state.counts[:1]) if state.keys is None else state.keys.live().astype(np.int64)
        return {"slots": Slots(live, state.ledger, partial(self._taken, state), len(self._keys))}

    def _taken(self, state: RowSlotState, slots: Ints) -> pa.StructArray:
        columns: dict[str, pa.Array] = {"count": pa.array(state.counts[slots])}
        for (rows, layout), i in zip(self._layouts.items(), range(len(self._layouts)), strict=True):
            tail, records = state.tails[rows], state.tails[rows].records[slots]
            if layout.width:
                columns[f"record{i}"] = fixed(records)
            columns |= {f"text{i}.{j}": text for j, text in enumerate(layout.strings(records, tail.texts))}
        return Slots.rows(state.keys, slots, columns)

    def load(self, parts: Saved) -> RowSlotState:
        state = self.open()
        if "slots" not in parts:
            return state
        saved = parts.rows("slots")
        load_keys(state.keys, saved)
        counts: npt.NDArray[np.int64] = np.array(saved.column("count"))
        self._reserve(state, len(counts))
        state.counts[: len(counts)] = counts
        for i, (rows, layout) in enumerate(self._layouts.items()):
            tail = state.tails[rows]
            records = unfixed(saved.column(f"record{i}")) if layout.width else layout.new(len(counts))
            texts = [saved.column(f"text{i}.{j}") for j in range(len(layout.text_lanes))]
            tail.records[: len(counts)] = layout.coded(records, texts, tail.texts)
        return state

"""The state of an OVER operator in a form without addresses: what is saved, divided and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.batch import BEGIN, Batch, Ints, concat
from millstream.kernels.keys import bucket_of
from millstream.kernels.over.layout import Layout
from millstream.kernels.over.rings import place_rings, queue_runs, row_runs
from millstream.kernels.over.state import OverState, new_state

Matrix = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Owned:
    """Rows of numbers, each belonging to a record."""

    owner: Ints
    rows: Matrix

    @staticmethod
    def gather(parts: Sequence[tuple[Ints, Matrix]], width: int) -> Owned:
        """All parts together in the order of their owners."""
        owner = np.concatenate([np.zeros(0, dtype=np.int64), *(owner for owner, _ in parts)])
        rows = np.concatenate([np.zeros((0, width), dtype=np.int64), *(rows.reshape(-1, width) for _, rows in parts)])
        order = np.argsort(owner, kind="stable")
        return Owned(owner[order], rows[order])

    def of(self, new_number: Ints) -> Owned:
        """The rows of the records that have a new number, under that number."""
        owner = new_number[self.owner]
        return Owned(owner[owner >= 0], self.rows[owner >= 0])

    def between(self, start: int, stop: int) -> Owned:
        """The rows of records `start` to `stop`, sharing memory."""
        first, last = np.searchsorted(self.owner, [start, stop])
        return Owned(self.owner[first:last] - start, self.rows[first:last])


@dataclass(frozen=True)
class Portable:
    """Records in the order of `keys`; their cells in the order of rows; the positions in each queue; the counted
    (word, count) of each table. Text is numbered by its place in `texts`."""

    keys: pa.RecordBatch | None
    records: Matrix
    cells: Owned
    queues: tuple[Owned, ...]
    tables: tuple[Owned, ...]
    texts: dict[str, pa.Array]
    pending: Batch | None
    upto: int

    def of(self, chosen: Ints) -> Portable:
        """The records at these places, in that order, without what belongs to no key."""
        new_number = np.full(len(self.records), -1, dtype=np.int64)
        new_number[chosen] = np.arange(len(chosen))
        return Portable(
            None if self.keys is None else self.keys.take(pa.array(chosen)),
            self.records[chosen],
            self.cells.of(new_number),
            tuple(queue.of(new_number) for queue in self.queues),
            tuple(table.of(new_number) for table in self.tables),
            dict(self.texts),
            None,
            BEGIN,
        )

    def between(self, start: int, stop: int) -> Portable:
        """The records `start` to `stop`, sharing memory."""
        return replace(
            self,
            keys=None if self.keys is None else self.keys.slice(start, stop - start),
            records=self.records[start:stop],
            cells=self.cells.between(start, stop),
            queues=tuple(queue.between(start, stop) for queue in self.queues),
            tables=tuple(table.between(start, stop) for table in self.tables),
        )

    def codes(self, layout: Layout, arg: ArgumentColumn) -> list[tuple[Ints, npt.NDArray[np.bool_]]]:
        """Everywhere that numbers of an argument's strings stand: the lane, and which of its rows hold one."""
        found = [(self.records[:, value], self.records[:, known] == 1) for known, value in layout.text_lanes(arg)]
        if arg.name in layout.cell_lanes:
            lane = self.cells.rows[:, layout.cell_lanes[arg.name]]
            found.append((lane, lane >= 0))
        for part, table in zip(layout.tables, self.tables, strict=True):
            if part.arg == arg:
                found.append((table.rows[:, 0], np.ones(len(table.rows), dtype=np.bool_)))
        return found

    def used_codes(self, layout: Layout, arg: ArgumentColumn) -> Ints:
        """The numbers of the strings that are held."""
        held = [codes[where] for codes, where in self.codes(layout, arg)]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *held]))

    def renumber(self, layout: Layout, arg: ArgumentColumn, number: Callable[[Ints], Any]) -> None:
        """Give the strings of an argument other numbers."""
        for codes, where in self.codes(layout, arg):
            codes[where] = number(codes[where])


def export(layout: Layout, state: OverState, slots: npt.NDArray[Any] | None = None) -> Portable:
    """A state without its addresses, or only the keys of these slots, in that order."""
    if slots is None:
        slots = np.arange(len(state.shards[0].records)) if state.keys is None else state.keys.live()
    return _with_texts(layout, state, _gathered(layout, state, slots))


def export_each(layout: Layout, state: OverState, groups: Sequence[Ints]) -> Iterator[Portable]:
    """The keys of each group of slots on their own, without what belongs to no key, in one pass over the state."""
    together = _gathered(layout, state, np.concatenate([np.zeros(0, dtype=np.int64), *groups]))
    together = replace(together, pending=None, upto=BEGIN)
    edges = np.cumsum([0, *map(len, groups)]).tolist()
    for start, stop in pairwise(edges):
        yield _with_texts(layout, state, together.between(start, stop))


def _gathered(layout: Layout, state: OverState, slots: npt.NDArray[Any]) -> Portable:
    """The keys of these slots; text is still numbered as it is in the state."""
    shards = len(state.shards)
    records = np.zeros((len(slots), len(layout.slot_lanes)), dtype=np.int64)
    cells: list[tuple[Ints, Matrix]] = []
    queues: list[list[tuple[Ints, Matrix]]] = [[] for _ in layout.queues]
    tables: list[list[tuple[Ints, Matrix]]] = [[] for _ in layout.tables]
    for number, shard in enumerate(state.shards):
        mine = np.flatnonzero(slots % shards == number)
        own = shard.records[slots[mine] // shards]
        records[mine] = own
        if layout.logged:
            rows = row_runs(layout, own)
            cells.append((mine[rows.owner], shard.cells[rows.cell[:, None] + np.arange(shard.cell)]))
        for i, queue in enumerate(layout.queues):
            entries = queue_runs(layout, own, i)
            lane = layout.cell_lanes[f"{queue.name}_queue"]
            queues[i].append((mine[entries.owner], shard.cells[entries.cell + lane]))
        if layout.tables:
            number_of = np.full(len(shard.records), -1, dtype=np.int64)
            number_of[slots[mine] // shards] = mine
        for i in range(len(layout.tables)):
            counted = shard.entries(i)
            owner = number_of[(counted[:, 0] - 1) // shard.width]
            tables[i].append((owner[owner >= 0], counted[owner >= 0, 1:]))
    return Portable(
        None if state.keys is None else state.keys.keys(slots),
        records,
        Owned.gather(cells, max(1, len(layout.cell_lanes))),
        tuple(Owned.gather(parts, 1) for parts in queues),
        tuple(Owned.gather(parts, 2) for parts in tables),
        {},
        state.pending,
        state.upto,
    )


def _with_texts(layout: Layout, state: OverState, portable: Portable) -> Portable:
    """The strings that gathered keys refer to, numbered by their place among them."""
    texts = {}
    for arg in layout.texts:
        used = portable.used_codes(layout, arg)
        texts[arg.name] = state.texts[arg.name].values(used)
        portable.renumber(layout, arg, partial(np.searchsorted, used))
    return replace(portable, texts=texts)


def combine(layout: Layout, portables: Sequence[Portable]) -> Portable:
    """The parts of one state as one."""
    first = np.cumsum([0, *(len(portable.records) for portable in portables)])
    texts: dict[str, pa.Array] = {}
    for arg in layout.texts:
        offset = 0
        for portable in portables:
            portable.renumber(layout, arg, partial(np.add, offset))
            offset += len(portable.texts[arg.name])
        texts[arg.name] = pa.concat_arrays([portable.texts[arg.name] for portable in portables])

    def together(owned: Sequence[Owned]) -> Owned:
        owners = [part.owner + start for part, start in zip(owned, first, strict=False)]
        return Owned(np.concatenate(owners), np.concatenate([part.rows for part in owned]))

    keys = [portable.keys for portable in portables if portable.keys is not None]
    return Portable(
        pa.Table.from_batches(keys).combine_chunks().to_batches()[0] if any(map(len, keys)) else (keys or [None])[0],
        np.concatenate([portable.records for portable in portables]),
        together([portable.cells for portable in portables]),
        tuple(together(parts) for parts in zip(*(portable.queues for portable in portables), strict=True)),
        tuple(together(parts) for parts in zip(*(portable.tables for portable in portables), strict=True)),
        texts,
        _in_order([portable.pending for portable in portables if portable.pending is not None]),
        max(portable.upto for portable in portables),
    )


def divide(layout: Layout, portable: Portable, parts: int) -> list[Portable]:
    """The records of each bucket of keys; without keys all are in the first."""
    spec = layout.spec
    pending = portable.pending
    if portable.keys is None:
        buckets = np.zeros(len(portable.records), dtype=np.int32)
        late = np.zeros(0 if pending is None else len(pending), dtype=np.int32)
    else:
        buckets = bucket_of(portable.keys.columns, parts)
        late = np.zeros(0, dtype=np.int32)
        if pending is not None:
            late = bucket_of([pending.rows.column(spec.input.index(key)) for key in spec.keys], parts)
    divided = []
    for part in range(parts):
        own = np.flatnonzero(late == part)
        waiting = pending.take(own) if pending is not None and len(own) else None
        chosen = portable.of(np.flatnonzero(buckets == part))
        divided.append(replace(chosen, pending=waiting, upto=portable.upto))
    return divided


def rebuild(layout: Layout, portable: Portable, threads: int) -> OverState:
    """A running state; the portable is used up."""
    state = new_state(layout, threads)
    for arg in layout.texts:
        used = portable.used_codes(layout, arg)
        codes = np.zeros(len(portable.texts[arg.name]), dtype=np.int64)
        codes[used] = state.texts[arg.name].slots(portable.texts[arg.name].take(pa.array(used)), add=True)
        portable.renumber(layout, arg, partial(np.take, codes))
    if state.keys is not None and portable.keys is not None:
        state.keys.encode(portable.keys.columns)
    shards = len(state.shards)
    count = len(portable.records)
    for number, shard in enumerate(state.shards):
        own = portable.records[number::shards].copy()
        mine = np.full(count, -1, dtype=np.int64)
        mine[number::shards] = np.arange(len(own))
        if layout.logged:
            cells = portable.cells.of(mine)
            lanes = place_rings(layout, own, np.bincount(cells.owner, minlength=len(own)))
            shard.cells = np.zeros(lanes, dtype=np.int64)
            shard.regions[0] = lanes
            rows = row_runs(layout, own)
            shard.cells[rows.cell[:, None] + np.arange(shard.cell)] = cells.rows
            for i, queue in enumerate(layout.queues):
                lane = layout.cell_lanes[f"{queue.name}_queue"]
                shard.cells[queue_runs(layout, own, i).cell + lane] = portable.queues[i].of(mine).rows[:, 0]
        shard.slots = own.reshape(-1)
        for i in range(len(layout.tables)):
            counted = portable.tables[i].of(mine)
            shard.set_entries(i, np.column_stack([counted.owner * shard.width + 1, counted.rows]))
    state.pending = portable.pending
    state.upto = portable.upto
    state.kept_texts = {name: len(table) for name, table in state.texts.items()}
    return state


def _in_order(batches: Sequence[Batch]) -> Batch | None:
    if not batches:
        return None
    together = concat(list(batches), batches[0].upto)
    return together if len(batches) == 1 else together.take(np.lexsort((together.seq, together.time)))

"""The compiled engine: a program as one loop over tuples, for all groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.jit import Compiled, as_input, compile_kernel, source_of
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.index import doubled
from millstream.kernels.keys.words import all_true, from_words, plain, validity
from millstream.kernels.programs import loops
from millstream.kernels.programs.engine import Groups, Mode, Returned, Sliding, TableRows
from millstream.kernels.programs.layout import SEEN, Cells, ProgramLayout, Registers
from millstream.kernels.programs.pools import (
    FIRST_CELLS,
    dtype_of,
    loaded_order,
    new_order,
    new_pool,
    own_cells,
    ring_places,
    ring_sizes,
    saved_schema,
)
from millstream.kernels.programs.source import OVERFLOW, Generated, generate
from millstream.plan.programs.nodes import WINDOW, Program
from millstream.records import dataclass
from millstream.types import DOUBLE, VARCHAR, SqlType, to_kernel

_gather = compile_kernel(source_of(loops), "gather")
_chain_all = compile_kernel(source_of(loops), "chain_all")
_TEXTS_AT_LEAST = 1_024

Array = npt.NDArray[Any]
_NONE: Ints = np.zeros(0, dtype=np.int64)


@cache
def why_not_compiled(program: Program, mode: Mode) -> str | None:
    """What keeps a program from being compiled; None if nothing does."""
    try:
        generate(program, mode, True)
    except NotCompilable as reason:
        return str(reason)
    return None


def orders_of(program: Program, mode: Mode) -> list[str]:
    """The tables of a compiled program whose rows are also kept in the order of a column, for EXPLAIN."""
    columns = [(c.table, c.order) for c in ProgramLayout(program, mode, True).cells if c.order is not None]
    return [f"table {table.name} in order of {table.schema.fields[order].name}" for table, order in columns]


@dataclass
class CompiledState:
    """A record per slot; for each table the pool of its cells, the hash table of its index, and the regions for the
    order of each group's cells; `meta` tells how much of each pool was ever used, its first free cell and whether an
    indexed value was ever NULL, and for an active window its eldest and newest cell."""

    record: Ints
    cells: list[Ints]
    heads: list[Ints]
    orders: list[Ints]
    meta: Ints
    texts: ByteTable
    codes: Ints
    kept_texts: int = 0
    nulls: bool = False
    """whether an argument was ever NULL"""


class CompiledEngine:
    """Runs a program by generated loops."""

    numbers_tuples = False

    def __init__(self, program: Program, mode: Mode, keyed: bool = True) -> None:
        self.generated: Generated = generate(program, mode, keyed)
        self.layout = self.generated.layout
        self.program, self.mode = program, mode
        self._active = isinstance(mode, Sliding) and mode.active

    @cached_property
    def _asking(self) -> dict[str, Compiled]:
        """The loops."""
        return {name: compile_kernel(self.generated.source, name) for name in ("arrive", "close")}

    @cached_property
    def _trusting(self) -> dict[str, Compiled]:
        """Loops for as long as no argument has been NULL, which do not ask; they keep the same state."""
        plain = generate(self.program, self.mode, self.layout.keyed, nulls=False)
        return {name: compile_kernel(plain.source, name) for name in ("arrive", "close")}

    def _loop(self, name: str, state: CompiledState) -> Compiled:
        return (self._asking if state.nulls else self._trusting)[name]

    def open(self) -> CompiledState:
        tables = self.layout.cells
        texts = ByteTable(VARCHAR)
        codes = texts.slots(pa.array(self.generated.texts, pa.string()), add=True).astype(np.int64)
        return CompiledState(
            np.zeros(self.layout.width, dtype=np.int64),
            [new_pool(cells, 0).reshape(-1) for cells in tables],
            [np.zeros(FIRST_CELLS if cells.is_chained else 0, dtype=np.int64) for cells in tables],
            [new_order(cells, 0) for cells in tables],
            np.array([number for cells in tables for number in (own_cells(cells), 0, 0)] + [0, 0], dtype=np.int64),
            texts,
            as_input(codes),
        )

    def arrive(
        self, state: CompiledState, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
        upto: int,
    ) -> Returned:  # fmt: skip
        rows = len(time)
        if rows:
            self._hold(state, int(slots.max()) + 1 if self.layout.keyed else 1)
        arrays: list[Array] = []
        for column, parameter in zip(args, self.program.parameters, strict=True):
            arrays += self._argument(state, column, parameter.type)
        state.nulls = state.nulls or any(column.null_count for column in args)
        origin, stamp, columns = self._run(
            self._loop("arrive", state),
            rows,
            state,
            slots,
            as_input(time),
            as_input(ids),
            upto,
            arrays,
            exact=self.generated.exact,
        )
        if self.generated.exact:
            return Returned(None, time, columns)
        return Returned(origin, stamp if self._active else time[origin], columns)

    def close(self, state: CompiledState, slots: Ints) -> Returned:
        arrays: list[Array] = []
        for parameter in self.program.parameters:
            arrays += self._argument(state, pa.nulls(0, parameter.type.arrow), parameter.type)
        chosen, none = as_input(slots.astype(np.int32)), as_input(_NONE)
        origin, _, columns = self._run(
            self._loop("close", state), len(slots), state, chosen, none, none, 0, arrays, exact=False
        )
        return Returned(origin, None, columns)

    def _run(
        self, function: Compiled, rows: int, state: CompiledState, slots: Array, time: Array, ids: Array, upto: int,
        args: list[Array], exact: bool,
    ) -> tuple[Ints, Ints, list[pa.Array]]:  # fmt: skip
        room = rows if exact else rows + 16
        outs: list[Array] = [np.empty(0 if exact else room, dtype=np.int64)]
        outs.append(np.empty(room if self._active else 0, dtype=np.int64))
        for column in self.program.result:
            outs += [np.empty(room, dtype=dtype_of(column.type)), np.empty(room, dtype=np.bool_)]
        trouble = np.zeros(2, dtype=np.int64)
        start, returned, before = 0, 0, -1
        run = function.form(rows)
        while True:
            each = zip(state.cells, state.heads, state.orders, strict=True)
            pools = [array for arrays in each for array in arrays]
            try:
                start, returned = run(
                    start, returned, slots, time, ids, upto, state.codes, trouble, *args, state.record, state.meta,
                    *pools, *outs,
                )  # fmt: skip
            except OverflowError:
                # Python's integers have no bounds, and those of arrays have.
                trouble[0] = OVERFLOW
            if trouble[0]:
                why = (
                    "a value does not fit its type"
                    if trouble[0] == OVERFLOW
                    else "a subquery used as a value returned more than one row"
                )
                raise DataError(f"{self.program.name}: {why}", detail="while running its statements")
            if start < 0:
                break
            # Where a second try does not get on either, it is one tuple alone that needs so much.
            stuck, before = start == before, start
            if trouble[1]:
                # Only then: the pools stay, and would double with every tuple that may return many rows.
                self._make_room(state, stuck)
            if not exact and (stuck or 2 * (returned + 16) > len(outs[0])):
                outs = [doubled(array) for array in outs]
        count = rows if exact else int(returned)
        columns = [
            self._column(state, outs[2 + 2 * i][:count], outs[3 + 2 * i][:count], column.type)
            for i, column in enumerate(self.program.result)
        ]
        self._sweep(state)
        return outs[0][:count], outs[1][:count], columns

    def _make_room(self, state: CompiledState, stuck: bool) -> None:
        """Twice the room in every pool that is at least half full, or in all."""
        for cells in self.layout.cells:
            n = cells.number
            if cells.is_ring and cells.alone:
                self._enlarge_ring(state, cells)
                continue
            used = int(state.meta[3 * n]) * (1 if cells.is_ring else cells.width)
            if stuck or 2 * (used + 8 * cells.width) > len(state.cells[n]):
                state.cells[n] = doubled(state.cells[n])
            if cells.order is not None and (stuck or 2 * int(state.orders[n][0]) + FIRST_CELLS > len(state.orders[n])):
                state.orders[n] = doubled(state.orders[n])
            if cells.is_chained and 2 * int(state.meta[3 * n]) > len(state.heads[n]):
                self._reindex(state, cells, 2 * len(state.heads[n]))

    def _enlarge_ring(self, state: CompiledState, cells: Cells) -> None:
        """Twice the room in the ring of the only group, if it is full."""
        ring = state.record[cells.start : cells.start + 4 + cells.shorter]
        _, size, first, end = (int(lane) for lane in ring[:4])
        if end - first < size:
            return
        _, at = ring_places(ring[None, :4], cells.width)
        held = state.cells[cells.number].reshape(-1, cells.width)[at // cells.width]
        pool = np.zeros((max(FIRST_CELLS, 2 * size), cells.width), dtype=np.int64)
        pool[: len(held)] = held
        state.cells[cells.number] = pool.reshape(-1)
        ring[:4] = 0, len(pool), 0, len(held)
        ring[4:] -= first

    def _reindex(self, state: CompiledState, cells: Cells, size: int) -> None:
        """Build the chains of an index anew."""
        n = cells.number
        state.heads[n] = np.zeros(size, dtype=np.int64)
        assert cells.index is not None
        owner, found = self._gather(state, cells, np.arange(len(state.record) // self.layout.width))
        _chain_all(
            len(found), as_input(owner * self.layout.width), as_input(found), cells.width, cells.lanes["chained"],
            cells.lane(cells.index), cells.lanes["nulls"], cells.index, state.cells[n], state.heads[n],
        )  # fmt: skip

    def _gather(self, state: CompiledState, cells: Cells, slots: Ints) -> tuple[Ints, Ints]:
        """The cells of a table's lists, in order, and the place of the slot that each belongs to."""
        chosen = as_input(slots.astype(np.int64))
        room = 1024
        while True:
            found, owner = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
            pool = (state.cells[cells.number], cells.width)
            count = int(_gather(len(slots), chosen, state.record, self.layout.width, cells.start, *pool, found, owner))
            if count <= room:
                return owner[:count], found[:count]
            room = count

    # -- values ----------------------------------------------------------------------------------------------------

    def _argument(self, state: CompiledState, column: pa.Array, type_: SqlType) -> list[Array]:
        mask = validity(column)
        ok = all_true(len(column)) if mask is None else mask
        if type_.is_coded:
            return [as_input(state.texts.slots(column, add=True).astype(np.int64)), as_input(ok)]
        return [as_input(to_kernel(plain(column, type_), type_)), as_input(ok)]

    def _column(self, state: CompiledState, values: Array, null: Array, type_: SqlType) -> pa.Array:
        valid = ~null if null.any() else None
        if type_.is_coded:
            return state.texts.values(values if valid is None else np.where(valid, values, -1))
        if type_ == DOUBLE:
            return pa.array(values, mask=None if valid is None else null)
        return from_words([values.astype(np.int64, copy=False)], valid, type_)

    def _words(self, state: CompiledState, words: Ints, valid: Array, type_: SqlType) -> pa.Array:
        """A column from the lanes it was kept in."""
        words = np.ascontiguousarray(words)
        return self._column(state, words.view(np.float64) if type_ == DOUBLE else words, ~valid, type_)

    def _lanes(self, state: CompiledState, column: pa.Array, type_: SqlType) -> tuple[Ints, Array]:
        """The inverse of `_words`: the lanes of a column, and which rows are NULL."""
        values, ok = self._argument(state, column, type_)
        return (values.view(np.int64) if type_ == DOUBLE else values.astype(np.int64)), ~ok

    # -- groups ----------------------------------------------------------------------------------------------------

    def export(self, state: CompiledState, slots: Ints) -> Groups:
        self._hold(state, int(slots.max(initial=0)) + 1)
        records = state.record.reshape(-1, self.layout.width)[slots]
        tables = {}
        for registers in self.layout.registers:
            owner = np.flatnonzero(self._begun(records[:, SEEN]))
            own = records[owner]
            columns = [
                self._words(state, own[:, registers.lane(i)], (own[:, registers.nulls] >> i) & 1 == 0, f.type)
                for i, f in enumerate(registers.table.schema)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=registers.table.schema.arrow)
            tables[registers.table.name] = TableRows(owner, rows)
        for cells in self.layout.cells:
            pool = state.cells[cells.number]
            if cells.is_ring:
                owner, at = ring_places(records[:, cells.start : cells.start + 4], cells.width)
                held = pool[at[:, None] + np.arange(cells.width)]
            else:
                owner, found = self._gather(state, cells, slots)
                held = pool.reshape(-1, cells.width)[found]
            rows = self._cell_rows(state, cells, held, records[owner, SEEN], owner)
            tables[cells.table.name] = TableRows(owner, rows)
        seen = records[:, SEEN]
        return Groups(np.where(seen == 0, -1, seen), tables)

    def _begun(self, seen: Ints) -> Array:
        """Which groups have run INITIALIZE, by how many tuples they have seen."""
        from millstream.kernels.programs.engine import Tumbling

        skipped = self.mode.every - self.mode.size if isinstance(self.mode, Tumbling) else 0
        begun: Array = seen > skipped
        return begun

    def _cell_rows(self, state: CompiledState, cells: Cells, found: Any, seen: Ints, owner: Ints) -> pa.RecordBatch:
        nulls = found[:, cells.lanes["nulls"]]
        fields = list(cells.table.schema)
        columns = [
            self._words(state, found[:, cells.lane(i)], (nulls >> i) & 1 == 0, f.type) for i, f in enumerate(fields)
        ]
        if cells.table.name == WINDOW:
            zeros = np.zeros(len(found), dtype=np.int64)
            if "id" in cells.lanes or not len(found):
                ids = found[:, cells.lanes["id"]] if "id" in cells.lanes else zeros
            else:
                # The tuples that are held are the last ones of their group.
                last = np.searchsorted(owner, owner, side="right") - 1
                ids = seen - (last - np.arange(len(found)))
            times = found[:, cells.lanes["time"]] if "time" in cells.lanes else zeros
            columns += [pa.array(times), pa.array(ids)]
        return pa.RecordBatch.from_arrays(columns, schema=saved_schema(cells).arrow)

    def load(self, groups: Groups) -> CompiledState:
        state = self.open()
        count = len(groups.seen)
        self._hold(state, count)
        records = state.record.reshape(-1, self.layout.width)
        records[:count, SEEN] = np.maximum(groups.seen, 0)
        for registers in self.layout.registers:
            self._load_registers(state, registers, groups.tables[registers.table.name], records)
        for cells in self.layout.cells:
            self._load_cells(state, cells, groups.tables[cells.table.name], records)
        state.nulls = any(column.null_count for table in groups.tables.values() for column in table.rows.columns)
        return state

    def _load_registers(self, state: CompiledState, registers: Registers, saved: TableRows, records: Any) -> None:
        for i, f in enumerate(registers.table.schema):
            words, null = self._lanes(state, saved.rows.column(i), f.type)
            records[saved.owner, registers.lane(i)] = words
            records[saved.owner, registers.nulls] |= null.astype(np.int64) << i

    def _load_cells(self, state: CompiledState, cells: Cells, saved: TableRows, records: Any) -> None:
        n, rows = cells.number, len(saved.owner)
        held = np.zeros((rows, cells.width), dtype=np.int64)
        for i, f in enumerate(cells.table.schema):
            words, null = self._lanes(state, saved.rows.column(i), f.type)
            held[:, cells.lane(i)] = words
            held[:, cells.lanes["nulls"]] |= null.astype(np.int64) << i
        time, ids = _NONE, _NONE
        if cells.table.name == WINDOW:
            fields = len(cells.table.schema)
            time, ids = (np.asarray(saved.rows.column(fields + i)) for i in (0, 1))
        known = {"time": time, "id": ids, "owner": saved.owner * self.layout.width}
        for name in cells.lanes.keys() & known.keys():
            held[:, cells.lanes[name]] = known[name]
        if cells.is_ring:
            self._load_ring(state, cells, saved.owner, held, records)
            return
        number, used = np.arange(1, rows + 1), rows
        if cells.bound is not None and cells.index is not None:
            absent = np.asarray(saved.rows.column(cells.index).is_null())
            used = own_cells(cells) + int(absent.sum())
            own = held[:, cells.lane(cells.index)] + cells.bound
            number = np.where(absent, own_cells(cells) + np.cumsum(absent), own)
        if rows:
            last = np.append(saved.owner[1:] != saved.owner[:-1], True)
            first = np.append(True, last[:-1])
            held[:, 0] = np.where(last, 0, np.roll(number, -1))
            if "previous" in cells.lanes:
                held[:, cells.lanes["previous"]] = np.where(first, 0, np.roll(number, 1))
            records[saved.owner[first], cells.start] = number[first]
            records[saved.owner[last], cells.start + 1] = number[last]
            np.add.at(records[:, cells.start + 2], saved.owner, 1)
        pool = new_pool(cells, rows)
        pool[number] = held
        if "after" in cells.lanes and rows:
            order = number[np.lexsort((ids, time))]
            pool[order[:-1], cells.lanes["after"]] = order[1:]
            pool[order[1:], cells.lanes["before"]] = order[:-1]
            state.meta[3 * len(self.layout.cells) :] = order[0], order[-1]
        state.cells[n] = pool.reshape(-1)
        state.meta[3 * n] = used
        if cells.order is not None:
            absent = np.asarray(saved.rows.column(cells.order).is_null())
            rings, state.orders[n] = loaded_order(cells, saved.owner, number, held[:, cells.ordered_lane], absent)
            records[: len(rings), cells.start + 3 : cells.start + 8] = rings
        if cells.index is not None:
            state.meta[3 * n + 2] = int(saved.rows.column(cells.index).null_count > 0)
        if cells.is_chained:
            size = FIRST_CELLS
            while size < 2 * rows:
                size *= 2
            self._reindex(state, cells, size)

    def _load_ring(self, state: CompiledState, cells: Cells, owner: Ints, held: Any, records: Any) -> None:
        counts = np.bincount(owner, minlength=len(records))
        sizes = ring_sizes(counts)
        bases = (np.cumsum(sizes) - sizes) * cells.width
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)
        pool = np.zeros(max(FIRST_CELLS, 2 * int(sizes.sum())) * cells.width, dtype=np.int64)
        pool[(bases[owner] + place * cells.width)[:, None] + np.arange(cells.width)] = held
        lanes = (bases, sizes, np.zeros_like(counts), counts, *self._shorter_windows(cells, owner, held, counts))
        records[:, cells.start : cells.start + len(lanes)] = np.stack(lanes, axis=1)
        state.cells[cells.number] = pool
        state.meta[3 * cells.number] = int(sizes.sum()) * cells.width

    def _shorter_windows(self, cells: Cells, owner: Ints, held: Any, counts: Ints) -> list[Ints]:
        """How many tuples of each group have left the shorter windows: that follows from its last one, with which
        they left."""
        assert isinstance(self.mode, Sliding)
        if self.mode.unit == "rows":
            return [np.maximum(counts - size, 0) for size in self.mode.shorter]
        time = held[:, cells.lanes["time"]]
        last = time[np.cumsum(counts) - 1][owner] if len(owner) else time
        since = [np.maximum(last, BEGIN + size) - size for size in self.mode.shorter]
        return [np.bincount(owner[time < each], minlength=len(counts)) for each in since]

    def rows_held(self, state: CompiledState) -> int:
        used = np.flatnonzero(state.record.reshape(-1, self.layout.width)[:, SEEN])
        groups = self.export(state, used)
        return sum(len(table.owner) for table in groups.tables.values())

    def _hold(self, state: CompiledState, slots: int) -> None:
        """Make room for the records of that many slots."""
        if slots * self.layout.width > len(state.record):
            longer = np.zeros(max(slots * self.layout.width, 2 * len(state.record)), dtype=np.int64)
            longer[: len(state.record)] = state.record
            state.record = longer

    def _sweep(self, state: CompiledState) -> None:
        """Forget text that nothing refers to any more, once there may be as much of it as there was in all."""
        if len(state.texts) <= 2 * state.kept_texts + _TEXTS_AT_LEAST:
            return
        rebuilt = self.load(self.export(state, np.arange(len(state.record) // self.layout.width)))
        state.__dict__.update(rebuilt.__dict__)
        state.kept_texts = len(state.texts)

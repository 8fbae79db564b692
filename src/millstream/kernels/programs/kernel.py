"""The kernel that runs a program: keys to slots, tuples to the engine, returned rows to batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.keys import KeyTable, bucket_of
from millstream.kernels.pieces import Pieces
from millstream.kernels.piecewise import Assembly, Parts, changed_pieces
from millstream.kernels.programs.compiled import CompiledEngine, why_not_compiled
from millstream.kernels.programs.engine import Engine, Groups, Mode, Returned, Sliding, TableRows
from millstream.kernels.programs.factored import FactoredEngine
from millstream.kernels.programs.factors import factors
from millstream.kernels.programs.rows import RowEngine
from millstream.kernels.programs.spec import AggregateSpec
from millstream.kernels.yields import last_in_slots
from millstream.plan.programs import WINDOW, Program

_NONE: Ints = np.zeros(0, dtype=np.int64)
_UNUSED = BEGIN


@dataclass
class AggregateState:
    """The keys, the engine's state, and what the kernel itself must remember.

    `log` holds the rows of an active window that have not expired, with their ids as numbers of arrival from
    `logged` on, or the rows whose slots of time have not ended, where only the last of each counts; `ends` tells for
    each slot when its group ends, `firsts` the arrival number of its first row.
    """

    keys: KeyTable | None
    groups: Any
    began: bool = False
    """whether a row has come: without keys, there is a group from then on"""
    upto: int = BEGIN
    log: Batch | None = None
    logged: int = 0
    next_id: int = 0
    last_seq: int = -1
    ends: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    firsts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pieces: Pieces | None = None
    head_changed: bool = True


def engine_of(program: Program, mode: Mode, keyed: bool) -> Engine:
    """What runs a program: compiled loops if it has them, for each of its factors."""
    parts = factors(program, mode)
    if len(parts) > 1:
        return FactoredEngine(parts, [engine_of(part.program, mode, keyed) for part in parts])
    if why_not_compiled(program, mode) is None:
        return CompiledEngine(program, mode, keyed)
    return RowEngine(program, mode)


class AggregateKernel:
    """Runs an AggregateSpec."""

    def __init__(self, spec: AggregateSpec) -> None:
        self.spec = spec
        self.engine = engine_of(spec.program, spec.mode, keyed=bool(spec.keys))
        self._keys = [spec.input.index(key) for key in spec.keys]
        self._args = [spec.input.index(arg) for arg in spec.args]
        self._active = isinstance(spec.mode, Sliding) and spec.mode.active
        in_time = isinstance(spec.mode, Sliding) and spec.mode.unit == "range"
        self._slot = spec.mode.every if in_time else None  # type: ignore[union-attr]
        self._types = [spec.input[key].type for key in spec.keys]

    def open(self) -> AggregateState:
        return self._state(self.engine.open())

    def _state(self, groups: Any) -> AggregateState:
        return AggregateState(KeyTable(self._types) if self._types else None, groups)

    def step(self, state: AggregateState, batch: Batch) -> Batch:
        if batch.upto > state.upto:
            state.upto = batch.upto
            state.head_changed = True
        if self._slot is not None:
            batch = self._ended(state, batch, self._slot)
        state.began = state.began or len(batch) > 0
        slots = self._slots(state, batch)
        ids = _NONE
        if self._active or self.engine.numbers_tuples:
            ids = np.arange(state.next_id, state.next_id + len(batch), dtype=np.int64)
        args = [batch.rows.column(index) for index in self._args]
        returned = self.engine.arrive(state.groups, slots, batch.time, ids, args, state.upto)
        if state.pieces is not None and len(slots):
            state.pieces.touch(slots, self._size(state))
        if self._active:
            return self._with_expired(state, batch, returned)
        if self.spec.ends is not None:
            return self._closed(state, batch, slots)
        if self._slot is not None:
            returned = _of_tuples(returned, last_in_slots(batch.time // self._slot, slots))
        if returned.origin is None:
            chosen = batch
        else:
            every = len(returned.origin) == len(batch) and bool(np.all(returned.origin == np.arange(len(batch))))
            chosen = batch if every else batch.take(returned.origin)
        return self._batch(chosen.rows.columns, returned, chosen.time, chosen.seq, batch.upto)

    def _slots(self, state: AggregateState, batch: Batch) -> npt.NDArray[np.int32]:
        if state.keys is None or not len(batch):
            return _one_slot(len(batch))
        return state.keys.encode([batch.rows.column(index) for index in self._keys])

    def _size(self, state: AggregateState) -> int:
        return 1 if state.keys is None else state.keys.size

    def _batch(self, columns: Sequence[pa.Array], returned: Returned, time: Ints, seq: Ints, upto: int) -> Batch:
        rows = pa.RecordBatch.from_arrays([*columns, *returned.columns], schema=self.spec.output.arrow)
        return Batch(rows, time, seq, upto)

    # -- slots of time ---------------------------------------------------------------------------------------------

    def _ended(self, state: AggregateState, batch: Batch, length: int) -> Batch:
        """The rows whose slots have ended; the others wait, for it is not known yet which of them is the last."""
        rows = batch if state.log is None else concat([state.log, batch], batch.upto)
        open_from = FOREVER if state.upto == FOREVER else state.upto // length
        done = int(np.searchsorted(rows.time // length, open_from))
        if done or len(batch):
            state.head_changed = True
        state.log = rows.take(np.arange(done, len(rows))) if done < len(rows) else None
        upto = FOREVER if state.upto == FOREVER else max(BEGIN, open_from * length)
        return rows.take(np.arange(done)).with_upto(upto)

    # -- active windows --------------------------------------------------------------------------------------------

    def _with_expired(self, state: AggregateState, batch: Batch, returned: Returned) -> Batch:
        """What was returned, each row beside the row that was worked on: one that came or one that expired."""
        assert isinstance(self.spec.mode, Sliding) and returned.origin is not None and returned.time is not None
        log = batch if state.log is None else concat([state.log, batch], batch.upto) if len(batch) else state.log
        came = returned.origin >= 0
        place = np.where(came, state.next_id + returned.origin, -1 - returned.origin) - state.logged
        chosen = log.take(place)
        # What expires comes after all rows up to its time, so it follows the last of them.
        latest = np.append(state.last_seq, np.maximum.accumulate(batch.seq))
        seq = np.where(came, chosen.seq, latest[np.searchsorted(batch.time, returned.time, side="right")])
        gone = int(np.searchsorted(log.time, max(state.upto, BEGIN + self.spec.mode.size) - self.spec.mode.size))
        if gone and state.pieces is not None and state.keys is not None:
            left = state.keys.lookup([log.rows.slice(0, gone).column(index) for index in self._keys])
            state.pieces.touch(left, self._size(state))
        if gone or len(batch):
            state.head_changed = True
        state.log = log.take(np.arange(gone, len(log))) if gone < len(log) else None
        state.logged += gone
        state.next_id += len(batch)
        state.last_seq = int(latest[-1])
        return self._batch(chosen.rows.columns, returned, returned.time, seq, batch.upto)

    # -- groups that end -------------------------------------------------------------------------------------------

    def _closed(self, state: AggregateState, batch: Batch, slots: npt.NDArray[np.int32]) -> Batch:
        """The results of the groups whose end time has passed."""
        assert self.spec.ends is not None and state.keys is not None
        if len(batch):
            if state.keys.size > len(state.ends):
                more = np.full(state.keys.size, _UNUSED)
                state.ends, state.firsts = np.append(state.ends, more), np.append(state.firsts, more)
            own, at = np.unique(slots, return_index=True)
            new = state.firsts[own] == _UNUSED
            state.firsts[own[new]] = batch.seq[at[new]]
            state.ends[slots] = _micros(batch.rows.column(self.spec.input.index(self.spec.ends)))
        live = state.keys.live().astype(np.int64)
        done = live[state.ends[live] <= state.upto]
        done = done[np.lexsort((done, state.firsts[done], state.ends[done]))]
        keys = state.keys.keys(done)
        returned = self.engine.close(state.groups, done)
        time, first = state.ends[done], state.firsts[done]
        if len(done):
            state.firsts[done] = _UNUSED
            state.keys.release(done)
            if state.pieces is not None:
                state.pieces.release(done)
        assert returned.origin is not None
        columns = [column.take(pa.array(returned.origin)) for column in keys.columns]
        return self._batch(columns, returned, time[returned.origin], first[returned.origin], batch.upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def snapshot(self, state: AggregateState) -> bytes:
        slots = self._live(state)
        return snapshots.save(self.spec, {**next(iter(self._exported(state, [slots]))), **self._head(state)})

    def restore(self, saved: bytes) -> AggregateState:
        parts = snapshots.load(self.spec, saved)
        return self._rebuilt(parts, [self._groups(parts)], [self._saved_keys(parts)], [self._saved_firsts(parts)])

    def changes(self, state: AggregateState) -> dict[int, bytes | None]:
        live = self._live(state)
        if state.pieces is None:
            if state.upto == BEGIN and not len(live) and state.log is None:
                return {}
            state.pieces = Pieces()
            state.pieces.touch(live, self._size(state))
            state.head_changed = True
        pieces = state.pieces

        def head() -> Parts | None:
            if not state.head_changed and not pieces.is_head_old(state.upto, state.log):
                return None
            pieces.head_given(state.upto, state.log)
            state.head_changed = False
            return self._head(state)

        return changed_pieces(self.spec, pieces, lambda groups: self._exported(state, groups), head)

    def assemble(self, pieces: Mapping[int, bytes]) -> AggregateState:
        if not pieces:
            return self.open()
        assembly = Assembly.of(self.spec, pieces)
        groups = [_chosen(self._groups(piece), own) for piece, own in assembly.pieces]
        keys = [self._saved_keys(piece, own) for piece, own in assembly.pieces]
        firsts = [self._saved_firsts(piece)[own] for piece, own in assembly.pieces]
        state = self._rebuilt(assembly.head, groups, keys, firsts)
        state.pieces = Pieces.of(assembly.labels, assembly.live, state.upto, state.log)
        state.head_changed = False
        return state

    def split(self, state: AggregateState, parts: int) -> list[AggregateState]:
        slots = self._live(state)
        owner, logger = np.zeros(len(slots), dtype=np.int32), np.zeros(0, dtype=np.int32)
        if state.keys is not None and len(slots):
            owner = bucket_of(state.keys.keys(slots).columns, parts)
        if state.log is not None:
            logger = np.zeros(len(state.log), dtype=np.int32)
            if state.keys is not None:
                logger = bucket_of([state.log.rows.column(index) for index in self._keys], parts)
        divided = []
        for part in range(parts):
            own, logged = slots[owner == part], np.flatnonzero(logger == part)
            place = np.zeros(len(logger), dtype=np.int64)
            place[logged] = np.arange(len(logged))
            groups = self.engine.export(state.groups, own)
            if self._active:
                groups = _with_ids(groups, place, state.logged)
            log = None if state.log is None or not len(logged) else state.log.take(logged)
            keys = None if state.keys is None else state.keys.keys(own)
            marks = (state.upto, 0, len(logged), state.last_seq)
            divided.append(self._built([groups], [keys], [self._firsts(state, own)], marks, log))
        return divided

    def merge(self, states: Sequence[AggregateState]) -> AggregateState:
        logs = [state.log for state in states if state.log is not None]
        together = concat(logs, logs[0].upto) if logs else None
        order = _NONE if together is None else np.lexsort((together.seq, together.time))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        groups, keys, firsts, start = [], [], [], 0
        for state in states:
            slots = self._live(state)
            exported = self.engine.export(state.groups, slots)
            groups.append(_with_ids(exported, place[start:], state.logged) if self._active else exported)
            keys.append(None if state.keys is None else state.keys.keys(slots))
            firsts.append(self._firsts(state, slots))
            start += 0 if state.log is None else len(state.log)
        marks = (max(state.upto for state in states), 0, len(order), max(state.last_seq for state in states))
        return self._built(groups, keys, firsts, marks, None if together is None else together.take(order))

    def _firsts(self, state: AggregateState, slots: Ints) -> Ints:
        return _NONE if self.spec.ends is None else state.firsts[slots]

    def _saved_firsts(self, parts: snapshots.Saved) -> Ints:
        return np.zeros(len(parts.array("seen")), dtype=np.int64) if self.spec.ends is None else parts.array("first")

    def _live(self, state: AggregateState) -> Ints:
        if state.keys is not None:
            return state.keys.live().astype(np.int64)
        return np.zeros(1, dtype=np.int64) if state.began else _NONE

    def _exported(self, state: AggregateState, groups: Sequence[Ints]) -> Iterator[Parts]:
        for slots in groups:
            exported = self.engine.export(state.groups, slots)
            parts: dict[str, Any] = {"seen": exported.seen}
            for name, table in exported.tables.items():
                parts |= {f"table.{name}": table.rows, f"table.{name}.owner": table.owner}
            if state.keys is not None:
                parts["keys"] = state.keys.keys(slots)
            if self.spec.ends is not None:
                parts["first"] = state.firsts[slots]
            yield parts

    def _head(self, state: AggregateState) -> dict[str, Any]:
        marks = np.array([state.upto, state.logged, state.next_id, state.last_seq])
        return {"marks": marks, **({} if state.log is None else {"log": state.log})}

    def _groups(self, parts: snapshots.Saved) -> Groups:
        names = [name.removeprefix("table.") for name in parts.columns if name.startswith("table.")]
        tables = {
            name: TableRows(parts.array(f"table.{name}.owner"), parts.rows(f"table.{name}"))
            for name in names
            if not name.endswith(".owner")
        }
        return Groups(parts.array("seen"), tables)

    def _saved_keys(self, parts: snapshots.Saved, own: Ints | None = None) -> pa.RecordBatch | None:
        if not self._types:
            return None
        keys = parts.rows("keys")
        return keys if own is None else keys.take(pa.array(own))

    def _rebuilt(
        self, head: snapshots.Saved, groups: Sequence[Groups], keys: Sequence[pa.RecordBatch | None],
        firsts: Sequence[Ints],
    ) -> AggregateState:  # fmt: skip
        marks = tuple(int(mark) for mark in head.array("marks"))
        return self._built(groups, keys, firsts, marks, head.batch("log", marks[0]) if "log" in head else None)

    def _built(
        self, groups: Sequence[Groups], keys: Sequence[pa.RecordBatch | None], firsts: Sequence[Ints],
        marks: Sequence[int], log: Batch | None,
    ) -> AggregateState:  # fmt: skip
        state = self._state(self.engine.load(_together(groups)) if groups else self.engine.open())
        state.upto, state.logged, state.next_id, state.last_seq = marks
        state.log = log
        state.began = any(len(part.seen) for part in groups)
        for part in keys:
            if state.keys is not None and part is not None and len(part):
                state.keys.encode(part.columns)
        if self.spec.ends is not None and state.keys is not None:
            state.ends = np.array(_micros(state.keys.keys().column(self.spec.keys.index(self.spec.ends))))
            state.firsts = np.concatenate([_NONE, *firsts])
        return state


_zeros: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)


def _one_slot(rows: int) -> npt.NDArray[np.int32]:
    """The slots of rows that are all of one group; one array serves all batches."""
    global _zeros
    if len(_zeros) < rows:
        _zeros = np.zeros(max(rows, 4096), dtype=np.int32)
    return _zeros[:rows]


def _of_tuples(returned: Returned, chosen: npt.NDArray[np.bool_]) -> Returned:
    """What was returned at some of the tuples."""
    assert returned.origin is not None and returned.time is not None
    kept = chosen[returned.origin]
    columns = [column.filter(pa.array(kept)) for column in returned.columns]
    return Returned(returned.origin[kept], returned.time[kept], columns)


def _micros(column: pa.Array) -> Ints:
    """The numbers of a column of times or integers."""
    numbers = column.cast(pa.int64()) if pa.types.is_integer(column.type) else column.view(pa.int64())
    return np.asarray(numbers)


def _chosen(groups: Groups, own: Ints) -> Groups:
    """Some of the groups, in increasing order of their places."""
    number = np.full(len(groups.seen), -1, dtype=np.int64)
    number[own] = np.arange(len(own))
    tables = {}
    for name, table in groups.tables.items():
        owner = number[table.owner]
        kept = np.flatnonzero(owner >= 0)
        tables[name] = TableRows(owner[kept], table.rows.take(pa.array(kept)))
    return Groups(groups.seen[own], tables)


def _together(parts: Sequence[Groups]) -> Groups:
    """The groups of all parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    start = np.cumsum([0, *(len(part.seen) for part in parts)])
    tables = {}
    for name in parts[0].tables:
        own = [part.tables[name] for part in parts]
        owner = np.concatenate([table.owner + first for table, first in zip(own, start, strict=False)])
        rows = pa.Table.from_batches([table.rows for table in own]).combine_chunks().to_batches()
        tables[name] = TableRows(owner, rows[0] if rows else own[0].rows)
    return Groups(np.concatenate([part.seen for part in parts]), tables)


def _with_ids(groups: Groups, place: Ints, logged: int) -> Groups:
    """The groups with the ids of the window's rows changed: `place` tells the new id by the place in the log."""
    if not len(place) or WINDOW not in groups.tables:
        return groups
    table = groups.tables[WINDOW]
    last = table.rows.num_columns - 1
    ids = pa.array(place[table.rows.column(last).to_numpy() - logged])
    rows = table.rows.set_column(last, table.rows.schema.field(last), ids)
    return Groups(groups.seen, {**groups.tables, WINDOW: TableRows(table.owner, rows)})

"""The kernel that runs a program: keys to slots, tuples to the engine, returned rows to batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.keys import KeyTable
from millstream.kernels.programs.accumulated import RECORDS, SEEN, AccumulatorEngine, DistinctEngine
from millstream.kernels.programs.arranged import ArrangedEngine
from millstream.kernels.programs.compiled import CompiledEngine, why_not_compiled
from millstream.kernels.programs.ends import GroupEnds, order_by
from millstream.kernels.programs.engine import Closing, Engine, Groups, Mode, Returned, Sliding, TableRows
from millstream.kernels.programs.factored import FactoredEngine, Part
from millstream.kernels.programs.factors import factors
from millstream.kernels.programs.rows import RowEngine
from millstream.kernels.programs.spec import AggregateSpec, GroupSpec
from millstream.kernels.programs.undoing import LeftOut, UndoingEngine
from millstream.kernels.saving.content import Content, Few, Ledger, Slots, struct
from millstream.kernels.saving.lists import lists, unlisted
from millstream.kernels.saving.signatures import signature_of
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.saving.states import load_keys
from millstream.kernels.streams.failing import failed_batch, failed_rows
from millstream.kernels.streams.yields import last_in_slots
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.nodes import WINDOW, Program
from millstream.plan.programs.product import product
from millstream.records import dataclass
from millstream.schema import Schema

_NONE: Ints = np.zeros(0, dtype=np.int64)
_UNUSED = BEGIN
_TABLE = "table."


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
    ends: GroupEnds = field(default_factory=GroupEnds)
    firsts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ledger: Ledger = field(default_factory=Ledger)
    failed: list[Batch] = field(default_factory=list)
    """what was left out by the last step, if that is what is given out"""


def engine_of(program: Program, mode: Mode, keyed: bool) -> Engine:
    """What runs a program: compiled loops if it has them, for each of its factors."""
    parts = factors(program, mode)
    if len(parts) > 1:
        return FactoredEngine(
            [
                Part(
                    engine_of(part.program, mode, keyed),
                    part.args,
                    part.results,
                    {table.name: whole for table, whole in zip(part.program.tables, part.tables, strict=True)},
                )
                for part in parts
            ]
        )
    if why_not_compiled(program, mode) is None:
        return CompiledEngine(program, mode, keyed)
    return RowEngine(program, mode)


def engine_of_calls(calls: Sequence[AggregateCall[str]], rows: Schema, keyed: bool) -> Engine:
    """What computes aggregates over groups of rows: accumulators those that are built in, programs the others."""
    if len(calls) == 1 and calls[0].arrangement is not None:
        return ArrangedEngine(rows, calls[0])
    plain = [call for call in calls if call.has_lanes]
    others = [call for call in calls if call not in plain]
    # tables of saved groups are numbered by these calls
    suffix = {call: f"_{i}" if len(others) > 1 else "" for i, call in enumerate(others, 1)}
    engines: list[tuple[Engine, list[AggregateCall[str]], dict[str, str]]] = []
    if plain:
        engines.append((AccumulatorEngine(rows, plain), plain, {RECORDS: RECORDS}))
    for arg in dict.fromkeys(call.arg for call in others if call.program is None):
        once = [call for call in others if call.program is None and call.arg == arg]
        engines.append((DistinctEngine(rows, once), once, {SEEN: SEEN + suffix[once[0]]}))
    if own := [call for call in others if call.program is not None]:
        programs = [call.program for call in own if call.program is not None]
        program = product(programs)
        wholes = [table.name + suffix[call] for call, each in zip(own, programs, strict=True) for table in each.tables]
        tables = {table.name: whole for table, whole in zip(program.tables, wholes, strict=True)}
        engines.append((engine_of(program, Closing(), keyed), own, tables))
    if len(engines) == 1 and (plain or len(own) == len(others)):
        return engines[0][0]
    return FactoredEngine(
        [
            Part(
                engine,
                _places([call in chosen for call in calls for _ in call.args]),
                _places([call in chosen for call in calls for _ in call.names]),
                tables,
            )
            for engine, chosen, tables in engines
        ]
    )


def _places(chosen: Sequence[bool]) -> tuple[int, ...]:
    return tuple(place for place, is_chosen in enumerate(chosen) if is_chosen)


class AggregateKernel:
    """Runs an AggregateSpec or a GroupSpec."""

    def __init__(self, spec: AggregateSpec | GroupSpec) -> None:
        self.spec = spec
        if isinstance(spec, GroupSpec):
            self.engine = engine_of_calls(spec.calls, spec.input, keyed=True)
        else:
            self.engine = engine_of(spec.program, spec.mode, keyed=bool(spec.keys))
        if spec.failing != "stop":
            self.engine = UndoingEngine(self.engine, spec.program, spec.mode)
        self._output = replace(spec, failing="skip").output.arrow
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
        made = self._stepped(state, batch)
        if self.spec.failing != "report":
            return made
        failed, state.failed = state.failed, []
        if not failed:
            return Batch.empty(self.spec.output.arrow, batch.upto)
        found = concat(failed, batch.upto)
        return found.take(np.lexsort((found.seq, found.time)))

    def _stepped(self, state: AggregateState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        if self._slot is not None:
            batch = self._ended(state, batch, self._slot)
        state.began = state.began or len(batch) > 0
        slots = self._slots(state, batch)
        ids = _NONE
        if self._active or self.engine.numbers_tuples:
            ids = np.arange(state.next_id, state.next_id + len(batch), dtype=np.int64)
        args = [batch.rows.column(index) for index in self._args]
        returned = self.engine.arrive(state.groups, slots, batch.time, ids, args, state.upto)
        self._note_failed(state, batch)
        state.ledger.touch(slots, self._size(state))
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

    def _note_failed(self, state: AggregateState, batch: Batch) -> None:
        """Note the rows that the engine left out, with the values of keys and arguments."""
        if self.spec.failing != "report" or not state.groups.failed:
            return
        failed: list[LeftOut] = state.groups.failed
        if came := [each for each in failed if each.place is not None]:
            rows = batch.take(np.array([each.place for each in came]))
            told = list(zip(came, self._told(rows.rows), strict=True))
            state.failed.append(
                failed_batch(rows, [_why(each) for each, _ in told], [self._of(*each) for each in told])
            )
        if gone := [each for each in failed if each.place is None]:
            keys = self._key_rows(state, np.array([each.slot for each in gone]))
            time = np.array([each.time for each in gone])
            # what expires comes after all rows up to its time
            latest = np.append(state.last_seq, np.maximum.accumulate(batch.seq))
            seq = latest[np.searchsorted(batch.time, time, side="right")]
            values = [self._of(each, key) for each, key in zip(gone, keys, strict=True)]
            state.failed.append(failed_rows(time, seq, list(map(_why, gone)), values))

    def _told(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        """Keys and arguments of rows."""
        return list(rows.select(sorted({*self.spec.keys, *self.spec.args})).to_pylist())

    def _of(self, failure: LeftOut, values: dict[str, Any]) -> dict[str, Any]:
        """With the arguments of the tuple that expired, if it is that."""
        if failure.expired is None:
            return values
        return dict(sorted({**values, **dict(zip(self.spec.args, failure.expired, strict=True))}.items()))

    def _key_rows(self, state: AggregateState, slots: Ints) -> list[dict[str, Any]]:
        """The keys of groups, by name."""
        return [{} for _ in slots] if state.keys is None else self._named_keys(state.keys.keys(slots))

    def _named_keys(self, keys: pa.RecordBatch) -> list[dict[str, Any]]:
        return [dict(zip(self.spec.keys, row.values(), strict=True)) for row in keys.to_pylist()]

    def _slots(self, state: AggregateState, batch: Batch) -> npt.NDArray[np.int32]:
        if state.keys is None or not len(batch):
            return _one_slot(len(batch))
        return state.keys.encode([batch.rows.column(index) for index in self._keys])

    def _size(self, state: AggregateState) -> int:
        return 1 if state.keys is None else state.keys.size

    def _batch(self, columns: Sequence[pa.Array], returned: Returned, time: Ints, seq: Ints, upto: int) -> Batch:
        rows = pa.RecordBatch.from_arrays([*columns, *returned.columns], schema=self._output)
        return Batch(rows, time, seq, upto)

    # -- slots of time ---------------------------------------------------------------------------------------------

    def _ended(self, state: AggregateState, batch: Batch, length: int) -> Batch:
        """The rows whose slots have ended; the others wait, for it is not known yet which of them is the last."""
        rows = batch if state.log is None else concat([state.log, batch], batch.upto)
        open_from = FOREVER if state.upto == FOREVER else state.upto // length
        done = int(np.searchsorted(rows.time // length, open_from))
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
        if gone and state.ledger.slots is not None:
            state.ledger.touch(self._known_slots(state, log.slice(0, gone)), self._size(state))
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
            if state.keys.size > len(state.firsts):
                more = np.full(state.keys.size, _UNUSED)
                state.ends.of, state.firsts = np.append(state.ends.of, more), np.append(state.firsts, more)
            # of several rows of a new group, the first is written last
            new = np.flatnonzero(state.firsts[slots] == _UNUSED)[::-1]
            own = slots[new].astype(np.int64)
            state.ends.of[own] = np.arange(len(new))
            once = own[state.ends.of[own] == np.arange(len(new))]
            state.firsts[own] = batch.seq[new]
            state.ends.of[slots] = _micros(batch.rows.column(self.spec.input.index(self.spec.ends)))
            state.ends.enter(once)
        done = state.ends.over(state.upto, state.keys.live)
        if not len(done):
            return Batch.empty(self._output, batch.upto)
        done = done[order_by(state.ends.of[done], state.firsts[done], done)]
        keys = state.keys.keys(done)
        returned = self.engine.close(state.groups, done)
        time, first = state.ends.of[done], state.firsts[done]
        state.firsts[done] = _UNUSED
        state.keys.release(done)
        state.ledger.release(done)
        if self.spec.failing == "report" and state.groups.failed:
            places = np.array([each.place for each in state.groups.failed])
            whys = [each.why for each in state.groups.failed]
            state.failed.append(
                failed_rows(time[places], first[places], whys, self._named_keys(keys.take(pa.array(places))))
            )
        assert returned.origin is not None
        columns = [column.take(pa.array(returned.origin)) for column in keys.columns]
        return self._batch(columns, returned, time[returned.origin], first[returned.origin], batch.upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: AggregateState) -> Content:
        if state.keys is not None:
            live = state.keys.live().astype(np.int64)
        else:
            live = np.zeros(1 if state.began else 0, dtype=np.int64)
        waiting = {} if self._active or state.log is None else {"waiting": Few(state.log)}
        slots = Slots(live, state.ledger, partial(self._taken, state), len(self._keys))
        return {"marks": np.array([state.upto, state.last_seq]), "slots": slots, **waiting}

    def _taken(self, state: AggregateState, slots: Ints) -> pa.StructArray:
        """Groups with the rows of their tables; of an active window also with those that came, which ids tell then."""
        groups = self.engine.export(state.groups, slots)
        tables = {name: _by_owner(table) for name, table in groups.tables.items()}
        columns = {"seen": pa.array(groups.seen)}
        if self.spec.ends is not None:
            columns["first"] = pa.array(state.firsts[slots])
        if self._active:
            columns["log"], place = self._logged(state, slots)
            if WINDOW in tables:
                tables[WINDOW] = _with_ids(tables[WINDOW], lambda ids, _: place[ids - state.logged])
        columns |= {f"{_TABLE}{name}": lists(own.owner, own.rows, len(slots)) for name, own in tables.items()}
        return Slots.rows(state.keys, slots, columns)

    def _logged(self, state: AggregateState, slots: Ints) -> tuple[pa.Array, Ints]:
        """The log's rows of these groups, and the place of each among those of its group."""
        log = Batch.empty(self.spec.input.arrow, BEGIN) if state.log is None else state.log
        number = np.full(self._size(state), -1, dtype=np.int64)
        number[slots] = np.arange(len(slots))
        owner = number[self._known_slots(state, log)]
        order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
        place = np.zeros(len(log), dtype=np.int64)
        place[order] = np.arange(len(order)) - np.searchsorted(owner[order], owner[order])
        rows = log.take(order)
        row = signature_of(self.spec).placed(rows.rows).to_struct_array()
        columns = {"time": pa.array(rows.time), "seq": pa.array(rows.seq), "row": row}
        return lists(owner[order], struct(columns), len(slots)), place

    def _known_slots(self, state: AggregateState, rows: Batch) -> npt.NDArray[np.int32]:
        if state.keys is None or not len(rows):
            return _one_slot(len(rows))
        return state.keys.lookup([rows.rows.column(index) for index in self._keys])

    def load(self, parts: Saved) -> AggregateState:
        upto, last_seq = (int(mark) for mark in parts.array("marks"))
        waiting = parts.batch("waiting", upto) if "waiting" in parts else None
        if "slots" not in parts:
            return replace(self.open(), upto=upto, last_seq=last_seq, log=waiting)
        rows = parts.rows("slots")
        tables = {}
        for name in (name for name in rows.schema.names if name.startswith(_TABLE)):
            owner, values = unlisted(rows.column(name))
            tables[name.removeprefix(_TABLE)] = TableRows(owner, pa.RecordBatch.from_struct_array(values))
        if self._active:
            waiting, place = _log_of(parts, rows.column("log"), upto)
            if WINDOW in tables:
                tables[WINDOW] = _with_ids(tables[WINDOW], place)
        state = self._state(self.engine.load(Groups(np.asarray(rows.column("seen")), tables)))
        load_keys(state.keys, rows)
        state.upto, state.last_seq, state.log, state.began = upto, last_seq, waiting, True
        if self._active and waiting is not None:
            state.next_id = len(waiting)
        if self.spec.ends is not None and state.keys is not None:
            state.ends = GroupEnds(np.array(_micros(state.keys.keys().column(self.spec.keys.index(self.spec.ends)))))
            state.firsts = np.array(rows.column("first"))
        return state


def _why(failure: LeftOut) -> str:
    return failure.why if failure.expired is None else f"{failure.why} (EXPIRE)"


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


def _by_owner(table: TableRows) -> TableRows:
    """The rows of a table, one group after the other."""
    if np.all(table.owner[1:] >= table.owner[:-1]):
        return table
    order = np.argsort(table.owner, kind="stable")
    return TableRows(table.owner[order], table.rows.take(pa.array(order)))


def _log_of(parts: Saved, column: pa.Array, upto: int) -> tuple[Batch | None, Callable[[Ints, Ints], Ints]]:
    """The log of groups that were saved, and what tells the place in it of their rows."""
    owner, values = unlisted(column)
    time, seq = (values.field(name).to_numpy() for name in ("time", "seq"))
    order = np.lexsort((seq, time))
    at = np.empty_like(order)
    at[order] = np.arange(len(order))
    first = np.searchsorted(owner, np.arange(len(column)))
    log = Batch(parts.named(values.field("row")), time, seq, upto).take(order) if len(order) else None
    return log, lambda ids, of: at[first[of] + ids]


def _with_ids(table: TableRows, new: Callable[[Ints, Ints], Ints]) -> TableRows:
    """Rows of a window with other ids, by their ids and the groups that they belong to."""
    last = table.rows.num_columns - 1
    ids = pa.array(new(table.rows.column(last).to_numpy(), table.owner))
    return TableRows(table.owner, table.rows.set_column(last, table.rows.schema.field(last), ids))

"""What ASOF joins of both directions have in common: the rows they keep, their keys, and their results."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.asof.spec import LEFT, RIGHT, AsofSpec
from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations.held_rows import HeldRows
from millstream.kernels.saving.content import Content, KeptRows, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import Runs
from millstream.records import dataclass
from millstream.schema import Schema

FEW = 1_024
_NONE = np.empty(0, dtype=np.int64)


class NumberedRows:
    """Rows of one side with their times and the slots of their keys, numbered from 0 in the order they came."""

    _BY_ROW = ("_time", "_seq", "_slot", "_links")

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = HeldRows(schema)
        self._time, self._seq, self._slot, self._links = (_NONE for _ in self._BY_ROW)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def time(self) -> Ints:
        return self._time[: len(self)]

    @property
    def seq(self) -> Ints:
        return self._seq[: len(self)]

    @property
    def slot(self) -> Ints:
        return self._slot[: len(self)]

    @property
    def links(self) -> Ints:
        """Room for the number of another row of the same key."""
        return self._links[: len(self)]

    @property
    def lasting(self) -> Ints:
        """Numbers that rows keep when others are forgotten."""
        return self._rows.lasting

    def add(self, batch: Batch, slots: npt.NDArray[np.integer], lasting: Ints | None = None) -> None:
        first, size = len(self), len(self) + len(batch)
        if size > len(self._time):
            more = np.empty(max(size, 2 * first) - len(self._time), dtype=np.int64)
            for name in self._BY_ROW:
                setattr(self, name, np.append(getattr(self, name), more))
        self._time[first:size], self._seq[first:size], self._slot[first:size] = batch.time, batch.seq, slots
        self._rows.add(batch.rows, lasting)

    def rows(self, numbers: Ints) -> pa.RecordBatch:
        return self._rows.take(numbers)

    def batch(self, numbers: Ints) -> Batch:
        """The rows of these numbers with their times."""
        return Batch(self.rows(numbers), self._time[numbers], self._seq[numbers], BEGIN)

    def keep(self, numbers: Ints) -> None:
        """Forget all rows but these, whose numbers are then 0, 1, …"""
        self._rows.keep(numbers)
        for name in self._BY_ROW:
            setattr(self, name, getattr(self, name)[numbers])


@dataclass
class AsofState:
    """The side whose rows are looked for or wait for theirs, by number; the other's rows of which less is known; how
    far both came. `of_key` is the latest row of each key, or the last of those that wait, by the key's slot."""

    held: NumberedRows
    keys: KeyTable | None
    waiting: Runs = field(default_factory=Runs)
    upto: list[int] = field(default_factory=lambda: [BEGIN, BEGIN])
    of_key: Ints = field(default_factory=lambda: _NONE)
    done: int = 0
    """rows before this number have been taken into account"""
    enough: int = FEW
    """with so many rows it is worth looking which are needed"""
    ledger: Ledger = field(default_factory=Ledger)


class AsofKernel:
    """Takes rows in, gives results out and saves the state; `held` is the side that is kept by number."""

    held: int

    def __init__(self, spec: AsofSpec) -> None:
        self.spec = spec
        self._kept = tuple(self._kept_of(side) for side in (LEFT, RIGHT))
        self._results = [(LEFT if side == "left" else RIGHT, name) for side, name in spec.columns]

    def _kept_of(self, side: int) -> Schema:
        """Of a side: keys, so that the state can be divided, and what results show."""
        word = ("left", "right")[side]
        names = {name.lower() for name in self.spec.by}
        names |= {name.lower() for own, name in self.spec.columns if own == word}
        schema = self.spec.inputs[side]
        return Schema(tuple(each for each in schema if each.name.lower() in names) or schema.fields[:1])

    def open(self) -> AsofState:
        types = [self.spec.left[name].type for name in self.spec.by]
        return AsofState(NumberedRows(self._kept[self.held].arrow), KeyTable(types) if types else None)

    def _take_in(self, state: AsofState, batch: Batch) -> None:
        state.upto[batch.port] = max(state.upto[batch.port], batch.upto)
        if not len(batch):
            return
        kept = self._kept[batch.port]
        columns = [batch.rows.column(self.spec.inputs[batch.port].index(name)) for name in kept.names]
        self._add(state, batch.with_rows(pa.RecordBatch.from_arrays(columns, schema=kept.arrow)))

    def _add(self, state: AsofState, batch: Batch, lasting: Ints | None = None) -> None:
        """Let rows, of which only some columns are left, wait on their side; those that were saved have numbers."""
        known = np.ones(len(batch), dtype=np.bool_)
        for column in self._keys(batch.rows, batch.port):
            if column.null_count:
                known &= column.is_valid().to_numpy(zero_copy_only=False)
        if not known.all() and not (self.spec.outer and batch.port == LEFT):
            batch, known = batch.take(np.flatnonzero(known)), known[known]
        if batch.port != self.held:
            state.waiting.add(batch, lasting)
        elif len(batch):
            state.held.add(batch, self._slots(state, batch.rows, known), lasting)
            size = 1 if state.keys is None else state.keys.size
            if size > len(state.of_key):
                more = np.full(max(size, 2 * len(state.of_key)) - len(state.of_key), -1, dtype=np.int64)
                state.of_key = np.append(state.of_key, more)

    def _keys(self, rows: pa.RecordBatch, side: int) -> list[pa.Array]:
        return [rows.column(self._kept[side].index(name)) for name in self.spec.by]

    def _slots(self, state: AsofState, rows: pa.RecordBatch, known: npt.NDArray[np.bool_]) -> Ints:
        """The slots of new rows' keys; -1 where one is NULL."""
        slots = np.where(known, 0, -1)
        if state.keys is not None and known.any():
            chosen = np.flatnonzero(known)
            usable = rows if len(chosen) == len(rows) else rows.take(pa.array(chosen))
            slots[chosen] = state.keys.encode(self._keys(usable, self.held))
        return slots

    def _found(self, state: AsofState, rows: pa.RecordBatch) -> Ints:
        """The slots of the other side's keys; -1 for those that no row here has."""
        if state.keys is None:
            return np.full(len(rows), 0 if len(state.of_key) else -1, dtype=np.int64)
        return state.keys.lookup(self._keys(rows, 1 - self.held)).astype(np.int64)

    def _made(self, left: pa.RecordBatch, right: pa.RecordBatch | None, time: Ints, seq: Ints, upto: int) -> Batch:
        """Results; without a right side, with NULLs for it."""
        sides = (left, right)
        columns = []
        for side, name in self._results:
            rows = sides[side]
            kept = self._kept[side]
            columns.append(
                pa.nulls(len(time), kept[name].type.arrow) if rows is None else rows.column(kept.index(name))
            )
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.spec.output.arrow), time, seq, upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def _live(self, state: AsofState) -> Ints:
        """The numbers of rows that results may still need, in order."""
        raise NotImplementedError

    def export(self, state: AsofState) -> Content:
        live = self._live(state)
        held = KeptRows(state.held.lasting[live], lambda places: state.held.batch(live[places]))
        return {"upto": np.array(state.upto), "held": held, "waiting": state.waiting.kept()}

    def load(self, parts: Saved) -> AsofState:
        state = self.open()
        state.upto = [int(value) for value in parts.array("upto")]
        for name, port in (("held", self.held), ("waiting", 1 - self.held)):
            if name in parts:
                self._add(state, parts.batch(name, BEGIN, port), parts.numbers(name))
        return state

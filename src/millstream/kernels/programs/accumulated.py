"""The engine of built-in aggregates: a record for each group, kept by accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.accumulators.distinct import SeenValues
from millstream.kernels.accumulators.records import RecordLayout, Records
from millstream.kernels.batch import Ints
from millstream.kernels.keys import ByteTable
from millstream.kernels.programs.engine import Groups, Returned, TableRows
from millstream.kernels.saving.lists import fixed, unfixed
from millstream.plan.aggregate_calls import AggregateCall
from millstream.records import dataclass
from millstream.schema import Schema

RECORDS, SEEN = "$records", "seen"
"""the tables of records and of different values in a saved group"""

_NOWHERE: Ints = np.zeros(0, dtype=np.int64)


@dataclass
class Accumulated:
    """The record of each slot, and how many rows it has seen."""

    records: Records
    rows: Ints
    texts: dict[str, ByteTable]
    kept_texts: dict[str, int] = field(default_factory=dict)


class AccumulatorEngine:
    """Computes calls that have lanes over groups that end; implements `engine.Engine`. Tuples have the arguments of all
    calls, one after the other."""

    numbers_tuples = False

    def __init__(self, rows: Schema, calls: Sequence[AggregateCall[str]]) -> None:
        self.layout = RecordLayout(rows, calls)
        self._args = {arg: i for i, arg in enumerate(arg for call in calls for arg in call.args)}
        self._nothing = [pa.array([], type_.arrow) for call in calls for type_ in call.types]

    def open(self) -> Accumulated:
        return Accumulated(self.layout.new(0), np.zeros(0, dtype=np.int64), self.layout.tables())

    def arrive(self, state: Accumulated, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        if len(slots):
            self.reserve(state, int(slots.max()) + 1)
            counts = np.bincount(slots)
            state.rows[: len(counts)] += counts
            places = slots.astype(np.int64)
            self.layout.take_rows(places, lambda arg: args[self._args[arg]], state.records, state.texts)
        return Returned(_NOWHERE, _NOWHERE, self._nothing)

    def reserve(self, state: Accumulated, slots: int) -> None:
        """Make room for slots up to that one."""
        if slots > len(state.rows):
            more = max(slots, 2 * len(state.rows)) - len(state.rows)
            state.records = np.concatenate([state.records, self.layout.new(more)])
            state.rows = np.append(state.rows, np.zeros(more, dtype=np.int64))

    def close(self, state: Accumulated, slots: Ints) -> Returned:
        columns = self.layout.columns(state.rows[slots], state.records[slots], state.texts)
        state.records[slots], state.rows[slots] = 0, 0
        self.layout.forget(state.records, state.texts, state.kept_texts)
        return Returned(np.arange(len(slots)), None, columns)

    def export(self, state: Accumulated, slots: Ints) -> Groups:
        records, rows = state.records[slots], state.rows[slots]
        columns = {"rows": pa.array(rows)}
        if self.layout.width:
            columns["record"] = fixed(records)
        columns |= {f"text{i}": text for i, text in enumerate(self.layout.strings(records, state.texts))}
        table = TableRows(np.arange(len(slots)), pa.RecordBatch.from_pydict(columns))
        return Groups(rows, {RECORDS: table})

    def load(self, groups: Groups) -> Accumulated:
        state, saved = self.open(), groups.tables[RECORDS]
        count, rows = len(groups.seen), saved.rows
        state.rows, state.records = np.zeros(count, dtype=np.int64), self.layout.new(count)
        state.rows[saved.owner] = np.asarray(rows.column("rows"))
        if self.layout.width:
            texts = [rows.column(f"text{i}") for i in range(len(self.layout.text_lanes))]
            state.records[saved.owner] = self.layout.coded(unfixed(rows.column("record")), texts, state.texts)
        return state

    def rows_held(self, state: Accumulated) -> int:
        return int(np.count_nonzero(state.rows))


@dataclass
class Counted:
    """The values that each slot has seen, and what accumulators know of them."""

    seen: SeenValues
    once: Accumulated


class DistinctEngine:
    """Computes calls with DISTINCT of one argument over groups that end; implements `engine.Engine`. What it keeps of a
    group are its values: what accumulators make of them does not depend on their order."""

    numbers_tuples = False

    def __init__(self, rows: Schema, calls: Sequence[AggregateCall[str]]) -> None:
        (arg,) = {call.arg for call in calls}
        assert arg is not None
        self._type, self._calls = rows[arg].type, len(calls)
        self._once = AccumulatorEngine(rows, [replace(call, distinct=False) for call in calls])

    def open(self) -> Counted:
        return Counted(SeenValues(self._type), self._once.open())

    def arrive(self, state: Counted, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        if len(slots):
            self._once.reserve(state.once, int(slots.max()) + 1)
        fresh = state.seen.fresh(slots, args[0])
        values = args[0].take(pa.array(fresh))
        return self._once.arrive(state.once, slots[fresh], time, ids, [values] * self._calls, upto)

    def close(self, state: Counted, slots: Ints) -> Returned:
        if len(slots):
            state.seen.forget(slots)
        return self._once.close(state.once, slots)

    def export(self, state: Counted, slots: Ints) -> Groups:
        owner, values = state.seen.values(slots)
        table = TableRows(owner, pa.RecordBatch.from_arrays([values], names=["x"]))
        return Groups(state.once.rows[slots], {SEEN: table})

    def load(self, groups: Groups) -> Counted:
        state, saved = self.open(), groups.tables[SEEN]
        self._once.reserve(state.once, len(groups.seen))
        self.arrive(state, saved.owner.astype(np.int32), _NOWHERE, _NOWHERE, [saved.rows.column(0)], 0)
        return state

    def rows_held(self, state: Counted) -> int:
        return len(state.seen)

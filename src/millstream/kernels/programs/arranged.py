"""The engine of arrangements: the rows of each group, sorted and told by DuckDB when the group is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import to_numpy
from millstream.expressions.duckdb_batch import ask
from millstream.kernels.batch import Ints
from millstream.kernels.programs.engine import Groups, Returned, TableRows
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.arrangements import OF_EDGES, OF_PEERS, OF_PLACE, ArrangedCall, Arrangement
from millstream.plan.ties import SortKey
from millstream.records import dataclass
from millstream.schema import Schema

ROWS = "$rows"
"""the table of rows in a saved group"""

_NOWHERE: Ints = np.zeros(0, dtype=np.int64)
_SLOT, _NUMBER = "slot", "number"
_MANY = 500
"""rows of a group that are sorted without a second thought"""


@dataclass
class Arriving:
    """The rows of all groups, as they came, and how many each slot has."""

    slots: list[Ints] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class ArrangedEngine:
    """Gives back the rows of groups that end, arranged; implements `engine.Engine`."""

    numbers_tuples = False

    def __init__(self, rows: Schema, call: AggregateCall[str]) -> None:
        assert call.arrangement is not None
        types = [rows[arg].type for arg in call.args]
        self._names = [f"c{i}" for i in range(len(types))]
        self._schema = pa.schema([pa.field(name, type_.arrow) for name, type_ in zip(self._names, types, strict=True)])
        # behind the columns that are given back come keys of the group that the arrangement looks at
        self._given = len(call.names) - len(call.arrangement.calls)
        self._made = [call.type.arrow for call in call.arrangement.calls]
        self._nothing = [pa.nulls(0, type_) for type_ in (*self._schema.types[: self._given], *self._made)]
        names = dict(zip(call.args, self._names, strict=True))
        in_time = {
            arg: "epoch_us({})" if type_.name == "TIME" else "epoch_us(CAST({} AS TIMESTAMP))"
            for arg, type_ in zip(call.args, types, strict=True)
            if type_.is_temporal
        }
        self._query = _query(call.arrangement, names, in_time)
        self._first = _first_rows(call.arrangement, names, self._schema)

    def open(self) -> Arriving:
        return Arriving()

    def arrive(self, state: Arriving, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        if len(slots):
            counts = np.bincount(slots, minlength=len(state.counts))
            counts[: len(state.counts)] += state.counts
            state.counts = counts
            state.slots.append(slots.astype(np.int64))
            state.rows.append(self._batch(args, len(slots)))
        return Returned(_NOWHERE, _NOWHERE, self._nothing)

    def _batch(self, columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]).select([])
        return pa.RecordBatch.from_arrays(list(columns), schema=self._schema)

    def close(self, state: Arriving, slots: Ints) -> Returned:
        owner, rows = self._taken(state, slots)
        if not len(owner):
            return Returned(_NOWHERE, None, self._nothing)
        if len(slots) < np.count_nonzero(state.counts):
            places = np.full(len(state.counts), -1, dtype=np.int64)
            places[slots] = 0
            every = np.concatenate(state.slots)
            kept = pa.array(np.flatnonzero(places[every] < 0))
            state.rows = [_joined(state.rows).take(kept)]
            state.slots = [every[np.asarray(kept)]]
        else:
            state.rows, state.slots = [], []
        state.counts[slots[slots < len(state.counts)]] = 0
        if self._first is not None:
            near = self._first.candidates(owner, rows)
            owner, rows = owner[near], rows.take(pa.array(near))
        asked = rows.append_column(_SLOT, pa.array(owner)).append_column(_NUMBER, pa.array(np.arange(len(owner))))
        answer = ask(self._query, asked)
        order = answer.column(0).combine_chunks()
        columns = [column.take(order) for column in rows.columns[: self._given]]
        columns += [_as(answer.column(i + 1), type_) for i, type_ in enumerate(self._made)]
        return Returned(owner[np.asarray(order)], None, columns)

    def _taken(self, state: Arriving, slots: Ints) -> tuple[Ints, pa.RecordBatch]:
        """The rows of these slots as they came, and the place of each row's slot in the list."""
        if not state.rows:
            return _NOWHERE, self._batch([pa.nulls(0, type_) for type_ in self._schema.types], 0)
        place = np.full(max(len(state.counts), int(slots.max(initial=-1)) + 1), -1, dtype=np.int64)
        place[slots] = np.arange(len(slots))
        owner = place[np.concatenate(state.slots)]
        chosen = np.flatnonzero(owner >= 0)
        rows = _joined(state.rows)
        return owner[chosen], rows if len(chosen) == len(owner) else rows.take(pa.array(chosen))

    def export(self, state: Arriving, slots: Ints) -> Groups:
        owner, rows = self._taken(state, slots)
        seen = np.bincount(owner, minlength=len(slots)).astype(np.int64)
        return Groups(seen, {ROWS: TableRows(owner, rows)})

    def load(self, groups: Groups) -> Arriving:
        saved = groups.tables[ROWS]
        return Arriving([saved.owner], [self._batch(saved.rows.columns, len(saved.owner))], groups.seen.copy())

    def rows_held(self, state: Arriving) -> int:
        return int(state.counts.sum())


@dataclass(frozen=True)
class FirstRows:
    """Which rows can be among the first `count` of their group, by the first column of its order alone."""

    column: str
    down: bool
    count: int

    def candidates(self, owner: Ints, rows: pa.RecordBatch) -> Ints:
        """Where these rows are. Of a group with many more rows, DuckDB need not sort the others."""
        values = rows.column(self.column)
        kept = np.ones(len(owner), dtype=np.bool_)
        for group in np.flatnonzero(np.bincount(owner) > _MANY + 4 * self.count):
            own = np.flatnonzero(owner == group)
            mine = values if len(own) == len(owner) else values.take(pa.array(own))
            kept[own] = self._may_be_first(mine)
        return np.flatnonzero(kept)

    def _may_be_first(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        every = np.ones(len(values), dtype=np.bool_)
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            return every
        order = [("v", "descending" if self.down else "ascending")]
        table = pa.record_batch([values], names=["v"])
        last = values[pc.select_k_unstable(table, self.count, sort_keys=order)[-1].as_py()]
        if not last.is_valid:
            return every
        is_near = pc.greater_equal(values, last) if self.down else pc.less_equal(values, last)
        # NULLs come first or last: DuckDB says
        return to_numpy(pc.fill_null(is_near, True))


def _first_rows(arrangement: Arrangement, names: dict[str, str], schema: pa.Schema) -> FirstRows | None:
    if arrangement.calls or not arrangement.count or not arrangement.order:
        return None
    first = arrangement.order[0]
    type_ = schema.field(names[first.column]).type
    if not (pa.types.is_primitive(type_) or pa.types.is_string(type_)) or pa.types.is_boolean(type_):
        return None
    return FirstRows(names[first.column], first.down, arrangement.skip + arrangement.count)


def _joined(rows: list[pa.RecordBatch]) -> pa.RecordBatch:
    return rows[0] if len(rows) == 1 else pa.concat_batches(rows)


def _as(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    array = column.combine_chunks()
    return array if array.type == type_ else array.cast(type_)


def _query(arrangement: Arrangement, names: dict[str, str], in_time: dict[str, str]) -> str:
    """The rows' numbers in order and the calls, for rows whose columns have these names; of those that are times, the
    microseconds, because distances in time are in microseconds."""
    order = [_sorted(key, in_time.get(key.column, "{}").format(names[key.column])) for key in arrangement.order]
    ties = [f"{names[name]} NULLS LAST" for name in arrangement.ties if name in names]
    whole = ", ".join([*order, *ties, _NUMBER])
    calls = [_call(call, names, order, whole) for call in arrangement.calls]
    query = f"SELECT {', '.join([_NUMBER, *calls])} FROM millstream_rows"
    if arrangement.skip or arrangement.count is not None:
        last = "" if arrangement.count is None else f" AND {arrangement.skip + arrangement.count}"
        asked = f"BETWEEN {arrangement.skip + 1}{last}" if last else f"> {arrangement.skip}"
        query += f" QUALIFY row_number() OVER (PARTITION BY {_SLOT} ORDER BY {whole}) {asked}"
    return f"{query} ORDER BY {_SLOT}, {whole}"


def _sorted(key: SortKey, value: str) -> str:
    nulls = "FIRST" if key.nulls_first else "LAST"
    return f"{value} {'DESC' if key.down else 'ASC'} NULLS {nulls}"


def _call(call: ArrangedCall, names: dict[str, str], order: list[str], whole: str) -> str:
    if call.fn == "arrived":
        return _NUMBER
    args = [names[arg] for arg in call.args]
    if call.number is not None:
        args.insert(1, str(call.number))
    given = ("DISTINCT " if call.distinct else "") + ", ".join(args)
    by_place = call.fn in OF_PLACE or (call.frame or "").startswith("ROWS")
    if call.fn in OF_EDGES and not by_place:
        # rows of equal order have one here, too
        given += f" ORDER BY {whole}"
    if call.ignores_nulls:
        given += " IGNORE NULLS"
    over = [f"PARTITION BY {_SLOT}"]
    if by_place:
        over.append(f"ORDER BY {whole}")
    elif order:
        over.append(f"ORDER BY {', '.join(order)}")
    if call.frame is not None and call.fn not in OF_PLACE | OF_PEERS:
        over.append(call.frame)
    fn = "count(*)" if call.fn == "count" and not args else f"{call.fn}({given})"
    told = f"{fn} OVER ({' '.join(over)})"
    return f"CAST({told} AS {call.type.duckdb})"

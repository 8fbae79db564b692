"""The general engine: runs any program row by row in Python, with its tables as lists."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.object_values import to_arrow, to_values
from millstream.kernels.batch import Ints
from millstream.kernels.programs.engine import (
    Closing,
    Groups,
    Mode,
    Returned,
    Running,
    Sliding,
    TableRows,
    Tumbling,
)
from millstream.kernels.programs.rows_source import Code, Row, Tables
from millstream.library import WIDE
from millstream.plan.programs.nodes import Program
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT

_TIME, _ID = -2, -1
"""Where a row of the window has its time and number."""

_HIDDEN = (Field("$time", BIGINT), Field("$id", BIGINT))


@dataclass(eq=False, slots=True)
class GroupTables:
    """One group: how many tuples it has seen (of its slot, where windows tumble), and its tables."""

    tables: Tables
    seen: int = 0


@dataclass(eq=False, slots=True)
class State:
    """All groups by slot and, for active windows, the tuples in order of expiry."""

    groups: dict[int, GroupTables] = field(default_factory=dict)
    expiring: list[tuple[int, int, int, GroupTables, Row]] = field(default_factory=list)
    """a heap of (time, id, tie breaker, group, row)"""
    ties: count[int] = field(default_factory=count)


@dataclass(eq=False, slots=True)
class _Output:
    """Returned rows with where they come from."""

    rows: list[Row] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    time: list[int] = field(default_factory=list)

    def mark(self, origin: int, time: int, keep: bool = True) -> None:
        """Say of the rows added since the last call where they come from, or drop them."""
        new = len(self.rows) - len(self.origin)
        if not new:
            return
        if keep:
            self.origin += [origin] * new
            self.time += [time] * new
        else:
            del self.rows[-new:]


class RowEngine:
    """Runs a program in one mode; implements `engine.Engine`."""

    numbers_tuples = True

    def __init__(self, program: Program, mode: Mode) -> None:
        self.program = program
        self.mode = mode
        self._code = Code(program)
        window = self._code.window
        self._sizes = mode.sizes if isinstance(mode, Sliding) else ()
        # What is in the shorter windows is in the longest one, too.
        self._held = self._code.tables[: len(self._code.tables) - len(program.shorter)]
        self._schemas = [
            Schema((*table.schema, *_HIDDEN)) if i == window else table.schema for i, table in enumerate(self._held)
        ]

    def open(self) -> State:
        return State()

    def arrive(self, state: State, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        """Work on tuples in order of time; an active window runs what expires before `upto`."""
        try:
            return self._arrive(state, slots, time, ids, args, upto)
        except DataError as error:
            raise self._in_words(error) from error

    def _in_words(self, error: DataError) -> DataError:
        """The error without the statements of a sum that the query calls by another name."""
        fn = next((fn for fn, written in WIDE.items() if written == self.program.name), None)
        if fn is None:
            return error
        return DataError(f"{fn} overflows {self.program.parameters.fields[0].type}", hint="cast its argument to DOUBLE")

    def _arrive(self, state: State, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
                upto: int) -> Returned:  # fmt: skip
        columns = [to_values(array, param.type) for array, param in zip(args, self.program.parameters, strict=True)]
        rows = list(zip(*columns, strict=True)) if columns else [()] * len(slots)
        output = _Output()
        for i, (slot, now, id_, values) in enumerate(
            zip(slots.tolist(), time.tolist(), ids.tolist(), rows, strict=True)
        ):
            group = state.groups.get(slot)
            if group is None:
                group = state.groups[slot] = GroupTables(self._code.fresh_tables())
            match self.mode:
                case Sliding():
                    self._slide(self.mode, state, group, output, now, id_, values)
                    every = self.mode.every if self.mode.unit == "rows" else None
                    keep = every is None or group.seen % every == 0
                case Tumbling():
                    keep = self._tumble(self.mode, group, output, values)
                case Running() | Closing():
                    self._run(group, output, values)
                    if isinstance(self.mode, Running) and self.mode.total:
                        self._code.terminate(group.tables, output.rows)
                    keep = True
            output.mark(i, now, keep)
        self._expire_actively(state, output, upto)
        return self._returned(output, timed=True)

    def close(self, state: State, slots: Ints) -> Returned:
        """TERMINATE these groups, in that order, and drop them."""
        output = _Output()
        for place, slot in enumerate(slots.tolist()):
            group = state.groups.pop(slot, None)
            if group is not None:
                self._code.terminate(group.tables, output.rows)
                output.mark(place, 0)
        return self._returned(output, timed=False)

    def export(self, state: State, slots: Ints) -> Groups:
        """These groups, in that order."""
        groups = [state.groups.get(slot) for slot in slots.tolist()]
        tables = {}
        for i, (table, schema) in enumerate(zip(self._held, self._schemas, strict=True)):
            held = [(place, row) for place, group in enumerate(groups) if group for row in group.tables[i]]
            columns = [
                to_arrow(self._code.to_save(i, [row[c] for _, row in held]), column.type)
                for c, column in enumerate(schema)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
            tables[table.name] = TableRows(np.array([place for place, _ in held], np.int64), batch)
        return Groups(np.array([-1 if group is None else group.seen for group in groups], np.int64), tables)

    def load(self, groups: Groups) -> State:
        """A state with these groups in the slots 0, 1, …"""
        state = State()
        for slot, seen in enumerate(groups.seen.tolist()):
            if seen >= 0:
                state.groups[slot] = GroupTables(self._code.fresh_tables(), seen)
        for i, (table, schema) in enumerate(zip(self._held, self._schemas, strict=True)):
            held = groups.tables.get(table.name)
            if held is None or not len(held.owner):
                continue
            columns = [
                self._code.from_saved(i, to_values(held.rows.column(c), column.type)) for c, column in enumerate(schema)
            ]
            for owner, values in zip(held.owner.tolist(), zip(*columns, strict=True), strict=True):
                group, row = state.groups[owner], list(values)
                group.tables[i].append(row)
                if i == self._code.window:
                    self._await_expiry(state, group, row)
        for group in state.groups.values():
            self._fill_shorter_windows(group)
        return state

    def _fill_shorter_windows(self, group: GroupTables) -> None:
        """Put those tuples into the shorter windows that had not left when the last one came."""
        window = self._code.window
        if window is None or not group.tables[window]:
            return
        rows = group.tables[window]
        for place, size in enumerate(self._sizes[1:], 1):
            by, limit = self._limit(rows[-1][_ID], rows[-1][_TIME], size)
            group.tables[window + place] = [row for row in rows if row[by] > limit]

    def rows_held(self, state: State) -> int:
        """How many rows all tables hold."""
        held = len(self._held)
        return sum(len(rows) for group in state.groups.values() for rows in group.tables[:held])

    def _run(self, group: GroupTables, output: _Output, values: Any) -> None:
        step = self._code.iterate if group.seen else self._code.initialize
        group.seen += 1
        step(group.tables, values, output.rows)

    def _slide(self, mode: Sliding, state: State, group: GroupTables, output: _Output, now: int, id_: int,
               values: tuple[Any, ...]) -> None:  # fmt: skip
        window = self._code.window
        if window is None:
            self._run(group, output, values)
            return
        if mode.active:
            self._expire_actively(state, output, now)
        else:
            number = group.seen + 1
            for place, size in enumerate(self._sizes):
                by, limit = self._limit(number, now, size)
                while (rows := group.tables[window + place]) and rows[0][by] <= limit:
                    self._code.expire(group.tables, output.rows, place)
            if mode.unit == "rows":
                id_ = number
        row = [*values, now, id_]
        for place in range(len(self._sizes)):
            group.tables[window + place].append(row)
        self._await_expiry(state, group, row)
        self._run(group, output, row)

    def _limit(self, number: int, now: int, size: int) -> tuple[int, int]:
        """Where a tuple has what tells whether it leaves a window when another comes, and up to what it does."""
        by_rows = isinstance(self.mode, Sliding) and self.mode.unit == "rows"
        return (_ID, number - size) if by_rows else (_TIME, now - size - 1)

    def _await_expiry(self, state: State, group: GroupTables, row: Row) -> None:
        if isinstance(self.mode, Sliding) and self.mode.active:
            heapq.heappush(state.expiring, (row[_TIME] + self.mode.size, row[_ID], next(state.ties), group, row))

    def _expire_actively(self, state: State, output: _Output, before: int) -> None:
        while state.expiring and state.expiring[0][0] < before:
            time, id_, _, group, row = heapq.heappop(state.expiring)
            assert self._code.window is not None
            rows = group.tables[self._code.window]
            # A tuple that statements deleted is not the oldest, for those before it have expired.
            if rows and rows[0] is row:
                self._code.expire(group.tables, output.rows)
                output.mark(-1 - id_, time)

    def _tumble(self, mode: Tumbling, group: GroupTables, output: _Output, values: tuple[Any, ...]) -> bool:
        """Work on a tuple of a slot; whether what the program returned counts."""
        skipped = mode.every - mode.size
        group.seen += 1
        if group.seen > skipped:
            step = self._code.initialize if group.seen == skipped + 1 else self._code.iterate
            step(group.tables, values, output.rows)
        if group.seen < mode.every:
            return False
        if self.program.terminate:
            output.mark(0, 0, keep=False)
            self._code.terminate(group.tables, output.rows)
        group.seen, group.tables = 0, self._code.fresh_tables()
        return True

    def _returned(self, output: _Output, timed: bool) -> Returned:
        columns = [
            to_arrow([row[c] for row in output.rows], column.type) for c, column in enumerate(self.program.result)
        ]
        time = np.array(output.time, np.int64) if timed else None
        return Returned(np.array(output.origin, np.int64), time, columns)

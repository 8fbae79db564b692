"""An engine that leaves out what its program fails on: a tuple that comes, the EXPIRE of one that leaves a window, or a
group that ends. It goes back to what was before, and works on the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError, StateError
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import walk
from millstream.kernels.batch import Ints
from millstream.kernels.programs.engine import Engine, Groups, Mode, Returned, Sliding, TableRows
from millstream.plan.programs.nodes import WINDOW, AggregateValue, Program, ScalarQuery, Statement, expressions_of
from millstream.plan.programs.python import Instance, Method
from millstream.records import dataclass

_LEAST = 4_096
"""so many tuples are worked on again rather than that what was before them is kept anew"""

_CALLING = AggregateValue | Instance | Method | ScalarQuery

Slots = npt.NDArray[np.int32]


def may_fail(statements: Sequence[Statement]) -> bool:
    """Whether anything that statements of a program compute may be an error."""
    exprs = [expr for statement in statements for expr in expressions_of(statement)]
    return any(any(isinstance(part, _CALLING) for part in walk(expr)) or can_fail(expr) for expr in exprs)


@dataclass(frozen=True)
class LeftOut:
    """What was left out of the group in a slot, and why: the tuple at a place of the batch; or the EXPIRE of one that
    `expired` when the tuple at that place came, or else at a time; or the group, by its place among those that
    ended."""

    why: str
    slot: int
    place: int | None
    time: int = 0
    expired: tuple[Any, ...] | None = None


@dataclass
class UndoingState:
    """The engine's state, what that was some time ago, and what happened since."""

    inner: Any
    before: Groups | None = None
    since: list[Callable[[Any], object]] = field(default_factory=list)
    tuples: int = 0
    """how many tuples came since then"""
    slots: int = 0
    """how many slots have been in use"""
    has: set[int] = field(default_factory=set)
    """the slots that have a group: those of which all tuples failed have none"""
    failed: list[LeftOut] = field(default_factory=list)
    """what the last call left out"""
    unsaved: StateError | None = None
    """why there is no way back: an object of the user's class could not be saved"""


class UndoingEngine:
    """Runs another engine; implements `engine.Engine`."""

    def __init__(self, engine: Engine, program: Program | None = None, mode: Mode | None = None) -> None:
        self._engine = engine
        self.numbers_tuples = engine.numbers_tuples
        self._mode = mode if isinstance(mode, Sliding) and program is not None and may_fail(program.expire) else None
        """when tuples leave the window, if that may fail"""

    def open(self) -> UndoingState:
        return UndoingState(self._engine.open())

    def arrive(self, state: UndoingState, slots: Slots, time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        state.failed = []
        state.slots = max(state.slots, int(slots.max(initial=-1)) + 1)
        count = len(slots)

        def work(start: int, stop: int) -> Returned:
            """Work on some of the tuples."""
            own = slots[start:stop], time[start:stop], ids[start:stop], [arg.slice(start, stop - start) for arg in args]
            until = upto if stop == count else int(time[stop - 1])
            returned = self._engine.arrive(state.inner, *own, until)
            state.since.append(lambda inner: self._engine.arrive(inner, *own, until))
            state.has.update(np.unique(own[0]).tolist())
            state.tuples += stop - start
            if state.tuples > max(_LEAST, self._engine.rows_held(state.inner)):
                self._keep(state)
            return returned

        def skip(place: int, error: DataError) -> Returned | None:
            """Work on a tuple without EXPIRE of those that it fails for, or not on the tuple."""
            is_active = self._mode is not None and self._mode.active
            slot = None if is_active or place == count else int(slots[place])
            now = upto if place == count or (is_active and place + 1 == count) else int(time[place])
            made = self._without_expiring(state, slot, place, now, partial(work, place, min(place + 1, count)), error)
            if isinstance(made, Returned):
                return made
            if place == count:
                raise made
            state.failed.append(LeftOut(made.message, int(slots[place]), place))
            return None

        try:
            return work(0, count)
        except DataError:
            self._restore(state)
            parts = self._in_parts(state, work, skip, count)
            try:
                # what expires after the last tuples, if they failed
                made: Returned | None = work(count, count)
            except DataError as error:
                self._restore(state)
                made = skip(count, error)
            return _together(parts if made is None else [*parts, (count, made)])

    def _in_parts(
        self,
        state: UndoingState,
        work: Callable[[int, int], Returned],
        skip: Callable[[int, DataError], Returned | None],
        count: int,
    ) -> list[tuple[int, Returned]]:
        """Do some work in as many parts as it takes to find what fails."""
        found: list[tuple[int, Returned]] = []
        start, size = 0, max(1, count // 2)
        while start < count:
            stop = min(start + size, count)
            try:
                found.append((start, work(start, stop)))
                start, size = stop, 2 * size
            except DataError as error:
                self._restore(state)
                if stop - start == 1:
                    made = skip(start, error)
                    found += [] if made is None else [(start, made)]
                    start += 1
                size = max(1, (stop - start) // 2)
        return found

    # -- windows ---------------------------------------------------------------------------------------------------

    def _without_expiring(
        self, state: UndoingState, slot: int | None, place: int, now: int, work: Callable[[], Returned],
        error: DataError,
    ) -> Returned | DataError:  # fmt: skip
        """Do some work, which failed, after tuples for which EXPIRE fails have left the window without it; or why the
        work fails all the same."""
        if self._mode is None or (slot is None and not self._mode.active):
            return error
        self._keep(state)
        whole = state.before
        if whole is None:
            return error
        due = self._due(whole, self._mode, slot, now)

        def tried(gone: Sequence[int]) -> Returned | DataError:
            state.before, state.since, state.tuples = _without_rows(whole, gone), [], 0
            self._restore(state)
            try:
                return work()
            except DataError as error:
                return error

        made = tried(due) if due else error
        if isinstance(made, DataError):
            state.before, state.since, state.tuples = whole, [], 0
            self._restore(state)
            return made
        left: list[int] = []
        start = 0
        while start < len(due):
            # tuples leave in order, so that the first that fails is found by halves
            low, high = start, len(due)
            why = tried([*left, *due[high:]])
            while isinstance(why, DataError) and low < high:
                middle = (low + high) // 2
                result = tried([*left, *due[middle + 1 :]])
                if isinstance(result, DataError):
                    why, high = result, middle
                else:
                    low = middle + 1
            if not isinstance(why, DataError):
                break
            left.append(due[low])
            state.failed.append(_expiry(whole, self._mode, due[low], why.message, place))
            start = low + 1
        made = tried(left)
        assert isinstance(made, Returned)
        return made

    def _due(self, groups: Groups, mode: Sliding, slot: int | None, now: int) -> list[int]:
        """The rows of the window, by number, that leave it now, in order."""
        table = groups.tables[WINDOW]
        time, ids = (table.rows.column(name).to_numpy() for name in ("$time", "$id"))
        if mode.active:
            leaves = time + mode.size < now
        elif mode.unit == "rows":
            leaves = ids <= groups.seen[table.owner] + 1 - mode.size
        else:
            leaves = time < now - mode.size
        if slot is not None:
            leaves &= table.owner == slot
        numbers = np.flatnonzero(leaves)
        return [int(number) for number in numbers[np.lexsort((ids[numbers], time[numbers]))]]

    # -- groups that end -------------------------------------------------------------------------------------------

    def close(self, state: UndoingState, slots: Ints) -> Returned:
        state.failed = []
        places = np.array([place for place, slot in enumerate(slots.tolist()) if slot in state.has], np.int64)
        own = slots[places]

        def work(start: int, stop: int) -> Returned:
            some = own[start:stop]
            returned = self._engine.close(state.inner, some)
            state.since.append(lambda inner: self._engine.close(inner, some))
            return returned

        def skip(place: int, error: DataError) -> None:
            self._keep(state)
            assert state.before is not None
            state.before = _without_group(state.before, int(own[place]))
            self._restore(state)
            state.failed.append(LeftOut(error.message, int(own[place]), int(places[place])))

        try:
            returned = work(0, len(own))
        except DataError:
            self._restore(state)
            returned = _together(
                [(0, self._engine.close(state.inner, own[:0])), *self._in_parts(state, work, skip, len(own))]
            )
        state.has.difference_update(own.tolist())
        assert returned.origin is not None
        return Returned(places[returned.origin], returned.time, returned.columns)

    def export(self, state: UndoingState, slots: Ints) -> Groups:
        return self._engine.export(state.inner, slots)

    def load(self, groups: Groups) -> UndoingState:
        state = UndoingState(self._engine.load(groups), slots=len(groups.seen))
        state.has.update(np.flatnonzero(groups.seen >= 0).tolist())
        self._keep(state)
        return state

    def rows_held(self, state: UndoingState) -> int:
        return self._engine.rows_held(state.inner)

    def _keep(self, state: UndoingState) -> None:
        """From now on, go back to what is now. Engines may show arrays that they go on with, so these are copied."""
        state.before, state.since, state.tuples = None, [], 0
        if state.unsaved is not None:
            return
        try:
            made = self._engine.export(state.inner, np.arange(state.slots, dtype=np.int64))
        except StateError as error:
            state.unsaved = error
            return
        tables = {
            name: TableRows(table.owner.copy(), table.rows.take(pa.array(np.arange(table.rows.num_rows))))
            for name, table in made.tables.items()
        }
        state.before = Groups(made.seen.copy(), tables)

    def _restore(self, state: UndoingState) -> None:
        if state.unsaved is not None:
            raise state.unsaved
        state.inner = self._engine.open() if state.before is None else self._engine.load(state.before)
        for work in state.since:
            work(state.inner)


def _expiry(groups: Groups, mode: Sliding, number: int, why: str, place: int) -> LeftOut:
    table = groups.tables[WINDOW]
    (row,) = table.rows.slice(number, 1).to_pylist()
    *values, time, _ = row.values()
    return LeftOut(why, int(table.owner[number]), None if mode.active else place, time + mode.size, tuple(values))


def _without_rows(groups: Groups, numbers: Sequence[int]) -> Groups:
    """The groups without these rows of their windows."""
    table = groups.tables[WINDOW]
    kept = np.setdiff1d(np.arange(len(table.owner)), np.array(numbers, np.int64))
    return Groups(groups.seen, {**groups.tables, WINDOW: _rows_of(table, kept)})


def _without_group(groups: Groups, slot: int) -> Groups:
    seen = groups.seen.copy()
    seen[slot] = -1
    return Groups(
        seen, {name: _rows_of(table, np.flatnonzero(table.owner != slot)) for name, table in groups.tables.items()}
    )


def _rows_of(table: TableRows, kept: Ints) -> TableRows:
    return TableRows(table.owner[kept], table.rows.take(pa.array(kept)))


def _together(found: list[tuple[int, Returned]]) -> Returned:
    """What was returned for parts of the tuples, each from a place on."""
    origins, times = [], []
    for start, returned in found:
        origin = (
            np.arange(len(returned.columns[0]) if returned.columns else 0)
            if returned.origin is None
            else returned.origin
        )
        origins.append(np.where(origin >= 0, origin + start, origin))
        if returned.time is not None:
            times.append(returned.time)
    columns = [pa.concat_arrays(parts) for parts in zip(*(returned.columns for _, returned in found), strict=True)]
    return Returned(np.concatenate(origins), np.concatenate(times) if times else None, columns)

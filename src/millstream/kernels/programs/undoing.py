"""An engine that leaves out the tuples that its program fails on: it goes back to what was before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import walk
from millstream.kernels.batch import Ints
from millstream.kernels.programs.engine import Engine, Groups, Mode, Returned, Sliding, TableRows
from millstream.plan.programs.nodes import AggregateValue, Program, Statement, expressions_of
from millstream.plan.programs.python import code_in
from millstream.records import dataclass

_LEAST = 4_096
"""so many tuples are worked on again rather than that what was before them is kept anew"""

Slots = npt.NDArray[np.int32]


def can_leave_out(program: Program, mode: Mode) -> bool:
    """Whether a program may fail on a tuple, and only on the one that comes: what fails when a tuple expires would fail
    again with each one that follows."""
    if code_in(program) is not None or not _fails(program.statements):
        return False
    return not (isinstance(mode, Sliding) and any(map(_fails, program.expiries)))


def _fails(statements: Sequence[Statement]) -> bool:
    exprs = [expr for statement in statements for expr in expressions_of(statement)]
    return any(can_fail(expr) or any(isinstance(part, AggregateValue) for part in walk(expr)) for expr in exprs)


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
    failed: list[tuple[int, str]] = field(default_factory=list)
    """the tuples that were left out last: their places, and why"""


class UndoingEngine:
    """Runs another engine; implements `engine.Engine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.numbers_tuples = engine.numbers_tuples

    def open(self) -> UndoingState:
        return UndoingState(self._engine.open())

    def arrive(self, state: UndoingState, slots: Slots, time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        state.failed = []
        state.slots = max(state.slots, int(slots.max(initial=-1)) + 1)

        def part(start: int, stop: int) -> Returned:
            """Work on some of the tuples."""
            own = slots[start:stop], time[start:stop], ids[start:stop], [arg.slice(start, stop - start) for arg in args]
            until = upto if stop == len(slots) else int(time[stop - 1])
            returned = self._engine.arrive(state.inner, *own, until)
            state.since.append(lambda inner: self._engine.arrive(inner, *own, until))
            state.has.update(np.unique(own[0]).tolist())
            state.tuples += stop - start
            if state.tuples > max(_LEAST, self._engine.rows_held(state.inner)):
                self._keep(state)
            return returned

        try:
            return part(0, len(slots))
        except DataError:
            if not len(slots):
                raise
            return self._parts(state, part, len(slots))

    def _parts(self, state: UndoingState, part: Callable[[int, int], Returned], count: int) -> Returned:
        """Work on tuples in as many parts as it takes to find those that fail."""
        self._restore(state)
        found: list[tuple[int, Returned]] = []
        start, size = 0, max(1, count // 2)
        while start < count:
            stop = min(start + size, count)
            try:
                found.append((start, part(start, stop)))
                start, size = stop, 2 * size
            except DataError as error:
                self._restore(state)
                if stop - start == 1:
                    state.failed.append((start, error.message))
                    start += 1
                size = max(1, (stop - start) // 2)
        # what expires after the last tuples, if they failed
        found.append((count, part(count, count)))
        return _together(found)

    def close(self, state: UndoingState, slots: Ints) -> Returned:
        places = np.array([place for place, slot in enumerate(slots.tolist()) if slot in state.has], np.int64)
        own = slots[places]
        returned = self._engine.close(state.inner, own)
        state.since.append(lambda inner: self._engine.close(inner, own))
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
        made = self._engine.export(state.inner, np.arange(state.slots, dtype=np.int64))
        tables = {
            name: TableRows(table.owner.copy(), table.rows.take(pa.array(np.arange(table.rows.num_rows))))
            for name, table in made.tables.items()
        }
        state.before, state.since, state.tuples = Groups(made.seen.copy(), tables), [], 0

    def _restore(self, state: UndoingState) -> None:
        state.inner = self._engine.open() if state.before is None else self._engine.load(state.before)
        for work in state.since:
            work(state.inner)


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

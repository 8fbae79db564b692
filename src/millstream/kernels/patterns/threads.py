"""The general machine: for each partition the ways that the pattern can still go, in order of preference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.nodes import columns_of
from millstream.kernels.batch import FOREVER, Ints
from millstream.kernels.jit import Compiled, as_input, compile_kernel, source_of
from millstream.kernels.keys.index import doubled
from millstream.kernels.patterns import cell_loops
from millstream.kernels.patterns import thread_loops as loops
from millstream.kernels.patterns.cell_loops import FOUND, M_NUMBER, M_SEQ, M_SLOT, M_TIME
from millstream.kernels.patterns.log import Bools, RowLog
from millstream.kernels.patterns.machine import (
    Found,
    Positions,
    ahead,
    far_shifts,
    floors,
    lead,
    needed_columns,
    no_row_to_skip_to,
    nothing_found,
    skip_to_first_row,
)
from millstream.kernels.patterns.program import Instructions
from millstream.kernels.patterns.replay import Matches, read_last, replayed
from millstream.kernels.patterns.row_by_row import Report, RowByRow
from millstream.kernels.patterns.telling import told_by_loop
from millstream.kernels.patterns.thread_state import FIRST_ROOM, MOST_WAYS, ThreadState
from millstream.kernels.patterns.threads_source import generate
from millstream.limits import check
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import MATCH_NUMBER, Search

_unroll = compile_kernel(source_of(cell_loops), "unroll")


class ThreadMachine:
    """Runs any search."""

    needs_rows = True

    def __init__(self, search: Search, reporting: bool = False, lenient: bool = False) -> None:
        self.search = search
        self._lenient = lenient
        self.reported: list[Report] = []
        """what the last call of `advance` could not compute, if that is wanted"""
        self._columns = needed_columns(search)
        self.generated = generate(search, {name: 2 * i for i, name in enumerate(self._columns)}, reporting)
        self._lanes = self.generated.lanes
        source = self.generated.source
        self._run, self._tell = (compile_kernel(source, name) for name in ("run", "tell"))
        self._fresh = np.zeros(self._lanes, dtype=np.int64)
        self._fresh[1] = -1
        self._fresh[self.generated.marks] = -1
        self._told = told_by_loop(search)
        self._lead = lead(search)
        self._is_numbered = _reads_number(search, self.generated.program)

    def describe(self) -> str:
        reason = self.generated.reason
        kind = "threads, one pass" if self.generated.together else "threads"
        return kind if reason is None else f"{kind}, row by row: {reason}"

    def open(self) -> ThreadState:
        return ThreadState(self._lanes, self.generated.marks)

    def advance(self, state: ThreadState, log: RowLog, since: int, upto: int) -> Found:
        state.hold(log.slots)
        self.reported = []
        touched, first_new = self._touched(state, log, since, upto)
        if not len(touched):
            return nothing_found(self.search)
        program, relevant = self.generated.program.code, self.generated.relevant
        cols = tuple(array for name in self._columns for array in (log.values[name], log.ok[name]))
        state.meta[: loops.POOL_USED] = 0
        state.expect(len(log) - since)
        results: list[Found] = []
        tries = 0
        before: tuple[int, ...] = ()
        size = len(self.generated.program)
        stack = np.zeros(4 * size + 16, dtype=np.int64)
        seen = np.zeros(2 * size, dtype=np.int64)
        state.meta[loops.IDS] = 0
        most = self.search.given.most
        limits = np.array([self.search.within or 0, -1 if most is None else most])
        ask = None
        if self.generated.asked:
            ask = RowByRow(self.search, self.generated, log, state.meta, self._lenient)
            self.reported = ask.reported
        constants = self.generated.constants.arrays(log.code_of)
        far = tuple(log.link(way * shift) for shift in far_shifts(self.search) for way in (-1, 1))
        env = (log.next, log.prev, far, log.labels, *constants, cols, ask)
        furthest = log.link(ahead(self.search) or 1)
        run = self._form(self._run, (len(log) - since) * state.room // FIRST_ROOM)
        rec = np.zeros(self._lanes, dtype=np.int64)
        while True:
            now, then = state.now, state.then
            # The threads of a row by a hash of what they know: for each remainder of hashes when it was met and its
            # newest thread, for each thread the one before it and its hash.
            room = state.room
            head = np.zeros(2 << (room - 1).bit_length(), dtype=np.int64)
            link = np.zeros(2 * room, dtype=np.int64)
            with _fitting():
                status = run(
                    touched, first_new, upto, log.time, log.seq, log.next, log.prev, furthest, log.last, log.cut,
                    state.slots, state.pool, state.meta, now, now.view(np.float64), then, then.view(np.float64), rec,
                    rec.view(np.float64), self._fresh, state.cells, stack, seen, head, link, program, relevant, limits,
                    state.found, env,
                )  # fmt: skip
            if status in (loops.DONE, loops.CELLS_FULL, loops.FOUND_FULL):
                results.append(self._flush(state, log, env))
            if status == loops.DONE:
                break
            check()
            # Where a second try does not get on either, it is one row alone that needs so much.
            k = int(touched[state.meta[loops.AT_SLOT]]) * loops.SLOT
            place = (k, *state.slots[[k + loops.START, k + loops.AT]].tolist())
            tries = tries + 1 if place == before else 0
            before = place
            self._make_room(state, int(status), tries)
            if status == loops.THREADS_FULL:
                # Many ways are as much work as many rows.
                run = self._form(self._run, state.room)
        return _together(results, self.search)

    def _form(self, function: Compiled, rows: int) -> Any:
        return function._python() if self.generated.asked else function.form(rows)

    def _touched(self, state: ThreadState, log: RowLog, since: int, upto: int) -> tuple[Ints, Ints]:
        """The slots that have new rows or whose time has come, and the first new row of each."""
        firsts = np.flatnonzero(log.prev[since:] < since) + since
        slots = log.slot[firsts]
        is_new = np.zeros(log.slots, dtype=np.bool_)
        is_new[slots] = True
        others = self._woken(state, upto)
        others = others[~is_new[others]]
        touched = np.concatenate([slots, others])
        return as_input(touched), as_input(np.concatenate([firsts, np.full(len(others), -1)]))

    def _woken(self, state: ThreadState, upto: int) -> Ints:
        """The slots that `advance` would work on without new rows."""
        table = state.table
        if upto == FOREVER:
            return np.flatnonzero((table[:, loops.START] >= 0) | (table[:, loops.ORIGIN] >= 0))
        return np.flatnonzero(table[:, loops.DUE] < upto)

    def _make_room(self, state: ThreadState, status: int, tries: int) -> None:
        match status:
            case loops.POOL_FULL:
                state.compact_pool()
            case loops.THREADS_FULL:
                if state.room == MOST_WAYS:
                    raise DataError(
                        f"there are more than {MOST_WAYS:,} ways to match the rows of an attempt",
                        detail="a way assigns rows to variables, as far as conditions on later rows depend on it",
                        hint="limit attempts with WITHIN, or test fewer variables that match the same rows",
                    )
                state.make_room(min(2 * state.room, MOST_WAYS))
            case loops.CELLS_FULL:
                state.collect_cells(FIRST_ROOM << tries)
            case loops.FOUND_FULL:
                state.found = doubled(state.found)
            case loops.NOWHERE:
                raise no_row_to_skip_to(self.search)
            case loops.SAME_ROW:
                raise skip_to_first_row(self.search)

    def _flush(self, state: ThreadState, log: RowLog, env: tuple[Any, ...]) -> Found:
        """What is told of the matches found so far."""
        count = int(state.meta[loops.FOUND_USED])
        state.meta[loops.FOUND_USED] = 0
        if not count:
            return nothing_found(self.search)
        begins = np.zeros(count + 1, dtype=np.int64)
        rows, labels = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        total = int(_unroll(count, state.found, count, state.cells, log.next, begins, rows, labels))
        if total:
            rows, labels = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
            _unroll(total, state.found, count, state.cells, log.next, begins, rows, labels)
        room = count if self.search.given.rows != "all" else count + total
        of, at = np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64)
        types = [self.search.values[name] for name in self._told]
        outs = [(np.zeros(room, dtype=type_.kernel), np.zeros(room, dtype=np.bool_)) for type_ in types]
        regs = np.zeros(self.generated.tell.width + 1, dtype=np.int64)
        marks = np.zeros(self.generated.tell.groups * total, dtype=np.int64)
        flat = [array for pair in outs for array in pair]
        with _fitting():
            made = int(
                self._form(self._tell, total + count)(
                    state.found, count, begins, rows, labels, env, marks, regs, regs.view(np.float64), of, at, *flat,
                )
            )  # fmt: skip
        of, at = of[:made], at[:made]
        found = state.found[: count * FOUND].reshape(-1, FOUND).copy()
        columns: dict[str, Any] = {
            name: (values[:made], ok[:made]) for name, (values, ok) in zip(self._told, outs, strict=True)
        }
        matches = Matches(found, begins, rows, labels, of, at)
        try:
            replays = self._replays(log, matches)
        except DataError:
            if not self._lenient:
                raise
            failing = self._failing(log, matches)
            kept = ~np.isin(of, failing)
            columns = {name: (values[kept], ok[kept]) for name, (values, ok) in columns.items()}
            matches = matches.chosen(np.setdiff1d(np.arange(count), failing))
            replays = self._replays(log, matches)
        found, of, columns = matches.found, matches.of, {**columns, **replays}
        return Found(
            found[of, M_SLOT], found[of, M_TIME], found[of, M_SEQ], matches.at,
            [columns[name] for name in self.search.columns],
        )  # fmt: skip

    def _replays(self, log: RowLog, matches: Matches) -> dict[str, pa.Array]:
        """The aggregates that have to see the rows of matches one after the other."""
        named = self.search.named
        return {
            name: replayed(self.search, value, log, matches)
            for name in self.search.columns
            if name not in self._told and isinstance(value := named[name], AggregateCall)
        }

    def _failing(self, log: RowLog, matches: Matches) -> list[int]:
        """The matches of which some aggregate cannot be computed; they are reported."""
        failing = []
        for number in range(len(matches.found)):
            one = matches.chosen(np.array([number]))
            try:
                self._replays(log, one)
            except DataError as error:
                failing.append(number)
                match = matches.found[number]
                own = [self.search.named[name] for name in self.search.columns if name in self.search.named]
                read = {
                    name: value
                    for each in own
                    if isinstance(each, AggregateCall) and each.name not in self._told
                    for name, value in read_last(self.search, each, log, one.rows).items()
                }
                values = {**read, "MATCH_NUMBER()": int(match[M_NUMBER])}
                time, seq, slot = (int(match[lane]) for lane in (M_TIME, M_SEQ, M_SLOT))
                self.reported.append(Report(time, seq, error.message, values, slot))
        return failing

    # -- rows that move, and saving --------------------------------------------------------------------------------

    def floors(self, state: ThreadState, log: RowLog) -> Ints:
        state.hold(log.slots)
        table = state.table[: log.slots]
        start, origin = table[:, loops.START], table[:, loops.ORIGIN]
        first = np.where((origin >= 0) & (start >= 0), np.minimum(origin, start), np.maximum(origin, start))
        return floors(log, first, self.search)

    def moved(self, state: ThreadState, new: Ints) -> None:
        state.move(new)

    def due(self, state: ThreadState) -> int:
        table = state.table
        return int(table[:, loops.DUE].min(initial=FOREVER))

    def idle(self, state: ThreadState, log: RowLog) -> Bools:
        state.hold(log.slots)
        table = state.table[: log.slots]
        if self.generated.program.anchored or self._lead or self._is_numbered:
            return np.zeros(len(table), dtype=np.bool_)
        idle: Bools = (table[:, loops.START] < 0) & (table[:, loops.ORIGIN] < 0)
        return idle

    def forget(self, state: ThreadState, slots: Ints) -> None:
        state.forget(slots)

    def export(self, state: ThreadState, slots: Ints, place: Ints) -> dict[str, pa.Array]:
        return state.export(slots, place)

    def load(self, columns: Mapping[str, pa.Array], positions: Positions) -> ThreadState:
        state = self.open()
        state.load(columns, positions)
        return state


def _reads_number(search: Search, program: Instructions) -> bool:
    """Whether the number of a match is told or asked for."""
    conditions = [condition for _, condition in search.conditions]
    args = [arg for summary in search.summaries for arg in summary.args]
    read = {name for expr in (*conditions, *program.checks, *args) for name in columns_of(expr)}
    return MATCH_NUMBER in (*search.columns, *read)


@contextmanager
def _fitting() -> Iterator[None]:
    """Results that do not fit their type are errors of the data."""
    try:
        yield
    except OverflowError as error:
        raise DataError("a value does not fit its type", detail=str(error) or None) from None


def _together(results: list[Found], search: Search) -> Found:
    results = [found for found in results if len(found)]
    if not results:
        return nothing_found(search)
    if len(results) == 1:
        return results[0]
    columns: list[Any] = []
    for i in range(len(search.columns)):
        own = [found.columns[i] for found in results]
        if isinstance(own[0], tuple):
            columns.append(tuple(np.concatenate([pair[k] for pair in own]) for k in (0, 1)))
        else:
            columns.append(pa.concat_arrays(own))
    slot, time, seq, row = (
        np.concatenate([getattr(found, name) for found in results]) for name in ("slot", "time", "seq", "row")
    )
    return Found(slot, time, seq, row, columns)

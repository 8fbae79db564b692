"""The machine for chains: patterns in which a row can go to one place only. One pass, no threads, no giving back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.kernels.batch import FOREVER, Ints
from millstream.kernels.jit import Compiled, compile_kernel, run_all, threads
from millstream.kernels.keys.words import all_true
from millstream.kernels.patterns.chain_layout import FLAGS_AT_MOST, LANES_BACK
from millstream.kernels.patterns.chain_plan import Plan, naive
from millstream.kernels.patterns.chain_source import (
    EVALUATIONS,
    FIRST_ROW,
    FOUND,
    META,
    NO_ROW,
    OVERFLOW,
    TROUBLE,
    ChainLoops,
    generate,
)
from millstream.kernels.patterns.chain_state import ChainState, FoundMatches
from millstream.kernels.patterns.coding import is_odd
from millstream.kernels.patterns.log import Bools, RowLog
from millstream.kernels.patterns.machine import (
    Array,
    Found,
    Positions,
    no_row_to_skip_to,
    nothing_found,
    skip_to_first_row,
)
from millstream.kernels.patterns.registers import is_incremental
from millstream.plan.patterns.chains import Chain, NoChain, chain_of
from millstream.plan.patterns.search import CLASSIFIER, Search
from millstream.plan.patterns.shifts import Shifts, shifts_of

_PARALLEL_ROWS = 16_384


@lru_cache(256)
def why_not(search: Search) -> str | None:
    """What keeps a search from being run by this machine; None if nothing does."""
    chain = chain_of(search)
    if isinstance(chain, NoChain):
        return str(chain)
    if search.given.rows != "one":
        return "matches emit their rows"
    if chain.is_nullable:
        return "an empty match is possible"
    if search.timeouts:
        return "timeouts are emitted"
    for reach in search.reaches:
        if reach.shift > 0:
            return f"{reach} looks ahead"
        if is_odd(reach.type) or (reach.column == CLASSIFIER and reach.shift):
            return f"{reach} is not kept by value"
        if not reach.first and reach.offset > LANES_BACK:
            return f"{reach} looks too far back"
    for summary in search.summaries:
        if not is_incremental(summary):
            return f"{summary.told} needs the rows"
    plan = plan_of(search, chain, True)
    if len(plan.layout.flags) > FLAGS_AT_MOST:
        return "it reads too many values"
    try:
        generate(plan, nulls=True)
    except NotCompilable as reason:
        return str(reason)
    return None


@lru_cache(256)
def plan_of(search: Search, chain: Chain, shifting: bool = True) -> Plan:
    """How a chain is searched for; without `shifting`, naively."""
    return Plan(search, chain, shifts_for(search, chain) if shifting else naive(chain, search.whole_runs))


def shifts_for(search: Search, chain: Chain) -> Shifts:
    """Where a search goes on after failures; at the last row of a run only where the row behind that is there."""
    plain = shifts_of(chain, search)
    return replace(shifts_of(chain, search, last_rows=True), late=plain.late, ended=plain.ended)


class ChainMachine:
    """Runs a search for a chain; `why_not` must have nothing against it.

    With `counting`, the state tells how often conditions were asked; without `shifting`, the search goes on at the next
    row after a failure, whatever is known of it.
    """

    def __init__(self, search: Search, *, shifting: bool = True, counting: bool = False) -> None:
        chain = chain_of(search)
        assert isinstance(chain, Chain)
        self.search, self.chain = search, chain
        self.plan = plan_of(search, chain, shifting)
        self.layout = self.plan.layout
        self._counting = counting

    @cached_property
    def generated(self) -> tuple[ChainLoops, ChainLoops]:
        """The loops while no column has been NULL, and those for afterwards."""
        plain, careful = (generate(self.plan, nulls, self._counting) for nulls in (False, True))
        return plain, careful

    @cached_property
    def _loops(self) -> tuple[tuple[Compiled, Compiled], ...]:
        return tuple((compile_kernel(one.step, "step"), compile_kernel(one.settle, "settle")) for one in self.generated)

    @property
    def needs_rows(self) -> bool:
        """Whether rows are looked at again after the batch they came in; if not, links between them are not used."""
        return self.layout.logged

    def open(self) -> ChainState:
        return ChainState(self.layout)

    def advance(self, state: ChainState, log: RowLog, since: int, upto: int) -> Found:
        state.prepare(log, self._unasked)
        pieces = self._take(state, log, since) if len(log) > since else []
        if upto == FOREVER or upto > self.due(state):
            pieces.append(self._settle(state, log, upto))
        for piece in pieces:
            state.evaluations += int(piece.meta[EVALUATIONS])
            _raise_trouble(self.search, int(piece.meta[TROUBLE]))
        found = self._found(state, log, pieces)
        state.sweep()
        return found

    def _take(self, state: ChainState, log: RowLog, since: int) -> list[FoundMatches]:
        rows = len(log) - since
        step = self._loops[state.nulls][0].form(rows)
        shards = 1
        while rows >= _PARALLEL_ROWS and shards < threads():
            shards *= 2
        slots = log.slot[since:]
        inputs = self._inputs(state, log, since)

        def run(number: int) -> FoundMatches:
            own, at, count = (
                state.everything(since, slots) if shards == 1 else state.dealt(number, since, slots, shards)
            )
            piece = self._piece(state, number, count, log)
            step(own, at, count, piece.meta, *inputs, *piece.arrays)
            return piece

        return run_all([partial(run, number) for number in range(shards)])

    def _settle(self, state: ChainState, log: RowLog, upto: int) -> FoundMatches:
        lanes, records = self.layout.lanes, state.records
        waits = records[:, lanes["state"]] != 0
        if upto < FOREVER:
            waits &= records[:, lanes["deadline"]] < upto
        at = (np.flatnonzero(waits) * self.layout.width).astype(np.uint32)
        piece = self._piece(state, -1, len(at), log)
        self._loops[state.nulls][1](len(at), at, upto, piece.meta, *self._inputs(state, log, len(log)), *piece.arrays)
        return piece

    def _inputs(self, state: ChainState, log: RowLog, since: int) -> list[Array]:
        constants = self.generated[state.nulls].constants.arrays(lambda texts: state.code_of(log, texts))
        inputs: list[Any] = [*constants, state.labels(log), self.search.within or 0, log.time, log.seq]
        if self.layout.logged:
            inputs += [log.next, log.prev, *(log.link(-back) for back in self.layout.backs if back > 1)]
        return [*inputs, *state.columns(log, since), state.record, state.record.view(np.float64)]

    def _piece(self, state: ChainState, shard: int, count: int, log: RowLog) -> FoundMatches:
        """Room for what is found: matches begin at different rows, of which the log may have dropped one per slot."""
        room = (len(log) + len(state.records) if self.layout.logged else 2 * count) + 2
        return FoundMatches(np.zeros(META, dtype=np.int64), state.room(shard, room, self._kinds[state.nulls]))

    @cached_property
    def _kinds(self) -> tuple[tuple[str, ...], ...]:
        """The types of the arrays for what is found, without and with NULLs in columns."""
        every = []
        for generated in self.generated:
            kinds = ["int64"] * 3
            for name, flagged in zip(self.search.columns, generated.flagged, strict=True):
                kinds += [self.search.values[name].kernel, *(["bool"] if flagged else [])]
            every.append(tuple(kinds))
        return tuple(every)

    def _found(self, state: ChainState, log: RowLog, pieces: list[FoundMatches]) -> Found:
        if not pieces:
            return nothing_found(self.search)
        found = [[array[: int(piece.meta[FOUND])] for array in piece.arrays] for piece in pieces]
        joined = map(np.concatenate, zip(*found, strict=True))
        slot, time, seq = next(joined) // self.layout.width, next(joined), next(joined)
        columns: list[tuple[Array, Bools] | pa.Array] = []
        for name, flagged in zip(self.search.columns, self.generated[state.nulls].flagged, strict=True):
            values = next(joined)
            ok = next(joined) if flagged else all_true(len(slot))
            is_text = self.search.values[name].is_coded
            columns.append(state.text_of(values, ok, log) if is_text else (values, ok))
        return Found(slot, time, seq, np.full(len(slot), -1, dtype=np.int64), columns)

    @cached_property
    def _unasked(self) -> int:
        """The flags that are not kept as long as no column is NULL: what they stand for is there when it is read."""
        asked = self.generated[0].asked
        return sum(1 << bit for name, bit in self.layout.flags.items() if name not in asked)

    # -- memory ----------------------------------------------------------------------------------------------------

    def floors(self, state: ChainState, log: RowLog) -> Ints:
        return state.floors(log, self.plan)

    def moved(self, state: ChainState, new: Ints) -> None:
        state.move(new)

    def due(self, state: ChainState) -> int:
        if self.search.within is None or not len(state.records):
            return FOREVER
        lanes, records = self.layout.lanes, state.records
        waits = records[:, lanes["state"]] != 0
        return int(records[waits, lanes["deadline"]].min(initial=FOREVER))

    def idle(self, state: ChainState, log: RowLog) -> Bools:
        idle = np.ones(log.slots, dtype=np.bool_)
        if self.layout.lead:
            idle[:] = False
        records = state.records[: log.slots]
        idle[: len(records)] &= records[:, self.layout.lanes["state"]] == 0
        if self.layout.is_numbered:
            idle[: len(records)] &= records[:, self.layout.lanes["number"]] == 0
        return idle

    def forget(self, state: ChainState, slots: Ints) -> None:
        state.records[slots[slots < len(state.records)]] = 0

    def export(self, state: ChainState, slots: Ints, place: Ints) -> dict[str, pa.Array]:
        return state.export(slots, place, self._unasked)

    def load(self, columns: Mapping[str, pa.Array], positions: Positions) -> ChainState:
        return ChainState.load(self.layout, columns, positions)

    def describe(self) -> str:
        kept = "rows are kept while they may be looked at again" if self.layout.logged else "no rows are kept"
        return f"chain {self.chain}, {kept}"

    def lines(self) -> list[str]:
        """Where the search goes on after failures, for EXPLAIN."""
        return self.plan.shifts.lines(self.chain)


def _raise_trouble(search: Search, trouble: int) -> None:
    if trouble == OVERFLOW:
        raise DataError("a value does not fit its type", detail="in a condition or an aggregate of a pattern")
    if trouble == NO_ROW:
        raise no_row_to_skip_to(search)
    if trouble == FIRST_ROW:
        raise skip_to_first_row(search)

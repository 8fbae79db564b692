"""The join of rows with intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream import limits
from millstream.kernels.batch import BEGIN, Batch, Ints, concat
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations import join_loops
from millstream.kernels.relations.join import LEFT, RIGHT, JoinSpec
from millstream.kernels.relations.join_columns import JoinColumns, Sources
from millstream.kernels.relations.join_state import JoinState, Side
from millstream.kernels.saving.content import Content, KeptRows
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.source.sides import both_sides
from millstream.kernels.streams.runs import in_order

_match = compile_kernel(both_sides(source_of(join_loops)), "match")
_cover = compile_kernel(source_of(join_loops), "cover")
_settle = compile_kernel(source_of(join_loops), "settle")

_PAIRS_AT_ONCE = 65_536

Pairs = tuple[Ints, Ints, Ints, Ints]
"""Positions on the left, on the right, starts and ends."""


class JoinKernel:
    """Runs a JoinSpec over intervals.

    Rows wait until the other input has come to their start. Then both sides are swept in order of start: each row meets
    the valid ones of the other side with its key, so that pairs come in order of their starts. Times for which a row is
    matched, or is not, are known only when they end; results wait for those that began before them.
    """

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self._types = [spec.left[name].type for name in spec.by]
        self._columns = JoinColumns(spec)

    def open(self) -> JoinState:
        keys = KeyTable(self._types) if self._types else None
        left, right = (Side(self._columns.kept[side].arrow, self.spec.tracks(side)) for side in (LEFT, RIGHT))
        return JoinState(keys, (left, right), [BEGIN, BEGIN])

    def step(self, state: JoinState, batch: Batch) -> Batch:
        state.upto[batch.port] = max(state.upto[batch.port], batch.upto)
        if len(batch):
            self._take_in(state, batch)
        results = list(self._results(state))
        upto = state.now
        if self.spec.how != "inner":
            upto = min(self._settled(state, side, results) for side in (LEFT, RIGHT))
            for result in results:
                state.held.add(result)
            results = state.held.release(upto)
            results = [in_order(results)] if results else []
        state.purge()
        return concat(results, upto) if results else Batch.empty(self.spec.output.arrow, upto)

    def _take_in(self, state: JoinState, batch: Batch) -> None:
        rows = self._columns.keep(batch.rows, batch.port)
        matchable = self._columns.matchable(rows, batch.port)
        keys = self._keys(state, rows, matchable, batch.port)
        if not matchable.all() and not self.spec.keeps_unmatched(batch.port):
            usable = np.flatnonzero(matchable)
            batch, rows, keys = batch.take(usable), rows.take(pa.array(usable)), keys[usable]
        if len(rows):
            state.sides[batch.port].append(batch.with_rows(rows), keys)

    def _keys(
        self, state: JoinState, rows: pa.RecordBatch, matchable: npt.NDArray[np.bool_], port: int
    ) -> npt.NDArray[np.int32]:
        """The slot of each row's key, -1 if it equals no other."""
        keys = np.zeros(len(rows), dtype=np.int32)
        size = 1
        if state.keys is not None:
            keys = state.keys.encode(self._columns.keys(rows, port))
            size = state.keys.size
            if not matchable.all():
                keys[~matchable] = -1
        for side in state.sides:
            side.reach(size)
        return keys

    # -- what comes of it ------------------------------------------------------------------------------------------

    def _results(self, state: JoinState) -> Iterator[Batch]:
        """Pairs, and times that they end for the rows in them."""
        for pairs in self._pairs(state):
            if self.spec.pairs_are_results:
                yield self._made(self._sources(state, pairs[0], pairs[1]), pairs[2], pairs[3])
            for side in (LEFT, RIGHT):
                if self.spec.tracks(side):
                    yield from self._covered(state, side, pairs)

    def _pairs(self, state: JoinState) -> Iterator[Pairs]:
        """The pairs of rows that have started by now, of which one has not been entered, in blocks."""
        left, right = state.sides
        stops = [side.until(state.now) for side in state.sides]
        where = np.array([left.entered, right.entered, join_loops.ANEW, -1])
        made = 0
        while where[LEFT] < stops[LEFT] or where[RIGHT] < stops[RIGHT]:
            out = tuple(np.empty(_PAIRS_AT_ONCE, dtype=np.int64) for _ in range(4))
            count = _match(
                sum(stops) - left.entered - right.entered,
                left.start, left.end, left.key, left.next, left.head, stops[LEFT],
                right.start, right.end, right.key, right.next, right.head, stops[RIGHT],
                where, *out,
            )  # fmt: skip
            pairs = self._fulfilling(state, (out[0][:count], out[1][:count], out[2][:count], out[3][:count]))
            made += len(pairs[0])
            limits.check_made(made)
            if len(pairs[0]):
                yield pairs
        left.entered, right.entered = stops

    def _fulfilling(self, state: JoinState, pairs: Pairs) -> Pairs:
        if not len(pairs[0]):
            return pairs
        mask = self._columns.holds(self._sources(state, pairs[0], pairs[1]), len(pairs[0]))
        return pairs if mask is None else (pairs[0][mask], pairs[1][mask], pairs[2][mask], pairs[3][mask])

    def _covered(self, state: JoinState, number: int, pairs: Pairs) -> Iterator[Batch]:
        side = state.sides[number]
        out = tuple(np.empty(len(pairs[0]), dtype=np.int64) for _ in range(3))
        is_gap = self.spec.keeps_unmatched(number)
        count = _cover(len(pairs[0]), pairs[number], pairs[2], pairs[3], is_gap, side.opened, side.edge, *out)
        yield from self._times(state, number, count, *out)

    def _settled(self, state: JoinState, number: int, results: list[Batch]) -> int:
        """Add the times of rows that no later pair changes; where the first begins that is open."""
        if not self.spec.tracks(number):
            return state.now
        side = state.sides[number]
        most = side.entered - side.finished
        out = tuple(np.empty(most, dtype=np.int64) for _ in range(3))
        found = np.empty(2, dtype=np.int64)
        is_gap = self.spec.keeps_unmatched(number)
        count = _settle(
            most, side.end, side.finished, side.entered, state.now, is_gap, side.opened, side.edge, *out, found
        )
        side.finished = int(found[1])
        results.extend(self._times(state, number, count, *out))
        return int(found[0])

    def _times(
        self, state: JoinState, number: int, count: int, rows: Ints, starts: Ints, ends: Ints
    ) -> Iterator[Batch]:
        if count:
            sources = self._sources(state, *((rows[:count], None) if number == LEFT else (None, rows[:count])))
            yield self._made(sources, starts[:count], ends[:count])

    def _made(self, sources: Sources, starts: Ints, ends: Ints) -> Batch:
        rows = self._columns.results(sources, len(starts))
        return Batch(rows, starts, np.zeros(len(starts), dtype=np.int64), BEGIN, ends)

    def _sources(self, state: JoinState, left: Ints | None, right: Ints | None) -> Sources:
        return (
            None if left is None else partial(state.sides[LEFT].rows.columns, left),
            None if right is None else partial(state.sides[RIGHT].rows.columns, right),
        )

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: JoinState) -> Content:
        # Results are not of a key; whichever part has them gives them once nothing earlier can come.
        parts: dict[str, KeptRows | Ints] = {"upto": np.array(state.upto), "held": replace(state.held.kept(), by=())}
        for number, side in enumerate(state.sides):
            live = side.live(state.now)
            cover = {f"opened{number}": side.opened[live], f"edge{number}": side.edge[live]} if side.is_tracked else {}
            parts[f"side{number}"] = KeptRows(side.rows.lasting[live], partial(_stored, side, live), cover)
        return parts

    def load(self, parts: Saved) -> JoinState:
        state = self.open()
        state.upto = [int(value) for value in parts.array("upto")]
        for number, side in enumerate(state.sides):
            if (name := f"side{number}") in parts:
                stored = parts.batch(name, BEGIN)
                keys = self._keys(state, stored.rows, self._columns.matchable(stored.rows, number), number)
                cover = (parts.array(f"opened{number}"), parts.array(f"edge{number}")) if side.is_tracked else None
                side.append(stored, keys, cover, parts.numbers(name))
                side.enter(side.until(state.now))
        if "held" in parts:
            state.held.add(parts.batch("held", BEGIN), parts.numbers("held"))
        return state


def _stored(side: Side, live: Ints, places: Ints) -> Batch:
    positions = live[places]
    nothing = np.zeros(len(positions), dtype=np.int64)
    return Batch(side.rows.take(positions), side.start[positions], nothing, BEGIN, side.end[positions])

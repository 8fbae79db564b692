"""The join of changes: rows that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from millstream import limits
from millstream.kernels.batch import BEGIN, Batch, Ints, concat
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations import join_change_loops
from millstream.kernels.relations.join import LEFT, RIGHT, JoinSpec
from millstream.kernels.relations.join_bags import Bag, BagState
from millstream.kernels.relations.join_columns import JoinColumns, Sources
from millstream.kernels.relations.signs import apart, signed, with_signs
from millstream.kernels.saving.content import Content, Few, KeptRows
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.source.sides import both_sides
from millstream.kernels.streams.runs import in_order

_match = compile_kernel(both_sides(source_of(join_change_loops)), "match_changes")
_cover = compile_kernel(source_of(join_change_loops), "cover_changes")

_PAIRS_AT_ONCE = 65_536

Events = tuple[Ints, Ints, Ints]
"""Times of changes, slots of the rows that change, and signs."""

_LEFT_VALUE, _RIGHT_VALUE, _TIME, _PAIRS, _OF_LEFT, _OF_RIGHT = range(6)


class ChangesJoinKernel:
    """Runs a JoinSpec over changes.

    Each change meets the rows that are there on the other side; as pairs are bilinear, the order within an instant does
    not matter. How many rows match a row is counted, and looked at when an instant is complete.
    """

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self._types = [spec.left[name].type for name in spec.by]
        self._columns = JoinColumns(spec)

    def open(self) -> BagState:
        keys = KeyTable(self._types) if self._types else None
        kept = self._columns.kept
        return BagState(keys, (Bag(kept[LEFT]), Bag(kept[RIGHT])), [BEGIN, BEGIN])

    def step(self, state: BagState, batch: Batch) -> Batch:
        state.upto[batch.port] = max(state.upto[batch.port], batch.upto)
        if len(batch):
            self._let_wait(state, batch)
        left, right = (self._complete(state, port) for port in (LEFT, RIGHT))
        results = list(self._results(state, left, right)) if len(left[0]) or len(right[0]) else []
        state.purge()
        if not results:
            return Batch.empty(self.spec.output.arrow, state.now)
        return in_order(results).with_upto(state.now)

    def _let_wait(self, state: BagState, batch: Batch) -> None:
        rows, signs = apart(batch.rows)
        rows = self._columns.keep(rows, batch.port)
        matchable = self._columns.matchable(rows, batch.port)
        batch = batch.with_rows(with_signs(rows, signs, signed(self._columns.kept[batch.port])))
        if not matchable.all() and not self.spec.keeps_unmatched(batch.port):
            batch = batch.take(np.flatnonzero(matchable))
        if len(batch):
            state.waiting[batch.port].append(batch)

    def _complete(self, state: BagState, port: int) -> Events:
        """The changes of complete instants, in order; their rows have slots from now on."""
        done, kept = [], []
        for batch in state.waiting[port]:
            stop = int(np.searchsorted(batch.time, state.now))
            done += [batch.slice(0, stop)] if stop else []
            kept += [batch.slice(stop, len(batch))] if stop < len(batch) else []
        state.waiting[port] = kept
        if not done:
            nothing = as_input(np.empty(0, dtype=np.int64))
            return nothing, nothing, nothing
        batch = concat(done, BEGIN)
        rows, signs = apart(batch.rows)
        return as_input(batch.time), as_input(self._slots(state, rows, port)), as_input(signs)

    def _slots(self, state: BagState, rows: pa.RecordBatch, port: int) -> Ints:
        keys = np.zeros(len(rows), dtype=np.int64)
        size = 1
        if state.keys is not None:
            matchable = self._columns.matchable(rows, port)
            keys = np.where(matchable, state.keys.encode(self._columns.keys(rows, port)), -1)
            size = state.keys.size
        state.sides[1 - port].reach(size)
        return state.sides[port].encode(rows, keys, size)

    # -- what comes of it ------------------------------------------------------------------------------------------

    def _results(self, state: BagState, left: Events, right: Events) -> Iterator[Batch]:
        met: list[tuple[Ints, ...]] = []
        for pairs in self._pairs(state, left, right):
            if self.spec.pairs_are_results:
                changes = np.flatnonzero(pairs[_PAIRS])
                own = (pairs[_LEFT_VALUE][changes], pairs[_RIGHT_VALUE][changes])
                yield from self._made(state, own, pairs[_TIME][changes], pairs[_PAIRS][changes])
            met.append(pairs)
        for number, events in ((LEFT, left), (RIGHT, right)):
            if self.spec.tracks(number):
                yield from self._covered(state, number, events, met)

    def _pairs(self, state: BagState, left: Events, right: Events) -> Iterator[tuple[Ints, ...]]:
        """What changes among pairs, in blocks: left and right slots, times, and changes of numbers."""
        where = np.array([0, 0, join_change_loops.ANEW, -1])
        size = len(left[0]) + len(right[0])
        mine, theirs = state.sides
        made = 0
        while where[LEFT] < len(left[0]) or where[RIGHT] < len(right[0]):
            out = tuple(np.empty(_PAIRS_AT_ONCE, dtype=np.int64) for _ in range(6))
            count = _match(
                size,
                *left, mine.key, mine.count, mine.next, mine.head,
                *right, theirs.key, theirs.count, theirs.next, theirs.head,
                self.spec.tracks(LEFT), self.spec.tracks(RIGHT), where, *out,
            )  # fmt: skip
            pairs = tuple(values[:count] for values in out)
            matters = pairs[_PAIRS] != 0
            for number, change in ((LEFT, _OF_LEFT), (RIGHT, _OF_RIGHT)):
                if self.spec.tracks(number):
                    matters |= pairs[change] != 0
            pairs = tuple(values[matters] for values in pairs)
            if len(pairs[0]):
                sources = self._sources(state, pairs[_LEFT_VALUE], pairs[_RIGHT_VALUE])
                mask = self._columns.holds(sources, len(pairs[0]))
                pairs = pairs if mask is None else tuple(values[mask] for values in pairs)
                yield pairs
            made += len(pairs[0])
            limits.check_made(made)

    def _covered(self, state: BagState, number: int, events: Events, met: list[tuple[Ints, ...]]) -> Iterator[Batch]:
        side = state.sides[number]
        value, change = (_LEFT_VALUE, _OF_LEFT) if number == LEFT else (_RIGHT_VALUE, _OF_RIGHT)
        nothing = [np.empty(0, dtype=np.int64)]
        times, values, changes = (np.concatenate([p[i] for p in met] or nothing) for i in (_TIME, value, change))
        most = len(events[0]) + len(times)
        out = tuple(np.empty(most, dtype=np.int64) for _ in range(3))
        size = len(side.count)
        count = _cover(
            most, *events, times, values, changes, self.spec.keeps_unmatched(number),
            side.shown, side.matches, side.given, np.zeros(size, dtype=np.bool_), np.empty(size, dtype=np.int64), *out,
        )  # fmt: skip
        if count:
            slots = out[0][:count]
            yield from self._made(
                state, (slots, None) if number == LEFT else (None, slots), out[1][:count], out[2][:count]
            )

    def _made(
        self, state: BagState, slots: tuple[Ints | None, Ints | None], times: Ints, changes: Ints
    ) -> Iterator[Batch]:
        """Changes of results, each as often as its number tells."""
        if not len(times):
            return
        often = np.abs(changes)
        left, right = (None if own is None else np.repeat(own, often) for own in slots)
        times = np.repeat(times, often)
        rows = self._columns.results(self._sources(state, left, right), len(times))
        rows = with_signs(rows, np.repeat(np.sign(changes), often), self.spec.output)
        yield Batch(rows, times, np.zeros(len(times), dtype=np.int64), BEGIN)

    def _sources(self, state: BagState, left: Ints | None, right: Ints | None) -> Sources:
        return (
            None if left is None else partial(state.sides[LEFT].take, left),
            None if right is None else partial(state.sides[RIGHT].take, right),
        )

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: BagState) -> Content:
        parts: dict[str, KeptRows | Ints | Few] = {"upto": np.array(state.upto)}
        for number, side in enumerate(state.sides):
            changing = {f"count{number}": side.count, f"matches{number}": side.matches}
            parts[f"side{number}"] = side.numbers.kept(side.present(), side.rows, changing)
            if state.waiting[number]:
                parts[f"waiting{number}"] = Few(concat(state.waiting[number], BEGIN))
        return parts

    def load(self, parts: Saved) -> BagState:
        state = self.open()
        state.upto = [int(value) for value in parts.array("upto")]
        for number, side in enumerate(state.sides):
            if (name := f"side{number}") in parts:
                slots = self._slots(state, parts.rows(name), number)
                side.numbers.give(slots, parts.numbers(name))
                counts, matches = (parts.array(f"{own}{number}") for own in ("count", "matches"))
                side.count[slots] = side.shown[slots] = counts
                side.matches[slots] = matches
                if self.spec.tracks(number):
                    side.given[slots] = np.where((matches == 0) == self.spec.keeps_unmatched(number), counts, 0)
                side.chain()
            if f"waiting{number}" in parts:
                state.waiting[number].append(parts.batch(f"waiting{number}", BEGIN))
        return state

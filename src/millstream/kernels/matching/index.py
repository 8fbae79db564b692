"""An index on the rows of a table, for the rows of a stream that ask which of them match.

Rows of the table lie in runs: a hash of the equalities finds the run, an interval tree over the first range the entries
in it; further ranges are compared there, and conditions of other kinds are left to the caller. Rows come and go while
the index is used: new ones form a small level of their own, and a level is merged with the next larger one before it
comes near its size. So a row costs O(log n) to add, amortised, and one that goes is only marked until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream import limits
from millstream.arrays import one_batch
from millstream.expressions.evaluator import compile_arrow
from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.keys.words import Bools, to_words, validity
from millstream.kernels.matching import match_loops
from millstream.kernels.matching.condition import MatchCondition
from millstream.schema import Schema
from millstream.types import SqlType

LEAST, MOST = -(2**63), 2**63 - 1
_GROWTH = 4
_DEPTH = 200
"""twice the height of a tree over as many rows as there can be, and more"""
_MOST_PAIRS = 1 << 26
"""so many pairs at once count as rows, for limits: they need a gigabyte"""

_fill_tops = compile_kernel(source_of(match_loops), "fill_tops")
_find_matches = compile_kernel(source_of(match_loops), "find_matches")


class Level:
    """Rows of the table in the order in which they are searched."""

    def __init__(self, rows: pa.RecordBatch, numbers: Ints, slots: Ints, lows: Ints, highs: Ints) -> None:
        order = np.lexsort((highs[0], lows[0], slots)) if len(lows) else np.argsort(slots, kind="stable")
        self.rows = rows.take(pa.array(order))
        self.numbers = numbers[order]
        self.slots = slots[order]
        self.lows, self.highs = lows[:, order], highs[:, order]
        self.alive = np.ones(len(order), dtype=np.uint8)
        self.dead = 0
        size = int(self.slots[-1]) + 1 if len(order) else 0
        edges = np.searchsorted(self.slots, np.arange(size + 1))
        self.firsts, self.counts = edges[:-1], np.diff(edges)
        self.top = np.empty(len(order) if len(lows) else 0, dtype=np.int64)
        if len(lows):
            stack = np.empty((_DEPTH, 3), dtype=np.int64)
            _fill_tops(len(order), self.firsts, self.counts, np.ascontiguousarray(self.highs[0]), self.top, stack)

    def __len__(self) -> int:
        return len(self.numbers) - self.dead

    def find(self, slots: Ints, usable: Bools, values: Ints) -> tuple[Ints, Ints]:
        """The rows of the stream and the entries that match, in order of the former."""
        if not len(self.lows):
            return self._whole_runs(np.where(usable & (slots < len(self.firsts)), slots, -1))
        rows, row = len(slots), 0
        room = max(256, 2 * rows)
        out_row, out_entry = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
        found, stack = np.zeros(1, dtype=np.int64), np.empty((_DEPTH, 3), dtype=np.int64)
        while True:
            row = _find_matches(
                rows, row, rows, slots, usable, values, self.firsts, self.counts, self.lows, self.highs, self.top,
                self.alive, out_row, out_entry, found, stack,
            )  # fmt: skip
            if row == rows:
                return out_row[: found[0]], out_entry[: found[0]]
            _check_pairs(2 * len(out_row))
            out_row, out_entry = (np.concatenate([array, np.empty_like(array)]) for array in (out_row, out_entry))

    def _whole_runs(self, slots: Ints) -> tuple[Ints, Ints]:
        """Every entry of the run of each row: without an order there is nothing to search."""
        found = np.flatnonzero(slots >= 0)
        counts = self.counts[slots[found]]
        _check_pairs(int(counts.sum()))
        left = np.repeat(found, counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        entries = np.repeat(self.firsts[slots[found]], counts) + within
        if not self.dead:
            return left, entries
        alive = self.alive[entries] != 0
        return left[alive], entries[alive]


def _check_pairs(pairs: int) -> None:
    """Many pairs need not become many rows, but they need memory."""
    limits.check_made(pairs if pairs > _MOST_PAIRS else 0)


class MatchIndex:
    """The rows of a table by a join condition; of one that matches, the columns `kept` are given. Each row has a number
    of the caller's, small and its own, by which it goes again."""

    def __init__(self, condition: MatchCondition, stream: Schema, table: Schema, kept: Schema | None = None) -> None:
        self._ranges = condition.ranges
        self._types = tuple(theirs.type for _, theirs in condition.pairs)
        self._keys = KeyTable(self._types) if self._types else None
        mine = [*(mine for mine, _ in condition.pairs), *(each.value for each in self._ranges)]
        bounds = [bound for each in self._ranges for bound, _ in (*each.above, *each.below)]
        self._mine = compile_arrow(mine, stream)
        self._theirs = compile_arrow([*(theirs for _, theirs in condition.pairs), *bounds], table)
        self._kept = table if kept is None else kept
        self.levels: list[Level] = []
        self._level_of: npt.NDArray[Any] = np.empty(0, dtype=object)
        self._place_of = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return sum(map(len, self.levels))

    def add(self, rows: pa.RecordBatch, numbers: Ints) -> None:
        """Rows of the table, each under its number."""
        pairs, bounds = self._parts(self._theirs(rows))
        lows, highs = self._intervals(bounds, rows.num_rows)
        # what can never match is not kept: a NULL equals nothing, and nothing lies in an empty interval
        usable = _all_valid([*pairs, *bounds], rows.num_rows) & (lows <= highs).all(axis=0)
        kept = np.flatnonzero(usable)
        if not len(kept):
            return
        slots = np.zeros(len(kept), dtype=np.int64)
        if self._keys is not None:
            slots = self._keys.encode([column.take(pa.array(kept)) for column in pairs]).astype(np.int64)
        found = rows.select(list(self._kept.names)).take(pa.array(kept))
        self._enter(Level(found, numbers[kept], slots, lows[:, kept], highs[:, kept]))
        while len(self.levels) > 1 and len(self.levels[-2]) < _GROWTH * len(self.levels[-1]):
            self._enter(_joined([self.levels.pop(), self.levels.pop()]))

    def drop(self, numbers: Ints) -> None:
        """Rows go again, by their numbers."""
        known = numbers[numbers < len(self._level_of)]
        touched: list[Level] = []
        for number in known:
            level = self._level_of[number]
            if level is not None:
                level.alive[self._place_of[number]] = 0
                level.dead += 1
                self._level_of[number] = None
                touched.append(level)
        if not touched:
            return
        thin = [level for level in self.levels if 2 * level.dead > len(level.numbers)]
        self.levels = [level for level in self.levels if 2 * level.dead <= len(level.numbers)]
        for level in thin:
            if len(level):
                self._enter(_joined([level]))
        self.levels.sort(key=len, reverse=True)

    def match(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        """For each match the number of the stream's row, in order, and the table's row."""
        pairs, values = self._parts(self._mine(rows))
        usable = _all_valid([*pairs, *values], rows.num_rows)
        slots = np.zeros(rows.num_rows, dtype=np.int64)
        if self._keys is not None:
            slots = self._keys.lookup(pairs).astype(np.int64)
        words = np.empty((len(self._ranges), rows.num_rows), dtype=np.int64)
        for lane, each in enumerate(self._ranges):
            words[lane] = ordered_words(values[lane], each.value.type)
        found = [(level, *level.find(slots, usable, words)) for level in self.levels]
        found = [(level, left, entries) for level, left, entries in found if len(left)]
        if not found:
            return np.empty(0, dtype=np.int64), pa.RecordBatch.from_pylist([], schema=self._kept.arrow)
        left = np.concatenate([left for _, left, _ in found])
        right = [level.rows.take(pa.array(entries)) for level, _, entries in found]
        if len(found) == 1:
            return left, right[0]
        order = np.argsort(left, kind="stable")
        return left[order], one_batch(right).take(pa.array(order))

    def _enter(self, level: Level) -> None:
        self.levels.append(level)
        size = int(level.numbers.max()) + 1
        if size > len(self._level_of):
            room = max(size, 2 * len(self._level_of))
            self._level_of = np.concatenate([self._level_of, np.full(room - len(self._level_of), None, dtype=object)])
            self._place_of = np.concatenate([self._place_of, np.zeros(room - len(self._place_of), dtype=np.int64)])
        self._level_of[level.numbers] = level
        self._place_of[level.numbers] = np.arange(len(level.numbers))

    def _parts(self, columns: list[pa.Array]) -> tuple[list[pa.Array], list[pa.Array]]:
        return columns[: len(self._types)], columns[len(self._types) :]

    def _intervals(self, bounds: list[pa.Array], rows: int) -> tuple[Ints, Ints]:
        """The least and the greatest word that each row takes, by range; an empty interval ends before it begins."""
        lows = np.full((len(self._ranges), rows), LEAST, dtype=np.int64)
        highs = np.full((len(self._ranges), rows), MOST, dtype=np.int64)
        given = iter(bounds)
        for lane, each in enumerate(self._ranges):
            for _, closed in each.above:
                words = ordered_words(next(given), each.value.type)
                np.maximum(lows[lane], words if closed else np.where(words == MOST, MOST, words + 1), out=lows[lane])
                if not closed:
                    highs[lane][words == MOST] = LEAST
            for _, closed in each.below:
                words = ordered_words(next(given), each.value.type)
                np.minimum(
                    highs[lane], words if closed else np.where(words == LEAST, LEAST, words - 1), out=highs[lane]
                )
                if not closed:
                    highs[lane][words == LEAST] = LEAST
                    lows[lane][words == LEAST] = MOST
        return lows, highs


def _joined(levels: Sequence[Level]) -> Level:
    """One level of the rows of several that are still there."""
    kept = [np.flatnonzero(level.alive) for level in levels]
    arrays = (
        np.concatenate([getattr(level, name)[..., places] for level, places in zip(levels, kept, strict=True)], -1)
        for name in ("numbers", "slots", "lows", "highs")
    )
    rows = [level.rows.take(pa.array(places)) for level, places in zip(levels, kept, strict=True)]
    return Level(one_batch(rows), *arrays)


def is_compiled() -> bool:
    """Whether ranges are searched by machine code by now."""
    return _find_matches.is_compiled()


def ordered_words(column: pa.Array, type_: SqlType) -> Ints:
    """Words that are ordered as the values are; NaN is the greatest DOUBLE."""
    (words,) = to_words(column, type_)
    if type_.name == "DOUBLE":
        # the bits of negative numbers count down
        words = np.where(words < 0, words ^ MOST, words)
    return words


def _all_valid(columns: Sequence[pa.Array], rows: int) -> Bools:
    usable = np.ones(rows, dtype=np.bool_)
    for column in columns:
        mask = validity(column)
        if mask is not None:
            usable &= mask
    return usable

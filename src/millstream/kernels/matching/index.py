"""An index on the rows of a table, for the rows of a stream that ask which of them match.

Rows of the table lie in runs: a hash of the equalities finds the run, an interval tree over one range the entries in
it. That is the range which leaves the fewest rows, as measured while the index is used. Further ranges are compared
there, and conditions of other kinds are left to the caller. Rows come and go while the index is used: new ones form a
small level of their own, and a level is merged with the next larger one before it comes near its size. So a row costs
O(log n) to add, amortised, and one that goes is only marked until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
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

_FIRST_LOOK = 1_024
"""after so many rows of the stream, and four times as many each time, it is measured which range to search by"""
_SAMPLE = 256
_WORTH = 512
"""so many times all rows of a table may be looked at in vain before it pays to sort them again"""

_fill_tops = compile_kernel(source_of(match_loops), "fill_tops")
_find_matches = compile_kernel(source_of(match_loops), "find_matches")


class Level:
    """Rows of the table in the order in which they are searched."""

    def __init__(
        self, rows: pa.RecordBatch, numbers: Ints, slots: Ints, lows: Ints, highs: Ints, first: int = 0
    ) -> None:
        # the range that is searched stands first
        self._lanes = [first, *(lane for lane in range(len(lows)) if lane != first)] if first else []
        if self._lanes:
            lows, highs = lows[self._lanes], highs[self._lanes]
        order = np.lexsort((highs[0], lows[0], slots))
        self.rows = rows.take(pa.array(order))
        in_order = numbers[order]
        self._places = np.argsort(in_order, kind="stable").astype(np.int32)
        self._numbers = in_order[self._places]
        """in order, each with the place of its row"""
        slots = slots[order]
        # without upper bounds there is nothing to look for: what begins below a value holds it
        self._is_bounded = bool((highs < MOST).any())
        self._lows = np.ascontiguousarray(lows[:, order])
        self._highs = np.ascontiguousarray(highs[:, order] if self._is_bounded else highs[:, :0])
        self._most_low, self._least_high = lows.max(axis=1, initial=LEAST), highs.min(axis=1, initial=MOST)
        self._alive = np.ones(len(order), dtype=np.uint8)
        self.dead = 0
        edges = np.searchsorted(slots, np.arange(int(slots[-1]) + 2 if len(order) else 1))
        self._firsts, self._counts = edges[:-1], np.diff(edges)
        self._top = np.empty(len(order) if self._is_bounded else 0, dtype=np.int64)
        self._pairs_per_row = 2.0
        if self._is_bounded:
            stack = np.empty((_DEPTH, 3), dtype=np.int64)
            _fill_tops(len(order), self._firsts, self._counts, np.ascontiguousarray(self._highs[0]), self._top, stack)

    def __len__(self) -> int:
        return len(self._numbers) - self.dead

    @property
    def is_thin(self) -> bool:
        """Whether most of its rows are gone."""
        return 2 * self.dead > len(self._numbers)

    def drop(self, numbers: Ints) -> None:
        """Rows that are here go, by their numbers."""
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        places = np.unique(self._places[at[self._numbers[at] == numbers]])
        self.dead += int(self._alive[places].sum())
        self._alive[places] = 0

    def numbers(self) -> Ints:
        """The number of each entry."""
        numbers = np.empty_like(self._numbers)
        numbers[self._places] = self._numbers
        return numbers

    def left(self) -> tuple[pa.RecordBatch, Ints, Ints, Ints, Ints]:
        """What another level is made of: the rows that are still there."""
        places = np.flatnonzero(self._alive)
        slots = np.repeat(np.arange(len(self._counts)), self._counts)
        lows, highs = self.bounds(places)
        return self.rows.take(pa.array(places)), self.numbers()[places], slots[places], lows, highs

    def bounds(self, places: Ints) -> tuple[Ints, Ints]:
        """The least and the greatest word that entries take, by range, as the condition has them."""
        lows = self._lows[:, places]
        highs = self._highs[:, places] if self._is_bounded else np.full_like(lows, MOST)
        if not self._lanes:
            return lows, highs
        back = np.argsort(self._lanes)
        return lows[back], highs[back]

    def find(self, slots: Ints, usable: Bools, values: Ints, one: bool = False) -> tuple[Ints, Ints]:
        """The rows of the stream and the entries that match, in order of the former; or `one` entry for each row."""
        return self._found(slots, usable, values, True, one)[:2]

    def find_sizes(self, slots: Ints, usable: Bools, values: Ints) -> tuple[Ints, Ints]:
        """How many entries match each row of the stream, and these, in order of the rows."""
        _, entries, ends = self._found(slots, usable, values, False, False)
        return np.diff(ends, prepend=0), entries

    def _found(self, slots: Ints, usable: Bools, values: Ints, tells_rows: bool, one: bool) -> tuple[Ints, Ints, Ints]:
        rows, row = len(slots), 0
        if self._lanes:
            values = values[self._lanes]
        lanes = self._deciding(values if usable.all() else values[:, usable])
        values, lows, highs = values[:lanes], self._lows[:lanes], self._highs[:lanes]
        room = max(256, int(1.2 * self._pairs_per_row * rows))
        out_row: Any = np.empty(room if tells_rows else 0, dtype=np.int64)
        out_entry: Any = np.empty(room, dtype=np.int32)
        found, stack = np.zeros(1, dtype=np.int64), np.empty((_DEPTH, 3), dtype=np.int64)
        ends = np.empty(rows, dtype=np.int64)
        while True:
            row = _find_matches(
                rows, row, rows, slots, usable, values, self._firsts, self._counts, lows, highs, self._top,
                self._is_bounded, self._alive, out_row, out_entry, found, stack, ends, one,
            )  # fmt: skip
            if row == rows:
                if not one:
                    self._pairs_per_row = max(found[0] / max(rows, 1), self._pairs_per_row / 2)
                return out_row[: found[0]], out_entry[: found[0]], ends
            _check_pairs(2 * len(out_entry))
            out_row, out_entry = (np.concatenate([array, np.empty_like(array)]) for array in (out_row, out_entry))

    def _deciding(self, values: Ints) -> int:
        """How many of the ranges decide: those behind them hold for all of these values, whatever the entry."""
        lanes = len(values)
        while lanes > 1:
            last = values[lanes - 1]
            least, most = int(last.min(initial=MOST)), int(last.max(initial=LEAST))
            if least < self._most_low[lanes - 1] or most > self._least_high[lanes - 1]:
                break
            lanes -= 1
        return lanes


def _check_pairs(pairs: int) -> None:
    """Many pairs need not become many rows, but they need memory."""
    limits.check_made(pairs if pairs > _MOST_PAIRS else 0)


class MatchIndex:
    """The rows of a table by a join condition; of one that matches, the columns `kept` are given. Each row has a number
    of the caller's, its own, by which it goes again."""

    def __init__(self, condition: MatchCondition, stream: Schema, table: Schema, kept: Schema | None = None) -> None:
        self._ranges = condition.ranges
        self._types = tuple(theirs.type for _, theirs in condition.pairs)
        self._keys = KeyTable(self._types) if self._types else None
        mine = [*(mine for mine, _ in condition.pairs), *(each.value for each in self._ranges)]
        bounds = [bound for each in self._ranges for bound, _ in (*each.above, *each.below)]
        self._mine = compile_arrow(mine, stream)
        self._theirs = compile_arrow([*(theirs for _, theirs in condition.pairs), *bounds], table)
        self._kept = table if kept is None else kept
        self._levels: list[Level] = []
        self._lanes = max(len(self._ranges), 1)
        """without ranges there is one that holds everything: whole runs match"""
        self._first = 0
        self._asked_for, self._next_look = 0, _FIRST_LOOK

    def __len__(self) -> int:
        return sum(map(len, self._levels))

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
        self._levels.append(Level(found, numbers[kept], slots, lows[:, kept], highs[:, kept], self._first))
        while len(self._levels) > 1 and len(self._levels[-2]) < _GROWTH * len(self._levels[-1]):
            self._levels.append(self._joined([self._levels.pop(), self._levels.pop()]))

    def drop(self, numbers: Ints) -> None:
        """Rows go again, by their numbers."""
        for level in self._levels:
            level.drop(numbers)
        kept = [self._joined([level]) if level.is_thin else level for level in self._levels if len(level)]
        self._levels = sorted(kept, key=len, reverse=True)

    def matched(self, rows: pa.RecordBatch) -> Bools:
        """Which rows of the stream have a match."""
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        asked = self._asked(rows)
        for level in self._levels:
            found[level.find(*asked, one=True)[0]] = True
        return found

    def lists(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        """How many rows of the table match each row of the stream, and these, one after the other."""
        asked = self._asked(rows)
        if len(self._levels) != 1:
            left, right = self.match(rows)
            return np.bincount(left, minlength=rows.num_rows), right
        sizes, entries = self._levels[0].find_sizes(*asked)
        return sizes, self._levels[0].rows.take(pa.array(entries))

    def match(self, rows: pa.RecordBatch, in_order: bool = False) -> tuple[Ints, pa.RecordBatch]:
        """For each match the number of the stream's row, in order, and the table's row; the matches of one row are in
        order of the table, if asked for."""
        found = self._found(rows)
        if not found:
            return np.empty(0, dtype=np.int64), pa.RecordBatch.from_pylist([], schema=self._kept.arrow)
        left = found[0][1] if len(found) == 1 else np.concatenate([left for _, left, _ in found])
        right = [level.rows.take(pa.array(entries)) for level, _, entries in found]
        if in_order and (self._ranges or len(found) > 1):
            order = np.lexsort((np.concatenate([level.numbers()[entries] for level, _, entries in found]), left))
        elif len(found) == 1:
            return left, right[0]
        else:
            order = np.argsort(left, kind="stable")
        return left[order], one_batch(right).take(pa.array(order))

    def numbered(self, rows: pa.RecordBatch) -> tuple[Ints, Ints, pa.RecordBatch]:
        """For each match the number of the stream's row, that of the table's row, and this row, in any order."""
        found = self._found(rows)
        if not found:
            none = np.empty(0, dtype=np.int64)
            return none, none, pa.RecordBatch.from_pylist([], schema=self._kept.arrow)
        left = np.concatenate([left for _, left, _ in found])
        numbers = np.concatenate([level.numbers()[entries] for level, _, entries in found])
        return left, numbers, one_batch([level.rows.take(pa.array(entries)) for level, _, entries in found])

    def _found(self, rows: pa.RecordBatch) -> list[tuple[Level, Ints, Ints]]:
        asked = self._asked(rows)
        found = [(level, *level.find(*asked)) for level in self._levels]
        return [(level, left, entries) for level, left, entries in found if len(left)]

    def _look(self, usable: Bools, values: Ints) -> None:
        """Search by the range that leaves the fewest rows, as measured on some rows of the stream and of the table."""
        self._next_look = 4 * self._asked_for
        if not usable.any() or not len(self):
            return
        level = max(self._levels, key=len)
        entries = np.unique(np.linspace(0, level.rows.num_rows - 1, _SAMPLE).astype(np.int64))
        lows, highs = level.bounds(entries)
        asked = values[:, np.flatnonzero(usable)]
        asked = asked[:, np.unique(np.linspace(0, asked.shape[1] - 1, _SAMPLE).astype(np.int64))][:, :, None]
        shares = ((lows[:, None, :] <= asked) & (asked <= highs[:, None, :])).mean(axis=(1, 2))
        best = int(np.argmin(shares))
        saved = shares[self._first] - shares[best]
        if 2 * shares[best] < shares[self._first] and saved * self._asked_for > _WORTH:
            self._first = best
            self._levels = [self._joined([each]) for each in self._levels]

    def _joined(self, levels: Sequence[Level]) -> Level:
        """One level of the rows of several that are still there."""
        rows, *arrays = zip(*(level.left() for level in levels), strict=True)
        numbers, slots, lows, highs = (np.concatenate(parts, -1) for parts in arrays)
        return Level(one_batch(list(rows)), numbers, slots, lows, highs, self._first)

    def _asked(self, rows: pa.RecordBatch) -> tuple[Ints, Bools, Ints]:
        """What rows of the stream look for: the run of each, whether it can match, and its values by range."""
        pairs, values = self._parts(self._mine(rows))
        usable = _all_valid([*pairs, *values], rows.num_rows)
        slots = np.zeros(rows.num_rows, dtype=np.int64)
        if self._keys is not None:
            slots = self._keys.lookup(pairs).astype(np.int64)
        words = np.zeros((self._lanes, rows.num_rows), dtype=np.int64)
        for lane, each in enumerate(self._ranges):
            words[lane] = ordered_words(values[lane], each.value.type)
        self._asked_for += rows.num_rows
        if len(words) > 1 and self._asked_for >= self._next_look:
            self._look(usable, words)
        return slots, usable, words

    def _parts(self, columns: list[pa.Array]) -> tuple[list[pa.Array], list[pa.Array]]:
        return columns[: len(self._types)], columns[len(self._types) :]

    def _intervals(self, bounds: list[pa.Array], rows: int) -> tuple[Ints, Ints]:
        """The least and the greatest word that each row takes, by range; an empty interval ends before it begins."""
        lows = np.full((self._lanes, rows), LEAST, dtype=np.int64)
        highs = np.full((self._lanes, rows), MOST, dtype=np.int64)
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

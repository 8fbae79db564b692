"""What one would write by hand in Numba for the same jobs: the contender B of the figures.

Each takes an Arrow column and gives an Arrow column, with NULLs on both sides, and keeps its state between batches:
one record of numbers and a ring of the window's values with a flag for NULL. Sums and counts become NULL as SQL's do,
and a count is checked against the bounds of INTEGER.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from aggregates_sql import HASHES

INTEGER_MAX = 2**31 - 1


@njit(nogil=True, error_model="numpy")
def average_loop(value, valid, ring, absent, sums, counts, out, null):
    """`sums` holds the sum; `counts` the place in the ring, how many are there, the count, and whether sum and count
    are NULL. Returns whether the count left its bounds."""
    size = len(ring)
    place, held, count, no_sum, no_count = counts[0], counts[1], counts[2], counts[3] != 0, counts[4] != 0
    total = sums[0]
    overflow = False
    for i in range(len(value)):
        if held == size:
            if absent[place]:
                no_sum = True
            if not no_sum:
                total -= ring[place]
            if not no_count:
                count -= 1
                overflow |= count < -INTEGER_MAX - 1
        else:
            held += 1
        absent[place] = not valid[i]
        ring[place] = value[i]
        place += 1
        if place == size:
            place = 0
        if not valid[i]:
            no_sum = True
        if not no_sum:
            total += value[i]
        if not no_count:
            count += 1
            overflow |= count > INTEGER_MAX
        null[i] = no_sum or no_count or count == 0
        if not null[i]:
            out[i] = total / count
    counts[0], counts[1], counts[2], counts[3], counts[4] = place, held, count, no_sum, no_count
    sums[0] = total
    return overflow


@njit(nogil=True, error_model="numpy")
def bare_average_loop(value, ring, sums, counts, out):
    """The same for a column that never has a NULL, and a count that nobody checks."""
    size = len(ring)
    place, held, total = counts[0], counts[1], sums[0]
    for i in range(len(value)):
        if held == size:
            total -= ring[place]
        else:
            held += 1
        ring[place] = value[i]
        place += 1
        if place == size:
            place = 0
        total += value[i]
        out[i] = total / held
    counts[0], counts[1] = place, held
    sums[0] = total


@njit(nogil=True, error_model="numpy")
def items_loop(value, valid, ring, absent, counts, tables, times, plus, modulus, out, null):
    """`tables` are the counting tables, found by the remainders of three linear functions; a NULL is counted nowhere
    and has no frequency."""
    size = len(ring)
    place, held = counts[0], counts[1]
    for i in range(len(value)):
        if held == size:
            if not absent[place]:
                for k in range(3):
                    tables[k, (ring[place] * times[k] + plus[k]) % modulus[k]] -= 1
        else:
            held += 1
        absent[place] = not valid[i]
        ring[place] = value[i]
        place += 1
        if place == size:
            place = 0
        null[i] = not valid[i]
        if valid[i]:
            least = np.int64(2**62)
            for k in range(3):
                at = (value[i] * times[k] + plus[k]) % modulus[k]
                tables[k, at] += 1
                least = min(least, tables[k, at])
            out[i] = least
    counts[0], counts[1] = place, held


(_TIMES_0, _PLUS_0, _MODULUS_0), (_TIMES_1, _PLUS_1, _MODULUS_1), (_TIMES_2, _PLUS_2, _MODULUS_2) = HASHES


@njit(nogil=True, error_model="numpy")
def bare_items_loop(value, ring, counts, tables, out):
    """The same for a column that never has a NULL, with the functions written out, so that they are constants."""
    size = len(ring)
    place, held = counts[0], counts[1]
    for i in range(len(value)):
        if held == size:
            old = ring[place]
            tables[0, (old * _TIMES_0 + _PLUS_0) % _MODULUS_0] -= 1
            tables[1, (old * _TIMES_1 + _PLUS_1) % _MODULUS_1] -= 1
            tables[2, (old * _TIMES_2 + _PLUS_2) % _MODULUS_2] -= 1
        else:
            held += 1
        new = ring[place] = value[i]
        place += 1
        if place == size:
            place = 0
        at_0 = (new * _TIMES_0 + _PLUS_0) % _MODULUS_0
        at_1 = (new * _TIMES_1 + _PLUS_1) % _MODULUS_1
        at_2 = (new * _TIMES_2 + _PLUS_2) % _MODULUS_2
        tables[0, at_0] += 1
        tables[1, at_1] += 1
        tables[2, at_2] += 1
        out[i] = min(tables[0, at_0], tables[1, at_1], tables[2, at_2])
    counts[0], counts[1] = place, held


class _Native:
    def __init__(self, window: int, dtype: Any) -> None:
        self.ring = np.zeros(window, dtype=dtype)
        self.absent = np.zeros(window, dtype=np.bool_)
        self.counts = np.zeros(5, dtype=np.int64)
        self.dtype = dtype
        self._all = np.ones(0, dtype=np.bool_)

    def step(self, column: pa.Array) -> pa.Array:
        rows = len(column)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            value = column.fill_null(0).to_numpy()
        else:
            if len(self._all) < rows:
                self._all = np.ones(rows, dtype=np.bool_)
            valid, value = self._all[:rows], column.to_numpy()
        out, null = np.empty(rows, dtype=self.dtype), np.empty(rows, dtype=np.bool_)
        self._run(value, valid, out, null)
        return pa.array(out, mask=null if null.any() else None)

    def _run(self, value: Any, valid: Any, out: Any, null: Any) -> None:
        raise NotImplementedError


class NativeAverage(_Native):
    """The average of a window of rows."""

    def __init__(self, window: int) -> None:
        super().__init__(window, np.float64)
        self.sums = np.zeros(1)

    def _run(self, value: Any, valid: Any, out: Any, null: Any) -> None:
        if average_loop(value, valid, self.ring, self.absent, self.sums, self.counts, out, null):
            raise OverflowError("a count does not fit its type")


class BareAverage(NativeAverage):
    """The average of a window of rows without NULLs: less than the SQL aggregate does."""

    def step(self, column: pa.Array) -> pa.Array:
        out = np.empty(len(column))
        bare_average_loop(column.to_numpy(), self.ring, self.sums, self.counts, out)
        return pa.array(out)


class NativeItems(_Native):
    """How often each item came in a window of rows, about: the least of three counting tables, which are arrays."""

    def __init__(self, window: int) -> None:
        super().__init__(window, np.int64)
        self.times, self.plus, self.modulus = (np.array(part, dtype=np.int64) for part in zip(*HASHES, strict=True))
        self.tables = np.zeros((3, int(self.modulus.max())), dtype=np.int64)

    def _run(self, value: Any, valid: Any, out: Any, null: Any) -> None:
        items_loop(
            value, valid, self.ring, self.absent, self.counts, self.tables, self.times, self.plus, self.modulus, out,
            null,
        )  # fmt: skip


class BareItems(NativeItems):
    """The same without NULLs and with three functions that are known beforehand: less than the SQL aggregate does."""

    def step(self, column: pa.Array) -> pa.Array:
        out = np.empty(len(column), dtype=np.int64)
        bare_items_loop(column.to_numpy(), self.ring, self.counts, self.tables, out)
        return pa.array(out)

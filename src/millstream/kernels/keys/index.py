"""What the slot tables have in common: a hash index, slots that are used again after release, and growth."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.jit import Compiled, compile_kernel, run_all, source_of, threads
from millstream.kernels.keys import index_loops

Slots = npt.NDArray[np.int32]

COUNT, NULL_SLOT, FREE, USED, ARENA = range(5)
_PARALLEL_ROWS = 16_384
_MOST_GROWTH = 16
"""A table grows at most so many times at once: the first rows may have more new keys than the others."""
_FEW = 4
"""One of so many keys is few: to take them out of the index costs less than to build it anew."""
_EMPTY, _VALUE, _NULL = 0, 1, 2


class SlotIndex:
    """Dense slot numbers by hash; subclasses keep the keys themselves in arrays by slot, named in `_stored`."""

    _stored: tuple[str, ...] = ()
    _loops: tuple[Compiled, Compiled]
    """`find` and `add` for the shape of keys"""

    def __init__(self) -> None:
        self._meta = np.zeros(5, dtype=np.int64)
        self._meta[NULL_SLOT] = -1
        self._index_hash = np.zeros(16, dtype=np.int64)
        self._index_slot = np.full(16, -1, dtype=np.int32)
        self._hash_of = np.zeros(8, dtype=np.int64)
        self._kind_of = np.zeros(8, dtype=np.uint8)
        self._free = np.zeros(8, dtype=np.int32)

    def __len__(self) -> int:
        """How many keys there are."""
        return int(self._meta[USED])

    @property
    def size(self) -> int:
        """One more than the highest slot ever given."""
        return int(self._meta[COUNT])

    def live(self) -> Slots:
        """The slots in use, in increasing order."""
        return np.flatnonzero(self._kind_of[: self.size] != _EMPTY).astype(np.int32)

    def valid(self, slots: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these slots hold a key other than NULL."""
        mask: npt.NDArray[np.bool_] = self._kind_of[slots] == _VALUE
        return mask

    def release(self, slots: npt.NDArray[Any]) -> None:
        """Forget the keys of these slots; new keys will get them."""
        if len(slots) == 0:
            return
        kinds = self._kind_of[slots]
        if np.any(kinds == _NULL):
            self._meta[NULL_SLOT] = -1
        self._kind_of[slots] = _EMPTY
        free = int(self._meta[FREE])
        self._free[free : free + len(slots)] = slots
        self._meta[FREE] = free + len(slots)
        self._meta[USED] -= len(slots)
        length = _index_length(len(self))
        if _FEW * len(slots) > len(self) or len(self._index_slot) > _FEW * length:
            self._reindex(length)
            return
        found = slots[kinds == _VALUE].astype(np.int32)
        _leave_index(len(found), found, self._hash_of, self._index_hash, self._index_slot)

    def _slots(self, given: tuple[Any, ...], rows: int, add: bool) -> Slots:
        """The slots of keys that come in these arrays; an unknown one gets a new slot if `add`, else -1."""
        slots = np.full(rows, -1, dtype=np.int32)
        parts = threads() if rows >= _PARALLEL_ROWS else 1
        unknown = rows
        if parts > 1 or not add:
            # to add keys takes one thread, and finds those that are known on the way
            find = self._loops[0].form(rows)
            index = (self._index_hash, self._index_slot, self._meta)
            edges = [rows * part // parts for part in range(parts + 1)]
            each = [partial(find, *given, *index, slots, start, stop, *self._kept()) for start, stop in pairwise(edges)]
            unknown = sum(run_all(each))
        if unknown and add:
            row, before = 0, len(self)
            while (row := self._add(given, slots, row)) < rows:
                # as if the rest of the rows had as many new keys as those so far
                coming = (len(self) - before) * (rows - row) // max(row, 1)
                self._grow(len(self) + coming)
                self._make_room(row, given)
        return slots

    def _add(self, given: tuple[Any, ...], slots: Slots, row: int) -> int:
        index = (self._index_hash, self._index_slot, self._meta)
        kept = (*self._kept(), self._hash_of, self._kind_of, self._free)
        return int(self._loops[1](len(slots) - row, *given, *index, slots, row, *kept))

    def _kept(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays of keys."""
        return tuple(getattr(self, name) for name in self._stored)

    def _make_room(self, row: int, given: tuple[Any, ...]) -> None:
        """A key had no room; subclasses whose keys are not of one size may need more than another slot."""

    def _grow(self, wanted: int) -> None:
        """Make room for a key that had none, and for so many in all if they are not far more."""
        length = len(self._index_slot)
        if 2 * self._meta[USED] >= length:
            self._reindex(min(_MOST_GROWTH * length, max(2 * length, _index_length(wanted))))
        room = len(self._hash_of)
        if self._meta[FREE] == 0 and self._meta[COUNT] == room:
            more = min((_MOST_GROWTH - 1) * room, max(room, wanted - room))
            for name in ("_hash_of", "_kind_of", "_free", *self._stored):
                setattr(self, name, grown(getattr(self, name), more))

    def _reindex(self, length: int) -> None:
        slots = np.flatnonzero(self._kind_of[: self.size] == _VALUE).astype(np.int32)
        self._index_hash = np.zeros(length, dtype=np.int64)
        self._index_slot = np.full(length, -1, dtype=np.int32)
        _fill_index(len(slots), slots, self._hash_of, self._index_hash, self._index_slot)


_fill_index, _leave_index = (compile_kernel(source_of(index_loops), name) for name in ("fill_index", "leave_index"))


def doubled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with as much room again, zeroed."""
    return grown(array, len(array))


def grown(array: npt.NDArray[Any], more: int) -> npt.NDArray[Any]:
    """The array with room for so many more, zeroed."""
    made = np.zeros((len(array) + more, *array.shape[1:]), dtype=array.dtype)
    made[: len(array)] = array
    return made


def _index_length(keys: int) -> int:
    length = 16
    while length < 4 * keys:
        length *= 2
    return length

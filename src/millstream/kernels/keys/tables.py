"""Slot tables for the three shapes of keys: integers, byte strings, rows of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.jit import as_input, compile_kernel
from millstream.kernels.keys.index import ARENA, SlotIndex, Slots, doubled
from millstream.kernels.keys.slot_source import BYTES, INTS, ROWS
from millstream.kernels.keys.words import NO_MASK, Bools, byte_parts, validity
from millstream.types import SqlType

_INT_LOOPS, _ROW_LOOPS, _BYTE_LOOPS = (
    (compile_kernel(shape.source, "find"), compile_kernel(shape.source, "add")) for shape in (INTS, ROWS, BYTES)
)


class IntTable(SlotIndex):
    """Slots of integers."""

    _stored = ("_key_of",)
    _loops = _INT_LOOPS

    def __init__(self) -> None:
        super().__init__()
        self._key_of = np.zeros(8, dtype=np.int64)

    def slots(self, keys: Ints, valid: Bools | None, add: bool) -> Slots:
        """The slot of each key; an unknown one gets a new slot if `add`, else -1."""
        return self._slots((as_input(keys), *_mask(valid)), len(keys), add)

    def keys(self, slots: npt.NDArray[Any]) -> Ints:
        keys: Ints = self._key_of[slots]
        return keys


class RowTable(SlotIndex):
    """Slots of rows of words."""

    _stored = ("_words_of",)
    _loops = _ROW_LOOPS

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self._words_of = np.zeros((8, width), dtype=np.int64)

    def slots(self, words: npt.NDArray[np.int64], add: bool) -> Slots:
        """The slot of each row; an unknown one gets a new slot if `add`, else -1."""
        return self._slots((as_input(words),), len(words), add)

    def words(self, slots: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        words: npt.NDArray[np.int64] = self._words_of[slots]
        return words


class ByteTable(SlotIndex):
    """Slots of strings or blobs; also the dictionary of strings inside kernels, a slot being a string's code.

    `arena`, `start_of` and `length_of` give compiled code the bytes of each slot.
    """

    _stored = ("start_of", "length_of")
    _loops = _BYTE_LOOPS

    def __init__(self, type_: SqlType) -> None:
        super().__init__()
        self.type = type_
        self.start_of = np.zeros(8, dtype=np.int64)
        self.length_of = np.zeros(8, dtype=np.int64)
        self.arena = np.zeros(64, dtype=np.uint8)
        self._unused = 0
        """bytes of the arena that were those of released slots"""

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Where the bytes of each slot begin, how many there are, and all bytes."""
        return self.start_of, self.length_of, self.arena

    def slots(self, column: pa.Array, add: bool) -> Slots:
        """The slot of each string; an unknown one gets a new slot if `add`, else -1."""
        offsets, data = byte_parts(column, self.type)
        return self._slots((as_input(offsets), as_input(data), *_mask(validity(column))), len(column), add)

    def values(self, slots: npt.NDArray[Any]) -> pa.Array:
        """The strings of these slots, in that order; NULL where a slot holds NULL or is negative."""
        taken = np.where(slots < 0, 0, slots)
        known = (slots >= 0) & self.valid(taken)
        starts = self.start_of[taken]
        lengths = np.where(known, self.length_of[taken], 0)
        return gather_bytes(self.arena, starts, lengths, known, self.type)

    def release(self, slots: npt.NDArray[Any]) -> None:
        self._unused += int(self.length_of[slots].sum())
        super().release(slots)
        if 2 * self._unused <= self._meta[ARENA]:
            return
        self._unused = 0
        live = self.live()
        kept = self.values(live)
        offsets, data = byte_parts(kept, self.type)
        self.start_of[live] = offsets[: len(live)]
        self.arena = np.zeros(max(64, 2 * len(data)), dtype=np.uint8)
        self.arena[: len(data)] = data
        self._meta[ARENA] = len(data)

    def _kept(self) -> tuple[npt.NDArray[Any], ...]:
        return self.arrays

    def _make_room(self, row: int, given: tuple[Any, ...]) -> None:
        offsets = given[0]
        while self._meta[ARENA] + int(offsets[row + 1]) - int(offsets[row]) > len(self.arena):
            self.arena = doubled(self.arena)


def _mask(valid: Bools | None) -> tuple[Bools, bool]:
    """Which keys are not NULL, and whether any is."""
    return as_input(NO_MASK if valid is None else valid), valid is not None


def gather_bytes(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, known: Bools, type_: SqlType) -> pa.Array:
    """An Arrow column of pieces of `data`."""
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    taken = np.arange(total, dtype=np.int64) + np.repeat(starts - offsets[:-1], lengths)
    bitmap = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    large = pa.large_string() if type_.is_text else pa.large_binary()
    column = pa.Array.from_buffers(large, len(starts), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data[taken])])
    return column.cast(type_.arrow)

"""Dense slot numbers for key tuples of any SQL types: what lets compiled loops see keys as small integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.keys.index import Slots
from millstream.kernels.keys.tables import ByteTable, IntTable, RowTable
from millstream.kernels.keys.words import Bools, from_words, is_wide, to_words, validity
from millstream.types import SqlType


class KeyTable:
    """Slots of key tuples. NULL is an ordinary value, equal to itself; so is NaN, and -0.0 is 0.0."""

    def __init__(self, types: Sequence[SqlType]) -> None:
        if not types:
            raise ValueError("a key has at least one column")
        self.types = tuple(types)
        self._texts = [ByteTable(type_) if type_.is_coded else None for type_ in self.types]
        self._ints: IntTable | None = None
        self._rows: RowTable | None = None
        self._released = 0
        """keys since strings were forgotten that no key has any more"""
        if len(self.types) == 1 and not is_wide(self.types[0]):
            self._ints = IntTable() if self._texts[0] is None else None
        else:
            self._rows = RowTable(self._null_words + sum(2 if is_wide(type_) else 1 for type_ in self.types))

    @property
    def _null_words(self) -> int:
        """How many words at the start of a row tell which of its columns are NULL, one bit each."""
        return -(-len(self.types) // 32)

    @property
    def _index(self) -> IntTable | RowTable | ByteTable:
        return next(table for table in (self._ints, self._rows, self._texts[0]) if table is not None)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._index)

    @property
    def size(self) -> int:
        """One more than the highest slot ever given: what arrays by slot must hold."""
        return self._index.size

    def encode(self, columns: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key; new keys get the slots of released ones or the next ones."""
        return self._slots(columns, True)

    def lookup(self, columns: Sequence[pa.Array]) -> Slots:
        """The slot of each row's key, -1 if it is unknown."""
        return self._slots(columns, False)

    def live(self) -> Slots:
        """The slots in use, in increasing order."""
        return self._index.live()

    def keys(self, slots: npt.NDArray[Any] | None = None) -> pa.RecordBatch:
        """The keys of these slots, or of all in use, in that order; columns are named k0, k1, …"""
        if slots is None:
            slots = self.live()
        names = [f"k{i}" for i in range(len(self.types))]
        return pa.RecordBatch.from_arrays(self._columns(slots), names=names)

    def release(self, slots: npt.NDArray[Any]) -> None:
        """Forget the keys of these slots; new keys will get them. Other slots keep their numbers."""
        self._index.release(slots)
        self._released += len(slots)
        if self._rows is not None and self._released > len(self) and any(text is not None for text in self._texts):
            self._forget_strings(self._rows)
            self._released = 0

    def release_others(self, used: Iterable[npt.NDArray[Any]]) -> None:
        """Forget the keys that are none of these slots (below 0: none), if that are most."""
        kept = np.zeros(self.size, dtype=np.bool_)
        for slots in used:
            kept[slots[slots >= 0]] = True
        live = self.live()
        gone = live[~kept[live]]
        if 2 * len(gone) > len(live):
            self.release(gone)

    def _slots(self, columns: Sequence[pa.Array], add: bool) -> Slots:
        if self._ints is not None:
            return self._ints.slots(to_words(columns[0], self.types[0])[0], validity(columns[0]), add)
        if self._rows is None:
            assert self._texts[0] is not None
            return self._texts[0].slots(columns[0], add)
        return self._rows.slots(self._words(columns, add), add)

    def _words(self, columns: Sequence[pa.Array], add: bool) -> npt.NDArray[np.int64]:
        assert self._rows is not None
        rows = len(columns[0])
        words = np.empty((rows, self._rows.width), dtype=np.int64)
        words[:, : self._null_words] = 0
        lane = self._null_words
        for position, (column, type_, text) in enumerate(zip(columns, self.types, self._texts, strict=True)):
            mask = validity(column)
            if mask is not None:
                words[~mask, position // 32] |= 1 << position % 32
            for word in to_words(column, type_) if text is None else (text.slots(column, add),):
                words[:, lane] = word
                lane += 1
        return words

    def _columns(self, slots: npt.NDArray[Any]) -> list[pa.Array]:
        if self._ints is not None:
            return [from_words([self._ints.keys(slots)], _mask(self._ints.valid(slots)), self.types[0])]
        if self._rows is None:
            assert self._texts[0] is not None
            return [self._texts[0].values(slots)]
        words = self._rows.words(slots)
        columns = []
        lane = self._null_words
        for position, (type_, text) in enumerate(zip(self.types, self._texts, strict=True)):
            width = 2 if is_wide(type_) else 1
            if text is not None:
                columns.append(text.values(words[:, lane]))
            else:
                known = _mask(words[:, position // 32] & (1 << position % 32) == 0)
                columns.append(from_words([words[:, lane + i] for i in range(width)], known, type_))
            lane += width
        return columns

    def _forget_strings(self, rows: RowTable) -> None:
        words = rows.words(rows.live())
        lane = self._null_words
        for type_, text in zip(self.types, self._texts, strict=True):
            if text is not None:
                text.release(np.setdiff1d(text.live(), words[:, lane]))
            lane += 2 if is_wide(type_) else 1


def _mask(known: Bools) -> Bools | None:
    return None if known.all() else known

"""DISTINCT: which values of a group have been seen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.keys.words import validity
from millstream.types import BIGINT, SqlType


class SeenValues:
    """The different values of each owner. An accumulator that takes in what is `fresh` counts equal ones once."""

    def __init__(self, type_: SqlType) -> None:
        self._table = KeyTable([BIGINT, type_])
        self._owner: Ints = np.zeros(0, dtype=np.int64)
        """by code: whose value it is, -1 if it is free"""

    def fresh(self, owners: npt.NDArray[np.integer], column: pa.Array) -> Ints:
        """The rows whose values their owners have not had before; NULL is no value. From now on they have."""
        mask = validity(column)
        rows = np.arange(len(column)) if mask is None else np.flatnonzero(mask)
        owners = owners[rows].astype(np.int64)
        codes = self._table.encode([pa.array(owners), column.take(pa.array(rows)) if mask is not None else column])
        if self._table.size > len(self._owner):
            self._owner = np.append(self._owner, np.full(self._table.size, -1, dtype=np.int64))
        new = self._owner[codes] < 0
        rows, codes, owners = rows[new], codes[new], owners[new]
        # of several assignments to one place, the last one stays: that of the first row
        first = np.empty(self._table.size, dtype=np.int64)
        first[codes[::-1]] = rows[::-1]
        self._owner[codes] = owners
        fresh: Ints = rows[first[codes] == rows]
        return fresh

    def forget(self, owners: Ints) -> None:
        """These owners have no values any more."""
        codes, _ = self._of(owners)
        self._owner[codes] = -1
        self._table.release(codes)

    def values(self, owners: Ints) -> tuple[Ints, pa.Array]:
        """The values of these owners in their order, each beside its owner's place."""
        codes, place = self._of(owners)
        order = np.argsort(place, kind="stable")
        return place[order], self._table.keys(codes[order]).column(1)

    def _of(self, owners: Ints) -> tuple[Ints, Ints]:
        codes = np.flatnonzero(self._owner >= 0)
        place = np.full(max(self._owner.max(initial=-1), owners.max(initial=-1)) + 1, -1, dtype=np.int64)
        place[owners] = np.arange(len(owners))
        found = place[self._owner[codes]]
        return codes[found >= 0], found[found >= 0]

    def __len__(self) -> int:
        return len(self._table)

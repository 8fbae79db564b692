"""The groups of a sweep: a slot for each key, and a row of lanes for each slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations.back import Lanes
from millstream.kernels.saving.kept import SlotNumbers
from millstream.types import SqlType

LIVE, DIED, MARK = 0, 1, 2
"""Lanes of every group: how many of its rows are valid, the place that the next output row got when the last of them
ended, and whether something happens to it at this instant; the operator's own lanes come behind them."""
GROUP_LANES = 3

_KEYS_AT_LEAST = 256


class SweptGroups:
    """All groups that have valid rows or output that has not left, and perhaps some more."""

    def __init__(self, types: Sequence[SqlType], fresh: Sequence[int]) -> None:
        self.keys = KeyTable(types) if types else None
        self.fresh: Ints = np.array(fresh, dtype=np.int64)
        self.lanes: Lanes = np.empty((0, len(self.fresh)), dtype=np.int64)
        self.numbers = SlotNumbers()
        self.version: Ints = np.zeros(0, dtype=np.int64)
        self._last_version = 0
        self._kept = 0

    def touch(self, slots: Ints) -> None:
        """Something happens to these groups."""
        self._last_version += 1
        self.version[slots] = self._last_version

    def slots(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """The slot of each row by its key columns."""
        if self.keys is None:
            slots = np.zeros(rows, dtype=np.int64)
            self._hold(1 if rows else 0)
        else:
            slots = self.keys.encode(columns).astype(np.int64) if rows else np.zeros(0, dtype=np.int64)
            self._hold(self.keys.size)
        return slots

    def columns(self, slots: Ints) -> list[pa.Array]:
        """The key columns of these slots."""
        return [] if self.keys is None else list(self.keys.keys(slots).columns)

    def live(self) -> Ints:
        """The slots in use."""
        return np.arange(len(self.lanes)) if self.keys is None else self.keys.live().astype(np.int64)

    def needed(self, left: int) -> Ints:
        """The slots with rows, or with output that has not left: all places before `left` have."""
        live = self.live()
        own = self.lanes[live]
        needed: Ints = live[(own[:, LIVE] != 0) | (own[:, DIED] > left)]
        return needed

    def forget(self, left: int) -> Ints:
        """Give up groups without rows whose output has left: all places before `left` have; which ones were given up.
        Only when there may be as many of them as others, so that the work is little for each row."""
        if self.keys is None or len(self.keys) < 2 * self._kept + _KEYS_AT_LEAST:
            return np.zeros(0, dtype=np.int64)
        dead = np.setdiff1d(self.live(), self.needed(left), assume_unique=True)
        self.keys.release(dead)
        self.numbers.renew(dead)
        self.lanes[dead] = self.fresh
        self._kept = len(self.keys)
        return dead

    def _hold(self, size: int) -> None:
        if size <= len(self.lanes):
            return
        lanes = np.empty(
            (max(size, 2 * len(self.lanes), 1 if self.keys is None else 16), len(self.fresh)), dtype=np.int64
        )
        lanes[: len(self.lanes)] = self.lanes
        lanes[len(self.lanes) :] = self.fresh
        self.lanes = lanes
        self.version = np.append(self.version, np.zeros(len(lanes) - len(self.version), dtype=np.int64))

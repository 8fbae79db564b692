"""The entries of panes while a kernel runs: what each key has in each pane that a window may still need."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.accumulators.records import RecordLayout, Records
from millstream.kernels.batch import Ints
from millstream.kernels.window_groups.loops import BASE, COUNT, OPEN_FIRST, OPEN_PANE

Slots = npt.NDArray[np.int32]

_NAMES = ("slot_at", "pane_at", "first_at", "rows_at")


class Panes:
    """Entries in order of their panes, those from place `head` on. Each has a key's slot, its pane, the arrival number
    of its first row, how many rows it has, and its record.

    `newest` tells by slot the number of the key's last entry, which is the place plus a base that grows as old
    entries are dropped; so numbers are never used again, and a slot that is need not be wiped.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self.meta: Ints = np.zeros(4, dtype=np.int64)
        self.head = 0
        self.slot_at: Slots = np.zeros(0, dtype=np.int32)
        self.pane_at: Ints = np.zeros(0, dtype=np.int64)
        self.first_at: Ints = np.zeros(0, dtype=np.int64)
        self.rows_at: Ints = np.zeros(0, dtype=np.int64)
        self.records: Records = layout.new(0)
        self.newest: Ints = np.zeros(0, dtype=np.int64)
        self.group_of: Ints = np.zeros(0, dtype=np.int64)
        self.groups = 0
        """how many groups were ever made, which are numbered so that `group_of` need not be wiped"""

    @property
    def count(self) -> int:
        """The place after the last entry."""
        return int(self.meta[COUNT])

    def __len__(self) -> int:
        return self.count - self.head

    def reserve(self, entries: int, slots: int) -> None:
        """Make room for that many more entries, and for slots up to that one."""
        if slots > len(self.newest):
            more = np.full(max(slots, 2 * len(self.newest)) - len(self.newest), -1)
            self.newest, self.group_of = np.append(self.newest, more), np.append(self.group_of, more)
        if self.count + entries <= len(self.slot_at):
            return
        live = slice(self.head, self.count)
        length = len(self.slot_at)
        if len(self) + entries > length // 2:
            length = max(2 * length, 2 * (len(self) + entries))
        for name in _NAMES:
            setattr(self, name, _moved(getattr(self, name)[live], np.empty(length, getattr(self, name).dtype)))
        kept = len(self)
        self.records = _moved(self.records[live], self._layout.new(length))
        self.meta[BASE] += self.head
        self.meta[COUNT] = kept
        self.head = 0

    def live(self) -> Slots:
        """The slots of keys that have entries, in increasing order."""
        return np.unique(self.slot_at[self.head : self.count])

    def drop(self, pane: int) -> Slots:
        """Drop the entries of panes before this one: the slots of keys that have none left."""
        place = self.head + int(np.searchsorted(self.pane_at[self.head : self.count], pane))
        numbers = np.arange(self.head, place) + self.meta[BASE]
        slots = self.slot_at[self.head : place]
        gone: Slots = slots[self.newest[slots] == numbers]
        self.head = place
        # The newest pane goes on without them, if rows of it come that no window has.
        self.meta[OPEN_FIRST] = max(int(self.meta[OPEN_FIRST]), int(self.meta[BASE]) + place)
        return gone

    def load(self, slots: npt.NDArray[Any], pane: Ints, first: Ints, rows: Ints, records: Records) -> None:
        """Take in entries in order of their panes, when there are none yet."""
        count = len(slots)
        self.reserve(count, int(slots.max(initial=-1)) + 1)
        self.slot_at[:count], self.pane_at[:count], self.first_at[:count], self.rows_at[:count] = (
            slots, pane, first, rows,
        )  # fmt: skip
        self.records[:count] = records
        self.newest[slots] = np.arange(count)
        self.meta[COUNT] = count
        if count:
            self.meta[OPEN_PANE] = pane[-1]
            self.meta[OPEN_FIRST] = np.searchsorted(pane, pane[-1])


def _moved(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    new[: len(old)] = old
    return new

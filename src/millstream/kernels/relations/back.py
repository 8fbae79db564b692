"""The way out of operators on relations: rows in order of start, whose ends come to be known later.

For loops, in `place_loops` (import the functions into kernel source):
    place = open_place(places, marks, start, owner)   # `owner` is any number: a key's slot, a row's number
    close_place(places, marks, place, end)            # end == start: the row is dropped
For the kernel around a loop:
    places = Places(extra)           # `extra` lanes of the operator's own behind the four of every place
    places.reserve(count)            # before the loop: room for `count` more places; the loop never grows arrays
    loop(..., places.lanes, places.marks, ...)
    done = places.release()          # matrix of the rows that leave (START, END, OWNER, LINK, own lanes), in order
    done = places.columns()          # or the same as one array for each lane
    upto = places.upto(progress)     # no later row begins before this
Place numbers stay the same for as long as the place is held; loops find its lanes at `places[place - marks[BASE]]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.relations import place_loops
from millstream.kernels.relations.place_loops import BASE, END, FIRST_VALUE, OPEN, START, TAIL

_first_open = compile_kernel(source_of(place_loops), "first_open")
_unpack = compile_kernel(source_of(place_loops), "unpack")

Lanes = npt.NDArray[np.int64]
"""One row of 64-bit lanes for each thing."""


def columns_of(rows: Lanes) -> Lanes:
    """Rows of lanes with one lane after the other."""
    columns = np.empty((rows.shape[1], len(rows)), dtype=np.int64)
    # One pass over the rows; numpy would make one for each lane, or worse.
    _unpack(len(rows), rows, 0, len(rows), True, columns)
    return columns


class Places:
    """A queue of output rows, open and closed ones, in order of start."""

    def __init__(self, extra: int = 0) -> None:
        self.lanes: Lanes = np.zeros((64, FIRST_VALUE + extra), dtype=np.int64)
        self.marks: Ints = np.zeros(2, dtype=np.int64)
        self._head = 0

    def __len__(self) -> int:
        return int(self.marks[TAIL] - self.marks[BASE]) - self._head

    def reserve(self, count: int) -> None:
        """Make room for `count` more places."""
        used = int(self.marks[TAIL] - self.marks[BASE])
        if used + count <= len(self.lanes):
            return
        held = used - self._head
        # What is moved is at most half of what there is room for, so that each place is moved a few times at most.
        size = len(self.lanes)
        while size < 2 * held + count:
            size *= 2
        lanes = self.lanes if size == len(self.lanes) else np.zeros((size, self.lanes.shape[1]), dtype=np.int64)
        lanes[:held] = self.lanes[self._head : used]
        self.lanes = lanes
        self.marks[BASE] += self._head
        self._head = 0

    def release(self) -> Lanes:
        """Take out the rows before the first open one; those that end where they began are dropped."""
        first, head = self._leave()
        done = self.lanes[first:head]
        empty = done[:, END] <= done[:, START]
        return done[~empty] if empty.any() else done.copy()

    def columns(self) -> Lanes:
        """Like `release`, one lane after the other."""
        first, head = self._leave()
        columns = np.empty((self.lanes.shape[1], head - first), dtype=np.int64)
        count = int(_unpack(head - first, self.lanes, first, head, False, columns))
        return columns[:, :count]

    def _leave(self) -> tuple[int, int]:
        used = int(self.marks[TAIL] - self.marks[BASE])
        first = self._head
        self._head = int(_first_open(used - first, self.lanes, first, used))
        return first, self._head

    def upto(self, progress: int) -> int:
        """No row that leaves later begins before this, if none opens before `progress`."""
        return min(progress, int(self.lanes[self._head, START])) if len(self) else progress

    @property
    def first(self) -> int:
        """The number of the first place that is held."""
        return int(self.marks[BASE]) + self._head

    def held(self) -> Lanes:
        """The rows that have not left, in order."""
        return self.lanes[self._head : int(self.marks[TAIL] - self.marks[BASE])]

    def load(self, lanes: npt.NDArray[Any], first: int = 0) -> None:
        """Hold these rows, which are in order of start, in the places from `first` on; for an empty queue."""
        self.reserve(len(lanes))
        self.lanes[: len(lanes)] = lanes
        self.marks[BASE], self.marks[TAIL] = first, first + len(lanes)

    def close_all(self, end: int) -> None:
        """Every open row ends there."""
        held = self.held()
        held[held[:, END] == OPEN, END] = end

"""What the machine of threads remembers of all partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import FOREVER, Ints
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.patterns import cell_loops
from millstream.kernels.patterns import thread_loops as loops
from millstream.kernels.patterns.cell_loops import FOUND
from millstream.kernels.patterns.machine import Positions
from millstream.kernels.saving.lists import fixed, lists, unfixed, unlisted

FIRST_ROOM = 64
MOST_WAYS = 1 << 20
"""How many threads a partition may have: of some conditions, each row can double them."""
_EMPTY_SLOT = np.zeros(loops.SLOT, dtype=np.int64)
_EMPTY_SLOT[[loops.START, loops.AT, loops.TAKEN, loops.COVERED, loops.ORIGIN]] = -1
_EMPTY_SLOT[loops.DUE] = FOREVER
_POSITIONS = [loops.START, loops.AT, loops.TAKEN, loops.BEST_END, loops.COVERED, loops.ORIGIN]

_mark_cells = compile_kernel(source_of(cell_loops), "mark_cells")


class ThreadState:
    """A record for each slot, the threads and cells that they refer to, and room for the threads of one partition.

    A thread has `lanes` numbers; those in `marks` are positions in the log.
    """

    def __init__(self, lanes: int, marks: Sequence[int]) -> None:
        self.lanes, self.marks = lanes, list(marks)
        self.slots: Ints = np.zeros(0, dtype=np.int64)
        self.pool: Ints = np.zeros(4 * FIRST_ROOM * lanes, dtype=np.int64)
        self.cells: Ints = np.zeros(3 * FIRST_ROOM, dtype=np.int64)
        self.meta: Ints = np.zeros(loops.META, dtype=np.int64)
        self.make_room(FIRST_ROOM)
        self.found: Ints = np.zeros(4 * FIRST_ROOM * FOUND, dtype=np.int64)

    @property
    def table(self) -> Ints:
        """The records of slots, one per row."""
        return self.slots.reshape(-1, loops.SLOT)

    @property
    def room(self) -> int:
        """How many threads one partition may have for now."""
        return len(self.then) // self.lanes

    def make_room(self, threads: int) -> None:
        """Room for so many threads of one partition."""
        self.now: Ints = np.zeros(threads * self.lanes, dtype=np.int64)
        self.then: Ints = self.now.copy()

    def hold(self, slots: int) -> None:
        """Make room for the records of that many slots."""
        have = len(self.table)
        if slots > have:
            self.slots = np.concatenate([self.slots, np.tile(_EMPTY_SLOT, max(slots, 2 * have) - have)])

    def expect(self, rows: int) -> None:
        """Make room for about as many cells and matches as this many rows may give, so that pauses are few."""
        if 3 * (int(self.meta[loops.CELLS_USED]) + 2 * rows) > len(self.cells):
            self.collect_cells(2 * rows)
        if FOUND * rows // 2 > len(self.found):
            self.found = np.zeros(FOUND * rows, dtype=np.int64)

    def compact_pool(self) -> None:
        """Forget threads that no slot has any more, and make room for those of one more."""
        table = self.table
        owners = np.flatnonzero(table[:, loops.N] > 0)
        at, _ = self._roots(owners)
        pool = np.zeros((2 * len(at) + 2 * self.room + FIRST_ROOM, self.lanes), dtype=np.int64)
        pool[: len(at)] = self.pool.reshape(-1, self.lanes)[at]
        table[owners, loops.THREADS] = np.cumsum(table[owners, loops.N]) - table[owners, loops.N]
        self.pool = pool.reshape(-1)
        self.meta[loops.POOL_USED] = len(at)

    def collect_cells(self, free: int) -> None:
        """Forget cells that no thread refers to; more room if most are referred to, or fewer would be free."""
        at, best = self._roots()
        pool, table = self.pool.reshape(-1, self.lanes), self.table
        roots = np.concatenate([pool[at, 1], table[best, loops.BEST_CELL]])
        _, cells, new = self._reached(roots, np.zeros_like(roots))
        pool[at, 1] = new[pool[at, 1]]
        table[best, loops.BEST_CELL] = new[table[best, loops.BEST_CELL]]
        size = len(self.cells) // 3
        while size < max(2 * len(cells), len(cells) + free):
            size *= 2
        self.cells = np.zeros(3 * size, dtype=np.int64)
        self.cells[: 3 * len(cells)] = cells.reshape(-1)
        self.meta[loops.CELLS_USED] = len(cells)

    def _roots(self, slots: Ints | None = None) -> tuple[Ints, Ints]:
        """The places in the pool of all threads of some slots, and the slots that have a best match."""
        table = self.table
        chosen = np.arange(len(table)) if slots is None else slots
        counts = table[chosen, loops.N]
        begins = np.cumsum(counts) - counts
        at = np.repeat(table[chosen, loops.THREADS] - begins, counts) + np.arange(int(counts.sum()))
        return at, chosen[table[chosen, loops.HAS] != 0]

    def _reached(self, roots: Ints, owners: Ints) -> tuple[Ints, Ints, Ints]:
        """The cells that roots lead to, in the order of their owners and numbered anew, with these, and the new numbers
        of all (-1 of none)."""
        used = int(self.meta[loops.CELLS_USED])
        owner = np.full(used, -1, dtype=np.int64)
        _mark_cells(len(roots), as_input(roots), as_input(owners), self.cells, owner)
        marked = np.flatnonzero(owner >= 0)
        marked = marked[np.argsort(owner[marked], kind="stable")]
        new = np.full(used + 1, -1, dtype=np.int64)
        new[marked] = np.arange(len(marked))
        cells = self.cells[: 3 * used].reshape(-1, 3)[marked]
        cells[:, 0] = new[cells[:, 0]]
        return owner[marked], cells, new

    def move(self, new: Ints) -> None:
        """Positions in the log have changed."""
        renumber = np.append(new, -1)
        table = self.table
        table[:, _POSITIONS] = renumber[np.minimum(table[:, _POSITIONS], len(new))]
        at, _ = self._roots()
        pool = self.pool.reshape(-1, self.lanes)
        if self.marks and len(at):
            pool[at[:, None], self.marks] = renumber[pool[at[:, None], self.marks]]
        cells = self.cells[: 3 * int(self.meta[loops.CELLS_USED])].reshape(-1, 3)
        cells[:, 1] = renumber[np.minimum(cells[:, 1], len(new))]

    def forget(self, slots: Ints) -> None:
        self.table[slots] = _EMPTY_SLOT

    def export(self, slots: Ints, place: Ints) -> dict[str, pa.Array]:
        """What is known of these slots; positions p are written as place[p], cells and threads by their places among
        those of their slots."""
        count = len(slots)
        self.hold(int(slots.max(initial=-1)) + 1)
        renumber = np.append(place, -1)
        at, best = self._roots(slots)
        table = self.table[slots]
        has = table[:, loops.HAS] != 0
        of_thread = np.repeat(np.arange(count), table[:, loops.N])
        threads = self.pool.reshape(-1, self.lanes)[at]
        roots = np.concatenate([threads[:, 1], self.table[best, loops.BEST_CELL]])
        owner, cells, new = self._reached(roots, np.concatenate([of_thread, np.flatnonzero(has)]))
        first = np.searchsorted(owner, np.arange(count))
        threads[:, 1] = _less(new[threads[:, 1]], first[of_thread])
        threads[:, self.marks] = renumber[threads[:, self.marks]]
        cells[:, 0] = _less(cells[:, 0], first[owner])
        cells[:, 1] = renumber[np.minimum(cells[:, 1], len(place))]
        table[:, _POSITIONS] = renumber[np.minimum(table[:, _POSITIONS], len(place))]
        table[:, loops.BEST_CELL] = _less(new[np.where(has, table[:, loops.BEST_CELL], -1)], first)
        table[:, loops.THREADS] = 0
        held = {"threads": lists(of_thread, fixed(threads), count), "cells": lists(owner, fixed(cells), count)}
        return {"slot": fixed(table), **held}

    def load(self, columns: Mapping[str, pa.Array], positions: Positions) -> None:
        """Take in slots that were exported; there are none so far."""
        table = unfixed(columns["slot"])
        slots = np.arange(len(table))
        of_thread, found = unlisted(columns["threads"])
        threads = unfixed(found)
        owner, found = unlisted(columns["cells"])
        cells = unfixed(found)
        first = np.searchsorted(owner, slots)
        threads[:, 1] = _less(threads[:, 1], -first[of_thread])
        threads[:, self.marks] = positions.of(of_thread[:, None], threads[:, self.marks])
        cells[:, 0] = _less(cells[:, 0], -first[owner])
        cells[:, 1] = positions.of(owner, cells[:, 1])
        table[:, _POSITIONS] = positions.of(slots[:, None], table[:, _POSITIONS])
        table[:, loops.BEST_CELL] = _less(table[:, loops.BEST_CELL], -first)
        table[:, loops.THREADS] = np.cumsum(table[:, loops.N]) - table[:, loops.N]
        self.slots = table.reshape(-1)
        self.pool = np.concatenate([threads.reshape(-1), self.pool])
        self.cells = np.concatenate([cells.reshape(-1), self.cells])
        self.meta[loops.POOL_USED], self.meta[loops.CELLS_USED] = len(threads), len(cells)
        # A partition's threads must have room at once.
        most = int(self.table[:, loops.N].max(initial=0))
        self.make_room(max(FIRST_ROOM, min(2 * most, MOST_WAYS)))


def _less(numbers: Ints, first: Ints) -> Ints:
    """Numbers less those of the first ones; -1 stays."""
    return np.where(numbers < 0, -1, numbers - first)

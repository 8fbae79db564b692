"""The way into operators that sweep over time: rows whose instant is complete begin, and later end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.relations.back import Lanes

SLOT, END = 0, 1
"""Lanes of a row that a sweep works on: the slot of its group and the end of its validity (or, of a change, its sign);
its arguments come behind them."""
ROW_LANES = 2

_FEW = 1_024

Parts = tuple[Ints, ...]
"""Ends, the rows that have them, and numbers of these that are never given twice."""


class EndingRows:
    """Rows in order of their ends; taken from the front, added behind."""

    def __init__(self, ends: Ints, rows: Lanes, numbers: Ints) -> None:
        self._ends, self._rows, self._numbers = ends, rows, numbers
        self._head, self._tail = 0, len(ends)

    def __len__(self) -> int:
        return self._tail - self._head

    @property
    def ends(self) -> Ints:
        return self._ends[self._head : self._tail]

    @property
    def rows(self) -> Lanes:
        return self._rows[self._head : self._tail]

    @property
    def parts(self) -> Parts:
        return self.ends, self.rows, self._numbers[self._head : self._tail]

    def append(self, ends: Ints, rows: Lanes, numbers: Ints) -> None:
        """Add rows none of which ends before the last one."""
        if self._tail + len(ends) > len(self._ends):
            size = max(_FEW, 2 * (len(self) + len(ends)))
            parts = (np.empty((size, *part.shape[1:]), dtype=np.int64) for part in self.parts)
            grown, lanes, numbered = parts
            grown[: len(self)], lanes[: len(self)], numbered[: len(self)] = self.parts
            self._ends, self._rows, self._numbers, self._head, self._tail = grown, lanes, numbered, 0, len(self)
        stop = self._tail + len(ends)
        own = slice(self._tail, stop)
        self._ends[own], self._rows[own], self._numbers[own] = ends, rows, numbers
        self._tail = stop

    def take(self, before: int) -> tuple[Ints, Lanes]:
        """The rows that end before this; they stay readable until rows are added."""
        stop = self._head + int(np.searchsorted(self.ends, before))
        taken = self._ends[self._head : stop], self._rows[self._head : stop]
        self._head = stop
        return taken


class Ends:
    """The rows that are valid now, by when they end.

    Rows of a time window end in the order they came and make one run. Otherwise there are some runs, in order of
    arrival, of which those of like size become one.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[EndingRows] = []
        self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, ends: Ints, rows: Lanes, numbers: Ints | None = None) -> None:
        """Rows in order of arrival; those that never end need not be remembered, those that were saved have numbers."""
        if len(ends) and ends.max() == FOREVER:
            kept = ends < FOREVER
            ends, rows = ends[kept], rows[kept]
        if not len(ends):
            return
        if numbers is None:
            numbers = np.arange(self._next, self._next + len(ends))
        self._next = int(numbers[-1]) + 1
        if not _rises(ends):
            order = np.argsort(ends, kind="stable")
            ends, rows, numbers = ends[order], rows[order], numbers[order]
        elif not self._runs or not len(self._runs[-1]) or self._runs[-1].ends[-1] <= ends[0]:
            if not self._runs:
                self._runs.append(EndingRows(*self._nothing()))
            self._runs[-1].append(ends, rows, numbers)
            return
        self._runs.append(EndingRows(ends, rows, numbers))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            last = self._runs.pop()
            before = self._runs[-1]
            self._runs[-1] = EndingRows(*_merged([before.parts, last.parts]))

    def take(self, before: int) -> tuple[Ints, Lanes]:
        """Take out the rows that end before this, in order of their ends, then of arrival."""
        taken = [part for run in self._runs for part in (run.take(before),) if len(part[0])]
        if len(self._runs) > 1:
            self._runs = [run for run in self._runs if len(run)]
        if not taken:
            return np.empty(0, dtype=np.int64), np.empty((0, self.width), dtype=np.int64)
        if len(taken) == 1:
            return taken[0]
        ends, rows = _merged(taken)
        return ends, rows

    def all(self) -> tuple[Lanes, Ints]:
        """All rows in order of their ends, then of arrival, and their numbers."""
        _, rows, numbers = _merged([run.parts for run in self._runs]) if self._runs else self._nothing()
        return rows, numbers

    def _nothing(self) -> Parts:
        none = np.empty(0, dtype=np.int64)
        return none, np.empty((0, self.width), dtype=np.int64), none


class Front:
    """One input of a sweep."""

    def __init__(self, width: int = ROW_LANES) -> None:
        self.upto = BEGIN
        self.ends = Ends(width)
        self._waiting: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """Take a batch in, and its progress."""
        self.upto = max(self.upto, batch.upto)
        if len(batch):
            self._waiting.append(batch)

    def ready(self, before: int) -> list[Batch]:
        """Take out the rows that begin before this."""
        ready: list[Batch] = []
        while self._waiting and int(self._waiting[0].time[0]) < before:
            batch = self._waiting.pop(0)
            stop = int(np.searchsorted(batch.time, before))
            ready.append(batch.slice(0, stop) if stop < len(batch) else batch)
            if stop < len(batch):
                # A copy: a few rows that wait must not keep a large batch in memory.
                self._waiting.insert(0, batch.take(np.arange(stop, len(batch))))
                break
        return ready

    @property
    def waiting(self) -> Batch | None:
        """The rows whose instant is not complete."""
        return concat(self._waiting, self.upto) if self._waiting else None


def _rises(ends: Ints) -> bool:
    return bool(np.all(ends[1:] >= ends[:-1]))


def _merged(parts: Sequence[tuple[Ints, ...]]) -> tuple[Ints, ...]:
    """Ends with what belongs to them, as one in order."""
    together = [np.concatenate(of) for of in zip(*parts, strict=True)]
    order = np.argsort(together[0], kind="stable")
    return tuple(part[order] for part in together)

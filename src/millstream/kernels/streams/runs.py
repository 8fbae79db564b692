"""Rows that wait, as ordered runs: adding and releasing cost little however many wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.saving.content import KeptRows
from millstream.kernels.saving.kept import kept_batches


class Runs:
    """Waiting rows, given back in order of time, ties in the order they came."""

    def __init__(self) -> None:
        # Each run is in order of time; earlier runs hold rows that came earlier.
        self._runs: list[Batch] = []
        self._numbers: list[Ints] = []
        self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, batch: Batch, numbers: Ints | None = None) -> None:
        """Let rows in any order of time wait; rows that were saved have their numbers."""
        if len(batch) == 0:
            return
        if numbers is None:
            numbers = np.arange(self._next, self._next + len(batch))
        self._next = int(numbers[-1]) + 1
        self._push(batch, numbers)
        # Runs of like size become one, so that there are few and each row is moved a few times at most.
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            runs, own = [self._runs.pop(), self._runs.pop()], [self._numbers.pop(), self._numbers.pop()]
            self._push(concat(runs[::-1], runs[1].upto), np.concatenate(own[::-1]))

    @property
    def earliest(self) -> int:
        """The time of the first row that waits; FOREVER if none does."""
        return min((int(run.time[0]) for run in self._runs), default=FOREVER)

    @property
    def latest(self) -> int:
        """The last start of an event that waits; BEGIN if none does."""
        starts = (run.time if run.other is None else run.other for run in self._runs)
        return max((int(each.max()) for each in starts), default=BEGIN)

    def release(self, limit: int) -> list[Batch]:
        """Take out the rows with a time of at most `limit`, as pieces for `in_order`."""
        pieces, kept, left = [], [], []
        for run, own in zip(self._runs, self._numbers, strict=True):
            stop = int(np.searchsorted(run.time, limit, side="right"))
            if stop:
                pieces.append(run.slice(0, stop))
            if stop < len(run):
                kept.append(run.slice(stop, len(run)))
                left.append(own[stop:])
        self._runs, self._numbers = kept, left
        return pieces

    def all(self) -> Batch | None:
        """Everything that waits; None if nothing does."""
        return in_order(self._runs) if self._runs else None

    def kept(self) -> KeptRows:
        """Everything that waits, as it is saved: in the order it came."""
        return kept_batches(self._runs, self._numbers)

    def _push(self, rows: Batch, numbers: Ints) -> None:
        order = _order(rows)
        self._runs.append(rows if order is None else rows.take(order))
        self._numbers.append(numbers if order is None else numbers[order])


def in_order(pieces: Sequence[Batch]) -> Batch:
    """Batches as one in order of time; equal times in the order of the pieces, then of their rows."""
    together = concat(list(pieces), pieces[0].upto)
    order = _order(together)
    return together if order is None else together.take(order)


def _order(rows: Batch) -> Ints | None:
    """What brings rows into order of time; None if they are."""
    return None if np.all(rows.time[1:] >= rows.time[:-1]) else np.argsort(rows.time, kind="stable")

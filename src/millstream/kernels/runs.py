"""Rows that wait, as ordered runs: adding and releasing cost little however many wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millstream.kernels.batch import FOREVER, Batch, concat


class Runs:
    """Waiting rows, given back in order of time, ties in the order they came."""

    def __init__(self) -> None:
        # Each run is in order of time; earlier runs hold rows that came earlier.
        self._runs: list[Batch] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, batch: Batch) -> None:
        """Let rows in any order of time wait."""
        if len(batch) == 0:
            return
        self._runs.append(in_order([batch]))
        # Runs of like size become one, so that there are few and each row is moved a few times at most.
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            last = self._runs.pop()
            self._runs[-1] = in_order([self._runs[-1], last])

    @property
    def earliest(self) -> int:
        """The time of the first row that waits; FOREVER if none does."""
        return min((int(run.time[0]) for run in self._runs), default=FOREVER)

    def release(self, limit: int) -> list[Batch]:
        """Take out the rows with a time of at most `limit`, as pieces for `in_order`."""
        pieces, kept = [], []
        for run in self._runs:
            stop = int(np.searchsorted(run.time, limit, side="right"))
            if stop:
                pieces.append(run.slice(0, stop))
            if stop < len(run):
                kept.append(run.slice(stop, len(run)))
        self._runs = kept
        return pieces

    def all(self) -> Batch | None:
        """Everything that waits; None if nothing does."""
        return in_order(self._runs) if self._runs else None


def in_order(pieces: Sequence[Batch]) -> Batch:
    """Batches as one in order of time; equal times in the order of the pieces, then of their rows."""
    together = concat(list(pieces), pieces[0].upto)
    if np.all(together.time[1:] >= together.time[:-1]):
        return together
    return together.take(np.argsort(together.time, kind="stable"))

"""Rows and keys that have numbers for as long as they are kept, by which saving tells what came, changed or went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.saving.content import KeptRows, Rows


class KeptBatches:
    """Rows in the order they came, with numbers."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._numbers: list[Ints] = []
        self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def add(self, batch: Batch, numbers: Ints | None = None) -> None:
        if len(batch):
            self._batches.append(batch)
            self._numbers.append(np.arange(self._next, self._next + len(batch)) if numbers is None else numbers)
            self._next = int(self._numbers[-1][-1]) + 1

    def all(self) -> Batch | None:
        """All rows; None if there are none."""
        if len(self._batches) > 1:
            self._batches, self._numbers = [concat(self._batches, BEGIN)], [np.concatenate(self._numbers)]
        return self._batches[0] if self._batches else None

    @property
    def first(self) -> int:
        """The time of the first row; FOREVER if there is none."""
        return int(self._batches[0].time[0]) if self._batches else FOREVER

    def drop(self, count: int) -> None:
        """Forget the first rows."""
        rows = self.all()
        if rows is not None:
            self._batches = [rows.slice(count, len(rows))] if count < len(rows) else []
            self._numbers = [self._numbers[0][count:]] if count < len(rows) else []

    def keep(self, places: Ints) -> None:
        """Forget all rows but these."""
        rows = self.all()
        if rows is not None and len(places) < len(rows):
            self._batches = [rows.take(places)] if len(places) else []
            self._numbers = [self._numbers[0][places]] if len(places) else []

    def kept(self) -> KeptRows:
        return kept_batches(self._batches, self._numbers)


def kept_batches(batches: Sequence[Batch], numbers: Sequence[Ints]) -> KeptRows:
    """Rows of batches, with their numbers in any order."""
    together = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
    order = np.argsort(together, kind="stable")
    begins = np.cumsum([0, *map(len, batches)])

    def take(places: Ints) -> Batch:
        wanted = order[places]
        # Of each batch its own, one batch after the other, and then in the order that is asked for.
        by_batch = np.argsort(wanted, kind="stable")
        edges = np.searchsorted(wanted[by_batch], begins)
        parts = [
            batch.take(wanted[by_batch[edges[i] : edges[i + 1]]] - begins[i])
            for i, batch in enumerate(batches)
            if edges[i] < edges[i + 1]
        ]
        back = np.empty(len(wanted), dtype=np.int64)
        back[by_batch] = np.arange(len(wanted))
        return concat(parts, BEGIN).take(back)

    return KeptRows(together[order], take)


class SlotNumbers:
    """Numbers of keys that have slots: one that gets the slot of another has a number of its own."""

    def __init__(self) -> None:
        self._of: Ints = np.zeros(0, dtype=np.int64)
        self._next = 0

    def of(self, slots: npt.NDArray[Any]) -> Ints:
        more = int(slots.max(initial=-1)) + 1 - len(self._of)
        if more > 0:
            self._of = np.append(self._of, self._fresh(more))
        numbers: Ints = self._of[slots]
        return numbers

    def renew(self, slots: npt.NDArray[Any]) -> None:
        """The slots go to other keys."""
        self.of(slots)
        self._of[slots] = self._fresh(len(slots))

    def give(self, slots: npt.NDArray[Any], numbers: Ints | None) -> None:
        """Let keys that were saved have their numbers."""
        if numbers is not None and len(numbers):
            self._next = max(self._next, int(numbers.max()) + 1)
            # Slots that are new from here on are not to get one of these.
            self.of(slots)
            self._of[slots] = numbers

    def kept(self, slots: npt.NDArray[Any], take: Callable[[Ints], Rows], changing: Mapping[str, Ints]) -> KeptRows:
        """Keys of these slots, what is known of all by slot."""
        numbers = self.of(slots)
        order = np.argsort(numbers, kind="stable")
        own = slots[order].astype(np.int64)
        values = {name: of[own] for name, of in changing.items()}
        return KeptRows(numbers[order], lambda places: take(own[places]), values)

    def _fresh(self, count: int) -> Ints:
        self._next += count
        return np.arange(self._next - count, self._next)

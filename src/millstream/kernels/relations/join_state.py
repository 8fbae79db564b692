"""What a join keeps of each input: the rows that can still meet others, and how far each is matched."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations import join_loops
from millstream.kernels.relations.held_rows import HeldRows
from millstream.kernels.saving.content import Ledger
from millstream.kernels.streams.runs import Runs
from millstream.records import dataclass

_link = compile_kernel(source_of(join_loops), "link")

_FEW = 1_024
_NO_ROWS = np.empty(0, dtype=np.int64)


class Side:
    """The rows of one input in order of their starts; the first `entered` have met those of the other side.

    Rows of a key are chained, from `head` by `next`. If `is_tracked`, [opened, edge) is the last time for which each
    row is known to be matched.
    """

    _BY_ROW = ("start", "end", "key", "next", "opened", "edge")

    def __init__(self, schema: pa.Schema, is_tracked: bool) -> None:
        self.rows = HeldRows(schema)
        self.is_tracked = is_tracked
        self.count = 0
        self.entered = 0
        self.finished = 0
        self.start, self.end, self.key, self.next, self.opened, self.edge = (_NO_ROWS for _ in self._BY_ROW)
        self.head = _NO_ROWS
        self._last_end = BEGIN
        self._enough = _FEW

    def append(
        self,
        batch: Batch,
        keys: npt.NDArray[np.int32],
        cover: tuple[Ints, Ints] | None = None,
        lasting: Ints | None = None,
    ) -> None:
        """Let rows that come after all others wait to be entered; `cover` is what is known of them, `lasting` are their
        numbers if they were saved."""
        assert batch.other is not None
        size = self.count + len(batch)
        self._hold(size)
        own = slice(self.count, size)
        self.start[own], self.end[own], self.key[own] = batch.time, batch.other, keys
        if self.is_tracked:
            self.opened[own], self.edge[own] = cover or (batch.time, batch.time)
        self.rows.add(batch.rows, lasting)
        self.count = size
        self._last_end = max(self._last_end, int(batch.other.max()))

    def reach(self, keys: int) -> None:
        """Have a chain for each of so many keys."""
        if keys > len(self.head):
            more = max(keys, 2 * len(self.head)) - len(self.head)
            self.head = np.append(self.head, np.full(more, -1, dtype=np.int64))

    def until(self, now: int) -> int:
        """How many rows have started by `now`."""
        return int(np.searchsorted(self.start[: self.count], now, side="right"))

    def live(self, now: int) -> Ints:
        """The positions of rows that are not over."""
        return np.flatnonzero(self.end[: self.count] > now)

    def purge(self, now: int) -> bool:
        """Forget rows that are over, if that is worth it: all are, or there are twice as many as there were."""
        if self.count < self._enough and (now < self._last_end or not self.count):
            return False
        live = self.live(now)
        self.rows.keep(live)
        for name in self._BY_ROW:
            values = getattr(self, name)
            if len(values):
                values[: len(live)] = values[live]
        self.entered = int(np.searchsorted(live, self.entered))
        self.finished = int(np.searchsorted(live, self.finished))
        self.count = len(live)
        self._enough = max(_FEW, 2 * len(live))
        if not len(live):
            self._last_end = BEGIN
        self.enter(self.entered)
        return True

    def enter(self, entered: int) -> None:
        """Chain the first rows, as having met the other side's."""
        self.entered = entered
        self.head[:] = -1
        _link(entered, self.key, self.next, self.head, entered)

    def _hold(self, size: int) -> None:
        if size <= len(self.start):
            return
        more = max(size, 2 * len(self.start)) - len(self.start)
        for name in self._BY_ROW if self.is_tracked else self._BY_ROW[:4]:
            setattr(self, name, np.append(getattr(self, name), np.empty(more, dtype=np.int64)))


@dataclass
class JoinState:
    """Both sides, how far they came, and results that wait for earlier ones."""

    keys: KeyTable | None
    sides: tuple[Side, Side]
    upto: list[int]
    held: Runs = field(default_factory=Runs)
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def now(self) -> int:
        return min(self.upto)

    def purge(self) -> None:
        """Forget what cannot meet anything any more."""
        purged = [side.purge(self.now) for side in self.sides]
        if any(purged) and self.keys is not None:
            self.keys.release_others(side.key[: side.count] for side in self.sides)

"""What a join keeps of each input: the rows that can still meet others, and how far each is matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations import join_loops
from millstream.kernels.runs import Runs

_link = compile_kernel(source_of(join_loops), "link")

_FEW = 1_024
_SMALL = 4_096
_NO_ROWS = np.empty(0, dtype=np.int64)


class Chunks:
    """Rows by position: chunks of which later ones are smaller, so that adding copies each row a few times at most."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self._begins = _NO_ROWS

    def append(self, rows: pa.RecordBatch) -> None:
        self._chunks.append(pa.RecordBatch.from_arrays(rows.columns, schema=self._schema))
        while len(self._chunks) > 1 and max(2 * len(self._chunks[-1]), _SMALL) >= len(self._chunks[-2]):
            last = self._chunks.pop()
            self._chunks[-1] = pa.concat_batches([self._chunks[-1], last])
        self._set(self._chunks)

    def take(self, positions: Ints, columns: Sequence[int]) -> list[pa.Array]:
        """These columns of the rows at `positions`."""
        if not columns:
            return []
        if not len(positions):
            return [pa.nulls(0, self._schema.field(column).type) for column in columns]
        chunk = np.zeros(1, dtype=np.int8)
        if len(self._chunks) > 1:
            chunk = (np.searchsorted(self._begins, positions, side="right") - 1).astype(np.int8)
        if (chunk == chunk[0]).all():
            places = pa.array(positions - self._begins[chunk[0]])
            return [self._chunks[chunk[0]].column(column).take(places) for column in columns]
        order = np.argsort(chunk, kind="stable")
        edges = np.searchsorted(chunk[order], np.arange(len(self._chunks) + 1))
        parts = [
            pa.array(positions[order[edges[i] : edges[i + 1]]] - self._begins[i]) for i in range(len(self._chunks))
        ]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        restore = pa.array(back)
        return [
            pa.concat_arrays(
                [own.column(column).take(part) for own, part in zip(self._chunks, parts, strict=True)]
            ).take(restore)
            for column in columns
        ]

    def rows(self, positions: Ints) -> pa.RecordBatch:
        """The rows at `positions`, whole."""
        return pa.RecordBatch.from_arrays(self.take(positions, range(len(self._schema))), schema=self._schema)

    def keep(self, positions: Ints) -> None:
        """Keep only the rows at `positions`, in that order."""
        self._set([self.rows(positions)] if len(positions) else [])

    def _set(self, chunks: list[pa.RecordBatch]) -> None:
        self._chunks = chunks
        self._begins = np.cumsum([0, *map(len, chunks)])[:-1]


class Side:
    """The rows of one input in order of their starts; the first `entered` have met those of the other side.

    Rows of a key are chained, from `head` by `next`. If `is_tracked`, [opened, edge) is the last time for which each
    row is known to be matched.
    """

    _BY_ROW = ("start", "end", "key", "next", "opened", "edge")

    def __init__(self, schema: pa.Schema, is_tracked: bool) -> None:
        self.rows = Chunks(schema)
        self.is_tracked = is_tracked
        self.count = 0
        self.entered = 0
        self.finished = 0
        self.start, self.end, self.key, self.next, self.opened, self.edge = (_NO_ROWS for _ in self._BY_ROW)
        self.head = _NO_ROWS
        self._last_end = BEGIN
        self._enough = _FEW

    def append(self, batch: Batch, keys: npt.NDArray[np.int32], cover: tuple[Ints, Ints] | None = None) -> None:
        """Let rows that come after all others wait to be entered; `cover` is what is known of them."""
        assert batch.other is not None
        size = self.count + len(batch)
        self._hold(size)
        own = slice(self.count, size)
        self.start[own], self.end[own], self.key[own] = batch.time, batch.other, keys
        if self.is_tracked:
            self.opened[own], self.edge[own] = cover or (batch.time, batch.time)
        self.rows.append(batch.rows)
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
    changed: bool = True

    @property
    def now(self) -> int:
        return min(self.upto)

    def purge(self) -> None:
        """Forget what cannot meet anything any more."""
        purged = [side.purge(self.now) for side in self.sides]
        if any(purged) and self.keys is not None:
            used = np.zeros(self.keys.size, dtype=np.bool_)
            for side in self.sides:
                own = side.key[: side.count]
                used[own[own >= 0]] = True
            live = self.keys.live()
            gone = live[~used[live]]
            if 2 * len(gone) > len(live):
                self.keys.release(gone)

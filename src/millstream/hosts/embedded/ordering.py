"""Bounded sources sorted by time, so that none of their rows is late."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.catalog import StreamDef
from millstream.connectors.contract import Chunk, Offset, Rejected, RowSource, Scannable, Watched
from millstream.errors import ConnectorError
from millstream.hosts.arrivals import refuse_untimed, times_of
from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.keys.words import DAY_US
from millstream.records import dataclass

SORT_BYTES = 256 << 20
"""Rows that are sorted in memory; what is more goes to disk in sorted runs."""

RUN_ROWS = 65_536

DONE, TOLD, ALL, BEGUN = "sorted", "rejected", "of", "begun"
"""What an offset tells while rows are sorted: how many have left, how many rejected ones were told, how many rows there
are, and where the source began to read, if it says so before its first rows."""


class InOrder:
    """A source whose rows come in order of time, equal times as they lie; out of it by no more than the slack, as is.

    The times are looked at first, without the other columns. Rows that are not in order are sorted, on disk if they are
    many, and handed over when all have been read.
    """

    bounded = True

    def __init__(self, source: RowSource, stream: StreamDef) -> None:
        self._source = source
        self._stream = stream
        self._sorted: _Sorted | None = None

    @property
    def replayable(self) -> bool:
        return self._source.replayable

    def size(self) -> int | None:
        return self._source.size()

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        if DONE not in offset and (offset or self._lies_in_order()):
            yield from self._source.read(offset, stop, limit)
            return
        rows = self._sorted
        if rows is None or rows.offset != offset:
            # whoever reads again what was read begins again; the sources tell the same rows
            begun = offset.get(BEGUN, {})
            rows = self._sorted = _Sorted(self._source.read(begun, stop), self._stream, begun, stop)
            if not stop():
                rows.skip(offset)
        while not stop() and (chunk := rows.take(limit or RUN_ROWS)) is not None:
            yield chunk
        self._sorted = None

    def changed(self, offset: Offset) -> str | None:
        """What is no longer as it was when rows up to this offset were read."""
        return self._source.changed(offset.get(BEGUN, offset)) if isinstance(self._source, Watched) else None

    def _lies_in_order(self) -> bool:
        """Whether no row is further from its place than the slack allows, as far as the times alone tell."""
        if not isinstance(self._source, Scannable) or self._stream.time_column is None:
            return False
        highest = BEGIN + self._stream.slack
        try:
            for array in self._source.values(self._stream.time_column):
                times = _instants(array)
                if times is None:
                    return False
                peaks = np.maximum.accumulate(np.concatenate([[highest], times]))
                if bool((times < peaks[:-1] - self._stream.slack).any()):
                    return False
                highest = int(peaks[-1])
        except (pa.ArrowException, OSError, ValueError):
            return False
        return True


def _instants(values: pa.Array) -> Ints | None:
    """Values of a time column as the engine counts time, NULLs left out; None if that takes more than a look."""
    values = values.drop_null() if values.null_count else values
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
        return np.asarray(values.view(pa.int64()), dtype=np.int64)
    if pa.types.is_date32(values.type):
        return np.asarray(values.view(pa.int32()), dtype=np.int64) * DAY_US
    return np.asarray(values, dtype=np.int64) if pa.types.is_signed_integer(values.type) else None


class _Sorted:
    """All rows that some chunks bring, in order of time; those that were rejected come first."""

    def __init__(self, chunks: Iterable[Chunk], stream: StreamDef, begun: Offset, stop: Callable[[], bool]) -> None:
        self._stream = stream
        self._begun = begun
        self._all = 0
        self._schema = stream.given.arrow
        self._rejected: list[Rejected] = []
        self._waiting: list[pa.RecordBatch] = []
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[Path] = []
        self._done = self._told = 0
        self._ready: list[pa.RecordBatch] = []
        for chunk in chunks:
            if not self._all and not self._rejected and not chunk.rows.num_rows:
                self._begun = chunk.offset
            rows, untimed = refuse_untimed(chunk.rows, stream)
            self._all += rows.num_rows
            self._rejected += (*chunk.rejected, *untimed)
            self._waiting.append(rows)
            if sum(batch.nbytes for batch in self._waiting) >= SORT_BYTES:
                self._spill()
            if stop():
                break
        if self._runs:
            self._spill()
        self._merged = self._merge() if self._runs else self._in_memory()

    @property
    def offset(self) -> Offset:
        if not self._done and not self._told:
            return {}
        return {DONE: self._done, TOLD: self._told, ALL: self._all, BEGUN: self._begun}

    def take(self, limit: int) -> Chunk | None:
        """The next rows, rejected ones counted; None if there are no more."""
        told: list[Rejected] = []
        count = 0
        while self._told < len(self._rejected) and (not told or count + self._rejected[self._told].count <= limit):
            told.append(self._rejected[self._told])
            count += told[-1].count
            self._told += 1
        rows = self._next_rows(max(0, limit - count))
        if not told and not rows.num_rows:
            return None
        self._done += rows.num_rows
        return Chunk(rows, self.offset, tuple(told))

    def skip(self, offset: Offset) -> None:
        """Leave out what was handed over before."""
        if offset and (offset[ALL], offset[TOLD]) != (self._all, min(offset[TOLD], len(self._rejected))):
            raise ConnectorError(
                f"the source of {self._stream.name} has changed: rows that were read before are missing",
                detail=f"{offset[ALL]} rows were sorted, and now there are {self._all}",
                hint="start with a new directory",
            )
        self._told = int(offset.get(TOLD, 0))
        wanted = int(offset.get(DONE, 0))
        while self._done < wanted:
            rows = self._next_rows(min(RUN_ROWS, wanted - self._done))
            if not rows.num_rows:
                return
            self._done += rows.num_rows

    def _next_rows(self, limit: int) -> pa.RecordBatch:
        if limit and not self._ready:
            self._ready += [batch for batch in [next(self._merged, None)] if batch is not None]
        if not limit or not self._ready:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        first = self._ready.pop()
        if first.num_rows > limit:
            self._ready.append(first.slice(limit))
        return first.slice(0, limit)

    def _in_memory(self) -> Iterator[pa.RecordBatch]:
        if not self._waiting:
            return
        rows = pa.concat_batches(self._waiting)
        self._waiting = []
        order = np.argsort(times_of(rows, self._stream), kind="stable")
        for start in range(0, len(order), RUN_ROWS):
            yield rows.take(pa.array(order[start : start + RUN_ROWS]))

    def _spill(self) -> None:
        """Put the rows that wait on disk, as a run in order."""
        if self._place is None:
            self._place = tempfile.TemporaryDirectory(prefix="millstream-sort-")
        path = Path(self._place.name) / f"{len(self._runs)}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
            for batch in self._in_memory():
                writer.write_batch(batch)
        self._runs.append(path)

    def _merge(self) -> Iterator[pa.RecordBatch]:
        """The runs as one; of equal times the earlier run has the earlier rows."""
        runs = [run for run in (_Run(path, self._stream) for path in self._runs) if run.load()]
        while runs:
            # up to where the first of them ends nothing can come in between
            nearest = min(range(len(runs)), key=lambda i: int(runs[i].times[-1]))
            limit = int(runs[nearest].times[-1])
            pieces = [run.take(limit, i <= nearest) for i, run in enumerate(runs)]
            rows = pa.concat_batches([piece for piece, _ in pieces])
            times = np.concatenate([times for _, times in pieces])
            yield rows.take(pa.array(np.argsort(times, kind="stable")))
            runs = [run for run in runs if len(run.times) or run.load()]


@dataclass(eq=False)
class _Run:
    """A file of rows in order, of which one batch is at hand."""

    path: Path
    stream: StreamDef

    def __post_init__(self) -> None:
        self._reader = pa.ipc.open_file(pa.memory_map(str(self.path)))
        self._next = 0
        self.rows: pa.RecordBatch
        self.times: Ints

    def load(self) -> bool:
        """Take the next batch, if there is one."""
        if self._next == self._reader.num_record_batches:
            return False
        self.rows = self._reader.get_batch(self._next)
        self.times = times_of(self.rows, self.stream)
        self._next += 1
        return True

    def take(self, limit: int, including: bool) -> tuple[pa.RecordBatch, Ints]:
        """The rows at hand up to a time, including those of that time or not."""
        stop = int(np.searchsorted(self.times, limit, side="right" if including else "left"))
        taken = self.rows.slice(0, stop), self.times[:stop]
        self.rows, self.times = self.rows.slice(stop), self.times[stop:]
        return taken

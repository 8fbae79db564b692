"""The kept past of a stream: its rows in order of time, in memory or as Parquet files.

Rows are numbered from the first that the stream ever gave. They are kept in segments, each with the bounds of its times
(its zone map). A session in a directory writes segments as files when it takes a checkpoint, whose manifest lists them:
so a row is in a file of the checkpoint or in the journal after it, and never in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import finalize

import numpy as np
import pyarrow as pa

from millstream.arrays import from_numpy, one_batch, to_numpy
from millstream.catalog import Clock, Retention, StreamDef
from millstream.durable import sync_directory, write_durably
from millstream.errors import StateError
from millstream.kernels.batch import BEGIN, FOREVER, Batch, concat
from millstream.kernels.keys.words import instants
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

CHUNK_ROWS = 65_536
"""rows of a segment in memory, and of a row group in a file"""
SEGMENT_ROWS = 1 << 20
"""rows of a file, at most"""
MOST_PARTS = 512
"""small batches that are put together at the latest"""
NUMBER = "__arrival"
"""the column of a file that has the arrival numbers, which order rows of one time"""


@dataclass(frozen=True)
class Segment:
    """Some rows: from which number on, how many, between which times, of what size; in memory or in a file."""

    start: int
    rows: int
    first: int
    last: int
    size: int
    file: str | None = None
    batch: Batch | None = None

    @property
    def end(self) -> int:
        return self.start + self.rows


_SAVED = ("start", "rows", "first", "last", "size", "file")


class StreamHistory:
    """What is kept of a stream. It keeps at least what `keep` says, and lets go of whole segments."""

    def __init__(
        self, stream: StreamDef, keep: Retention, directory: Path | None = None, *, start: int = 0, most: int = 0
    ) -> None:
        self.stream = stream
        self.keep = keep
        self.most = most
        """rows after which it lets go of more than `keep` says; 0: never"""
        self.directory = directory
        self.end = start
        """the number of the next row"""
        self.lost = BEGIN
        """the time up to which rows are missing"""
        self._segments: list[Segment] = []
        self._tail: list[Batch] = []
        self._tail_rows = 0
        self.pins = 0
        """how many read files of it"""

    # -- what is there -------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The number of the first row that is there."""
        return self._segments[0].start if self._segments else self.end - self._tail_rows

    @property
    def rows(self) -> int:
        return self.end - self.start

    def begins(self, since: int | None = None) -> int:
        """The instant from which on no row is missing, if rows are read from `since` on; BEGIN if none ever was."""
        known = BEGIN if self.lost == BEGIN else self.lost + 1
        return known if since is None else max(known, since)

    def pinned(
        self, number: int = 0, since: int | None = None, until: int = FOREVER, columns: Collection[str] | None = None
    ) -> Pinned:
        """The rows from a number on that are not before an instant, as they are now; segments after `until` are left
        out, and of files columns that nobody asks for."""
        self._seal()
        wanted = [s for s in self._segments if s.end > number and (since is None or s.last >= since)]
        wanted = [segment for segment in wanted if segment.first <= until]
        return Pinned(self, wanted, number, since, columns)

    def batches(self, segment: Segment, columns: Collection[str] | None = None) -> Iterator[tuple[int, Batch]]:
        if segment.batch is not None:
            yield segment.start, segment.batch
            return
        import pyarrow.parquet as pq

        at, schema, timed = segment.start, self.stream.schema.arrow, self.stream.clock is not Clock.LATENT
        clock = schema.names[self.stream.schema.index(self.stream.time_column or "")] if timed else None
        if columns is not None:
            schema = pa.schema([field for field in schema if field.name == clock or field.name in columns])
        with pq.ParquetFile(self._path(segment)) as file:
            for rows in file.iter_batches(4 * CHUNK_ROWS, columns=[*schema.names, NUMBER]):
                seq = to_numpy(rows.column(NUMBER))
                rows = pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
                time = seq if clock is None else instants(rows.column(clock), self.stream.schema[clock].type)
                yield at, Batch(rows, time, seq, BEGIN)
                at += rows.num_rows

    def dataset(self) -> Dataset:
        """The rows for the table store, which skips segments whose times a condition excludes; its files stay as long
        as it does."""
        made = self._dataset()
        self.pins += 1
        finalize(made, self._unpin)
        return made

    def _unpin(self) -> None:
        self.pins -= 1

    def _dataset(self) -> Dataset:
        import pyarrow.dataset as ds
        from pyarrow.fs import LocalFileSystem

        schema = self.stream.schema.arrow
        segments = self.pinned().segments
        files = [segment for segment in segments if segment.file is not None]
        held = [segment.batch.rows for segment in segments if segment.batch is not None]
        memory = ds.InMemoryDataset(pa.Table.from_batches(held, schema=schema))
        if not files:
            return memory
        paths = [str(self._path(segment)) for segment in files]
        bounds = [self._bounds(segment) for segment in files]
        stored = ds.FileSystemDataset.from_paths(
            paths, schema, ds.ParquetFileFormat(), LocalFileSystem(), partitions=bounds
        )
        return ds.UnionDataset(schema, [stored, memory]) if held else stored

    def _bounds(self, segment: Segment) -> Any:
        """The zone map of a file, as a condition that its rows meet."""
        import pyarrow.compute as pc

        column = self.stream.time_column
        if column is None:
            return pc.scalar(True)
        type_ = self.stream.schema[column].type
        first, last = (_literal(time, type_.arrow) for time in (segment.first, segment.last))
        if first is None or last is None:
            return pc.scalar(True)
        return (pc.field(column) >= first) & (pc.field(column) <= last)

    # -- what comes and goes -------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Rows that come after all others."""
        if self.most and len(batch) > self.most:
            batch = self._last_of(batch)
        self._tail.append(batch)
        self._tail_rows += len(batch)
        self.end += len(batch)
        if self._tail_rows >= CHUNK_ROWS or len(self._tail) >= MOST_PARTS:
            self._seal()
            self.expire()

    def _last_of(self, batch: Batch) -> Batch:
        """As many of the rows as may be kept, without the memory of the others."""
        skipped = len(batch) - self.most
        self._segments, self._tail, self._tail_rows = [], [], 0
        self.lost = int(batch.time[skipped - 1])
        self.end += skipped
        return batch.take(np.arange(skipped, len(batch)))

    def _seal(self) -> None:
        if not self._tail:
            return
        parts, start, rows = self._tail, self.end - self._tail_rows, self._tail_rows
        while self._segments:
            # each row is copied a few times at most
            last = self._segments[-1]
            if last.batch is None or last.rows > rows or last.rows + rows > CHUNK_ROWS:
                break
            parts, start, rows = [last.batch, *parts], last.start, rows + last.rows
            self._segments.pop()
        batch = concat(parts, BEGIN)
        first, last_time = int(batch.time[0]), int(batch.time[-1])
        self._segments.append(Segment(start, rows, first, last_time, batch.rows.nbytes, batch=batch))
        self._tail, self._tail_rows = [], 0
        waiting = self._in_memory() if self.directory is not None else []
        if sum(segment.rows for segment in waiting) >= SEGMENT_ROWS:
            # it is of no checkpoint yet: after a crash the journal brings these rows again
            with suppress(OSError):
                self._write(waiting)

    def _in_memory(self) -> list[Segment]:
        return [segment for segment in self._segments if segment.batch is not None]

    def take_over(self, other: StreamHistory) -> None:
        """Begin with the rows of another one, which ends here."""
        for batch in other.pinned():
            self._tail.append(batch)
            self._tail_rows += len(batch)
        self.lost = other.lost
        self._seal()

    def expire(self) -> None:
        """Let go of segments that need not be kept."""
        gone = 0
        while gone < len(self._segments) - 1 and self._is_over(gone):
            gone += 1
        if gone:
            self.lost = self._segments[gone - 1].last
            del self._segments[:gone]

    def _is_over(self, place: int) -> bool:
        """Whether what comes after a segment is all that is to be kept."""
        segment = self._segments[place]
        if self.most and self.end - segment.end >= self.most:
            return True
        match self.keep.unit:
            case "rows":
                return self.end - segment.end >= self.keep.amount
            case "bytes":
                return sum(each.size for each in self._segments[place + 1 :]) >= self.keep.amount
            case "time":
                return segment.last < self._segments[-1].last - self.keep.amount
        return False

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any] | None:
        """Write what is in memory, and tell what is there, for a checkpoint."""
        self._seal()
        self.expire()
        if self.directory is None:
            return None
        fresh = self._in_memory()
        if fresh:
            # small files are written again together, each row a few times at most
            merged = fresh
            for segment in reversed(self._segments[: -len(fresh)]):
                rows = sum(each.rows for each in merged)
                if segment.rows > rows or segment.rows + rows > SEGMENT_ROWS:
                    break
                merged = [segment, *merged]
            try:
                self._write(merged)
            except OSError as error:
                raise StateError(
                    f"cannot save the history of {self.stream.name}: {error.strerror or error}",
                    hint="the last checkpoint and the journal are still valid; free some space, or check the disk",
                ) from error
        saved = [{name: getattr(segment, name) for name in _SAVED} for segment in self._segments]
        return {"end": self.end, "lost": self.lost, "segments": saved}

    def restore(self, saved: dict[str, Any]) -> None:
        """What a checkpoint says is there."""
        self.end, self.lost = saved["end"], saved["lost"]
        self._segments = [Segment(**each) for each in saved["segments"]]
        assert self.directory is not None
        there = {path.name for path in self.directory.glob("*.parquet")}
        for segment in self._segments:
            if segment.file not in there:
                raise StateError(
                    f"history of stream {self.stream.name} is missing",
                    detail=f"the checkpoint names {self._path(segment)}",
                    hint="put the file back, or restore the session's directory from a copy",
                )

    def sweep(self) -> None:
        """Remove files that no checkpoint needs any more, and nobody reads."""
        if self.pins:
            return
        used = {segment.file for segment in self._segments}
        for path in self.directory.glob("*.parquet") if self.directory is not None else ():
            if path.name not in used:
                # it does no harm, and the next checkpoint tries again
                with suppress(OSError):
                    path.unlink()

    def _path(self, segment: Segment) -> Path:
        assert self.directory is not None and segment.file is not None
        return self.directory / segment.file

    def _write(self, segments: list[Segment]) -> None:
        """Make one file of the last segments."""
        import pyarrow.parquet as pq

        assert self.directory is not None
        batches = [batch for segment in segments for _, batch in self.batches(segment)]
        rows, seq = one_batch([batch.rows for batch in batches]), np.concatenate([batch.seq for batch in batches])
        schema = self.stream.schema.arrow.append(pa.field(NUMBER, pa.int64()))
        table = pa.Table.from_arrays([*rows.columns, from_numpy(seq)], schema=schema)
        buffer = pa.BufferOutputStream()
        texts = [field.name for field in schema if not _is_number(field.type) and not pa.types.is_nested(field.type)]
        deltas = {field.name: "DELTA_BINARY_PACKED" for field in schema if _is_whole(field.type)}
        # dictionaries of numbers that differ cost most of the time of writing and reading
        pq.write_table(table, buffer, row_group_size=CHUNK_ROWS, use_dictionary=texts, column_encoding=deltas)
        data = bytes(buffer.getvalue())
        name = f"{segments[0].start:020d}-{uuid4().hex[:8]}.parquet"
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(self.directory / name, data)
        sync_directory(self.directory)
        made = Segment(segments[0].start, rows.num_rows, segments[0].first, segments[-1].last, len(data), file=name)
        self._segments[-len(segments) :] = [made]


@dataclass
class Pinned:
    """Some rows of a history, which stay there while they are read, whatever comes and goes."""

    history: StreamHistory
    segments: list[Segment]
    number: int
    since: int | None
    columns: Collection[str] | None = None

    def __enter__(self) -> Pinned:
        self.history.pins += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.history.pins -= 1

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)

    def __iter__(self) -> Iterator[Batch]:
        """The rows in order; each batch tells how far time has come. While one is used, the next is read."""
        reading = self._read()
        return read_ahead(reading) if any(segment.file for segment in self.segments) else reading

    def _read(self) -> Iterator[Batch]:
        for segment in self.segments:
            for at, batch in self.history.batches(segment, self.columns):
                skip = max(self.number - at, 0)
                if self.since is not None:
                    skip = max(skip, int(np.searchsorted(batch.time, self.since)))
                if skip < len(batch):
                    yield batch.slice(skip, len(batch)).with_upto(int(batch.time[-1]))


def read_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches: while one is used, a thread reads the next."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="millstream-history") as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _is_whole(type_: pa.DataType) -> bool:
    """Whether Parquet has its values as integers: numbers without fractions, dates and times."""
    return bool(pa.types.is_integer(type_) or pa.types.is_temporal(type_))


def _is_number(type_: pa.DataType) -> bool:
    return bool(_is_whole(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_))


def _literal(time: int, type_: pa.DataType) -> pa.Scalar | None:
    """A time of a zone map as a value of the column, if it is one as it stands."""
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return pa.scalar(time, pa.int64()).cast(type_)
    return pa.scalar(time, type_) if pa.types.is_integer(type_) else None

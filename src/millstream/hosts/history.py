"""The kept past of a stream: its rows in order of time, in memory or as Parquet files.

Rows are numbered from the first that the stream ever gave. They are kept in segments, each with the bounds of its times
and of its storage key, if it has one (its zone map). With a storage key, the rows of a file are sorted by it, so that
the bounds of row groups tell them apart; when they are read, they are put in order of time again. A session in a
directory writes segments as files when it takes a checkpoint, whose manifest lists them: so a row is in a file of the
checkpoint or in the journal after it, and never in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import finalize

import numpy as np
import pyarrow as pa

from millstream.arrays import from_numpy, one_batch, to_numpy
from millstream.catalog import Clock, Retention, StreamDef
from millstream.connectors.files.row_groups import bounds_of
from millstream.connectors.files.wanted import Bounds, excludes
from millstream.durable import sync_directory, write_durably
from millstream.errors import StateError
from millstream.expressions.nodes import Expr
from millstream.kernels.batch import BEGIN, FOREVER, Batch, concat
from millstream.kernels.keys.words import instants
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

CHUNK_ROWS = 65_536
"""rows of a segment in memory, and of a row group in a file"""
SEGMENT_ROWS = 1 << 20
"""rows of a file, at most"""
MOST_PARTS = 512
"""small batches that are put together at the latest"""
HELD_BYTES = 1 << 26
"""rows whose batch has no more memory are kept as a part of it, others are copied"""
LONGEST_KEY = 100
"""characters of texts that bound a storage key in a checkpoint"""
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
    key: str = ""
    """the storage key that its file is sorted by"""
    low: int | str | None = None
    high: int | str | None = None
    """the bounds of that; None if they are not known, or some values are NULL"""

    @property
    def end(self) -> int:
        return self.start + self.rows


_SAVED = ("start", "rows", "first", "last", "size", "file")
_SAVED_KEY = ("key", "low", "high")

Conditions = tuple[tuple[Expr, ...], ...]
"""Rows are left out that no reader needs: each has conditions all of which a row must meet."""


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
        self,
        number: int = 0,
        since: int | None = None,
        until: int = FOREVER,
        columns: Collection[str] | None = None,
        conditions: Conditions = (),
    ) -> Pinned:
        """The rows from a number on that are not before an instant, as they are now; segments after `until` are left
        out, and of files columns that nobody asks for, and most rows that meet no reader's conditions."""
        self._seal()
        wanted = [s for s in self._segments if s.end > number and (since is None or s.last >= since)]
        wanted = [segment for segment in wanted if segment.first <= until]
        if conditions:
            wanted = [s for s in wanted if not excluded(conditions, self._zone(s), self.stream.schema)]
        return Pinned(self, wanted, number, since, columns, conditions)

    def batches(
        self, segment: Segment, columns: Collection[str] | None = None, conditions: Conditions = ()
    ) -> Iterator[tuple[int, Batch]]:
        """The rows of a segment in order, each batch with its place. Where conditions leave rows out of a file that is
        sorted by a key, the places of others are not known."""
        if segment.batch is not None:
            yield segment.start, segment.batch
            return
        import pyarrow.parquet as pq

        at, schema, timed = segment.start, self.stream.schema.arrow, self.stream.clock is not Clock.LATENT
        clock = schema.names[self.stream.schema.index(self.stream.time_column or "")] if timed else None
        if columns is not None:
            schema = pa.schema([field for field in schema if field.name == clock or field.name in columns])

        def batch_of(rows: pa.RecordBatch) -> Batch:
            seq = to_numpy(rows.column(NUMBER))
            rows = pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
            time = seq if clock is None else instants(rows.column(clock), self.stream.schema[clock].type)
            return Batch(rows, time, seq, BEGIN)

        names = [*schema.names, NUMBER]
        with pq.ParquetFile(self._path(segment)) as file:
            runs = list(wanted_groups(file, conditions, self.stream.schema))
            if segment.key:
                groups = [group for _, run in runs for group in run]
                if not groups:
                    return
                sorted_ = batch_of(one_batch(file.read_row_groups(groups, columns=names).to_batches()))
                batch = sorted_.take(np.lexsort((sorted_.seq, sorted_.time)))
                for begin in range(0, len(batch), 4 * CHUNK_ROWS):
                    yield at + begin, batch.slice(begin, min(begin + 4 * CHUNK_ROWS, len(batch)))
                return
            for begin, run in runs:
                at = segment.start + begin
                for rows in file.iter_batches(4 * CHUNK_ROWS, row_groups=run, columns=names):
                    yield at, batch_of(rows)
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

        ends = [(pc.field(name), zone.low, zone.high) for name, zone in self._zone(segment).items()]
        known = [
            (field >= low[0]) & (field <= high[0]) for field, low, high in ends if low is not None and high is not None
        ]
        return reduce(and_, known) if known else pc.scalar(True)

    def _zone(self, segment: Segment) -> dict[str, Bounds]:
        """What is known of the values in a segment, by column: none of them is NULL."""
        known = {self.stream.time_column: (segment.first, segment.last), segment.key: (segment.low, segment.high)}
        zone: dict[str, Bounds] = {}
        for column, ends in known.items():
            if column:
                type_ = self.stream.schema[column].type.arrow
                low, high = (None if end is None else _value(end, type_) for end in ends)
                if low is not None and high is not None:
                    zone[column] = Bounds(low, high, 0, segment.rows)
        return zone

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
        """As many of the rows as may be kept, without the memory of the others if that is much."""
        skipped = len(batch) - self.most
        self._segments, self._tail, self._tail_rows = [], [], 0
        self.lost = int(batch.time[skipped - 1])
        self.end += skipped
        kept = batch.slice(skipped, len(batch))
        if batch.rows.get_total_buffer_size() <= HELD_BYTES:
            return kept
        columns = [pa.concat_arrays([column]) for column in kept.rows.columns]
        return Batch(
            pa.RecordBatch.from_arrays(columns, schema=kept.rows.schema), kept.time.copy(), kept.seq.copy(), kept.upto
        )

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
        saved = [
            {name: getattr(segment, name) for name in (*_SAVED, *(_SAVED_KEY if segment.key else ()))}
            for segment in self._segments
        ]
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
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        assert self.directory is not None
        batches = [batch for segment in segments for _, batch in self.batches(segment)]
        rows, seq = one_batch([batch.rows for batch in batches]), np.concatenate([batch.seq for batch in batches])
        schema = self.stream.schema.arrow.append(pa.field(NUMBER, pa.int64()))
        table = pa.Table.from_arrays([*rows.columns, from_numpy(seq)], schema=schema)
        key = self.keep.key
        if key:
            table = table.take(pc.sort_indices(table.column(self.stream.schema.index(key))))
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
        low, high = _ends(table.column(self.stream.schema.index(key))) if key else (None, None)
        first, last = segments[0].first, segments[-1].last
        made = Segment(segments[0].start, rows.num_rows, first, last, len(data), name, None, key, low, high)
        self._segments[-len(segments) :] = [made]


@dataclass
class Pinned:
    """Some rows of a history, which stay there while they are read, whatever comes and goes."""

    history: StreamHistory
    segments: list[Segment]
    number: int
    since: int | None
    columns: Collection[str] | None = None
    conditions: Conditions = ()

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
            # where a part of a segment is left out, it is known by its place
            conditions = self.conditions if self.number <= segment.start else ()
            for at, batch in self.history.batches(segment, self.columns, conditions):
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


def excluded(conditions: Conditions, zone: Mapping[str, Bounds], schema: Schema) -> bool:
    """Whether no reader needs rows with values within these bounds."""
    bounds = {name.lower(): each for name, each in zone.items()}
    return bool(conditions) and all(excludes(each, bounds, schema) for each in conditions)


def wanted_groups(file: Any, conditions: Conditions, schema: Schema) -> Iterator[tuple[int, list[int]]]:
    """The row groups of a file that a reader needs, in runs of neighbours, each with the place of its first row."""
    begin, at = 0, 0
    run: list[int] = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if conditions and excluded(conditions, bounds_of(group, schema), schema):
            if run:
                yield begin, run
            run = []
        else:
            begin = begin if run else at
            run = [*run, number]
        at += group.num_rows
    if run:
        yield begin, run


def _ends(keys: pa.ChunkedArray) -> tuple[int | str | None, int | str | None]:
    """The bounds of a storage key's values, which are sorted, as a checkpoint has them."""
    if keys.null_count or not len(keys) or pa.types.is_date(keys.type):
        return None, None
    if pa.types.is_timestamp(keys.type):
        keys = keys.cast(pa.int64())
    low, high = keys[0].as_py(), keys[-1].as_py()
    is_long = isinstance(low, str) and max(len(low), len(high)) > LONGEST_KEY
    return (None, None) if is_long else (low, high)


def _is_whole(type_: pa.DataType) -> bool:
    """Whether Parquet has its values as integers: numbers without fractions, dates and times."""
    return bool(pa.types.is_integer(type_) or pa.types.is_temporal(type_))


def _is_number(type_: pa.DataType) -> bool:
    return bool(_is_whole(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_))


def _value(end: int | str, type_: pa.DataType) -> pa.Array | None:
    """A bound of a zone map as a value of the column, if it is one as it stands."""
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return pa.array([end], pa.int64()).view(type_)
    return pa.array([end], type_) if pa.types.is_integer(type_) or isinstance(end, str) else None

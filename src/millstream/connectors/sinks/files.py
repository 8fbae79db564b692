"""File sinks: a directory of part files that appear when committed, or one text file cut back to what was committed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa

from millstream.connectors.contract import Offset, SeenAtOnce, Sink
from millstream.connectors.files.listing import confined
from millstream.connectors.options import Options
from millstream.connectors.sinks.writers import FORMATS, SUFFIXES, BatchWriter, open_writer, suffix_format
from millstream.durable import sync_directory
from millstream.errors import ConnectorError
from millstream.records import dataclass
from millstream.schema import Schema

_PART = re.compile(r"\.?part-(\d{5,})\.(?:parquet|csv|jsonl|arrow)(\.inprogress)?")
_PARQUET_BATCH_ROWS = 65_536


Existing = Literal["refuse", "append", "overwrite"]
"""What becomes of an output that is there already when a query starts."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How the files of a sink are written."""

    form: str
    header: bool = True
    delimiter: str = ","
    compression: str = "snappy"
    existing: Existing = "refuse"

    def writer(self, file: BinaryIO, schema: Schema, header: bool = True) -> BatchWriter:
        return open_writer(
            self.form, file, schema, header=self.header and header, delimiter=self.delimiter,
            compression=self.compression,
        )  # fmt: skip


def file_sink(options: Options) -> Sink:
    """The sink that the options of a declaration mean."""
    overwrite, append = options.flag("overwrite"), options.flag("append")
    if overwrite and append:
        raise ConnectorError(f"{options.owner}: overwrite and append cannot both be set", hint="choose one")
    existing: Existing = "overwrite" if overwrite else "append" if append else "refuse"
    form = options.choice("format", (*FORMATS, "json", "delta", "iceberg"))
    if form == "delta":
        from millstream.connectors.sinks.delta import delta_sink

        return delta_sink(options, existing)
    if form == "iceberg":
        from millstream.connectors.sinks.iceberg import iceberg_sink

        return iceberg_sink(options, existing)
    path = confined(Path(options.required("path", "'results'")).expanduser(), options.within)
    form = form or suffix_format(path) or "parquet"
    form = "jsonl" if form == "json" else form
    delimiter = options.text("delimiter", ",") or ","
    compression = options.choice("compression", ("snappy", "zstd", "gzip", "lz4", "none"), "snappy") or "snappy"
    header = options.flag("header", True)
    rows_per_file = options.integer("rows_per_file", 1_000_000, low=1)
    single = options.flag("single_file")
    options.finish()
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ConnectorError(
            f"{options.owner}: delimiter = {delimiter!r} is not valid", hint="delimiter is one ASCII character"
        )
    settings = FileOptions(form, header, delimiter, compression, existing)
    if not single:
        assert rows_per_file is not None
        return PartFileSink(path, settings, rows_per_file)
    if form not in ("csv", "jsonl"):
        raise ConnectorError(
            f"{options.owner}: single_file is not supported with {form}", hint="use csv or jsonl, or leave it out"
        )
    return SingleFileSink(path, settings)


class PartFileSink:
    """Writes `part-00000`, `part-00001`, … into a directory; offsets are `{parts, rows}`, and `first` if it appends.

    A part is a hidden file until it is published, and that is after the host knows of it: what readers of the directory
    have seen never vanishes.
    """

    def __init__(self, directory: Path, options: FileOptions, rows_per_file: int = 1_000_000) -> None:
        self._directory = directory
        self._options = options
        self._rows_per_file = rows_per_file
        self._schema: Schema | None = None
        self._first = 0
        self._published = 0
        self._finished = 0
        self._rows = 0
        self._rows_in_part = 0
        self._file: BinaryIO | None = None
        self._writer: BatchWriter | None = None
        self._waiting: list[pa.RecordBatch] = []

    def open(self, schema: Schema, committed: Offset) -> None:
        self._schema = schema
        self._first = int(committed.get("first", 0))
        self._published = self._finished = int(committed.get("parts", 0))
        self._rows = int(committed.get("rows", 0))
        self._rows_in_part = 0
        self._file = self._writer = None
        self._waiting = []
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not committed:
                self._begin()
            self._publish([n for n in range(self._first, self._finished) if self._hidden(n).exists()])
            for number, entry, is_hidden in self._parts():
                if is_hidden or number >= self._finished:
                    entry.unlink()
        except OSError as error:
            raise _cannot("write to", self._directory, error) from error
        missing = [n for n in range(self._first, self._finished) if not self._visible(n).exists()]
        if missing:
            raise ConnectorError(
                f"{self._visible(missing[0])} was committed but is missing",
                hint="restore the file, or restart the query with another path",
            )

    def _begin(self) -> None:
        """Look at what is there before a fresh start."""
        there = [(number, entry) for number, entry, is_hidden in self._parts() if not is_hidden]
        if self._options.existing == "overwrite":
            for _, entry in there:
                entry.unlink()
        elif there and self._options.existing == "refuse":
            raise already_there(self._directory)
        elif there:
            self._first = self._published = self._finished = max(number for number, _ in there) + 1

    def _parts(self) -> list[tuple[int, Path, bool]]:
        """The parts in the directory: number, file, and whether it is hidden."""
        found = [(_PART.fullmatch(entry.name), entry) for entry in self._directory.iterdir()]
        return [(int(match[1]), entry, match[2] is not None) for match, entry in found if match is not None]

    def _publish(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self._hidden(number).rename(self._visible(number))
        if numbers:
            sync_directory(self._directory)

    def write(self, rows: pa.RecordBatch) -> None:
        start = 0
        while start < rows.num_rows:
            part = rows.slice(start, self._rows_per_file - self._rows_in_part)
            self._write(part)
            start += part.num_rows
            self._rows_in_part += part.num_rows
            self._rows += part.num_rows
            if self._rows_in_part >= self._rows_per_file:
                self._finish_part()

    def prepare(self) -> Offset:
        self._finish_part()
        offset = {"parts": self._finished, "rows": self._rows}
        return {**offset, "first": self._first} if self._first else offset

    def publish(self) -> None:
        try:
            self._publish(range(self._published, self._finished))
        except OSError as error:
            raise _cannot("commit to", self._directory, error) from error
        self._published = self._finished

    def commit(self) -> Offset:
        offset = self.prepare()
        self.publish()
        return offset

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._writer = None

    def close(self) -> None:
        self.commit()

    def _write(self, rows: pa.RecordBatch) -> None:
        """Small batches wait for company: every batch written to Parquet becomes a row group of its own."""
        self._waiting.append(rows)
        if self._options.form in ("csv", "jsonl") or sum(b.num_rows for b in self._waiting) >= _PARQUET_BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        try:
            if self._writer is None:
                assert self._schema is not None, "the sink is not open"
                self._file = self._hidden(self._finished).open("wb")
                self._writer = self._options.writer(self._file, self._schema)
            for batch in pa.Table.from_batches(self._waiting).combine_chunks().to_batches():
                self._writer.write(batch)
        except OSError as error:
            raise _cannot("write to", self._hidden(self._finished), error) from error
        self._waiting = []

    def _finish_part(self) -> None:
        self._flush()
        if self._file is None or self._writer is None:
            return
        try:
            self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise _cannot("write to", self._hidden(self._finished), error) from error
        self._file = self._writer = None
        self._finished += 1
        self._rows_in_part = 0

    def _visible(self, number: int) -> Path:
        return self._directory / f"part-{number:05d}{SUFFIXES[self._options.form]}"

    def _hidden(self, number: int) -> Path:
        return self._directory / f".part-{number:05d}{SUFFIXES[self._options.form]}.inprogress"


class SingleFileSink(SeenAtOnce):
    """Writes one CSV or JSON-lines file; offsets are `{bytes, rows}`.

    Rows are visible before they are committed; those that never were are cut off when the sink reopens.
    """

    def __init__(self, path: Path, options: FileOptions) -> None:
        self._path = path
        self._options = options
        self._file: BinaryIO | None = None
        self._writer: BatchWriter | None = None
        self._rows = 0

    def open(self, schema: Schema, committed: Offset) -> None:
        length = int(committed.get("bytes", 0))
        self._rows = int(committed.get("rows", 0))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("r+b" if self._path.exists() else "w+b")
            size = file.seek(0, os.SEEK_END)
            if not committed and size and self._options.existing == "refuse":
                file.close()
                raise already_there(self._path)
            if not committed and self._options.existing == "append":
                length = size
            if size < length:
                file.close()
                raise ConnectorError(
                    f"{self._path} has {size} bytes, but {length} were committed",
                    hint="restore the file, or restart the query with another path",
                )
            file.truncate(length)
            file.seek(length)
        except OSError as error:
            raise _cannot("write to", self._path, error) from error
        self._file = file
        self._writer = self._options.writer(file, schema, header=length == 0)

    def write(self, rows: pa.RecordBatch) -> None:
        assert self._writer is not None, "the sink is not open"
        try:
            self._writer.write(rows)
        except OSError as error:
            raise _cannot("write to", self._path, error) from error
        self._rows += rows.num_rows

    def commit(self) -> Offset:
        assert self._file is not None, "the sink is not open"
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _cannot("commit to", self._path, error) from error
        return {"bytes": self._file.tell(), "rows": self._rows}

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._writer = None

    def close(self) -> None:
        if self._file is not None:
            self.commit()
            self._file.close()
            self._file = self._writer = None


def already_there(path: Path | str) -> ConnectorError:
    """A query must not mix its rows with those of another one, nor replace them, unless it is told to."""
    return ConnectorError(
        f"{path} already has results",
        hint="choose another path, or set overwrite = true to replace them, append = true to add to them",
    )


def _cannot(what: str, path: Path, error: OSError) -> ConnectorError:
    return ConnectorError(f"cannot {what} {path}: {error.strerror or error}")

"""One Parquet or Arrow file; positions are row numbers, and damaged parts are reported with the rows they held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.connectors.contract import Rejected
from millstream.connectors.convert.common import Rules, empty
from millstream.connectors.convert.fit import fit_batch, locate
from millstream.connectors.files.path_values import NO_VALUES, PathValues
from millstream.connectors.files.pieces import Piece, Position
from millstream.connectors.files.row_groups import bounds_of, has_type
from millstream.connectors.files.wanted import Wanted, contradicts, excludes
from millstream.errors import DataError
from millstream.schema import Field, Schema

_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, EOFError)
_ARROW_MAGIC = b"ARROW1"

_NEVER_WRONG = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "TIMESTAMP", "TIMESTAMPTZ", "DATE", "INTERVAL",
    "BLOB",
)  # fmt: skip
"""Types of which all bits are values: text may be no UTF-8, a DECIMAL or a TIME too large."""


class _BinaryFile:
    """What Parquet and Arrow files share: fitting batches to the schema and naming what cannot be read."""

    def __init__(
        self,
        path: Path,
        name: str,
        schema: Schema,
        rules: Rules,
        values: PathValues = NO_VALUES,
        wanted: Wanted | None = None,
    ) -> None:
        self._path = path
        self._name = name
        self._schema = schema
        self._rules = rules
        self._values = values
        self._wanted = wanted
        self._conditions = () if wanted is None else wanted.conditions
        self.warnings: list[str] = []

    def _columns(self, file: pa.Schema) -> list[Field]:
        """The declared columns that the file has; those that it and its path lack are warned of."""
        places = locate(file.names, self._schema)
        missing = [field.name for field, place in zip(self._schema, places, strict=True) if place is None]
        self._values = self._values.only(missing)
        for name in missing:
            if name.lower() not in self._values.names:
                self.warnings.append(f"{self._name} has no column {name}: it is read as NULL")
        return [
            Field(file.names[i], field.type) for field, i in zip(self._schema, places, strict=True) if i is not None
        ]

    def _own_name(self, file: pa.Schema, column: str) -> str:
        place = locate(file.names, self._schema)[self._schema.index(column)]
        if place is None:
            raise ValueError(column)
        return str(file.names[place])

    def _is_unwanted(self) -> bool:
        """Whether no row of the file is wanted, as its path tells."""
        return contradicts(self._conditions, self._values.values, self._schema)

    def _fit(self, batch: pa.RecordBatch, at: int, limit: int) -> Iterator[Piece]:
        """The batch, which starts at row `at`, in pieces."""
        for start in range(0, batch.num_rows, limit):
            part = batch.slice(start, limit)
            first = at + start
            try:
                fitted = fit_batch(part, self._schema, self._rules)
            except DataError as error:
                yield self._lost(error.message, first, part.num_rows)
                continue
            rejected = [
                Rejected(reason, repr(part.slice(row, 1).to_pylist()[0]), f"{self._name}:{first + row + 1}")
                for row, reason in fitted.bad.items()
            ]
            rows, reason, refused = self._values.fill(fitted.rows)
            if reason is not None:
                rejected.append(Rejected(reason, f"{refused} rows", f"{self._name}:{first + 1}", refused))
            yield Piece(rows, tuple(rejected), {"at": first + part.num_rows})

    def _lost(self, why: str, at: int, count: int | None, done: bool = False) -> Piece:
        """A piece that says which rows cannot be had."""
        rows = "the rest of the file" if count is None else f"rows {at + 1} to {at + count}"
        entry = Rejected(why, rows, f"{self._name}:{at + 1}", 1 if count is None else count)
        position: Position = {"at": at + (count or 0)}
        return Piece(empty(self._schema), (entry,), {**position, "done": True} if done else position)


class ParquetFile(_BinaryFile):
    """Reads one Parquet file, row group by row group."""

    def read(self, position: Position, limit: int, final: bool) -> Iterator[Piece]:
        if position.get("done"):
            return
        at = int(position.get("at", 0))
        try:
            file = self._open()
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            present = self._columns(file.schema_arrow)
            unread = self._unread(file, present)
        except _UNREADABLE as error:
            yield self._lost(f"not a readable Parquet file: {_brief(error)}", at, None, done=True)
            return
        columns = [field.name for field in present if not self._can_skip(field, file.schema_arrow)]
        start = 0
        for group, count in enumerate(groups):
            if group in unread:
                at = max(at, start + count)
            elif at < start + count:
                for piece in self._read_group(file, group, columns, start, count, at, limit):
                    at = int(piece.position["at"])
                    yield piece
            start += count
        file.close()

    def values(self, column: str) -> Iterator[pa.Array]:
        with self._open() as file:
            for batch in file.iter_batches(columns=[self._own_name(file.schema_arrow, column)]):
                yield batch.column(0)

    def estimate_rows(self) -> int | None:
        try:
            return int(self._open().metadata.num_rows)
        except _UNREADABLE:
            return None

    def _can_skip(self, field: Field, file: pa.Schema) -> bool:
        """Whether a column is not wanted, and no value of it can be a reason to reject its row."""
        if self._wanted is None or self._wanted.uses(field.name) or field.type.name not in _NEVER_WRONG:
            return False
        return has_type(file, field)

    def _unread(self, file: Any, present: list[Field]) -> frozenset[int]:
        """The row groups of which no row is wanted, and none can be rejected."""
        groups = range(file.metadata.num_row_groups)
        if self._is_unwanted():
            return frozenset(groups)
        if not self._conditions or self._values.wrong or len(present) + len(self._values.values) < len(self._schema):
            return frozenset()
        if not all(has_type(file.schema_arrow, field) for field in present):
            return frozenset()
        assert self._wanted is not None
        time = None if self._wanted.time is None else self._wanted.time.lower()
        unread = set()
        for group in groups:
            bounds = bounds_of(file.metadata.row_group(group), present)
            timed = time is None or (time in bounds and bounds[time].nulls == 0) or self._has_time(time)
            if timed and excludes(self._conditions, bounds, self._schema):
                unread.add(group)
        return frozenset(unread)

    def _has_time(self, time: str) -> bool:
        return time in self._values.values and self._values.values[time].null_count == 0

    def _open(self) -> Any:
        import pyarrow.parquet as parquet

        return parquet.ParquetFile(self._path, page_checksum_verification=True)

    def _read_group(
        self, file: Any, group: int, columns: list[str], start: int, count: int, at: int, limit: int
    ) -> Iterator[Piece]:
        """The rows of one row group from row `at` of the file on."""
        if not columns:
            blank = pa.RecordBatch.from_struct_array(pa.array([{}] * (start + count - at), pa.struct([])))
            yield from self._fit(blank, at, limit)
            return
        row = start
        try:
            for batch in file.iter_batches(batch_size=limit, row_groups=[group], columns=columns, use_threads=False):
                row += batch.num_rows
                if row <= at:
                    continue
                batch = batch.slice(max(0, batch.num_rows - (row - at)))
                batch.validate(full=True)
                yield from self._fit(batch, at, limit)
                at = row
        except _UNREADABLE as error:
            yield self._lost(f"unreadable part of a row group: {_brief(error)}", at, start + count - at)
            return
        if row < start + count:
            # A damaged page header may tell a smaller number of values, and the reader believes it.
            at = max(at, row)
            yield self._lost("a row group has fewer rows than its file says", at, start + count - at)


class ArrowFile(_BinaryFile):
    """Reads one Arrow file or stream front to back, so that a truncated one still gives its complete batches."""

    def read(self, position: Position, limit: int, final: bool) -> Iterator[Piece]:
        if position.get("done"):
            return
        at = int(position.get("at", 0))
        row = 0
        try:
            with pa.memory_map(str(self._path)) as file:
                reader = pa.ipc.open_stream(_after_magic(file))
                columns = [field.name for field in self._columns(reader.schema)]
                if self._is_unwanted():
                    return
                for batch in reader:
                    row += batch.num_rows
                    if row <= at:
                        continue
                    batch = batch.select(columns).slice(max(0, batch.num_rows - (row - at)))
                    batch.validate(full=True)
                    yield from self._fit(batch, at, limit)
                    at = row
                if not _is_complete(file):
                    raise EOFError("the file ends early")
        except _UNREADABLE as error:
            yield self._lost(f"not a readable Arrow file: {_brief(error)}", at, None, done=True)

    def values(self, column: str) -> Iterator[pa.Array]:
        with pa.memory_map(str(self._path)) as file:
            reader = pa.ipc.open_stream(_after_magic(file))
            name = self._own_name(reader.schema, column)
            for batch in reader:
                yield batch.column(name)

    def estimate_rows(self) -> int | None:
        return None


def _after_magic(file: Any) -> Any:
    """The stream inside an Arrow file: it starts after the padded magic word."""
    start = 8 if bytes(file.read(len(_ARROW_MAGIC))) == _ARROW_MAGIC else 0
    file.seek(start)
    return file


def _is_complete(file: Any) -> bool:
    """Whether a file that begins with the magic word also ends with it: it may be cut just between two batches."""
    if bytes(file.read_at(len(_ARROW_MAGIC), 0)) != _ARROW_MAGIC:
        return True
    return bytes(file.read_at(len(_ARROW_MAGIC), file.size() - len(_ARROW_MAGIC))) == _ARROW_MAGIC


def _brief(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__

"""The file source: all files of a path in order of their names, or followed as they grow and new ones appear."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.connectors.contract import Chunk, Offset
from millstream.connectors.convert.common import Rules, empty
from millstream.connectors.files.binary_file import ArrowFile, ParquetFile
from millstream.connectors.files.listing import FORMATS, FileKind, confined, kind_of, list_files
from millstream.connectors.files.marks import FileMarker, Mark, is_same
from millstream.connectors.files.partitions import checked, partition_of
from millstream.connectors.files.path_csv import PathCsv
from millstream.connectors.files.path_values import path_values
from millstream.connectors.files.pieces import FileReader, Piece, Position
from millstream.connectors.files.text_file import TextFile
from millstream.connectors.files.wanted import Wanted
from millstream.connectors.options import Options, partition_column
from millstream.connectors.text.csv_format import CsvFormat
from millstream.connectors.text.debezium import DebeziumFormat
from millstream.connectors.text.decoder import TextFormat
from millstream.connectors.text.json_format import JsonFormat
from millstream.connectors.textoptions import TextOptions
from millstream.errors import ConnectorError
from millstream.schema import Schema

log = logging.getLogger("millstream")

ROWS_PER_CHUNK = 65_536
_NAP_SECONDS = 0.05


class FileSource:
    """Reads files from a path; offsets are `{file, at, line, mark}`, or such a position per file when following.

    A file that is no longer the one that was read is not read on; one that is followed is then read from its beginning.

    Directories named `column=value` give their files' rows that value, where a file has no such column itself.
    `warnings` tells of declared columns that a file lacks and of files that shrank; nothing was rejected for them.
    """

    replayable = True

    def __init__(
        self,
        path: str,
        schema: Schema,
        *,
        form: str | None = None,
        text: TextOptions | None = None,
        follow: bool = False,
        poll_ms: int = 200,
        within: str | None = None,
        partitioned_by: str | None = None,
    ) -> None:
        self._path = path
        self._within = within
        self._root = path
        self._wanted: Wanted | None = None
        self._schema = schema
        self._form = form
        self._text = text or TextOptions()
        self._follow = follow
        self._poll_seconds = poll_ms / 1000
        self.partitioned_by = partitioned_by
        self._readers: dict[str, FileReader] = {}
        self._markers: dict[str, FileMarker] = {}
        self.warnings: list[str] = []

    @staticmethod
    def from_options(options: Options, schema: Schema) -> FileSource:
        path = options.required("path", "'events/*.csv'")
        form = options.choice("format", FORMATS)
        text = TextOptions.from_options(options)
        follow = options.flag("follow")
        poll_ms = options.integer("poll_ms", 200, low=1)
        partitioned_by = partition_column(options, schema)
        options.finish()
        assert poll_ms is not None
        source = FileSource(
            path, schema, form=form, text=text, follow=follow, poll_ms=poll_ms, within=options.within,
            partitioned_by=partitioned_by,
        )  # fmt: skip
        if not follow:
            source.files()
        return source

    def narrowed(self, wanted: Wanted) -> FileSource:
        """The same files, of which only what is wanted need be read."""
        return self._but(_wanted=wanted)

    def below(self, root: str) -> FileSource:
        """The same files, as files of another path: the directories from there on may say values of columns."""
        return self._but(_root=root)

    def _but(self, **changes: Any) -> FileSource:
        other = copy.copy(self)
        other.__dict__.update(changes, _readers={}, _markers={}, warnings=[])
        return other

    @property
    def bounded(self) -> bool:
        return not self._follow

    def files(self) -> list[Path]:
        """The files as they are now; an error if a path that is not followed has none."""
        found = list_files(self._path, self._form)
        if not found and not self._follow:
            raise ConnectorError(
                f"no file at {self._path}",
                hint="give a file, a directory or a glob; files of unknown extension need the option format",
            )
        return found

    def size(self) -> int | None:
        if self._follow:
            return None
        counts = [self._reader(path).estimate_rows() for path in self.files()]
        return None if None in counts else sum(count for count in counts if count is not None)

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        rows = ROWS_PER_CHUNK if limit is None else max(1, limit)
        return self._read_following(offset, stop, rows) if self._follow else self._read_all(offset, stop, rows)

    def values(self, column: str) -> Iterator[pa.Array]:
        for path in self.files():
            yield from self._reader(path).values(column)

    def read_file(self, path: str) -> Iterator[Chunk]:
        """The rows of one of the files."""
        for piece in self._pieces(Path(path), {}, ROWS_PER_CHUNK, final=True):
            yield Chunk(piece.rows, {"file": path, **piece.position}, piece.rejected)

    def _pieces(self, path: Path, position: Position, limit: int, final: bool) -> Iterator[Piece]:
        """The rows of a file, which are those of its partition if the stream has any."""
        pieces = self._reader(path).read(position, limit, final=final)
        if self.partitioned_by is None:
            return pieces
        column, text = self._schema[self.partitioned_by], self.partition(path)
        if self._wanted is not None and not self._wanted.uses(column.name):
            return pieces
        return (checked(piece, path, column, text) for piece in pieces)

    def partition(self, path: Path) -> str:
        """The value of the partition that a file is in, as its directory says it."""
        assert self.partitioned_by is not None
        return partition_of(self._root, path, self.partitioned_by)

    def _read_all(self, offset: Offset, stop: Callable[[], bool], limit: int) -> Iterator[Chunk]:
        if (name := self.changed(offset)) is not None:
            raise ConnectorError(
                f"{name} is not the file that was read before",
                detail="the part that was read has changed, or the file is missing",
                hint="restore the file; to read the changed one, declare a new stream",
            )
        reached = offset.get("file")
        for path in self.files():
            name = str(path)
            if reached is not None and name < reached:
                continue
            position = {key: value for key, value in offset.items() if key != "file"} if name == reached else {}
            reader = self._reader(path)
            self._markers.setdefault(name, FileMarker(path, position.get("mark")))
            for piece in self._pieces(path, position, limit, final=True):
                yield Chunk(piece.rows, {"file": name, **self._marked(path, piece.position)}, piece.rejected)
                if stop():
                    return
            self._note(reader)

    def changed(self, offset: Offset) -> str | None:
        """A file that is no longer what it was when rows up to this offset were read, if there is one."""
        read = offset.get("files", {offset["file"]: offset} if "file" in offset else {})
        return next((n for n, place in read.items() if "mark" in place and not is_same(Path(n), place["mark"])), None)

    def _marked(self, path: Path, position: Position) -> Position:
        marker = self._markers[str(path)]
        return {**position, "mark": marker.mark(int(position["at"]) if self._grows(path) else 0)}

    def _read_following(self, offset: Offset, stop: Callable[[], bool], limit: int) -> Iterator[Chunk]:
        positions: dict[str, Position] = dict(offset.get("files", {}))
        sizes: dict[str, int] = {}
        while not stop():
            quiet = True
            for path in self.files():
                name = str(path)
                if not self._has_news(path, positions, sizes):
                    continue
                reader = self._reader(path)
                whole = not self._grows(path)
                self._markers.setdefault(name, FileMarker(path, positions.get(name, {}).get("mark")))
                for piece in self._pieces(path, positions.get(name, {}), limit, final=whole):
                    positions[name] = self._marked(path, piece.position)
                    quiet = False
                    yield Chunk(piece.rows, {"files": dict(positions)}, piece.rejected)
                    if stop():
                        return
                if whole:
                    positions[name] = {**positions.get(name, {}), "done": True}
                self._note(reader)
            if quiet:
                yield from self._wait(positions, stop)

    def _wait(self, positions: dict[str, Position], stop: Callable[[], bool]) -> Iterator[Chunk]:
        until = time.monotonic() + self._poll_seconds
        while not stop():
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _NAP_SECONDS))
            yield Chunk(empty(self._schema), {"files": dict(positions)})

    def _has_news(self, path: Path, positions: dict[str, Position], sizes: dict[str, int]) -> bool:
        name = str(path)
        try:
            size = path.stat().st_size
        except OSError:
            return False
        before, sizes[name] = sizes.get(name), size
        position = positions.get(name, {})
        if not self._grows(path):
            # Such a file makes sense only as a whole: wait until its size stands still between two looks.
            return not position.get("done") and before == size
        if size < int(position.get("at", 0)) or ("mark" in position and not self._is_same(path, position["mark"])):
            self._warn(f"{name} was replaced: the new file is read from its beginning")
            positions.pop(name)
            self._readers.pop(name, None)
            self._markers.pop(name, None)
            return size > 0
        return size > int(position.get("at", 0)) and size != before

    def _is_same(self, path: Path, mark: Mark) -> bool:
        # what this source has not read itself is looked at as a whole, once
        return is_same(path, mark, thorough=str(path) not in self._markers)

    def _grows(self, path: Path) -> bool:
        kind = kind_of(path, self._form)
        return kind is not None and kind.is_text and kind.compression is None

    def _reader(self, path: Path) -> FileReader:
        name = str(path)
        if name not in self._readers:
            kind = kind_of(path, self._form)
            assert kind is not None
            self._readers[name] = self._open(confined(path, self._within), name, kind)
        return self._readers[name]

    def _open(self, path: Path, name: str, kind: FileKind) -> FileReader:
        rules: Rules = self._text.rules
        values = path_values(self._root, path, self._schema, rules, self._text.null_value)
        if kind.format == "parquet":
            return ParquetFile(path, name, self._schema, rules, values, self._wanted)
        if kind.format == "arrow":
            return ArrowFile(path, name, self._schema, rules, values, self._wanted)
        form: TextFormat = JsonFormat(self._schema, rules)
        if kind.format == "debezium":
            form = DebeziumFormat(self._schema, rules)
        elif kind.format == "csv":
            delimiter = self._text.delimiter or kind.delimiter
            csv = CsvFormat(self._schema, rules, delimiter, self._text.header, self._text.null_value)
            form = PathCsv(csv, values.names) if values.names else csv
        return TextFile(path, name, kind.compression, form, self._schema, values, self._wanted)

    def _warn(self, warning: str) -> None:
        self.warnings.append(warning)
        log.warning(warning)

    def _note(self, reader: FileReader) -> None:
        for warning in reader.warnings:
            if warning not in self.warnings:
                self._warn(warning)
        reader.warnings.clear()

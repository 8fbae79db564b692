"""One CSV or JSON-lines file, read in blocks of complete rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from millstream.connectors.contract import Rejected
from millstream.connectors.convert.common import empty
from millstream.connectors.files.path_values import NO_VALUES, PathValues
from millstream.connectors.files.pieces import Piece, Position
from millstream.connectors.files.streams import ByteStream, Damaged
from millstream.connectors.files.wanted import Wanted, contradicts
from millstream.connectors.text.decoder import (
    MAX_ROW_BYTES,
    BadRow,
    Decoded,
    RowDecoder,
    TextFormat,
    overlong,
    show,
)
from millstream.connectors.text.json_format import JsonFormat
from millstream.errors import ConnectorError
from millstream.schema import Schema

_BLOCK = 1 << 20
_SAMPLE = 1 << 16


class TextFile:
    """Reads one text file; positions are bytes (after decompression) and lines."""

    def __init__(
        self,
        path: Path,
        name: str,
        compression: str | None,
        form: TextFormat,
        schema: Schema,
        values: PathValues = NO_VALUES,
        wanted: Wanted | None = None,
    ) -> None:
        self._path = path
        self._name = name
        self._compression = compression
        self._form = form
        self._schema = schema
        self._values = values
        self._conditions = () if wanted is None else wanted.conditions
        self._begun: tuple[RowDecoder, int, int] | None = None
        self.warnings: list[str] = []

    def read(self, position: Position, limit: int, final: bool) -> Iterator[Piece]:
        stream = ByteStream(self._path, self._compression)
        try:
            yield from self._read(stream, position, limit, final)
        finally:
            stream.close()

    def values(self, column: str) -> Iterator[pa.Array]:
        if self._begun is None:
            stream = ByteStream(self._path, self._compression)
            self._begin(stream, _BLOCK, True)
            stream.close()
        if self._begun is None:
            return
        decoder, first, _ = self._begun
        with pa.input_stream(str(self._path), compression=self._compression) as file:
            file.read(first)
            yield from decoder.values(file, column)

    def estimate_rows(self) -> int | None:
        if self._compression is not None:
            return None
        with self._path.open("rb") as file:
            sample = file.read(_SAMPLE)
        lines = sample.count(b"\n")
        size = self._path.stat().st_size
        return lines if len(sample) == size else int(size * lines / len(sample)) if lines else None

    def _read(self, stream: ByteStream, position: Position, limit: int, final: bool) -> Iterator[Piece]:
        if position.get("done"):
            return
        buffer = b""
        damage: str | None = None
        block = min(_BLOCK, max(1 << 12, limit * 256))
        if self._begun is None:
            buffer, damage = self._begin(stream, block, final)
            if self._begun is None:
                return
        decoder, first, header_lines = self._begun
        if not isinstance(self._form, JsonFormat):
            # of JSON each row may or may not have the column; a CSV header is complete
            lacking = [name for name in decoder.missing() if name.lower() not in self._values.names]
            if lacking:
                raise ConnectorError(
                    f"{self._name} has no column {', '.join(lacking)}",
                    hint="declare the columns that the header names, or set header = false to read columns by position",
                )
            self._values = self._values.only(decoder.missing())
            if contradicts(self._conditions, self._values.values, self._schema):
                return
        at, line = int(position.get("at", first)), int(position.get("line", header_lines))
        buffer = buffer[at:]
        if not buffer and damage is None:
            try:
                stream.skip_to(at)
            except Damaged as error:
                damage = str(error)
        ended = damage is not None
        while True:
            decoded = decoder.decode(buffer, ended and final and damage is None, limit)
            if decoded.consumed:
                at, line, buffer = at + decoded.consumed, line + decoded.lines, buffer[decoded.consumed :]
                if decoded.rows.num_rows or decoded.bad:
                    yield self._piece(decoded, at, line)
                continue
            if ended:
                break
            if len(buffer) > MAX_ROW_BYTES:
                bad, skipped, buffer = _skip_line(stream, buffer)
                at, line = at + skipped, line + 1
                yield self._piece(Decoded(empty(self._schema), [bad], skipped, 1), at, line)
                continue
            try:
                more = stream.read(block)
                ended = not more
                buffer += more
            except Damaged as error:
                damage, ended = str(error), True
        if damage is not None:
            rest = Rejected(f"the file cannot be decompressed further: {damage}", show(buffer), self._origin(line))
            yield Piece(empty(self._schema), (rest,), {"at": at, "line": line, "done": True})
        if final and isinstance(self._form, JsonFormat):
            missing = [name for name in decoder.missing() if name.lower() not in self._values.names]
            self.warnings += [f"{self._name} has no column {name}: it is read as NULL" for name in missing]

    def _begin(self, stream: ByteStream, block: int, final: bool) -> tuple[bytes, str | None]:
        """Read as much as the format needs to know the columns."""
        head = b""
        ended = False
        damage = None
        while True:
            try:
                more = stream.read(block)
                ended = not more
            except Damaged as error:
                more, damage, ended = b"", str(error), True
            head += more
            begun = self._form.begin(head, ended and (final or damage is not None))
            if begun is not None:
                decoder, first = begun
                self._begun = decoder, first, head[:first].count(b"\n")
                return head, damage
            if ended:
                return head, damage

    def _piece(self, decoded: Decoded, at: int, line: int) -> Piece:
        start = line - decoded.lines
        rejected = [Rejected(bad.error, bad.text, self._origin(start + bad.line)) for bad in decoded.bad]
        rows, reason, refused = self._values.fill(decoded.rows)
        if reason is not None:
            rejected.append(Rejected(reason, f"{refused} rows", self._origin(start), refused))
        return Piece(rows, tuple(rejected), {"at": at, "line": line})

    def _origin(self, line: int) -> str:
        return f"{self._name}:{line + 1}"


def _skip_line(stream: ByteStream, buffer: bytes) -> tuple[BadRow, int, bytes]:
    """Read past the end of a line that is too long to be a row, keeping none of it."""
    entry = overlong(buffer[:200])
    skipped = 0
    while (end := buffer.find(b"\n") + 1) == 0:
        skipped += len(buffer)
        try:
            buffer = stream.read(_BLOCK)
        except Damaged:
            buffer = b""
        if not buffer:
            return entry, skipped, b""
    return entry, skipped + end, buffer[end:]

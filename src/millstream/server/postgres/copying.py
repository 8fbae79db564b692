"""COPY: rows in bulk, as lines of text, as CSV, or in PostgreSQL's binary form."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import to_numpy
from millstream.connectors.text.pushed import TextRows
from millstream.errors import DataError, EngineError
from millstream.server.postgres import values as V
from millstream.server.postgres.statements import CopyIn, CopyOut

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_HEAD = 5
"""bytes before the content of a message"""

_PIECE = 4 << 20
"""bytes that a client's rows wait together"""

_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class Outgoing:
    """Rows of a query as the messages that COPY … TO STDOUT sends: one for each row, as clients expect."""

    def __init__(self, copy: CopyOut, schema: pa.Schema) -> None:
        self._copy = copy
        self._schema = schema
        self._encode = _binary_encoder(schema) if copy.form == "binary" else None
        self._begun = False

    def messages(self, table: pa.Table) -> bytes:
        """Some rows, with what comes before the first ones."""
        if not table.num_rows:
            return b""
        match self._copy.form:
            case "binary" if self._encode is not None:
                rows = b"".join(
                    _fixed(batch) or framed(self._encode(batch), _binary_sizes(batch))
                    for batch in table.to_batches()
                    if batch.num_rows
                )
            case "binary":
                width = struct.pack("!h", table.num_columns)
                rows = _messages(width + b"".join(map(_sized, row)) for row in self._values(table, binary=True))
            case "csv":
                mark = self._copy.delimiter.encode()
                rows = _messages(_csv_line(row, mark) for row in self._values(table))
            case _:
                rows = _messages(b"\t".join(map(_escaped, row)) + b"\n" for row in self._values(table))
        return self._started(rows)

    def end(self) -> bytes:
        """What comes after the last rows."""
        return self._started(_messages([struct.pack("!h", -1)]) if self._copy.form == "binary" else b"")

    def _started(self, rows: bytes) -> bytes:
        """Messages after what comes first: a line of names, or the head of binary rows within the first message."""
        if self._begun:
            return rows
        self._begun = True
        if self._copy.form == "binary":
            head = _SIGNATURE + struct.pack("!ii", 0, 0)
            return b"d" + (int.from_bytes(rows[1:_HEAD]) + len(head)).to_bytes(4) + head + rows[_HEAD:]
        if self._copy.form == "csv" and self._copy.header:
            names = [name.encode() for name in self._schema.names]
            return _messages([_csv_line(names, self._copy.delimiter.encode())]) + rows
        return rows

    def _values(self, table: pa.Table, binary: bool = False) -> Iterable[tuple[bytes | None, ...]]:
        return V.rows_of(table, [binary] * table.num_columns)


def _messages(rows: Iterable[bytes]) -> bytes:
    return b"".join(b"d" + (len(row) + 4).to_bytes(4) + row for row in rows)


_FIXED = {V.INT2: ">i2", V.INT4: ">i4", V.INT8: ">i8", V.FLOAT8: ">f8", V.TIMESTAMP: ">i8", V.DATE: ">i4"}
"""values of one length"""


def _fixed(batch: pa.RecordBatch) -> bytes | None:
    """Rows of values of one length, without NULL, as messages: all rows are one array. None if there are others."""
    kinds = [V.oid_of(column.type) for column in batch.columns]
    if not all(kind in _FIXED and not column.null_count for kind, column in zip(kinds, batch.columns, strict=True)):
        return None
    layout: list[tuple[str, str]] = [("mark", "u1"), ("length", ">u4"), ("columns", ">i2")]
    for place, kind in enumerate(kinds):
        layout += [(f"size{place}", ">i4"), (f"value{place}", _FIXED[kind])]
    rows = np.empty(batch.num_rows, np.dtype(layout))
    rows["mark"], rows["length"], rows["columns"] = ord("d"), rows.itemsize - 1, batch.num_columns
    for place, (kind, column) in enumerate(zip(kinds, batch.columns, strict=True)):
        rows[f"size{place}"] = np.dtype(_FIXED[kind]).itemsize
        rows[f"value{place}"] = to_numpy(V.since_2000(column) if kind in (V.TIMESTAMP, V.DATE) else column)
    return rows.tobytes()


def framed(data: bytes, sizes: Any) -> bytes:
    """Rows that follow each other, each as a message of its own: Arrow joins heads and rows, all at once."""
    ends = np.cumsum(sizes)
    assert len(data) == (ends[-1] if len(ends) else 0), "rows are as long as was computed"
    heads = np.empty((len(sizes), _HEAD), np.uint8)
    heads[:, 0] = ord("d")
    heads[:, 1:] = (sizes + 4).astype(">u4").view(np.uint8).reshape(-1, 4)
    fixed = _as_values(heads.tobytes(), np.arange(1, len(sizes) + 1) * _HEAD)
    joined = pc.binary_join_element_wise(fixed, _as_values(data, ends), pa.scalar(b"", pa.large_binary()))
    return bytes(joined.buffers()[2] or b"")


def _as_values(data: bytes, ends: Any) -> pa.Array:
    """Bytes as values that end at these places."""
    offsets = pa.py_buffer(np.concatenate(([0], ends)).astype(np.int64).tobytes())
    return pa.Array.from_buffers(pa.large_binary(), len(ends), [None, offsets, pa.py_buffer(data)])


def _binary_sizes(batch: pa.RecordBatch) -> Any:
    """How many bytes each row is in binary form: a count, and for each value its length and itself."""
    sizes = np.full(batch.num_rows, 2 + 4 * batch.num_columns, np.int64)
    for column in batch.columns:
        if pa.types.is_string(column.type):
            sizes += to_numpy(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
        else:
            sizes += V.SIZES[V.oid_of(column.type)] * to_numpy(pc.cast(column.is_valid(), pa.uint8())).astype(np.int64)
    return sizes


def _binary_encoder(schema: pa.Schema) -> Callable[[pa.RecordBatch], bytes] | None:
    """The encoder of pgpq, which is fast; None if a column is of a type that it writes in another way than we say."""
    plain = (V.BOOL, V.INT2, V.INT4, V.INT8, V.FLOAT8, V.TEXT, V.TIMESTAMP, V.DATE)
    narrow = (pa.int8(), pa.uint8(), pa.uint16(), pa.uint32(), pa.float32())
    if not all(V.oid_of(each.type) in plain and each.type not in narrow for each in schema):
        return None
    try:
        from pgpq import ArrowToPostgresBinaryEncoder
    except ModuleNotFoundError as error:
        raise EngineError(f"binary COPY needs {error.name}", hint="pip install 'millstream[server]'") from None

    def encode(batch: pa.RecordBatch) -> bytes:
        # it keeps rows back until it is finished, so each batch has an encoder, without its head and end
        encoder = ArrowToPostgresBinaryEncoder(schema)
        encoder.write_header()
        return bytes(encoder.write_batch(batch)) + bytes(encoder.finish())[:-2]

    return encode


def _sized(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4) + value


def _escaped(value: bytes | None) -> bytes:
    if value is None:
        return b"\\N"
    return value.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def _csv_line(row: Iterable[bytes | None], mark: bytes) -> bytes:
    return mark.join(_csv_value(each, mark) for each in row) + b"\n"


def _csv_value(value: bytes | None, mark: bytes) -> bytes:
    if value is None:
        return b""
    if not value or mark in value or any(each in value for each in (b'"', b"\n", b"\r")):
        return b'"' + value.replace(b'"', b'""') + b'"'
    return value


class Incoming:
    """Bytes of COPY … FROM STDIN, which become rows for `push`; it says how many of them were accepted."""

    def __init__(self, copy: CopyIn, push: Callable[[Any], int]) -> None:
        self._copy = copy
        self._push = push
        self._waiting = bytearray()
        self._header = copy.header
        self._begun = self._ended = False
        self.rows = 0

    def add(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= _PIECE:
            self._take(last=False)

    def end(self) -> int:
        """All rows are there; how many were accepted."""
        self._take(last=True)
        return self.rows

    def _take(self, last: bool) -> None:
        data = bytes(self._waiting)
        rows: TextRows | list[dict[str, Any]] | None
        if self._copy.form == "binary":
            rows, used = self._binary(data)
            if last and used < len(data):
                raise DataError("the binary data ends in the middle of a row")
        else:
            used = len(data) if last else _whole_lines(data, quotes=self._copy.form == "csv")
            rows = self._lines(data[:used])
        del self._waiting[:used]
        if rows:
            self.rows += self._push(rows)

    def _lines(self, data: bytes) -> TextRows | None:
        """CSV as it is, other text as CSV; the names of the columns come first, whatever order the client has."""
        lines = data
        if self._header:
            lines = data.partition(b"\n")[2]
            self._header = False
        if self._copy.form == "text":
            lines = self._as_csv(lines)
        if not lines.strip():
            return None
        mark = self._copy.delimiter if self._copy.form == "csv" else ","
        names = mark.encode().join(_csv_value(name.encode(), mark.encode()) for name in self._copy.columns)
        null = (self._copy.null or "") if self._copy.form == "csv" else ""
        return TextRows(names + b"\n" + lines, "csv", mark, header=True, null_value=null)

    def _as_csv(self, data: bytes) -> bytes:
        mark, null = self._copy.delimiter.encode(), (self._copy.null or "\\N").encode()
        lines = []
        for line in data.split(b"\n"):
            line = line.removesuffix(b"\r")
            if line == b"\\.":
                break
            if line:
                parts = (b"" if part == null else b'"' + _unescaped(part) + b'"' for part in line.split(mark))
                lines.append(b",".join(parts))
        return b"".join(line + b"\n" for line in lines)

    def _binary(self, data: bytes) -> tuple[list[dict[str, Any]], int]:
        """The whole rows at the start of some bytes, and how many bytes they are."""
        at, rows = 0, list[dict[str, Any]]()
        if not self._begun:
            if len(data) < 19:
                return rows, 0
            if not data.startswith(_SIGNATURE):
                raise DataError("these are not PostgreSQL's binary rows")
            at = 19 + struct.unpack_from("!i", data, 15)[0]
            self._begun = True
        names, types = self._copy.columns, self._copy.types
        try:
            while not self._ended and at + 2 <= len(data):
                (width,) = struct.unpack_from("!h", data, at)
                if width == -1:
                    self._ended = True
                    return rows, len(data)
                if width != len(names):
                    raise DataError(f"a row of COPY has {width} values, and there are {len(names)} columns")
                place, values = at + 2, list[Any]()
                for oid in types:
                    (size,) = struct.unpack_from("!i", data, place)
                    place += 4
                    if size > len(data) - place:
                        return rows, at
                    values.append(None if size < 0 else V.parameter(data[place : place + size], oid, True))
                    place += max(size, 0)
                rows.append(dict(zip(names, values, strict=True)))
                at = place
        except struct.error:
            pass  # the rest of this row is yet to come
        return rows, at


def _unescaped(part: bytes) -> bytes:
    """A value of PostgreSQL's text format, for CSV."""
    plain = re.sub(rb"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), part, flags=re.S)
    return plain.replace(b'"', b'""')


def _whole_lines(data: bytes, quotes: bool) -> int:
    """Where the last whole line ends; an end of line inside of quotes does not count."""
    end = data.rfind(b"\n") + 1
    while quotes and end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end


def pieces(table: pa.Table, rows: int = 65_536) -> Iterator[pa.Table]:
    """A table in pieces that are sent one after the other."""
    for at in range(0, table.num_rows, rows):
        yield table.slice(at, rows)

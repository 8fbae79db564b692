"""Messages of PostgreSQL's output plugin pgoutput (protocol version 1) to rows, column by column.

A row of the stream is the row after a change, or of a deletion the row before it, as Debezium's messages give them.
An update that changes the primary key is a deletion and an insertion. Values come as text, and not at all where an
update left a large value as it was.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import from_numpy, one_batch
from millstream.connectors.contract import Rejected
from millstream.connectors.convert.common import DEFAULT_RULES, Reasons, assemble, blame, empty, not_a
from millstream.connectors.convert.text import parse_text
from millstream.connectors.options import closest
from millstream.errors import ConnectorError
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType

Ints = npt.NDArray[np.int64]
Texts = dict[str, pa.Array]
"""Columns of text by their names in lower case."""

EPOCH = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000 on."""

_INSERT, _UPDATE, _DELETE = b"IUD"
_NEW, _OLD, _TEXT, _UNCHANGED = b"NOtu"
_MISSING = "a large value that the update left as it was, which PostgreSQL does not send without REPLICA IDENTITY FULL"
_BEGIN = struct.Struct(">xQqI")
_COMMIT = struct.Struct(">xxQQq")
_OF_CHANGE = ("op", "ts_ms")


class ChangedRows:
    """Texts of rows with what is said of the changes themselves, as rows of a stream."""

    def __init__(self, schema: Schema, table: Sequence[str]) -> None:
        self._schema = schema
        self._table = ".".join(table)

    @property
    def columns(self) -> list[str]:
        """The declared columns that the table must have."""
        return [field.name for field in self._schema if field.name.lower() not in _OF_CHANGE]

    @property
    def none(self) -> pa.RecordBatch:
        return empty(self._schema)

    def fitted(
        self, texts: Texts, ops: pa.Array, times: Ints, bad: Reasons, lsn: Callable[[int], int]
    ) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        """The rows, and those that do not fit or are `bad` already. `times` are microseconds; `lsn` tells where a row
        was committed."""
        arrays = []
        for field in self._schema:
            if field.name.lower() in _OF_CHANGE:
                arrays.append(_of_change(field, ops, times))
                continue
            values, reasons = _values(texts[field.name.lower()], field.type)
            blame(bad, field.name, reasons)
            arrays.append(values)
        fitted = assemble(arrays, bad, self._schema, len(ops))
        shown = {row: {name: column[row].as_py() for name, column in texts.items()} for row in fitted.bad}
        return fitted.rows, tuple(self.rejected(why, shown[row], lsn(row)) for row, why in fitted.bad.items())

    def rejected(self, why: str, row: dict[str, Any], lsn: int) -> Rejected:
        return Rejected(why, json.dumps(row, ensure_ascii=False), f"{self._table}@{lsn_text(lsn)}")


def _of_change(field: Field, ops: pa.Array, times: Ints) -> pa.Array:
    if field.name.lower() == "op":
        return ops
    return from_numpy(times, type_=field.type.arrow) if field.type.is_temporal else from_numpy(times // 1000)


def _values(texts: pa.Array, type_: SqlType) -> tuple[pa.Array, Reasons]:
    if type_.name != "BLOB":
        return parse_text(texts, type_, DEFAULT_RULES)
    found, wrong = [], Reasons()
    for row, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else bytes.fromhex(text.removeprefix("\\x")))
        except ValueError:
            found.append(None)
            wrong[row] = not_a(text, type_)
    return pa.array(found, type_.arrow), wrong


def check_columns(wanted: Iterable[str], found: Sequence[str], table: Sequence[str]) -> None:
    lower = [name.lower() for name in found]
    for name in wanted:
        if name.lower() not in lower:
            raise ConnectorError(
                f"the table {'.'.join(table)} has no column {name}",
                hint=f"its columns are {', '.join(found)}{closest(name, found)}",
            )


@dataclass(frozen=True, slots=True)
class BegunTransaction:
    """What the beginning of a transaction says: where it was committed, and when."""

    lsn: int
    time: int
    is_known: bool
    """whether its rows were read with the table itself"""


@dataclass(frozen=True, slots=True)
class ChangePiece:
    """Rows of some messages, where the last complete transaction among them ends, and how many messages about the table
    have come of the one that is not complete."""

    rows: pa.RecordBatch
    rejected: tuple[Rejected, ...]
    end: int | None
    within: int


@dataclass(frozen=True, slots=True)
class _Column:
    """The values of a column in the messages: what is there of each, and the bytes of its text."""

    kind: npt.NDArray[np.uint8]
    start: Ints
    size: Ints

    def take(self, places: npt.NDArray[Any]) -> _Column:
        return _Column(self.kind[places], self.start[places], self.size[places])

    def before(self, other: _Column) -> _Column:
        return _Column(*(np.concatenate(pair) for pair in zip(self._parts, other._parts, strict=True)))

    def or_else(self, other: _Column, where: npt.NDArray[np.bool_]) -> _Column:
        """With values of another where that is wanted."""
        return _Column(*(np.where(where, b, a) for a, b in zip(self._parts, other._parts, strict=True)))

    def same(self, other: _Column, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Whether both have the same text, row by row."""
        mine, others = self.texts(data), other.texts(data)
        return np.asarray(pc.equal(mine, others).fill_null(False).to_numpy(zero_copy_only=False), bool)

    def texts(self, data: npt.NDArray[np.uint8]) -> pa.Array:
        ends = np.cumsum(self.size)
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        count = int(offsets[-1])
        found = data[np.repeat(self.start - offsets[:-1], self.size) + np.arange(count)]
        valid = pa.py_buffer(np.packbits(self.kind == _TEXT, bitorder="little").tobytes())
        parts = [valid, pa.py_buffer(offsets.tobytes()), pa.py_buffer(found.tobytes())]
        return pa.Array.from_buffers(pa.string(), len(self.size), parts)

    @property
    def _parts(self) -> tuple[npt.NDArray[Any], ...]:
        return self.kind, self.start, self.size


class ChangeDecoder:
    """Decodes what a slot's function returns from the beginning of a transaction on, in pieces."""

    def __init__(
        self,
        rows: ChangedRows,
        table: tuple[str, str],
        keys: Sequence[str],
        is_known: Callable[[int, int], bool],
        since: int,
        passed: int,
    ) -> None:
        self._rows = rows
        self._table = table
        self._keys = [key.lower() for key in keys]
        self._is_known = is_known
        self.time = since
        """no row is before this: servers' clocks go back, and transactions are not committed in order of their times"""
        self._passed = passed
        """so many messages about the table have been read before"""
        self._oid = -1
        self._layout: list[str] = []
        self._identity: list[str] = []
        """the columns by which PostgreSQL says which row was changed"""
        self._transaction = BegunTransaction(0, since, False)
        self._within = 0

    def decode(self, messages: Sequence[bytes]) -> ChangePiece:
        piece = _Piece(messages, self._transaction)
        last_commit, end, segment = -1, None, 0
        parts: list[tuple[pa.RecordBatch, tuple[Rejected, ...]]] = []
        for place in map(int, np.flatnonzero(~piece.is_row)):
            message = messages[place]
            match message[:1]:
                case b"B":
                    lsn, time, xid = _BEGIN.unpack(message)
                    self.time = max(self.time, time + EPOCH)
                    self._transaction = BegunTransaction(lsn, self.time, self._is_known(xid, lsn))
                    piece.begin(place, self._transaction)
                case b"C":
                    last_commit, end = place, _COMMIT.unpack(message)[1]
                case b"R" if (found := _Layout.read(message)).table == self._table:
                    parts.append(self._decoded(piece, segment, place))
                    segment = place
                    check_columns(self._rows.columns, found.columns, self._table)
                    self._oid, self._layout = found.oid, found.columns
                    self._identity = self._keys if found.keys is None else found.keys
                case b"T" if self._oid in _truncated(message):
                    parts += [self._decoded(piece, segment, place), self._emptied(piece, place)]
                    segment = place
        parts.append(self._decoded(piece, segment, len(messages)))
        self._within = int(piece.is_ours[last_commit + 1 :].sum()) + (self._within if end is None else 0)
        rejected = tuple(row for _, found in parts for row in found)
        return ChangePiece(one_batch([rows for rows, _ in parts]), rejected, end, self._within)

    def _emptied(self, piece: _Piece, place: int) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        piece.is_ours[place] = True
        if self._skip(1) or piece.transaction(place).is_known:
            return self._rows.none, ()
        reason = "TRUNCATE says nothing about single rows: use DELETE, or start the stream again"
        return self._rows.none, (self._rows.rejected(reason, {}, piece.transaction(place).lsn),)

    def _skip(self, count: int) -> int:
        """How many of the next messages about the table have been read before."""
        passed = min(self._passed, count)
        self._passed -= passed
        return passed

    def _decoded(self, piece: _Piece, first: int, last: int) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        """The rows of messages with one layout."""
        places = piece.of_table(self._oid, first, last)
        piece.is_ours[places] = True
        places = places[self._skip(len(places)) :]
        numbers = piece.transactions(places)
        unknown = np.array([not each.is_known for each in piece.begun])[numbers]
        places, numbers = places[unknown], numbers[unknown]
        if not len(places):
            return self._rows.none, ()
        columns, ops, order = self._changes(piece, places)
        texts = {name: columns[name].texts(piece.data) for name in columns}
        bad: Reasons = {}
        for name in self._rows.columns:
            for row in np.flatnonzero(columns[name.lower()].kind == _UNCHANGED):
                bad.setdefault(int(row), f"{name}: {_MISSING}")
        times = np.array([each.time for each in piece.begun])[numbers[order]]
        return self._rows.fitted(texts, ops, times, bad, lambda row: piece.begun[int(numbers[order[row]])].lsn)

    def _changes(self, piece: _Piece, places: Ints) -> tuple[dict[str, _Column], pa.Array, Ints]:
        """Columns and kinds of the changes, with the number of the message that each is from."""
        data, kinds = piece.data, piece.kinds[places]
        at = piece.starts[places] + 5
        has_old, is_full = data[at] != _NEW, data[at] == _OLD
        old_places, new_places = np.flatnonzero(has_old), np.flatnonzero(kinds != _DELETE)
        old, ends = self._tuples(data, at[old_places] + 1)
        at[old_places] = ends
        new, _ = self._tuples(data, at[new_places] + 1)
        # where each new row has its old one
        matching = np.searchsorted(old_places, new_places).clip(max=max(0, len(old_places) - 1))
        both = has_old[new_places]
        moved = np.zeros(len(new_places), bool)
        if both.any():
            before = {name: column.take(matching) for name, column in old.items()}
            new = {
                name: column.or_else(before[name], is_full[new_places] & (column.kind == _UNCHANGED))
                for name, column in new.items()
            }
            for key in self._identity:
                moved |= both & ~new[key].same(before[key], data)
        gone = np.isin(old_places, np.concatenate([np.flatnonzero(kinds == _DELETE), new_places[moved]]))
        order = np.concatenate([2 * old_places[gone], 2 * new_places + 1])
        ops = np.concatenate([
            np.full(int(gone.sum()), ord("d"), np.uint8),
            np.where((kinds[new_places] == _INSERT) | moved, ord("c"), ord("u")).astype(np.uint8),
        ])  # fmt: skip
        rows = np.argsort(order, kind="stable")
        columns = {name: old[name].take(gone).before(column).take(rows) for name, column in new.items()}
        offsets = pa.py_buffer(np.arange(len(rows) + 1, dtype=np.int32).tobytes())
        kinds_ = pa.Array.from_buffers(pa.string(), len(rows), [None, offsets, pa.py_buffer(ops[rows].tobytes())])
        return columns, kinds_, order[rows] // 2

    def _tuples(self, data: npt.NDArray[np.uint8], at: Ints) -> tuple[dict[str, _Column], Ints]:
        """The columns of the rows that begin there, and where each row ends."""
        if len(at) and (_number(data, at, 2) != len(self._layout)).any():
            raise ConnectorError(f"a row of {'.'.join(self._table)} has not the columns that PostgreSQL announced")
        at, columns = at + 2, {}
        for name in self._layout:
            kind = data[at]
            is_text = kind == _TEXT
            size = np.where(is_text, _number(data, np.where(is_text, at + 1, 0), 4), 0)
            columns[name.lower()] = _Column(kind, at + 5, size)
            at = at + 1 + np.where(is_text, 4 + size, 0)
        return columns, at


class _Piece:
    """Messages as one array of bytes, and the transactions that they belong to."""

    def __init__(self, messages: Sequence[bytes], open_: BegunTransaction) -> None:
        self.data = np.frombuffer(b"".join(messages) + bytes(8), np.uint8)
        self.starts = np.cumsum([0, *map(len, messages)])[:-1]
        self.kinds = self.data[self.starts]
        self.is_row = np.isin(self.kinds, (_INSERT, _UPDATE, _DELETE))
        self.is_ours = np.zeros(len(messages), bool)
        self.begun = [open_]
        self._begins = [-1]

    def begin(self, place: int, transaction: BegunTransaction) -> None:
        self.begun.append(transaction)
        self._begins.append(place)

    def of_table(self, oid: int, first: int, last: int) -> Ints:
        places = first + np.flatnonzero(self.is_row[first:last])
        return np.asarray(places[_number(self.data, self.starts[places] + 1, 4) == oid], np.int64)

    def transactions(self, places: Ints) -> Ints:
        return np.asarray(np.searchsorted(self._begins, places, side="right") - 1, np.int64)

    def transaction(self, place: int) -> BegunTransaction:
        return self.begun[int(self.transactions(np.array([place]))[0])]


def _number(data: npt.NDArray[np.uint8], at: Ints, width: int) -> Ints:
    """Unsigned numbers, the highest byte first."""
    found = np.zeros(len(at), np.int64)
    for place in range(width):
        found = (found << 8) | data[at + place]
    return found


@dataclass(frozen=True, slots=True)
class _Layout:
    """A table as it was when its next changes were made; the keys are None if whole rows say which row it was."""

    oid: int
    table: tuple[str, str]
    columns: list[str]
    keys: list[str] | None

    @staticmethod
    def read(message: bytes) -> _Layout:
        (oid,) = struct.unpack_from(">I", message, 1)
        schema, table, rest = message[5:].split(b"\0", 2)
        (count,) = struct.unpack_from(">H", rest, 1)
        columns, keys, at = [], [], 3
        for _ in range(count):
            stop = rest.index(b"\0", at + 1)
            columns.append(rest[at + 1 : stop].decode())
            keys += [columns[-1].lower()] if rest[at] & 1 else []
            at = stop + 9
        name = schema.decode() or "pg_catalog", table.decode()
        return _Layout(oid, name, columns, None if rest[:1] == b"f" else keys)


def _truncated(message: bytes) -> tuple[int, ...]:
    """The numbers of the tables that were emptied."""
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def lsn_text(lsn: int) -> str:
    """A position in the log as PostgreSQL writes it.

    >>> lsn_text(0x16B374D848)
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)

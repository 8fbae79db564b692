"""Messages of PostgreSQL's protocol, as bytes."""

from __future__ import annotations

import struct
from asyncio import IncompleteReadError, StreamReader
from collections.abc import Iterable, Sequence

from millstream.errors import (
    CancelledError,
    CatalogError,
    DataError,
    LimitError,
    MillstreamError,
    ParseError,
    UnsupportedError,
)
from millstream.records import dataclass

VERSION = 3 << 16
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MOST_START = 10_000
"""bytes of a start-up message, which comes before anybody is known"""

MOST_MESSAGE = 256 << 20


class ProtocolError(MillstreamError):
    """Bytes that are not the protocol; the connection ends."""


class LoginError(MillstreamError):
    """Nobody whom this server knows."""


@dataclass(frozen=True)
class WireColumn:
    """A column of a result, as clients are told of it."""

    name: str
    oid: int
    size: int
    modifier: int = -1


class Fields:
    """The content of a message, read from its start."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text in a message is not terminated")
        taken, self._at = self._body[self._at : end], end + 1
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text is not UTF-8", hint="SET client_encoding = 'UTF8'") from None

    def number(self, form: str = "i") -> int:
        size = struct.calcsize(f"!{form}")
        taken = self.taken(size)
        return int(struct.unpack(f"!{form}", taken)[0])

    def numbers(self, form: str = "h") -> list[int]:
        """A list that begins with its length."""
        return [self.number(form) for _ in range(self._count())]

    def values(self) -> list[bytes | None]:
        """A list of values, each with its length; -1 is NULL."""
        return [None if (size := self.number()) < 0 else self.taken(size) for _ in range(self._count())]

    def _count(self) -> int:
        count = self.number("h")
        if count < 0:
            raise ProtocolError("a list in a message has a negative length")
        return count

    def taken(self, size: int) -> bytes:
        taken = self._body[self._at : self._at + size]
        if size < 0 or len(taken) < size:
            raise ProtocolError("a message is shorter than its length field")
        self._at += size
        return taken

    @property
    def rest(self) -> bytes:
        taken, self._at = self._body[self._at :], len(self._body)
        return taken

    @property
    def ended(self) -> bool:
        return self._at >= len(self._body)


async def read_start(reader: StreamReader) -> Fields | None:
    """The first message of a connection, which has no kind; None if there is none."""
    try:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        if not 8 <= size <= MOST_START:
            raise ProtocolError("this is not PostgreSQL's protocol")
        return Fields(await reader.readexactly(size - 4))
    except (IncompleteReadError, ConnectionError):
        return None


async def read_message(reader: StreamReader) -> tuple[bytes, Fields] | None:
    """The kind and the content of the next message; None at the end."""
    try:
        head = await reader.readexactly(5)
        (size,) = struct.unpack("!i", head[1:])
        if not 4 <= size <= MOST_MESSAGE:
            raise ProtocolError(f"a message of {size} bytes is too long", hint=f"at most {MOST_MESSAGE >> 20} MB")
        return head[:1], Fields(await reader.readexactly(size - 4))
    except (IncompleteReadError, ConnectionError):
        return None


def message(kind: bytes, *parts: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + sum(map(len, parts))) + b"".join(parts)


def texts(*values: str) -> bytes:
    return b"".join(value.replace("\0", "").encode() + b"\0" for value in values)


def authentication(code: int, *parts: bytes) -> bytes:
    return message(b"R", struct.pack("!i", code), *parts)


def setting(name: str, value: str) -> bytes:
    return message(b"S", texts(name, value))


def secret_key(process: int, secret: int) -> bytes:
    return message(b"K", struct.pack("!ii", process, secret))


def ready(state: bytes) -> bytes:
    """`state`: I between transactions, T in one, E in one that failed."""
    return message(b"Z", state)


def complete(tag: str) -> bytes:
    return message(b"C", texts(tag))


def columns_told(columns: Sequence[WireColumn], binary: Sequence[bool]) -> bytes:
    described = b"".join(
        texts(each.name) + struct.pack("!ihihih", 0, 0, each.oid, each.size, each.modifier, int(form))
        for each, form in zip(columns, binary, strict=True)
    )
    return message(b"T", struct.pack("!h", len(columns)), described)


def parameters_told(oids: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f"!h{len(oids)}i", len(oids), *oids))


def row(values: Iterable[bytes | None]) -> bytes:
    parts = [b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4) + value for value in values]
    body = b"".join(parts)
    return b"D" + (6 + len(body)).to_bytes(4) + len(parts).to_bytes(2) + body


def copy_begins(kind: bytes, columns: int, binary: bool) -> bytes:
    """`kind`: G for rows that the client sends, H for rows that it gets."""
    return message(kind, struct.pack(f"!bh{columns}h", binary, columns, *[int(binary)] * columns))


PARSED, BOUND, CLOSED, NO_DATA = message(b"1"), message(b"2"), message(b"3"), message(b"n")
EMPTY, SUSPENDED, COPY_DONE = message(b"I"), message(b"s"), message(b"c")


def failure(error: MillstreamError, severity: str = "ERROR") -> bytes:
    """An error as PostgreSQL tells one: with a code, a hint, and the place in the statement."""
    told = [("S", severity), ("V", severity), ("C", _code(error)), ("M", error.message)]
    if error.detail:
        told.append(("D", error.detail))
    if error.hint:
        told.append(("H", error.hint))
    if error.span is not None:
        told.append(("P", str(error.span.start + 1)))
    return message(b"E", *(kind.encode() + texts(value) for kind, value in told), b"\0")


def notice(text: str) -> bytes:
    told = [("S", "NOTICE"), ("V", "NOTICE"), ("C", "00000"), ("M", text)]
    return message(b"N", *(kind.encode() + texts(value) for kind, value in told), b"\0")


def _code(error: MillstreamError) -> str:
    match error:
        case LoginError():
            return "28P01"
        case ProtocolError():
            return "08P01"
        case ParseError():
            return "42601"
        case CatalogError() if error.message.startswith("no "):
            return "42P01"
        case CatalogError():
            return "42P07"
        case CancelledError():
            return "57014"
        case LimitError():
            return "53400"
        case UnsupportedError():
            return "0A000"
        case DataError():
            return "22000"
    return "42000"

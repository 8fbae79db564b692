"""What file and port sources share: bytes in, a batch of complete rows out, and every line that is no row named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.arrays import one_batch
from millstream.records import dataclass

MAX_ROW_BYTES = 16 << 20
"""A row longer than this is rejected, so that a file without line ends cannot fill the memory."""

BOM = b"\xef\xbb\xbf"

Lines = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was rejected: its line counted from the start of the decoded bytes, why, and its text."""

    line: int
    error: str
    text: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the first `consumed` bytes, `lines` lines, held: rows that fit and rows that do not."""

    rows: pa.RecordBatch
    bad: list[BadRow]
    consumed: int
    lines: int


class RowDecoder(Protocol):
    """Decodes the rows of one file or connection."""

    def decode(self, data: bytes, final: bool, limit: int) -> Decoded:
        """At most `limit` complete rows from the start of `data`; the last may lack its line end if `final`."""
        ...

    def values(self, file: pa.NativeFile, column: str) -> Iterator[pa.Array]:
        """A column of all rows of a file, from the first row on; an error if only decoding tells."""
        ...

    def missing(self) -> list[str]:
        """Declared columns that the data read so far does not have."""
        ...


class TextFormat(Protocol):
    """A text format with the options of one declaration."""

    def begin(self, head: bytes, final: bool) -> tuple[RowDecoder, int] | None:
        """The decoder for data that starts with `head` and how many bytes of it come before the first row.

        None if more of the data is needed to tell.
        """
        ...


def line_ends(data: bytes, final: bool, limit: int) -> Lines:
    """Positions just after each complete line, at most `limit` of them."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10) + 1
    if final and data and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    return ends[:limit]


def line_starts(ends: Lines) -> Lines:
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1]
    return starts


def show(raw: bytes) -> str:
    """The text of a rejected row, without its line end."""
    return raw.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def overlong(raw: bytes, line: int = 0) -> BadRow:
    """The entry of a row longer than the limit, of which only the beginning is kept."""
    return BadRow(line, f"a row longer than {MAX_ROW_BYTES >> 20} MiB", show(raw[:200]) + "...")


def merge(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of several."""
    return one_batch(rows, schema)

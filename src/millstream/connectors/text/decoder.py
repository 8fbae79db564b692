"""What file and port sources share: bytes in, batches of complete rows out, and every bad line reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(frozen=True, slots=True)
class SomeLines:
    """Some lines of a block: the number of the first, their bytes, and where each ends in them."""

    first: int
    data: bytes
    ends: Lines

    def rejected(self, reasons: Mapping[int, str], lines: Lines) -> Iterator[BadRow]:
        """The rows that do not fit; `lines` are the lines of the part that have a row."""
        starts = line_starts(self.ends)
        for row, reason in reasons.items():
            line = int(lines[row])
            raw = self.data[int(starts[line]) : int(self.ends[line])]
            number = self.first + line
            yield overlong(raw, number) if len(raw) > MAX_ROW_BYTES else BadRow(number, reason, show(raw))


class Halves:
    """The lines of a block, in order: as one part, and a part that Arrow refuses as two, to save the good one."""

    _FEW = 64
    """So many lines or fewer are not halved; they are read one by one."""
    _REFUSALS = 24
    """So often a part is halved; after that there is too little to save."""

    def __init__(self, block: bytes, ends: Lines) -> None:
        self._block, self._ends = block, ends
        self._waiting = [(0, len(ends))] if len(ends) else []
        self._refusals = 0

    def __iter__(self) -> Iterator[SomeLines]:
        while self._waiting:
            first, last = self._waiting.pop()
            offset = int(self._ends[first - 1]) if first else 0
            yield SomeLines(first, self._block[offset : int(self._ends[last - 1])], self._ends[first:last] - offset)

    @property
    def worth_trying(self) -> bool:
        """Whether the next part should go to Arrow at all."""
        return self._refusals < self._REFUSALS

    def halve(self, part: SomeLines) -> bool:
        """Go on with the halves of a refused part, unless there is too little to save."""
        lines = len(part.ends)
        if not self.worth_trying or lines <= self._FEW:
            return False
        self._refusals += 1
        last, middle = part.first + lines, part.first + lines // 2
        self._waiting += [(middle, last), (part.first, middle)]
        return True

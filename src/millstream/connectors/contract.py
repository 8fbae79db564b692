"""What a connector is to a host: a source that reads from an offset, a sink that commits what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millstream.schema import Schema

Offset = dict[str, Any]
"""A position in a source, JSON-serialisable; {} is the beginning."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An input row that does not fit the schema: why, its text, and where it came from.

    An unreadable part of a binary file is one entry that stands for `count` rows.
    """

    error: str
    row: str
    origin: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows read in one go, with the offset just after them and the rows that were rejected on the way."""

    rows: pa.RecordBatch
    offset: Offset
    rejected: tuple[Rejected, ...] = ()


class RowSource(Protocol):
    """Where a stream's rows come from."""

    @property
    def bounded(self) -> bool:
        """Whether the rows end by themselves."""
        ...

    @property
    def replayable(self) -> bool:
        """Whether `read` from an earlier offset gives the same rows again."""
        ...

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        """Rows from `offset` on, in chunks of at most `limit` rows (None: the source chooses, up to 65,536).

        A live source waits for more rows, yielding an empty chunk from time to time so that the reader can look
        at the clock, until `stop()` is true; then it closes what it opened and returns.
        """
        ...

    def size(self) -> int | None:
        """Rows (or an estimate) for a progress display; None if unknown."""
        ...


class Scannable(Protocol):
    """A source of which a column can be looked at without the rest, to see whether its rows lie in order."""

    def values(self, column: str) -> Iterator[pa.Array]:
        """The column of all rows as they lie, rejected ones or not; any error says that only reading tells."""
        ...


class Divisible(Protocol):
    """A source whose rows between two offsets can be read in parts, independently and anywhere: it is sent to tasks."""

    def initial(self) -> Offset:
        """Where reading begins, as of now."""
        ...

    def latest(self, start: Offset, rows: int | None = None) -> Offset:
        """How far the source reaches now, or about `rows` rows after `start` if that is less."""
        ...

    def parts(self, start: Offset, end: Offset) -> list[Offset]:
        """What lies between two offsets, in pieces; JSON-serialisable."""
        ...

    def read_part(self, part: Offset) -> Iterator[Chunk]:
        """The rows of a piece, in order."""
        ...


class Sink(Protocol):
    """Where a query's rows go, exactly once: rows written after the last commit vanish when the sink reopens."""

    def open(self, schema: Schema, committed: Offset) -> None:
        """Start writing after `committed` (from `commit`; {} for a fresh start), removing what came later."""
        ...

    def write(self, rows: pa.RecordBatch) -> None: ...

    def commit(self) -> Offset:
        """Make all rows written so far permanent and say up to where."""
        ...

    def close(self) -> None:
        """Commit and release everything."""
        ...

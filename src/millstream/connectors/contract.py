"""What a connector is to a host: a source that reads from an offset, a sink that commits what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.records import dataclass
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


@runtime_checkable
class Scannable(Protocol):
    """A source of which a column can be looked at without the rest, to see whether its rows lie in order."""

    def values(self, column: str) -> Iterator[pa.Array]:
        """The column of all rows as they lie, rejected ones or not; any error says that only reading tells."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A source that notices when what was read is no longer there to be read again."""

    def changed(self, offset: Offset) -> str | None:
        """What is no longer as it was when rows up to this offset were read, if something is."""
        ...


@runtime_checkable
class Acknowledged(Protocol):
    """A source that holds rows back until it is told that nobody will read them again."""

    def kept(self, offset: Offset) -> None:
        """Rows up to this offset are safe: in a checkpoint, or taken by a session that keeps nothing. Called with the
        host's lock held, so what takes time is left to the thread that reads."""
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
    """Where a query's rows go, exactly once: rows written after the last `prepare` vanish when the sink reopens.

    A host that is saved prepares, keeps the offset, then publishes: what others have seen stays. If it dies in between,
    the sink publishes when it is opened with that offset.
    """

    def open(self, schema: Schema, committed: Offset) -> None:
        """Start writing after `committed` (from `prepare` or `commit`; {} for a fresh start), removing what came later.
        What was there before a fresh start is not removed, unless the sink's options ask for it."""
        ...

    def write(self, rows: pa.RecordBatch) -> None: ...

    def prepare(self) -> Offset:
        """Make all rows written so far safe and say up to where; others need not see them yet."""
        ...

    def publish(self) -> None:
        """Let others see what was prepared."""
        ...

    def commit(self) -> Offset:
        """Prepare and publish."""
        ...

    def release(self) -> None:
        """Let go of everything, without preparing or publishing anything."""
        ...

    def close(self) -> None:
        """Commit and release everything."""
        ...


class SeenAtOnce:
    """A sink whose rows are seen as soon as they are written, or committed."""

    def commit(self) -> Offset:
        raise NotImplementedError

    def prepare(self) -> Offset:
        return self.commit()

    def publish(self) -> None:
        return

    def release(self) -> None:
        return


class MissingSource:
    """A source that could not be found when a session was opened: whoever wants to read it gets the error, others need
    not know."""

    bounded = True
    replayable = True

    def __init__(self, error: MillstreamError) -> None:
        self._error = error

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        raise self._error

    def size(self) -> int | None:
        return None

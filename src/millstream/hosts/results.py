"""What a query has produced: rows with absolute positions, in a log that any number of cursors read.

The log is a chain. A piece knows the next one, a cursor the piece it stands in, the log itself only the open end. So a
piece that all cursors have passed belongs to nobody and goes, a reader that is forgotten holds nothing, and adding rows
costs the same for one cursor and for ten thousand. Nothing here has threads or waits, except those who bring rows and
find a `Gate` closed; they do so before they take any lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Condition, Lock, get_ident
from time import monotonic
from typing import Literal
from weakref import WeakSet, ref

import pyarrow as pa

from millstream.errors import DataError, MillstreamError
from millstream.limits import Unfetched

WhenFull = Literal["block", "drop", "end"]

Admit = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Which rows a log takes of those that come."""

UNFETCHED = 1_000_000
"""Rows that wait for `fetch()` at most, once a query has readers: who reads in another way may never fetch. Fewer if
the session's setting says so."""

FIRST_READ_SECONDS = 5.0
"""How long a full buffer that nobody has read from yet holds up the thread that made its reader."""

LOOK_SECONDS = 0.1


class _Piece:
    """Some rows from position `start` on; the open end of the log has no rows and no next piece yet."""

    __slots__ = ("__weakref__", "next", "rows", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.rows: pa.RecordBatch | None = None
        self.next: _Piece | None = None


class ResultLog:
    """The rows of one query, from position 0 on; `feeds` are the streams that they are made of.

    One thread at a time appends (that of the host's lock, or of a streaming query); cursors may be read by others.
    """

    def __init__(
        self,
        feeds: Iterable[str] = (),
        gate: Gate | None = None,
        fetched: bool = True,
        bound: Callable[[], Unfetched] = Unfetched,
    ) -> None:
        self.feeds = frozenset(feeds)
        self.closed = False
        self.error: MillstreamError | None = None
        self._gate = gate or Gate()
        self._bound = bound
        self._lock = Lock()
        self._open = _Piece(0)
        self._waiting: list[Callable[[], None]] = []
        self._blocking: WeakSet[Cursor] = WeakSet()
        self._room_until = 0
        # rows that cursors which may drop some can still ask for are held here, not by each of them
        self._bounded: WeakSet[Cursor] = WeakSet()
        self._window = 0
        self._floor: _Piece | None = None
        self._fetched = Cursor(self, self._open) if fetched else None
        # whether anybody is told of new rows, and whether some have cursors of their own
        self._is_read = self._has_readers = False
        self._iterations = 0
        # where readers with a name go on after a crash: rows behind these are kept
        self._named: dict[str, Cursor] = {}
        self.admit: Admit | None = None
        """which rows are taken of those that come, if not all"""

    @property
    def has_readers(self) -> bool:
        """Whether somebody reads it who holds on to its columns."""
        return self._has_readers or bool(self._named)

    @property
    def end(self) -> int:
        """The position behind the last row."""
        return self._open.start

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows. If too many wait to be fetched, the oldest go, or it is an error and none wait any more."""
        self._add(rows if self.admit is None else self.admit(rows))
        if self._fetched is None or self._iterations:
            return
        bound = self._bound()
        most = min(UNFETCHED, bound.rows or UNFETCHED) if self._has_readers else bound.rows
        if not most or self._fetched.behind <= most:
            return
        # rows that readers have had are not lost, so a query with readers goes on
        if not bound.drop and not self._has_readers:
            self._fetched.keep_last(0)
            raise bound.error()
        self._fetched.keep_last(most)

    def _add(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        with self._lock:
            piece = self._open
            self._open = _Piece(piece.start + rows.num_rows)
            piece.rows = rows
            piece.next = self._open
            if not self._is_read:
                return
            self._move_floor()
        if self._blocking and self.end >= self._room_until and self.is_full():
            self._gate.close(self)
        self.wake()

    def close(self, error: MillstreamError | None = None) -> None:
        """No more rows come; readers end when they have had the others, with the error if there is one."""
        if not self.closed:
            self.error = error
            self.closed = True
            self._gate.open(self)
            self.wake()

    def cursor(self, since: int | None, buffer: int, when_full: WhenFull) -> Cursor:
        """A new cursor at a position that is still kept; None is here, at the end."""
        with self._lock:
            piece, position = self._open, self.end
            if since is not None:
                piece, position = self._find(since), since
            made = Cursor(self, piece, position, buffer, when_full)
            if when_full == "block":
                self._blocking.add(made)
                self._room_until = 0
            else:
                self._hold_for(made, piece)
            self._is_read = self._has_readers = True
            return made

    def fetch(self) -> list[pa.RecordBatch]:
        """What was produced since the last fetch."""
        return [] if self._fetched is None else self._fetched.take()

    def unfetched(self) -> list[pa.RecordBatch]:
        """What the next fetch would give."""
        return [] if self._fetched is None else self._fetched.take(keep=True)

    @property
    def unfetched_lost(self) -> int:
        """Rows that were no longer there when they were fetched."""
        return 0 if self._fetched is None else self._fetched.dropped

    @property
    def fetched_to(self) -> int:
        """The position from which the next fetch gives rows."""
        return self.end if self._fetched is None else self._fetched.position

    @property
    def kept_from(self) -> int:
        """The first position that a fetch, or a reader with a name, may still ask for."""
        return min([self.fetched_to, *self.acknowledged().values()])

    def rows_from(self, position: int) -> list[pa.RecordBatch]:
        """All rows from a position on."""
        if position >= self.end:
            return []
        with self._lock:
            piece = self._find(position)
        return Cursor(self, piece, position).take()

    def acknowledged(self) -> dict[str, int]:
        """Up to where readers with a name have said that they need nothing any more."""
        return {name: cursor.position for name, cursor in list(self._named.items())}

    def acknowledge(self, name: str, upto: int | None) -> None:
        """Keep rows for a reader of this name from a position on, across restarts; None is not to keep any."""
        with self._lock:
            known = self._named.get(name)
            if upto is None:
                self._named.pop(name, None)
            elif known is None:
                self._named[name] = Cursor(self, self._find(upto), upto)
            else:
                known.take(most=max(0, upto - known.position))

    def restore(
        self,
        kept: list[pa.RecordBatch],
        end: int,
        fetched: int | None = None,
        readers: Mapping[str, int] | None = None,
        dropped: int = 0,
    ) -> None:
        """Go on where the log was that these rows were saved from, before anybody reads."""
        self._open = _Piece(end - sum(rows.num_rows for rows in kept))
        start = Cursor(self, self._open)
        self._fetched = None if self._fetched is None else Cursor(self, self._open)
        for rows in kept:
            self._add(rows)
        if fetched is not None:
            self.skip_to(fetched)
        if self._fetched is not None:
            self._fetched.dropped = dropped
        for name, position in (readers or {}).items():
            piece = start.piece
            assert piece is not None
            self._named[name] = Cursor(self, piece, piece.start)
            self._named[name].take(most=position - piece.start)

    def skip_to(self, position: int) -> None:
        """Rows up to here have been fetched before."""
        if self._fetched is not None:
            self._fetched.take(most=position - self._fetched.position)

    @contextmanager
    def telling(self, call: Callable[[], None]) -> Iterator[None]:
        """Meanwhile `call` is called, once, when there are more rows or none will come; it must be quick."""
        self._is_read = True
        self._waiting.append(call)
        try:
            yield
        finally:
            with suppress(ValueError):
                self._waiting.remove(call)

    @contextmanager
    def iterated(self) -> Iterator[None]:
        """Meanwhile rows are fetched one batch after the other: those who bring rows wait for that, and none is
        dropped."""
        cursor = self._fetched
        if cursor is None:
            yield
            return
        with self._lock:
            self._iterations += 1
            cursor.buffer = min(UNFETCHED, self._bound().rows or UNFETCHED)
            self._blocking.add(cursor)
            self._room_until = 0
            self._is_read = True
        try:
            yield
        finally:
            self._iterations -= 1
            if not self._iterations:
                cursor.buffer = None
                self.release(cursor)

    def is_full(self) -> bool:
        """Whether a cursor that must not miss rows has no room."""
        limits = [cursor.position + (cursor.buffer or 0) for cursor in list(self._blocking)]
        self._room_until = min(limits, default=0)
        return bool(limits) and self.end >= self._room_until and not self.closed

    def full_cursors(self) -> list[Cursor]:
        return [cursor for cursor in list(self._blocking) if self.end >= cursor.position + (cursor.buffer or 0)]

    def release(self, cursor: Cursor) -> None:
        """A cursor is not read any more."""
        with self._lock:
            self._blocking.discard(cursor)
            self._bounded.discard(cursor)
            self._fit_window()
        self._gate.stir(self)

    def moved(self) -> None:
        """A cursor that must not miss rows has been read."""
        self._gate.stir(self)

    @property
    def floor(self) -> _Piece:
        """The first piece that is held for cursors which may drop rows."""
        return self._floor or self._open

    def _find(self, position: int) -> _Piece:
        """The piece in which a row is, or the open end."""
        known = [cursor.piece for cursor in (*self._blocking, *self._bounded, *self._named.values())]
        known += [self._floor, self._open, None if self._fetched is None else self._fetched.piece]
        pieces = sorted((piece for piece in known if piece is not None), key=lambda piece: piece.start)
        first = pieces[0].start
        if not first <= position <= self.end:
            raise DataError(
                f"rows from position {position} on cannot be read",
                detail=f"rows {first} to {self.end} are kept" if position < first else f"the query is at {self.end}",
                hint="since=None starts with the next row",
            )
        piece = pieces[0]
        while piece.next is not None and piece.next.start <= position:
            piece = piece.next
        return piece

    def _hold_for(self, cursor: Cursor, piece: _Piece) -> None:
        self._bounded.add(cursor)
        if self._floor is None or piece.start < self._floor.start:
            self._floor = piece
        self._fit_window()

    def _fit_window(self) -> None:
        self._window = max((cursor.buffer or 0 for cursor in self._bounded), default=0)
        self._move_floor()

    def _move_floor(self) -> None:
        if self._floor is not None:
            first = self.end - self._window
            while self._floor.next is not None and self._floor.next.start <= first:
                self._floor = self._floor.next

    def wake(self) -> None:
        """Let everybody who waits look again."""
        while self._waiting:
            try:
                call = self._waiting.pop()
            except IndexError:
                return
            call()


class Cursor:
    """A place in a log. Without a buffer it keeps all rows behind it; so it does where those who bring rows wait."""

    def __init__(
        self,
        log: ResultLog,
        piece: _Piece,
        position: int | None = None,
        buffer: int | None = None,
        when_full: WhenFull = "block",
    ) -> None:
        self.log = log
        self.position = piece.start if position is None else position
        self.buffer = buffer
        self.when_full = when_full
        self.dropped = 0
        self.made_by = get_ident()
        self.read_by: int | None = None
        """the thread that has read from it last"""
        self._lock = Lock()
        self._held: _Piece | None = None
        self._known = ref(piece)
        self._stand(piece)

    @property
    def piece(self) -> _Piece | None:
        return self._held or self._known()

    @property
    def behind(self) -> int:
        """How many rows it has not read yet."""
        return self.log.end - self.position

    def take(self, most: int | None = None, keep: bool = False) -> list[pa.RecordBatch]:
        """Rows from here on, at most so many; the cursor moves behind them, unless it is to keep its place."""
        with self._lock:
            self.read_by = get_ident()
            piece, position = self._here(), self.position
            last = None if most is None else position + most
            found = []
            while piece.next is not None and (last is None or position < last):
                assert piece.rows is not None
                stop = piece.next.start if last is None else min(last, piece.next.start)
                found.append(piece.rows.slice(position - piece.start, stop - position))
                position = stop
                if position == piece.next.start:
                    piece = piece.next
            if not keep:
                self.position = position
                self._stand(piece)
        if found and self.when_full == "block" and self.buffer is not None:
            self.log.moved()
        return found

    def keep_last(self, count: int) -> None:
        """Move on until only so many rows are behind it."""
        with self._lock:
            piece = self.piece
            assert piece is not None
            self._stand(self._drop(piece, self.log.end - count))

    def close(self) -> None:
        self._held = None
        self.log.release(self)

    def _stand(self, piece: _Piece) -> None:
        self._known = ref(piece)
        self._held = piece if self.when_full == "block" else None

    def _here(self) -> _Piece:
        """The piece that it stands in, further on if it has fallen behind by more than its buffer."""
        known = self.piece
        end = self.log.end
        if self.buffer is None or self.when_full == "block" or (known and end - self.position <= self.buffer):
            assert known is not None
            return known
        if self.when_full == "end":
            raise DataError(
                f"this reader fell behind by {end - self.position} rows; its limit is {self.buffer}",
                detail=f"it has read up to position {self.position}",
                hint="read faster, use a larger buffer, or let it drop rows: when_full='drop'",
            )
        return self._drop(self.log.floor, end - self.buffer)

    def _drop(self, piece: _Piece, position: int) -> _Piece:
        """Go to a position, from a piece that may be the first to reach it."""
        position = max(position, piece.start)
        while piece.next is not None and piece.next.start <= position:
            piece = piece.next
        self.dropped += position - self.position
        self.position = position
        return piece


class Gate:
    """Where those who bring rows wait while readers that must not miss any have no room."""

    def __init__(self) -> None:
        self._full: set[ResultLog] = set()
        self._changed = Condition()
        self._lifted = 0

    def close(self, log: ResultLog) -> None:
        with self._changed:
            self._full.add(log)

    def open(self, log: ResultLog) -> None:
        with self._changed:
            self._full.discard(log)
            self._changed.notify_all()

    def stir(self, log: ResultLog) -> None:
        """Let those who wait look again; who has read need not look at the other readers."""
        if log in self._full:
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Meanwhile nobody waits: what is on its way must arrive."""
        with self._changed:
            self._lifted += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            self._lifted -= 1

    def pass_(self, stream: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until rows of this stream may come."""
        since = monotonic()
        while self._full and not self._lifted and not stopped():
            concerned = [log for log in tuple(self._full) if stream.lower() in log.feeds]
            full = [log for log in concerned if log.is_full()]
            for log in concerned:
                if log not in full:
                    self.open(log)
            if not full:
                return
            for log in full:
                _refuse_own_reader(log.full_cursors(), monotonic() - since)
            with self._changed:
                # a reader may also go without a word, so look from time to time
                if all(log.is_full() for log in full):
                    self._changed.wait(LOOK_SECONDS)


def _refuse_own_reader(cursors: list[Cursor], waited: float) -> None:
    """A thread that waits for itself waits for ever."""
    for cursor in cursors:
        by = cursor.read_by
        if by == get_ident() or (by is None and cursor.made_by == get_ident() and waited > FIRST_READ_SECONDS):
            raise DataError(
                f"the buffer of a reader is full, with {cursor.behind} rows",
                detail="push waits until some rows are read, but this thread is the one that reads them",
                hint="read first, read on another thread, use a larger buffer=, or use when_full='drop'",
            )

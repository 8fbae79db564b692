"""Readers of a query's results, each with its own position: blocking and async iterators, and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread, current_thread
from time import monotonic
from typing import Any, get_args

import pyarrow as pa

from millstream.errors import DataError
from millstream.hosts.results import ResultLog, WhenFull

BATCH_ROWS = 65_536
"""Rows that a reader which is behind gets in one batch at most."""


class Reader:
    """The rows of a query from some position on, in batches. Rows that waited come in one batch.

    It ends with the query or with its input. Several threads may share it; each row goes to one of them.
    """

    def __init__(
        self, log: ResultLog, schema: pa.Schema, since: int | None, buffer: int, when_full: WhenFull,
        acknowledge: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        if when_full not in get_args(WhenFull):
            raise DataError(f"when_full={when_full!r}", hint=f"one of {', '.join(map(repr, get_args(WhenFull)))}")
        if buffer < 1:
            raise DataError(f"a buffer of {buffer} rows", hint="at least 1")
        self._log = log
        self._schema = schema
        self._cursor = log.cursor(since, buffer, when_full)
        self._acknowledge = acknowledge
        self._closed = False
        self._thread: Thread | None = None
        self._failure: BaseException | None = None

    @property
    def position(self) -> int:
        """The position of the next row to read. Pass it as `since` to continue here."""
        return self._cursor.position

    @property
    def behind(self) -> int:
        """How many rows wait to be read."""
        return 0 if self._closed else self._cursor.behind

    @property
    def dropped(self) -> int:
        """How many rows this reader missed because its buffer was full."""
        return self._cursor.dropped

    @property
    def ended(self) -> bool:
        """Whether all rows have been read and no more will arrive."""
        return self._closed or (self._log.closed and self._cursor.behind == 0)

    def next(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """Wait for the next rows; None if none arrived within the timeout, or the reader has ended (`ended`)."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            batch, ended = self._look()
            left = None if until is None else until - monotonic()
            if batch is not None or ended or (left is not None and left <= 0):
                return batch
            await_news(self._log, self._is_idle, left)

    def ack(self, position: int | None = None) -> None:
        """Acknowledge the rows before a position (default: all rows read); they are not delivered again after a crash.

        Only for readers with a name: `subscribe(name=…)`.
        """
        if self._acknowledge is None:
            raise DataError(
                "this reader has no name", hint="subscribe(name='…') makes one that continues after a crash"
            )
        position = self.position if position is None else position
        if position > self.position:
            raise DataError(f"position {position} was not read yet", detail=f"this reader is at {self.position}")
        self._acknowledge(position)

    def close(self) -> None:
        """Stop reading. Rows are no longer kept for it; for a reader with a name, those not acknowledged are."""
        self._closed = True
        self._cursor.close()
        self._log.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the subscribed function has received all rows. If it raised an error, raise it here."""
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(timeout)
            if self._failure is not None:
                raise self._failure
            return not self._thread.is_alive()
        return self.ended

    def call(self, function: Callable[[pa.RecordBatch], Any]) -> None:
        """Call a function with every batch, on a separate thread."""

        def work() -> None:
            try:
                for batch in self:
                    function(batch)
            except BaseException as error:
                self._failure = error
                self.close()
                raise

        self._thread = Thread(target=work, name="millstream-reader", daemon=True)
        self._thread.start()

    def _look(self) -> tuple[pa.RecordBatch | None, bool]:
        """What is there, and whether nothing comes any more."""
        closed = self._log.closed
        if self._closed:
            return None, True
        pieces = self._cursor.take(BATCH_ROWS)
        if pieces:
            rows = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
            return pa.RecordBatch.from_arrays(rows.columns, schema=self._schema), False
        if closed and self._log.error is not None:
            raise self._log.error
        return None, closed

    def _is_idle(self) -> bool:
        return not self._closed and not self._log.closed and self._cursor.behind == 0

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        while True:
            batch, ended = self._look()
            if batch is not None:
                return batch
            if ended:
                raise StopAsyncIteration
            await _await_news(self._log, self._is_idle)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        lost = f", {self.dropped} dropped" if self.dropped else ""
        return f"<reader at row {self.position}, {self.behind} behind{lost}>"


def await_news(log: ResultLog, idle: Callable[[], bool], timeout: float | None = None) -> None:
    """Wait while a reader is idle until the log has news, at most so many seconds."""
    news = Event()
    with log.telling(news.set):
        # rows may have come before anybody was told to tell
        if idle():
            news.wait(timeout)


async def _await_news(log: ResultLog, idle: Callable[[], bool]) -> None:
    # who waits this way has it already, and others need not wait for its import
    import asyncio

    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def tell() -> None:
        # a loop that has ended need not be told
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(news.set)

    with log.telling(tell):
        if idle():
            await news.wait()

"""What sinks that send rows to another system have in common: parts, tries, and where they were.

Rows wait in memory for a part to be full or due. A thread sends parts, so that a slow receiver does not hold up
other queries until too much waits. Every part says which rows of the query it has, by position; the receiver keeps the
position it has come to together with the rows. After a crash the same rows come again, and those that are there are
passed over.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from threading import Condition, Thread

import pyarrow as pa

from millstream.connectors.contract import Offset, SeenAtOnce
from millstream.connectors.options import Options
from millstream.errors import ConnectorError, MillstreamError
from millstream.records import dataclass
from millstream.schema import Schema, unique_names

_LONGEST_WAIT = 30.0
_HELD_PARTS = 4


class Again(Exception):
    """What failed may work when it is tried again, after `wait` seconds if the receiver said so."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


def missing_rows(there: int, written: int) -> str:
    """What is wrong with a target that has fewer rows of a query than were written to it."""
    return f"it has {there} rows of the query, but {written} were written; it was changed or restored in between"


def layout_of(schema: Schema) -> pa.Schema:
    """The columns of a table that is made for a query; names are made unique."""
    names = unique_names(field.name for field in schema.fields)
    return pa.schema([(name, field.type.arrow) for name, field in zip(names, schema.fields, strict=True)])


def first_line(error: Exception) -> str:
    """What an error says; libraries add how they came to it from the second line on."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@dataclass(frozen=True, slots=True)
class Sending:
    """How rows are sent: in parts of so many rows, at the latest after so many seconds, tried so often."""

    rows: int
    seconds: float
    timeout: float
    retries: int
    first_wait: float

    @staticmethod
    def from_options(options: Options, rows: int, flush_ms: int = 1000) -> Sending:
        batch = options.integer("batch_rows", rows, low=1, high=10_000_000)
        flush = options.integer("flush_ms", flush_ms, low=1, high=600_000)
        timeout = options.integer("timeout_ms", 10_000, low=1, high=600_000)
        retries = options.integer("retries", 7, low=0, high=100)
        wait = options.integer("retry_ms", 200, low=1, high=60_000)
        assert batch and flush and timeout and retries is not None and wait
        return Sending(batch, flush / 1000, timeout / 1000, retries, wait / 1000)


class SendingSink(SeenAtOnce):
    """Sends rows in parts; offsets are `{rows, id}`."""

    splits = False
    """whether a part may have some of the rows that were written together"""

    def __init__(self, target: str, sending: Sending) -> None:
        self._target = target
        self._sending = sending
        self._changed = Condition()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._held = 0
        """rows that wait or are being sent"""
        self._rows = 0
        self._due: float | None = None
        self._asked = self._ended = False
        self._failed: MillstreamError | None = None
        self._thread: Thread | None = None
        self._id = ""

    # -- what a receiver is --------------------------------------------------------------------------------------------

    def _begin(self, schema: Schema) -> None:
        """Look at the target before the first row of a fresh start. This and `_send` raise `Again` if it may help."""

    def _send(self, rows: pa.Table, first: int) -> None:
        """Send rows, the first of which has that position in the query's output."""
        raise NotImplementedError

    def _disconnect(self) -> None:
        """Let go of a connection, whatever its state."""

    # -- the contract --------------------------------------------------------------------------------------------------

    def open(self, schema: Schema, committed: Offset) -> None:
        self.release()
        self._schema = schema
        self._rows = int(committed.get("rows", 0))
        self._id = str(committed.get("id") or uuid.uuid4().hex)
        self._waiting.clear()
        self._held, self._due, self._failed = 0, None, None
        self._asked = self._ended = False
        if not committed:
            # a session that is opened again does not wait for a receiver: its query does
            try:
                self._begin(schema)
            except Again as error:
                self._disconnect()
                raise self._cannot(error) from error

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        with self._changed:
            self._check()
            self._waiting.append(rows)
            self._held += rows.num_rows
            self._rows += rows.num_rows
            if self._due is None:
                self._due = time.monotonic() + self._sending.seconds
            if self._thread is None:
                self._thread = Thread(target=self._work, name=f"millstream-sink-{self._id}", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            while self._held > _HELD_PARTS * self._sending.rows and self._failed is None and not self._ended:
                self._changed.wait()
            self._check()

    def commit(self) -> Offset:
        with self._changed:
            self._asked = True
            self._changed.notify_all()
            while self._held and self._failed is None and not self._ended:
                self._changed.wait()
            self._asked = False
            self._check()
            return {"rows": self._rows, "id": self._id}

    def release(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            # a request that is under way ends by itself
            self._thread.join(self._sending.timeout)
            self._thread = None
        self._disconnect()

    def close(self) -> None:
        try:
            if self._thread is not None:
                self.commit()
        finally:
            self.release()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (part := self._next_part()) is not None:
                rows, first = part
                if not self._tried(rows, first):
                    return
                with self._changed:
                    self._held -= rows.num_rows
                    self._changed.notify_all()
        except Exception as error:
            with self._changed:
                self._failed = error if isinstance(error, MillstreamError) else self._cannot(error)
                self._changed.notify_all()

    def _next_part(self) -> tuple[pa.Table, int] | None:
        """Rows that are to be sent now, with the position of the first; None when the sink is released."""
        with self._changed:
            while not self._ended:
                left = None if self._due is None else self._due - time.monotonic()
                if self._held and (self._asked or self._held >= self._sending.rows or (left is not None and left <= 0)):
                    return self._taken()
                self._changed.wait(left)
            return None

    def _taken(self) -> tuple[pa.Table, int]:
        first, taken, count = self._rows - self._held, [], 0
        while self._waiting and count < self._sending.rows:
            batch = self._waiting.popleft()
            if self.splits and batch.num_rows > (room := self._sending.rows - count):
                self._waiting.appendleft(batch.slice(room))
                batch = batch.slice(0, room)
            taken.append(batch)
            count += batch.num_rows
        if not self._waiting:
            self._due = None
        return pa.Table.from_batches(taken), first

    def _tried(self, rows: pa.Table, first: int) -> bool:
        """Whether rows were sent; after the last try its error is raised."""
        wait, tries = self._sending.first_wait, 0
        while True:
            try:
                self._send(rows, first)
                return True
            except Again as error:
                self._disconnect()
                tries += 1
                if tries > self._sending.retries:
                    raise self._cannot(error, tries) from error
                until = time.monotonic() + min(max(wait, error.wait), _LONGEST_WAIT)
            with self._changed:
                while not self._ended and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._ended:
                    return False
            wait = min(2 * wait, _LONGEST_WAIT)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _cannot(self, error: object, tries: int = 1) -> ConnectorError:
        return ConnectorError(f"cannot write to {self._target}: {error}{f' (tried {tries} times)' * (tries > 1)}")

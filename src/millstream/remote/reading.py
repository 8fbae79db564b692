"""Rows of a query in a server as they come: the reader of a session, fed by a thread that reconnects."""

from __future__ import annotations

import http.client
import json
import socket
from bisect import bisect_right
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import quote, urlencode
from weakref import ref

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.hosts.results import Gate, ResultLog, WhenFull
from millstream.remote.wire import LOST, LostError, Wire
from millstream.session.subscriptions import Reader
from millstream.wire import ARROW, STATE, error_of

_SILENCE = 35.0
"""seconds without a word after which a connection is lost; the server speaks every 10"""

_FEED = "rows"


class _Subscription:
    """One connection on which rows come, and at which position it began."""

    def __init__(self, wire: Wire, path: str) -> None:
        self._connection, answer = wire.stream(path, ARROW, _SILENCE)
        try:
            self._batches = pa.ipc.open_stream(answer)
            self.position: int = self.next()[1]["position"]
        except (*LOST, pa.ArrowInvalid, StopIteration) as error:
            self.close()
            raise LostError(f"the connection to {wire.address} broke: {error}") from None

    @property
    def schema(self) -> pa.Schema:
        return self._batches.schema

    def next(self) -> tuple[pa.RecordBatch, dict[str, Any]]:
        batch, told = self._batches.read_next_batch_with_custom_metadata()
        return batch, json.loads(told[STATE])

    def close(self) -> None:
        _shut(self._connection)


class _Arriving:
    """What brings the rows into a log; after a broken connection it goes on behind the last row that came."""

    def __init__(self, wire: Wire, path: str, since: int | None, name: str | None) -> None:
        self._wire, self._path, self._name = wire, path, name
        self._now = self._open(since)
        self.schema = self._now.schema
        self.position = self._now.position
        self._gate = Gate()
        self.log = ResultLog((_FEED,), self._gate, fetched=False)
        # where rows of the log are in the query: the server drops some if they are read too slowly
        self._from, self._shift = [0], [self.position]
        self._closed = False

    def place(self, position: int) -> int:
        """The position in the query of one in the log."""
        return position + self._shift[bisect_right(self._from, position) - 1]

    def dropped(self, position: int) -> int:
        """How many rows did not come, up to a position of the log."""
        return self._shift[bisect_right(self._from, position) - 1] - self._shift[0]

    def start(self, reader: RemoteReader) -> None:
        known = ref(reader, lambda _: self.close())
        Thread(target=self._work, args=(known,), name="millstream-subscription", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._now.close()

    def _work(self, _: Any) -> None:
        try:
            while not self._closed:
                self._take()
        except MillstreamError as error:
            self.log.close(error)
        except Exception as error:
            if not self._closed:
                self.log.close(MillstreamError(f"reading from {self._wire.address} failed: {error}"))
        finally:
            self._now.close()

    def _take(self) -> None:
        try:
            batch, told = self._now.next()
        except (*LOST, pa.ArrowInvalid, StopIteration):
            self._go_on()
            return
        if "error" in told:
            raise error_of(told)
        if batch.num_rows:
            self._gate.pass_(_FEED, lambda: self._closed)
            missed = told["position"] - batch.num_rows - self.position
            if missed:
                self._shift.append(self._shift[-1] + missed)
                self._from.append(self.log.end)
            self.position = told["position"]
            self.log.append(batch)
        match told.get("ended"):
            case "query":
                self.log.close()
                self._closed = True
            case "server":
                self._go_on()

    def _go_on(self) -> None:
        self._now.close()
        if not self._closed:
            self._now = self._wire.again(lambda: self._open(self.position), lambda: self._closed)

    def _open(self, since: int | None) -> _Subscription:
        asked = {"since": since, "reader": self._name}
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        return _Subscription(self._wire, f"{self._path}/rows?{given}")


class RemoteReader(Reader):
    """A reader of a query in a server. Connections may break: it continues where it was, as long as the server keeps
    those rows, which it does for a reader with a name."""

    def __init__(
        self, wire: Wire, path: str, since: int | None, buffer: int, when_full: WhenFull, name: str | None
    ) -> None:
        self._arriving = _Arriving(wire, path, since, name)

        def acknowledge(position: int) -> None:
            body = json.dumps({"position": position}).encode()
            wire.again(lambda: wire.request("POST", f"{path}/readers/{quote(name or '', safe='')}/ack", body))

        super().__init__(
            self._arriving.log, self._arriving.schema, None, buffer, when_full, None if name is None else acknowledge
        )
        self._arriving.start(self)

    @property
    def position(self) -> int:
        return self._arriving.place(self._cursor.position)

    @property
    def dropped(self) -> int:
        return self._arriving.dropped(self._cursor.position) + self._cursor.dropped

    def close(self) -> None:
        super().close()
        self._arriving.close()


def _shut(connection: http.client.HTTPConnection) -> None:
    """End a connection, also for a thread that reads from it."""
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()

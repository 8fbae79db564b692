"""Requests to a server: open connections, its errors raised here, and retries."""

from __future__ import annotations

import http.client
import json
import selectors
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from millstream.errors import BindError, ConnectorError, MillstreamError
from millstream.wire import error_of

T = TypeVar("T")
LOST = (OSError, http.client.HTTPException)
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0


class LostError(ConnectorError):
    """The server cannot be reached, or is just ending."""


class Wire:
    """The way to one server, for any number of threads. `retry` is for how many seconds it is tried again."""

    def __init__(self, address: str, token: str | None, timeout: float, retry: float) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BindError(f"{address} is not the address of a server", hint="http://127.0.0.1:8080")
        self.address = address
        self.retry = retry
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, str]:
        """The body of an answer and its type; an error of the server's is raised here."""
        connection = self._kept() or self.connect()
        answer = self.open(connection, method, path, body, headers)
        try:
            told = answer.read()
        except LOST as error:
            connection.close()
            raise self._lost(error) from None
        self._idle.append(connection)
        if answer.status >= 400:
            raise _failure(answer.status, told)
        return told, answer.headers.get_content_type()

    def open(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """An answer that is yet to be read."""
        try:
            connection.request(method, self._base + path, body, {**self._headers, **(headers or {})})
            return connection.getresponse()
        except LOST as error:
            connection.close()
            raise self._lost(error) from None

    def stream(
        self, path: str, accept: str, timeout: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """An answer that goes on for long, and its own connection; it says something at least every `timeout` s."""
        connection = self.connect(timeout)
        answer = self.open(connection, "GET", path, headers={"Accept": accept})
        if answer.status >= 400:
            told = answer.read()
            connection.close()
            raise _failure(answer.status, told)
        return connection, answer

    def again(self, attempt: Callable[[], T], stopped: Callable[[], bool] = lambda: False) -> T:
        """What an attempt gives, after some more while the server cannot be reached."""
        until = time.monotonic() + self.retry
        for wait in _waits():
            try:
                return attempt()
            except LostError:
                if stopped() or time.monotonic() + wait > until:
                    raise
                time.sleep(wait)
        raise AssertionError

    def connect(self, timeout: float | None = None) -> http.client.HTTPConnection:
        timeout = self._timeout if timeout is None else timeout
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> http.client.HTTPConnection | None:
        """A connection that waits to be used, if the server has not closed it meanwhile."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.sock is not None and not _has_news(connection.sock):
                return connection
            connection.close()
        return None

    def _lost(self, error: Exception) -> LostError:
        return LostError(
            f"cannot connect to {self.address}: {error}", hint="start a server: millstream serve DIR --port 8080"
        )


def _has_news(sock: Any) -> bool:
    """Whether something has come unasked: that is the end."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def _waits() -> Iterator[float]:
    wait = _FIRST_WAIT
    while True:
        yield wait
        wait = min(2 * wait, _LONGEST_WAIT)


def _failure(status: int, body: bytes) -> MillstreamError:
    try:
        told = error_of(json.loads(body))
    except (ValueError, AttributeError):
        told = MillstreamError(f"the server answers {status}: {body[:200].decode(errors='replace')}")
    return LostError(told.message, hint=told.hint) if status == 503 else told

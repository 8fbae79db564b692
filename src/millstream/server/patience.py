"""How long a connection may take to say what it wants. Uvicorn alone waits for ever for the head of a request, so a few
thousand connections that send it letter by letter would keep everybody else out."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """HTTP on one connection, which is closed if the head of a request takes too long."""

    seconds = 20.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begun: float | None = None
        """since when the head of a request is awaited; None if none is"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begun = self.loop.time()
        self.loop.call_later(self.seconds, self._look)

    def data_received(self, data: bytes) -> None:
        if self._begun is None and self.conn.their_state is h11.IDLE:
            self._begun = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._begun = None

    def _look(self) -> None:
        if self not in self.connections or self.transport.is_closing():
            return  # it has ended, or is a WebSocket now
        if self._begun is not None and self.loop.time() - self._begun >= self.seconds:
            self.transport.close()
        else:
            self.loop.call_later(self.seconds / 2, self._look)


def allow_many_connections() -> None:
    """As many open files as the system allows: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

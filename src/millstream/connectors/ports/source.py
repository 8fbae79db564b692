"""The port source: listens for any number of clients, or connects to a server, and delivers rows as they arrive."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator

from millstream.connectors.contract import Chunk, Offset
from millstream.connectors.convert.common import empty
from millstream.connectors.options import Options
from millstream.connectors.ports.lines import Client, LineCollector
from millstream.connectors.textoptions import TextOptions
from millstream.errors import ConnectorError
from millstream.schema import Schema

_ROWS_PER_CHUNK = 65_536
_RECEIVE_BYTES = 1 << 20
_GATHER_BYTES = 2 << 20
"""Under load so much is gathered from all clients before it is decoded."""
_GATHER_SECONDS = 0.005
_IDLE_SECONDS = 0.05
_RETRY_SECONDS = 0.5


class PortSource:
    """Reads lines from a port; what was read is gone, so it is not replayable.

    `bound_port` is the port once it listens.
    """

    replayable = False

    def __init__(
        self,
        schema: Schema,
        port: int,
        *,
        host: str = "127.0.0.1",
        form: str = "json",
        text: TextOptions | None = None,
        connect: bool = False,
        until_disconnect: bool = False,
    ) -> None:
        self.schema = schema
        self.host = host
        self.port = port
        self._form = form
        self._text = text or TextOptions()
        self.connect = connect
        self.until_disconnect = until_disconnect
        self.server: socket.socket | None = None
        self.bound_port: int | None = None

    @staticmethod
    def from_options(options: Options, schema: Schema) -> PortSource:
        port = options.integer("port", low=0, high=65_535)
        if port is None:
            raise ConnectorError(f"{options.owner} needs the option port", hint="for example port = 4445")
        host = options.text("host", "127.0.0.1") or "127.0.0.1"
        form = options.choice("format", ("json", "jsonl", "csv", "auto"), "json") or "json"
        mode = options.choice("mode", ("listen", "connect"), "listen")
        until = options.choice("until", ("stopped", "disconnect"), "stopped")
        text = TextOptions.from_options(options)
        options.finish()
        return PortSource(
            schema, port, host=host, form="json" if form == "jsonl" else form, text=text,
            connect=mode == "connect", until_disconnect=until == "disconnect",
        )  # fmt: skip

    @property
    def bounded(self) -> bool:
        return self.until_disconnect

    def size(self) -> int | None:
        return None

    def listen(self) -> int:
        """Open the port, if it is not open yet, and say which it is."""
        if self.server is None:
            server = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
            try:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind((self.host, self.port))
                server.listen(128)
            except OSError as error:
                server.close()
                raise ConnectorError(
                    f"cannot listen on {self.host}:{self.port}: {error.strerror or error}",
                    hint="if another process uses the port, choose another one, or port = 0 for any free one",
                ) from error
            server.setblocking(False)
            self.server = server
            self.bound_port = int(server.getsockname()[1])
        assert self.bound_port is not None
        return self.bound_port

    def close(self) -> None:
        """Give the port back; a reader at work does so by itself when it stops."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        reader = _Reader(self, LineCollector(self.schema, self._form, self._text))
        try:
            yield from reader.serve(int(offset.get("rows", 0)), stop, limit or _ROWS_PER_CHUNK)
        finally:
            reader.close()
            self.close()


class _Reader:
    """One reading of a port: the open connections, and who came and went."""

    def __init__(self, source: PortSource, lines: LineCollector) -> None:
        self._source = source
        self._lines = lines
        self._selector = selectors.DefaultSelector()
        self._clients: set[Client] = set()
        self._met_any = False

    def close(self) -> None:
        for client in self._clients:
            client.connection.close()
        self._selector.close()

    def serve(self, count: int, stop: Callable[[], bool], limit: int) -> Iterator[Chunk]:
        if self._source.connect:
            self._dial()
        else:
            self._source.listen()
            self._selector.register(self._server, selectors.EVENT_READ)
        while not stop():
            if self._is_over():
                return
            if self._source.connect and not self._clients:
                self._redial()
            self._gather()
            idle = True
            for block in self._lines.blocks():
                for chunk in block.decode(limit, count):
                    count, idle = int(chunk.offset["rows"]), False
                    yield chunk
            rejected = self._lines.rejected()
            if rejected or idle:
                yield Chunk(empty(self._source.schema), {"rows": count}, rejected)

    @property
    def _server(self) -> socket.socket:
        assert self._source.server is not None
        return self._source.server

    def _is_over(self) -> bool:
        if not self._source.until_disconnect or not self._met_any or self._clients:
            return False
        return self._source.connect or not self._selector.select(0)

    def _gather(self) -> None:
        """Receive what is there, and for a moment longer while it keeps coming."""
        received = 0
        ready = self._selector.select(_IDLE_SECONDS)
        until = time.monotonic() + _GATHER_SECONDS
        while ready:
            for key, _ in ready:
                if key.data is None:
                    self._accept()
                else:
                    received += self._receive(key.data)
            if received >= _GATHER_BYTES or time.monotonic() >= until or self._is_over():
                return
            ready = self._selector.select(0)

    def _receive(self, client: Client) -> int:
        try:
            data = client.connection.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            # A connection that was reset has ended as much as one that was closed.
            data = b""
        if data:
            self._lines.take(client, data)
        else:
            self._lines.leave(client)
            self._selector.unregister(client.connection)
            client.connection.close()
            self._clients.discard(client)
        return len(data)

    def _accept(self) -> None:
        try:
            connection, address = self._server.accept()
        except OSError:
            return
        self._join(connection, f"{address[0]}:{address[1]}")

    def _dial(self) -> None:
        host, port = self._source.host, self._source.port
        try:
            connection = socket.create_connection((host, port), timeout=5)
        except OSError as error:
            raise ConnectorError(
                f"cannot connect to {host}:{port}: {error.strerror or error}",
                hint="start the server first, or leave out mode to listen on the port instead",
            ) from error
        self._join(connection, f"{host}:{port}")

    def _redial(self) -> None:
        try:
            self._dial()
        except ConnectorError:
            time.sleep(_RETRY_SECONDS)

    def _join(self, connection: socket.socket, name: str) -> None:
        connection.setblocking(False)
        client = Client(connection, name)
        self._selector.register(connection, selectors.EVENT_READ, client)
        self._clients.add(client)
        self._met_any = True

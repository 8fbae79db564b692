"""A real HTTP server that takes rows, and fails when it is told to."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What it got, row by row; each row once for each query, by the position that parts have."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"http://{address}/rows?to=1"
        self.requests: list[tuple[str, dict[str, str], list[Any]]] = []
        self.rows: list[Any] = []
        self.positions: dict[str, int] = {}
        self.fail: Callable[[int], int | None] = lambda _: None
        """the status to answer the request of a number with, which is then lost; a negative one is taken first"""
        self.asked = 0

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.asked += 1
        status = self.fail(self.asked) or 200
        if status == 200 or status < 0:
            lines = [json.loads(line) for line in body.decode().splitlines()]
            self.requests.append((path, headers, lines))
            query, first = headers["millstream-query"], int(headers["millstream-position"])
            have = self.positions.get(query, 0)
            assert first <= have, "rows are missing"
            self.rows += lines[have - first :]
            self.positions[query] = max(have, first + len(lines))
        return abs(status)


@contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = got.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            answer = b"no room\nhere"
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    got = Receiver(f"127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield got
    server.shutdown()
    server.server_close()

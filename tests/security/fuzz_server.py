"""Random messages to a server, over PostgreSQL's protocol and over HTTP: no crash, no hang, no answer of 500 or more.

python -m tests.security.fuzz_server --messages 100000 --requests 10000
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import socket
import struct
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from tests.security.fuzz_statements import NUMBERS, TEXTS, mutated
from tests.server.conftest import TOKEN, ServerProcess

PATIENCE = 60.0
"""seconds without a word after which a server hangs; machines may be busy"""

DECLARED = """
    CREATE STREAM s (v INT, name VARCHAR, at TIMESTAMP) ORDER BY at KEEP 100 ROWS;
    CREATE TABLE t (a INT, b VARCHAR);
    INSERT INTO t VALUES (1, 'x'), (2, NULL);
    CREATE VIEW busy AS SELECT name, count(*) AS n FROM s [RANGE 1 MINUTE] GROUP BY name
"""

STATEMENTS = [
    "SELECT a, b FROM t WHERE a > $1 ORDER BY a", "SELECT * FROM busy", "SELECT v, name FROM HISTORY(s)", "SELECT 1",
    "INSERT INTO s VALUES (1, 'x', TIMESTAMP '2026-01-01 00:00:00')", "INSERT INTO t VALUES (3, 'z')", "BEGIN",
    "COPY t TO STDOUT", "COPY (SELECT a FROM t) TO STDOUT WITH (FORMAT binary)", "COPY s FROM STDIN WITH (FORMAT csv)",
    "COPY s (v, name, at) FROM STDIN BINARY", "COPY s FROM STDIN", "SHOW timezone",
    "DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT a FROM t",
    "FETCH 1 FROM c WITH (timeout = '10ms')", "FETCH ALL FROM c", "MOVE 1 IN c", "CLOSE c", "CLOSE ALL", "COMMIT",
    "SUBSCRIBE TO busy", "SUBSCRIBE TO (SELECT v FROM s)", "DECLARE d CURSOR FOR SUBSCRIBE TO (SELECT v FROM s)",
    "FETCH 5 FROM d WITH (timeout = '1ms')", "SET search_path TO public", "SHOW ALL", "RESET ALL",
    "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid = 's'::regclass", "SELECT version(), current_schema()",
    "SELECT typname::regtype FROM pg_type WHERE typname LIKE 'int%'", "ROLLBACK", "EXPLAIN SELECT v FROM s", "", ";;",
    "/*a*/ -- b\n SELECT /*c*/ 2", "SELECT n.nspname FROM information_schema.tables, pg_namespace n LIMIT 1",
]  # fmt: skip

_LONG = (" ", "/**/", "(", "a.", ",", "'", '"', "CURSOR ", "\0", "-- \n", "/*", "has_", "pg_catalog.")


class WireFuzzer:
    """Draws messages, and sends them on connections that it opens."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self._server = server
        self._draw = random.Random(seed)
        self.seen = Counter[str]()

    def run(self, messages: int) -> None:
        sent = 0
        while sent < messages:
            count = min(self._draw.choice((1, 5, 40, 200)), messages - sent)
            self._connection([self._message() for _ in range(count)])
            sent += count

    def _connection(self, drawn: list[bytes]) -> None:
        """All messages on one connection. After the last one the client says no more, so the server must end it."""
        data = b"".join(drawn)
        with socket.create_connection(("127.0.0.1", self._server.postgres), timeout=PATIENCE) as raw:
            try:
                raw.sendall(_start(b"user\0admin\0database\0millstream\0\0"))
                if self._draw.random() < 0.1:
                    raw.sendall(self._draw.randbytes(self._draw.randrange(1, 60)))
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                answered = b""
                while got := raw.recv(1 << 16):
                    answered = got
                self.seen["answered" if answered else "ended"] += 1
            except TimeoutError:
                raise AssertionError(f"the server hangs after {data[:2000]!r}") from None
            except OSError:
                self.seen["closed"] += 1

    def _message(self) -> bytes:
        draw = self._draw
        match draw.randrange(12):
            case 0 | 1 | 2 | 3:
                made = _message(b"Q", self._text() + b"\0")
            case 4 | 5:
                types = [draw.choice((0, 16, 20, 21, 23, 25, 700, 701, 1114, 1700, 2950, -1, 99999)) for _ in range(2)]
                name = draw.choice((b"", b"p"))
                made = _message(b"P", name + b"\0" + self._text() + b"\0" + struct.pack("!h2i", 2, *types))
            case 6 | 7:
                made = _message(b"B", b"\0" + draw.choice((b"", b"p")) + b"\0" + self._values())
            case 8:
                made = _message(b"D", draw.choice((b"S", b"P", b"x")) + draw.choice((b"", b"p", b"c")) + b"\0")
            case 9:
                made = _message(b"E", b"\0" + struct.pack("!i", draw.choice((0, 1, -1, 2**31 - 1))))
            case 10:
                made = _message(draw.choice((b"S", b"H", b"c", b"f", b"d")), draw.choice((b"", b"1\tx\n", b"1,x\n\0")))
            case _:
                made = _message(draw.randbytes(1), draw.randbytes(draw.randrange(40)))
        if draw.random() < 0.03:
            at = draw.randrange(len(made))
            made = made[:at] + draw.randbytes(draw.randrange(4)) + made[at + draw.randrange(4) :]
        return made

    def _text(self) -> bytes:
        draw = self._draw
        text = draw.choice(STATEMENTS)
        if draw.random() < 0.3:
            text = mutated(text or " ", draw.choice(STATEMENTS) or " ", draw)
        if draw.random() < 0.02:
            at = draw.randrange(len(text) + 1)
            text = text[:at] + draw.choice(_LONG) * draw.choice((30, 3_000)) + text[at:]
        return text.encode("utf-8", "surrogatepass").replace(b"\0", b"" if draw.random() < 0.9 else b"\0")

    def _values(self) -> bytes:
        draw = self._draw
        values = [
            draw.choice((b"1", b"", b"x", b"\0\0\0\1", draw.randbytes(8), None)) for _ in range(draw.randrange(4))
        ]
        told = b"".join(
            struct.pack("!i", -1) if each is None else struct.pack("!i", len(each)) + each for each in values
        )
        forms = [draw.choice((0, 1, 1, 7)) for _ in range(draw.choice((0, 1, len(values))))]
        packed = struct.pack(f"!h{len(forms)}h", len(forms), *forms)
        return packed + struct.pack("!h", len(values)) + told + struct.pack("!hh", 1, draw.choice((0, 1)))


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _start(body: bytes) -> bytes:
    return struct.pack("!ii", len(body) + 8, 3 << 16) + body


_NAMES = ["q", "s", "t", "busy", "nothing", "", "..", "a/b", "%00", "é", "'; DROP", "x" * 5000, "named reader"]
_KINDS = ["application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream", "", "x/y", "é"]
_BODIES = [
    b"", b"{}", b"[]", b"null", b"1", b'"x"', b"[[1,2,3]]", b'[{"v": 1}]', b'{"v": 1, "at": "2026-01-01 00:00:00"}',
    b"[" * 100_000, b"\xff\xfe", b"v,name,at\n1,x,2026-01-01 00:00:00\n", b"ARROW1\0\0", b"\0" * 64, b"1e999",
    b'{"v": 1e400}',
    b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\0" * 40, b'{"sql": null}', b"NaN",
]  # fmt: skip
_SCALARS: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    1e300,
    "",
    "x",
    "\0",
    [],
    [None],
    {},
    {"a": [1]},
    "2026-01-01",
    "9" * 5000,
]
_SKIPPED = ("POST /v1/finish",)
"""it ends all input, and little would be left to do"""


class HttpFuzzer:
    """Draws requests of the operations that the server describes."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self._server = server
        self._draw = random.Random(seed)
        self.statuses = Counter[int]()
        told = json.loads(_asked(server, "GET", "/openapi.json", None, {})[1])
        self._operations = [
            (method.upper(), path, operation)
            for path, item in told["paths"].items()
            for method, operation in item.items()
            if f"{method.upper()} {path}" not in _SKIPPED
        ]

    def run(self, requests: int) -> None:
        for _ in range(requests):
            method, path, operation = self._draw.choice(self._operations)
            asked = self._path(path, operation), *self._body(operation)
            status, told = _asked(self._server, method, *asked, streaming=path.endswith("/rows"))
            assert status < 500, f"{method} {asked}: {status} {told!r}"
            self.statuses[status] += 1

    def _path(self, path: str, operation: dict[str, Any]) -> str:
        draw = self._draw
        path = re.sub(r"{\w+}", lambda _: quote(draw.choice(_NAMES), safe=draw.choice(("", "/%"))), path)
        named = [each["name"] for each in operation["parameters"] if each["in"] == "query" and draw.random() < 0.5]
        values = {name: draw.choice((*NUMBERS, "", "x", "\0", "svg", "2026-01-01", "é")) for name in named}
        return f"{path}?{urlencode(values)}"

    def _body(self, operation: dict[str, Any]) -> tuple[bytes | None, dict[str, str]]:
        draw = self._draw
        content = operation.get("requestBody", {}).get("content", {})
        headers = {"Accept": draw.choice((*_KINDS[:-1], "text/event-stream"))}
        if draw.random() < 0.2:
            headers["Idempotency-Key"] = draw.choice(("p/1", "p", "/", "p/-1", "p/" + "9" * 50, "p/" + "x" * 500))
        if draw.random() < 0.2:
            headers["Last-Event-ID"] = draw.choice(("0", "-1", "x", "9" * 40))
        if not content:
            return None, headers
        headers["Content-Type"] = kind = draw.choice(list(content) if draw.random() < 0.8 else _KINDS[:-1])
        schema = content.get(kind, {}).get("schema", {})
        if "properties" not in schema or draw.random() < 0.2:
            return draw.choice(_BODIES), headers
        chosen = [name for name in schema["properties"] if draw.random() < 0.7]
        values = {name: self._statement() if name == "sql" else draw.choice(_SCALARS) for name in chosen}
        return json.dumps(values).encode(), headers

    def _statement(self) -> Any:
        if self._draw.random() < 0.1:
            return self._draw.choice(_SCALARS)
        text = self._draw.choice(STATEMENTS)
        other = self._draw.choice((*STATEMENTS, *TEXTS)) or " "
        return mutated(text or " ", other, self._draw) if self._draw.random() < 0.5 else text


def _asked(
    server: ServerProcess, method: str, path: str, body: bytes | None, headers: dict[str, str], streaming: bool = False
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **headers})
        answer = connection.getresponse()
        return answer.status, b"" if streaming and answer.status == 200 else answer.read()
    except TimeoutError:
        raise AssertionError(f"the server hangs after {method} {path} {body!r}") from None
    finally:
        connection.close()


def fuzz(directory: Path, messages: int, requests: int, seed: int = 7) -> dict[str, Counter[Any]]:
    """Send so many of each; an error if the server is not well afterwards."""
    server = ServerProcess(directory / "kept", accounts=False)
    try:
        db = server.client()
        db.execute(DECLARED)
        db.sql("SELECT v FROM s", name="q")
        over_http = HttpFuzzer(server, seed)
        over_http.run(requests)
        over_wire = WireFuzzer(server, seed)
        over_wire.run(messages)
        with psycopg.connect(server.conninfo(), autocommit=True) as connected:
            assert connected.execute("SELECT 1").fetchone() == (1,)
        _nothing_is_left(server)
        return {"connections": over_wire.seen, "requests": over_http.statuses}
    finally:
        server.kill()


def _nothing_is_left(server: ServerProcess) -> None:
    """Queries that were started for clients which have left end with them."""
    until = time.monotonic() + 30
    while left := [query.name for query in server.client().queries() if re.fullmatch(r"pg\d+_\d+", query.name)]:
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        told = fuzz(Path(directory), given.messages, given.requests, given.seed)
    for name, counts in told.items():
        print(f"{name}: {', '.join(f'{count:,} {what}' for what, count in counts.most_common())}")
    print(f"{given.messages:,} messages and {given.requests:,} requests in {time.monotonic() - begun:.0f} s: 0 wrong")


if __name__ == "__main__":
    main()

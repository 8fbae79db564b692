"""The calls of a session, answered by a server."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from millstream.connectors import rows as conversion
from millstream.errors import BindError, ConnectorError, MillstreamError
from millstream.hosts.contract import Counts
from millstream.session.query import Result
from millstream.wire import ARROW, error_of, from_arrow_bytes, plain, to_arrow_bytes

TIMEOUT = 300.0


class RemoteDatabase:
    """A session in a server, made by `millstream.connect("http://…", token=…)`."""

    def __init__(self, address: str, token: str | None = None, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BindError(f"{address} is no address of a server", hint="http://127.0.0.1:8080")
        self.address = address
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None
        self.request("GET", "/v1/queries")

    # -- statements ------------------------------------------------------------------------------------------------

    def execute(self, text: str, params: Any = None) -> RemoteQuery | Result | None:
        """Run statements separated by `;` and return what the last one gives, if it gives anything."""
        return self._made(self._post("/v1/execute", {"sql": text, "params": plain(params)}))

    def sql(
        self, text: str, name: str | None = None, replace: bool = False, params: Any = None
    ) -> RemoteQuery | Result:
        """Start a standing query, or answer an ad-hoc one."""
        asked = {"sql": text, "name": name, "replace": replace, "params": plain(params)}
        made = self._made(self._post("/v1/sql", asked))
        assert made is not None
        return made

    def query(self, name: str) -> RemoteQuery:
        """The running query of that name."""
        return RemoteQuery(self, self.json("GET", f"/v1/queries/{quote(name, safe='')}"))

    def queries(self) -> list[RemoteQuery]:
        """The running queries, oldest first."""
        return [RemoteQuery(self, each) for each in self.json("GET", "/v1/queries")]

    def stop(self, name: str) -> None:
        """Stop a query."""
        self.request("DELETE", f"/v1/queries/{quote(name, safe='')}")

    # -- rows ------------------------------------------------------------------------------------------------------

    def push(self, stream: str, rows: Any) -> Counts:
        """Rows of a stream: a list of tuples or dicts, Arrow, pandas or polars; how many were accepted."""
        path = f"/v1/streams/{quote(stream, safe='')}/rows"
        table = conversion.as_table(rows)
        if table is not None:
            body, kind = to_arrow_bytes(table), ARROW
        else:
            body, kind = _encoded([plain(row) for row in rows]), "application/json"
        told = json.loads(self.request("POST", path, body, kind)[0])
        return Counts(told["accepted"], told["late"], told["rejected"])

    def advance(self, stream: str, time: Any) -> None:
        """Heartbeat: no later row of `stream` is before `time`."""
        self._post(f"/v1/streams/{quote(stream, safe='')}/advance", {"time": plain(time)})

    def finish(self) -> None:
        """End of all inputs."""
        self._post("/v1/finish", {})

    def close(self) -> None:
        """Leave the server; what runs there goes on."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<session at {self.address}>"

    # -- the wire --------------------------------------------------------------------------------------------------

    def json(self, method: str, path: str) -> Any:
        return json.loads(self.request(method, path)[0])

    def request(self, method: str, path: str, body: bytes | None = None, kind: str | None = None) -> tuple[bytes, str]:
        """The body of an answer and its type; an error of the server's is raised here."""
        answer = self.open(method, path, body, kind)
        told = answer.read()
        return told, answer.headers.get_content_type()

    def open(
        self, method: str, path: str, body: bytes | None = None, kind: str | None = None, *, own: bool = False
    ) -> http.client.HTTPResponse:
        """An answer that is yet to be read; on a connection of its `own`, it may be read for long."""
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        if kind is not None:
            headers["Content-Type"] = kind
        try:
            answer = self._sent(method, path, body, headers, own)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectorError(
                f"cannot connect to {self.address}: {error}", hint="start a server: millstream serve DIR --port 8080"
            ) from None
        if answer.status >= 400:
            raise _failure(answer.status, answer.read())
        return answer

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], own: bool
    ) -> http.client.HTTPResponse:
        fresh = self._connection is None or own
        connection = self._connect() if fresh else self._connection
        assert connection is not None
        if not own:
            self._connection = connection
        try:
            connection.request(method, self._base + path, body, headers)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connection.close()
            # a kept connection that the server has closed meanwhile is no failure, but a push may have arrived
            if fresh or method != "GET":
                raise
            self._connection = None
            return self._sent(method, path, body, headers, own)

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _post(self, path: str, asked: Mapping[str, Any]) -> tuple[bytes, str]:
        return self.request("POST", path, _encoded(asked), "application/json")

    def _made(self, answer: tuple[bytes, str]) -> RemoteQuery | Result | None:
        body, kind = answer
        if kind == ARROW:
            return Result(from_arrow_bytes(body))
        told = json.loads(body)
        return RemoteQuery(self, told) if told else None


class RemoteQuery:
    """A continuous query in a server."""

    def __init__(self, database: RemoteDatabase, told: Mapping[str, Any]) -> None:
        self._database = database
        self.name: str = told["name"]
        self.sql: str = told["sql"]
        self._path = f"/v1/queries/{quote(self.name, safe='')}"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return from_arrow_bytes(self._database.request("GET", f"{self._path}/schema")[0]).schema

    def fetch(self) -> pa.Table:
        """What the query produced since the last fetch by any client."""
        return from_arrow_bytes(self._database.request("POST", f"{self._path}/fetch")[0])

    def snapshot(self, at: Any = None) -> pa.Table:
        """The content of a relation now, or at an instant still held."""
        asked = "" if at is None else "?" + urlencode({"at": plain(at)})
        return from_arrow_bytes(self._database.request("GET", f"{self._path}/snapshot{asked}")[0])

    def subscribe(self) -> Iterator[dict[str, Any]]:
        """Rows as they come, as dicts; values without a JSON form are text."""
        with self._database.open("GET", f"{self._path}/rows", own=True) as answer:
            for line in answer:
                if line.strip():
                    yield json.loads(line)

    def explain(self, mode: str = "") -> str:
        """How the query runs."""
        return str(self._database.json("GET", f"{self._path}/explain?{urlencode({'mode': mode})}")["plan"])

    def stop(self) -> None:
        """End the query."""
        self._database.stop(self.name)

    def __repr__(self) -> str:
        return f"<query {self.name} at {self._database.address}>"


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except TypeError as error:
        raise BindError(f"a value cannot be sent: {error}", hint="push Arrow for such types") from None


def _failure(status: int, body: bytes) -> MillstreamError:
    try:
        told = json.loads(body)
    except ValueError:
        return MillstreamError(f"the server answers {status}: {body[:200].decode(errors='replace')}")
    return error_of(told)

"""The calls of a session, answered by a server."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from millstream.connectors import rows as conversion
from millstream.errors import BindError
from millstream.hosts.contract import Counts
from millstream.hosts.results import WhenFull
from millstream.remote.reading import RemoteReader
from millstream.remote.wire import Wire
from millstream.session.query import Result
from millstream.session.subscriptions import Reader
from millstream.session.times import Completeness
from millstream.wire import ARROW, from_arrow_bytes, plain, to_arrow_bytes

TIMEOUT = 300.0
RETRY = 60.0


class RemoteDatabase:
    """A session in a server, made by `millstream.connect("http://…", token=…)`, for any number of threads.

    If the connection is lost, subscriptions and pushes with `once` are retried for `retry` seconds.
    """

    def __init__(self, address: str, token: str | None = None, timeout: float = TIMEOUT, retry: float = RETRY) -> None:
        self.address = address
        self._wire = Wire(address, token, timeout, retry)
        self.request("GET", "/v1/queries")

    # -- statements ------------------------------------------------------------------------------------------------

    def execute(self, text: str, params: Any = None) -> RemoteQuery | Result | None:
        """Run statements separated by `;`, and return the result of the last one, if it has any."""
        return self._made(self._post("/v1/execute", {"sql": text, "params": plain(params)}))

    def sql(
        self, text: str, name: str | None = None, replace: bool = False, params: Any = None, history: Any = None
    ) -> RemoteQuery | Result:
        """Start a continuous query, or answer an ad-hoc one."""
        asked = {"sql": text, "name": name, "replace": replace, "params": plain(params), "history": plain(history)}
        made = self._made(self._post("/v1/sql", asked))
        assert made is not None
        return made

    def explain(self, text: str, mode: str = "", params: Any = None, format: str = "text") -> str:
        """How a query would run."""
        asked = {"sql": text, "mode": mode, "params": plain(params), "format": format}
        return str(json.loads(self._post("/v1/explain", asked)[0])["plan"])

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

    def push(self, stream: str, rows: Any, once: tuple[str, int] | None = None) -> Counts:
        """Push rows into a stream: a list of tuples or dicts, Arrow, pandas or polars. Returns how many were accepted.

        `once` is the name of a producer and a number that grows: then the push is retried if the connection is lost,
        and takes effect once.
        """
        path = f"/v1/streams/{quote(stream, safe='')}/rows"
        table = conversion.as_table(rows)
        if table is not None:
            body, kind = to_arrow_bytes(table), ARROW
        else:
            body, kind = _encoded([plain(row) for row in rows]), "application/json"
        if once is None:
            told = json.loads(self.request("POST", path, body, kind)[0])
        else:
            headers = {"Content-Type": kind, "Idempotency-Key": f"{quote(once[0])}/{once[1]}"}
            told = json.loads(self._wire.again(lambda: self._wire.request("POST", path, body, headers))[0])
        return Counts(told["accepted"], told["late"], told["rejected"])

    def advance(self, stream: str, time: Any) -> None:
        """Heartbeat: no later row of `stream` is before `time`."""
        self._post(f"/v1/streams/{quote(stream, safe='')}/advance", {"time": plain(time)})

    def finish(self) -> None:
        """End of all inputs."""
        self._post("/v1/finish", {})

    def checkpoint(self) -> None:
        """Take a checkpoint now."""
        self._post("/v1/checkpoint", {})

    def backup(self, target: str) -> None:
        """Copy the session as it is now to a location that the operator has named: 'backups/monday'."""
        self._post("/v1/backup", {"to": target})

    def close(self) -> None:
        """Leave the server; its queries keep running."""
        self._wire.close()

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
        return self._wire.request(method, path, body, None if kind is None else {"Content-Type": kind})

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

    def snapshot(self, at: Any = None, window: str | None = None) -> pa.Table:
        """The content of a relation now or at another instant, also with another window, as in-process."""
        given = {"at": None if at is None else plain(at), "window": window}
        asked = urlencode({name: value for name, value in given.items() if value is not None})
        return from_arrow_bytes(self._database.request("GET", f"{self._path}/snapshot?{asked}".rstrip("?"))[0])

    def subscribe(
        self,
        callback: Callable[[pa.RecordBatch], Any] | None = None,
        *,
        since: int | None = None,
        buffer: int = 10_000,
        when_full: WhenFull = "block",
        name: str | None = None,
    ) -> Reader:
        """A reader of the rows to come, in batches, as in-process; it continues after a lost connection.

        Up to `buffer` rows wait here. When there are more, they wait in the server, which never waits for a reader and
        drops the oldest of 100,000 ("block"), the oldest are dropped here ("drop"), or the reader fails ("end").
        """
        reader = RemoteReader(self._database._wire, self._path, since, buffer, when_full, name)
        if callback is not None:
            reader.call(callback)
        return reader

    def unsubscribe(self, name: str) -> None:
        """Keep no more rows for readers of that name."""
        self._database.request("DELETE", f"{self._path}/readers/{quote(name, safe='')}")

    def pause(self) -> None:
        """Let it rest: no rows reach it, and its state stays as it is."""
        self._database.request("POST", f"{self._path}/pause")

    def resume(self) -> None:
        """Let it go on after a pause."""
        self._database.request("POST", f"{self._path}/resume")

    def cancel(self) -> None:
        """Give the query up: what reads it gets a CancelledError."""
        self._database.request("POST", f"{self._path}/cancel")

    @property
    def state(self) -> str:
        """running, paused, failed or ended."""
        return str(self._told()["state"])

    def metrics(self) -> dict[str, int]:
        """Counters so far: rows `emitted`, and rows that its streams `accepted`, or found `late` or `rejected`."""
        return dict(self._told()["metrics"])

    @property
    def counts(self) -> Counts:
        """How many rows its streams have accepted, and how many were late or rejected."""
        told = self._told()["metrics"]
        return Counts(told["accepted"], told["late"], told["rejected"])

    @property
    def coverage(self) -> Completeness:
        """From when on its answers are complete."""
        since, complete_from, is_complete = self._told()["coverage"]
        return Completeness(_moment(since), _moment(complete_from), is_complete)

    def _told(self) -> Any:
        return self._database.json("GET", self._path)

    def explain(self, mode: str = "", format: str = "text") -> str:
        """How the query runs."""
        asked = urlencode({"mode": mode, "format": format})
        return str(self._database.json("GET", f"{self._path}/explain?{asked}")["plan"])

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


def _moment(told: Any) -> Any:
    return dt.datetime.fromisoformat(told) if isinstance(told, str) else told

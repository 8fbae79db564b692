"""The HTTP interface of a session.

The engine's calls run in threads, so a long one does not keep others waiting. Errors of statements are status 400 with
what, why, a hint and the place in the SQL as JSON; what does not exist is 404, what an account may not do 403.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from millstream import spans
from millstream.connectors.text.pushed import TextRows
from millstream.errors import CancelledError, CatalogError, DataError, LimitError, MillstreamError, ours
from millstream.server import live
from millstream.server.access import Caller, Clients, ForbiddenError, QuotaError, TooFastError, names_of
from millstream.server.accounts import Account, Accounts, Role
from millstream.server.metrics import prometheus
from millstream.server.openapi import description
from millstream.server.watching import Watching, roles
from millstream.session.database import Database
from millstream.session.query import Query, Result
from millstream.wire import ARROW, CSV, JSON_LINES, error_form, from_arrow_bytes, plain, to_arrow_bytes

MOST_BODY = 256 << 20
"""bytes of a request; who has more to push pushes several times"""

BODY_SECONDS = 120.0
"""a request that has not come by then is given up"""

CONSOLE = Path(__file__).parent / "console"
_PAGE_MAY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
"""the console's page runs its own scripts, and talks to its own server"""

_WRONG_SECONDS = 0.5
"""how long a wrong token is waited with, so that guessing takes long"""

Handler = Callable[[Request, Caller], Awaitable[Response]]


class UnknownClientError(MillstreamError):
    """No token, or one that nobody has."""


class Service:
    """The routes of one session. Without `accounts`, everybody is let in, as admin."""

    def __init__(self, database: Database, accounts: Accounts | None, clients: Clients | None = None) -> None:
        self._database = database
        self._accounts = accounts
        self._clients = clients or Clients()
        self._begun = time.monotonic()
        self._pushed = 0
        self._ready = True
        self._subscriptions = live.Subscriptions()

    def drain(self) -> None:
        """Say that the server is not ready any more, and end subscriptions; other calls are still answered."""
        self._ready = False
        self._subscriptions.drain()

    def app(self, *beside: Callable[[], Any]) -> Starlette:
        """The application that an ASGI server runs, and what runs beside it; when that ends, the session is closed."""
        watching = Watching(self._database, self._find, _json)
        routes: list[BaseRoute] = [
            Route("/health", self._health),
            Route("/ready", self._readiness),
            Route("/openapi.json", self._openapi),
            Route("/", self._console),
            Mount("/console", StaticFiles(directory=CONSOLE)),
            self._route("/v1/overview", watching.overview, "GET"),
            self._route("/v1/operators", watching.operators, "GET"),
            self._route("/v1/copies/{id}/step", watching.step, "POST"),
            self._route("/v1/copies/{id}", watching.close_copy, "DELETE"),
            self._route("/v1/streams/{name}", watching.stream, "GET"),
            self._route("/v1/streams/{name}/peek", watching.peek_stream, "GET"),
            self._route("/v1/queries/{name}/operators", watching.operators, "GET"),
            self._route("/v1/queries/{name}/operators/{id}/peek", watching.peek, "GET"),
            self._route("/v1/queries/{name}/copies", watching.copy, "POST"),
            self._route("/metrics", self._metrics, "GET"),
            self._route("/v1/execute", self._execute, "POST"),
            self._route("/v1/sql", self._sql, "POST"),
            self._route("/v1/explain", self._explain_text, "POST"),
            self._route("/v1/finish", self._finish, "POST", "admin"),
            self._route("/v1/checkpoint", self._checkpoint, "POST", "admin"),
            self._route("/v1/backup", self._backup, "POST", "admin"),
            self._route("/v1/catalog", self._catalog, "GET"),
            self._route("/v1/queries", self._queries, "GET"),
            self._route("/v1/queries/{name}", self._query, "GET"),
            self._route("/v1/queries/{name}", self._stop, "DELETE", "writer"),
            self._route("/v1/queries/{name}/schema", self._schema, "GET"),
            self._route("/v1/queries/{name}/fetch", self._fetch, "POST"),
            self._route("/v1/queries/{name}/snapshot", self._snapshot, "GET"),
            self._route("/v1/queries/{name}/explain", self._explain, "GET"),
            self._route("/v1/queries/{name}/plan", self._plan, "GET"),
            *(
                self._route(f"/v1/queries/{{name}}/{change}", partial(self._change, change), "POST", "writer")
                for change in ("pause", "resume", "cancel")
            ),
            self._route("/v1/queries/{name}/rows", self._subscribe, "GET"),
            self._route("/v1/queries/{name}/readers/{reader:path}/ack", self._ack, "POST"),
            self._route("/v1/queries/{name}/readers/{reader:path}", self._forget, "DELETE"),
            self._route("/v1/streams/{name}/rows", self._push, "POST", "writer"),
            self._route("/v1/streams/{name}/advance", self._advance, "POST", "writer"),
            WebSocketRoute("/v1/queries/{name}/socket", self._socket),
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with AsyncExitStack() as running:
                running.push_async_callback(run_in_threadpool, self._database.close)
                for each in beside:
                    await running.enter_async_context(each())
                running.callback(self.drain)
                yield

        return Starlette(routes=routes, lifespan=lifespan)

    def _route(self, path: str, handler: Handler, method: str, role: Role = "reader") -> Route:
        async def guarded(request: Request) -> Response:
            try:
                client = await self._client(request)
                client.require(role)
                with spans.caused_by(request.headers):
                    return await handler(request, client)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                told = ours(error)
                headers = {"Retry-After": f"{error.seconds:.2f}"} if isinstance(error, TooFastError) else None
                return JSONResponse(error_form(told), _status(told), headers)

        return Route(path, guarded, methods=[method], name=f"{method} {path.replace(':path', '')}")

    async def _client(self, connection: HTTPConnection) -> Caller:
        """Who sends a request. Browsers cannot give WebSockets a header, so there the token may be a parameter."""
        address = connection.client.host if connection.client else "local"
        if self._accounts is None:
            return Caller(Account("admin", "admin"), address, self._clients)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else ""
        if connection.scope["type"] == "websocket":
            token = token or connection.query_params.get("token", "")
        account = self._accounts.with_token(token) if token else None
        if account is None:
            if token:
                Caller(Account("?", "reader"), address, self._clients).note("wrong token")
                await asyncio.sleep(_WRONG_SECONDS)
            raise UnknownClientError("a valid token is needed", hint="Authorization: Bearer <token>")
        return Caller(account, address, self._clients)

    # -- the server itself -----------------------------------------------------------------------------------------

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readiness(self, _: Request) -> Response:
        return JSONResponse({"status": "ready" if self._ready else "ending"}, 200 if self._ready else 503)

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(description(request.app.routes))

    async def _console(self, _: Request) -> Response:
        return FileResponse(CONSOLE / "index.html", headers={"Content-Security-Policy": _PAGE_MAY})

    async def _metrics(self, _: Request, client: Caller) -> Response:
        text = await run_in_threadpool(prometheus, self._database, time.monotonic() - self._begun, self._pushed)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _checkpoint(self, _: Request, client: Caller) -> Response:
        await run_in_threadpool(self._database.checkpoint)
        return JSONResponse({})

    async def _backup(self, request: Request, client: Caller) -> Response:
        target = _text(await _json(request), "to")

        def work() -> None:
            with client.at_work(self._database, f"BACKUP TO {target}"):
                self._database.backup(target)

        await run_in_threadpool(work)
        return JSONResponse({})

    # -- statements ------------------------------------------------------------------------------------------------

    async def _execute(self, request: Request, client: Caller) -> Response:
        asked = await _json(request)
        text = _text(asked, "sql")

        def work() -> Query | Result | None:
            with client.at_work(self._database, text):
                return self._database.execute(text, asked.get("params"))

        return _answer(await run_in_threadpool(work), request)

    async def _sql(self, request: Request, client: Caller) -> Response:
        asked = await _json(request)
        name, replace, text = asked.get("name"), bool(asked.get("replace")), _text(asked, "sql")

        def work() -> Query | Result:
            with client.at_work(self._database, text):
                for query in self._database.queries() if replace and name else ():
                    if query.name.lower() == str(name).lower():
                        client.require("writer", *names_of(query, self._database))
                return self._database.sql(text, name, replace, asked.get("params"), asked.get("history"))

        return _answer(await run_in_threadpool(work), request)

    async def _explain_text(self, request: Request, client: Caller) -> Response:
        asked = await _json(request)
        text = _text(asked, "sql")

        def work() -> str:
            with client.at_work(self._database, text):
                mode, form = str(asked.get("mode", "")), str(asked.get("format", "text"))
                return self._database.explain(text, mode, asked.get("params"), form)

        return JSONResponse({"plan": await run_in_threadpool(work)})

    async def _finish(self, _: Request, client: Caller) -> Response:
        await run_in_threadpool(self._database.finish)
        return JSONResponse({})

    async def _catalog(self, _: Request, client: Caller) -> Response:
        """Streams, tables and views with their columns, as far as the account may use them."""
        found = [
            {
                "name": entry.name,
                "kind": type(entry).__name__.removesuffix("Def").lower(),
                "columns": [{"name": field.name, "type": str(field.type)} for field in entry.schema],
            }
            for entry in self._database.catalog.entries()
            if hasattr(entry, "schema") and client.account.may_use(entry.name)
        ]
        return JSONResponse(found)

    # -- queries ---------------------------------------------------------------------------------------------------

    async def _queries(self, _: Request, client: Caller) -> Response:
        database, may_use = self._database, client.account.may_use
        mine = [query for query in database.queries() if all(map(may_use, names_of(query, database)))]
        return JSONResponse([described(query) for query in mine])

    async def _query(self, request: Request, client: Caller) -> Response:
        query = self._find(request, client)

        def work() -> dict[str, Any]:
            covered = query.coverage
            told = [covered.since, covered.complete_from, covered.is_complete]
            found = {"state": query.state, "metrics": query.metrics(), "coverage": plain(told)}
            return {**found, "roles": roles(query, self._database)}

        return JSONResponse({**described(query), **await run_in_threadpool(work)})

    async def _change(self, what: str, request: Request, client: Caller) -> Response:
        query = self._find(request, client)
        client.require("writer", *query.uses)

        def work() -> None:
            with client.at_work(self._database, f"{what.upper()} {query.name}"):
                getattr(query, what)()

        await run_in_threadpool(work)
        return JSONResponse({})

    async def _stop(self, request: Request, client: Caller) -> Response:
        query = self._find(request, client)

        def work() -> None:
            with client.at_work(self._database, f"STOP {query.name}"):
                query.stop()

        await run_in_threadpool(work)
        return JSONResponse({})

    async def _schema(self, request: Request, client: Caller) -> Response:
        return Response(to_arrow_bytes(self._find(request, client).schema.empty_table()), media_type=ARROW)

    async def _fetch(self, request: Request, client: Caller) -> Response:
        table = await run_in_threadpool(self._find(request, client).fetch)
        return live.answer_of(table, request.headers.get("accept", ""), to_arrow_bytes)

    async def _snapshot(self, request: Request, client: Caller) -> Response:
        at = request.query_params.get("at")
        moment = int(at) if at is not None and at.lstrip("-").isdigit() else at
        window = request.query_params.get("window")
        table = await run_in_threadpool(self._find(request, client).snapshot, moment, window)
        return live.answer_of(table, request.headers.get("accept", ""), to_arrow_bytes)

    async def _explain(self, request: Request, client: Caller) -> Response:
        mode, form = request.query_params.get("mode", ""), request.query_params.get("format", "text")
        return JSONResponse({"plan": await run_in_threadpool(self._find(request, client).explain, mode, form)})

    async def _plan(self, request: Request, client: Caller) -> Response:
        return Response(await run_in_threadpool(self._find(request, client).plan_json), media_type="application/json")

    async def _subscribe(self, request: Request, client: Caller) -> Response:
        asked = live.Asked.of(request.query_params, request.headers.get("last-event-id"))
        return live.respond(self._find(request, client), asked, request.headers.get("accept", ""), self._subscriptions)

    async def _socket(self, socket: WebSocket) -> None:
        await socket.accept()
        try:
            client = await self._client(socket)
            asked = live.Asked.of(socket.query_params, None)
            await live.converse(socket, self._find(socket, client), asked, self._subscriptions)
        except MillstreamError as error:
            await socket.send_text(json.dumps(error_form(error)))
            await socket.close(1008)

    async def _ack(self, request: Request, client: Caller) -> Response:
        position = (await _json(request)).get("position")
        if not isinstance(position, int):
            raise DataError("the request needs position as a number")
        query, reader = self._find(request, client), request.path_params["reader"]
        await run_in_threadpool(query.acknowledge, reader, position)
        return JSONResponse({})

    async def _forget(self, request: Request, client: Caller) -> Response:
        await run_in_threadpool(self._find(request, client).unsubscribe, request.path_params["reader"])
        return JSONResponse({})

    # -- rows ------------------------------------------------------------------------------------------------------

    async def _push(self, request: Request, client: Caller) -> Response:
        stream = request.path_params["name"]
        client.require("writer", stream)
        rows, once = await _pushed(request), _once(request, client)
        counts = await run_in_threadpool(client.push, self._database, stream, rows, once)
        self._pushed += counts.accepted + counts.late + counts.rejected
        credit = client.credit()
        told = {"accepted": counts.accepted, "late": counts.late, "rejected": counts.rejected}
        return JSONResponse(told, headers=None if credit is None else {"X-RateLimit-Remaining": str(credit)})

    async def _advance(self, request: Request, client: Caller) -> Response:
        client.require("writer", request.path_params["name"])
        moment = (await _json(request)).get("time")
        if not isinstance(moment, str | int) or isinstance(moment, bool):
            raise DataError("the request needs time as a number or as text")
        await run_in_threadpool(self._database.advance, request.path_params["name"], moment)
        return JSONResponse({})

    def _find(self, request: HTTPConnection, client: Caller) -> Query:
        query = self._database.query(request.path_params["name"])
        client.require("reader", *names_of(query, self._database))
        return query


def _status(error: MillstreamError) -> int:
    match error:
        case UnknownClientError():
            return 401
        case ForbiddenError():
            return 403
        case CatalogError() if error.message.startswith("no "):
            return 404
        case QuotaError():
            return 429
        case LimitError():
            return 413
        case CancelledError():
            return 409
        case live.EndingError():
            return 503
    return 400


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or len(announced) > 18 or int(announced) > MOST_BODY:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY:
                    raise _too_large()
                parts.append(part)
    except TimeoutError:
        raise LimitError(f"the request took longer than {BODY_SECONDS:g} s") from None
    return b"".join(parts)


def _too_large() -> LimitError:
    return LimitError(f"a request may have at most {MOST_BODY >> 20} MB", hint="push in several requests")


async def _json(request: Request) -> dict[str, Any]:
    try:
        asked = json.loads(await _body(request) or b"{}")
    except (ValueError, RecursionError) as error:
        raise DataError(f"the request is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise DataError("the request must be a JSON object")
    return asked


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise DataError(f"the request needs {name} as text")
    return value


def _once(request: Request, client: Caller) -> tuple[str, int] | None:
    """The number of a push that may be tried again: `Idempotency-Key: producer/17`."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    producer, _, number = key.rpartition("/")
    if not producer or not number.isdigit() or len(key) > 200:
        raise DataError("Idempotency-Key must be a name and a growing number", hint="Idempotency-Key: sensor-7/42")
    return f"{client.account.name}/{producer}", int(number)


async def _pushed(request: Request) -> Any:
    """Rows in the form that their content type names."""
    body = await _body(request)
    kind = request.headers.get("content-type", JSON_LINES).partition(";")[0].strip().lower()
    match kind:
        case _ if kind == ARROW:
            return from_arrow_bytes(body)
        case _ if kind == CSV:
            return TextRows(body, "csv")
        case "application/json":
            return _row_list(body)
        case _ if kind == JSON_LINES:
            return TextRows(body)
    raise DataError(
        f"rows of the type {kind} are not supported", hint=f"{ARROW}, {JSON_LINES}, application/json or {CSV}"
    )


def _row_list(body: bytes) -> list[Any]:
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"rows are not JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict | list) for row in rows):
        raise DataError("rows must be a list of objects or lists")
    return [tuple(row) if isinstance(row, list) else row for row in rows]


def _answer(made: Query | Result | None, request: Request) -> Response:
    match made:
        case None:
            return JSONResponse({})
        case Query():
            return JSONResponse(described(made))
    return live.answer_of(made.fetch(), request.headers.get("accept", ""), to_arrow_bytes)


def described(query: Query) -> dict[str, Any]:
    """A query, for clients."""
    columns = [{"name": field.name, "type": str(field.type)} for field in query.schema]
    return {"name": query.name, "sql": query.sql, "columns": columns}

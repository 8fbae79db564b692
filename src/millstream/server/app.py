"""The HTTP interface of a session. Every route but /health asks for the token.

The engine's calls run in threads, so a long one does not keep others waiting. Errors of statements are status 400 with
what, why, a hint and the place in the SQL as JSON; what does not exist is 404.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from millstream.errors import CancelledError, CatalogError, DataError, LimitError, MillstreamError
from millstream.session.database import Database
from millstream.session.query import Query, Result
from millstream.wire import ARROW, CSV, JSON_LINES, error_form, from_arrow_bytes, to_arrow_bytes

log = logging.getLogger("millstream.server")

MOST_BODY = 256 << 20
"""bytes of a request; who has more to push pushes several times"""

_WAIT = 10.0
"""seconds without news after which a subscription says that it is still there"""

Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """The routes of one session."""

    def __init__(self, database: Database, token: str | None) -> None:
        self._database = database
        self._token = token.encode() if token else None

    def app(self) -> Starlette:
        """The application that an ASGI server runs; when that ends, the session is closed."""
        routes = [
            Route("/health", self._health),
            self._route("/v1/execute", self._execute, "POST"),
            self._route("/v1/sql", self._sql, "POST"),
            self._route("/v1/finish", self._finish, "POST"),
            self._route("/v1/queries", self._queries, "GET"),
            self._route("/v1/queries/{name}", self._query, "GET"),
            self._route("/v1/queries/{name}", self._stop, "DELETE"),
            self._route("/v1/queries/{name}/schema", self._schema, "GET"),
            self._route("/v1/queries/{name}/fetch", self._fetch, "POST"),
            self._route("/v1/queries/{name}/snapshot", self._snapshot, "GET"),
            self._route("/v1/queries/{name}/explain", self._explain, "GET"),
            self._route("/v1/queries/{name}/rows", self._subscribe, "GET"),
            self._route("/v1/streams/{name}/rows", self._push, "POST"),
            self._route("/v1/streams/{name}/advance", self._advance, "POST"),
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await run_in_threadpool(self._database.close)

        return Starlette(routes=routes, lifespan=lifespan)

    def _route(self, path: str, handler: Handler, method: str) -> Route:
        async def guarded(request: Request) -> Response:
            if not self._is_allowed(request):
                return JSONResponse({"error": "MillstreamError", "message": "a valid token is needed"}, 401)
            try:
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except MillstreamError as error:
                return JSONResponse(error_form(error), _status(error))

        return Route(path, guarded, methods=[method])

    def _is_allowed(self, request: Request) -> bool:
        if self._token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)

    # -- statements ------------------------------------------------------------------------------------------------

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _execute(self, request: Request) -> Response:
        asked = await _json(request)
        return _answer(await run_in_threadpool(self._database.execute, _text(asked, "sql"), asked.get("params")))

    async def _sql(self, request: Request) -> Response:
        asked = await _json(request)
        name, replace = asked.get("name"), bool(asked.get("replace"))
        text = _text(asked, "sql")
        return _answer(await run_in_threadpool(self._database.sql, text, name, replace, asked.get("params")))

    async def _finish(self, _: Request) -> Response:
        await run_in_threadpool(self._database.finish)
        return JSONResponse({})

    # -- queries ---------------------------------------------------------------------------------------------------

    async def _queries(self, _: Request) -> Response:
        return JSONResponse([_described(query) for query in self._database.queries()])

    async def _query(self, request: Request) -> Response:
        return JSONResponse(_described(self._find(request)))

    async def _stop(self, request: Request) -> Response:
        await run_in_threadpool(self._find(request).stop)
        return JSONResponse({})

    async def _schema(self, request: Request) -> Response:
        return Response(to_arrow_bytes(self._find(request).schema.empty_table()), media_type=ARROW)

    async def _fetch(self, request: Request) -> Response:
        return _rows(await run_in_threadpool(self._find(request).fetch), request)

    async def _snapshot(self, request: Request) -> Response:
        at = request.query_params.get("at")
        moment = int(at) if at is not None and at.lstrip("-").isdigit() else at
        return _rows(await run_in_threadpool(self._find(request).snapshot, moment), request)

    async def _explain(self, request: Request) -> Response:
        mode = request.query_params.get("mode", "")
        return JSONResponse({"plan": await run_in_threadpool(self._find(request).explain, mode)})

    async def _subscribe(self, request: Request) -> Response:
        """New rows as they come, as JSON lines. An empty line says that there is nothing new."""
        reader = self._find(request).subscribe(when_full="drop")

        async def lines() -> AsyncIterator[bytes]:
            try:
                while not reader.ended:
                    try:
                        batch = await asyncio.wait_for(anext(reader), _WAIT)
                    except TimeoutError:
                        # waiting was given up, and no row is lost by that
                        yield b"\n"
                    else:
                        yield _as_lines(pa.Table.from_batches([batch]))
            except StopAsyncIteration:
                return
            finally:
                reader.close()

        return StreamingResponse(lines(), media_type=JSON_LINES)

    # -- rows ------------------------------------------------------------------------------------------------------

    async def _push(self, request: Request) -> Response:
        rows = await _pushed(request)
        counts = await run_in_threadpool(self._database.push, request.path_params["name"], rows)
        return JSONResponse({"accepted": counts.accepted, "late": counts.late, "rejected": counts.rejected})

    async def _advance(self, request: Request) -> Response:
        time = (await _json(request)).get("time")
        if not isinstance(time, str | int):
            raise DataError("the request needs time as a number or as text")
        await run_in_threadpool(self._database.advance, request.path_params["name"], time)
        return JSONResponse({})

    def _find(self, request: Request) -> Query:
        return self._database.query(request.path_params["name"])


def _status(error: MillstreamError) -> int:
    match error:
        case CatalogError() if error.message.startswith("no "):
            return 404
        case LimitError():
            return 413
        case CancelledError():
            return 409
    return 400


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY:
            raise LimitError(f"a request has at most {MOST_BODY >> 20} MB", hint="push in several requests")
        parts.append(part)
    return b"".join(parts)


async def _json(request: Request) -> dict[str, Any]:
    try:
        asked = json.loads(await _body(request) or b"{}")
    except (ValueError, RecursionError) as error:
        raise DataError(f"the request is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise DataError("the request is a JSON object")
    return asked


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise DataError(f"the request needs {name} as text")
    return value


async def _pushed(request: Request) -> Any:
    """Rows in the form that their content type names."""
    body = await _body(request)
    kind = request.headers.get("content-type", JSON_LINES).partition(";")[0].strip().lower()
    match kind:
        case _ if kind == ARROW:
            return from_arrow_bytes(body)
        case _ if kind == CSV:
            import pyarrow.csv

            try:
                return pyarrow.csv.read_csv(io.BytesIO(body))
            except pa.ArrowInvalid as error:
                raise DataError(f"this is no CSV: {error}") from None
        case "application/json":
            return _row_list(body)
        case _ if kind == JSON_LINES:
            return _row_list(b"[" + b",".join(line for line in body.splitlines() if line.strip()) + b"]")
    raise DataError(f"rows of the type {kind} are not known", hint=f"{ARROW}, {JSON_LINES}, application/json or {CSV}")


def _row_list(body: bytes) -> list[Any]:
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"rows are not JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict | list) for row in rows):
        raise DataError("rows are a list of objects or lists")
    return [tuple(row) if isinstance(row, list) else row for row in rows]


def _answer(made: Query | Result | None) -> Response:
    match made:
        case None:
            return JSONResponse({})
        case Query():
            return JSONResponse(_described(made))
    return Response(to_arrow_bytes(made.fetch()), media_type=ARROW)


def _described(query: Query) -> dict[str, Any]:
    columns = [{"name": field.name, "type": str(field.type)} for field in query.schema]
    return {"name": query.name, "sql": query.sql, "columns": columns}


def _rows(table: pa.Table, request: Request) -> Response:
    if JSON_LINES in request.headers.get("accept", "") or "application/json" in request.headers.get("accept", ""):
        return Response(_as_lines(table), media_type=JSON_LINES)
    return Response(to_arrow_bytes(table), media_type=ARROW)


def _as_lines(table: pa.Table) -> bytes:
    lines = (json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist())
    return "".join(f"{line}\n" for line in lines).encode()

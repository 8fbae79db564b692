"""What the console looks at: the whole session, operators with their figures and rows, and copies to step through."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from millstream.catalog import StreamDef
from millstream.connectors.rows import to_batch
from millstream.errors import CatalogError, DataError
from millstream.hosts.contract import OperatorFigures, Stepping
from millstream.hosts.embedded.inspection import COPY_SECONDS
from millstream.physical.nodes import Physical, Source, StoredTable, walk
from millstream.records import dataclass
from millstream.server.access import Caller, names_of
from millstream.server.live import json_lines
from millstream.session.database import Database
from millstream.session.plotting import roles_of
from millstream.session.query import Query
from millstream.session.times import told
from millstream.wire import JSON_LINES, plain

MOST_QUERIES = 60
"""queries of an overview; of more, it has groups and what was searched for"""
MOST_OPERATORS = 400
MOST_COPIES = 16
"""copies of queries that are stepped through at once"""

Find = Callable[[Request, Caller], Query]
Json = Callable[[Request], Any]


@dataclass(eq=False)
class OpenCopy:
    """A copy of a query, whose it is, and when it was stepped last."""

    query: str
    account: str
    stepping: Stepping
    used: float


class Watching:
    """Handlers of requests that only look."""

    def __init__(self, database: Database, find: Find, asked: Json) -> None:
        self._database = database
        self._find = find
        self._asked = asked
        self._begun = time.monotonic()
        self._copies: dict[str, OpenCopy] = {}

    # -- the whole session -----------------------------------------------------------------------------------------

    async def overview(self, request: Request, client: Caller) -> Response:
        """All streams and queries that the account may use: groups of queries that read the same, and those searched
        for, with their counters."""
        sought = request.query_params.get("search", "").lower()
        among = request.query_params.get("uses")

        def work() -> dict[str, Any]:
            database, may_use = self._database, client.account.may_use
            progress = database.progress()
            queries = [query for query in database.queries() if all(map(may_use, names_of(query, database)))]
            groups: dict[str, dict[str, Any]] = {}
            found = []
            for query in queries:
                uses = sorted(query.uses)
                rows = progress.rows_out.get(query.name, 0)
                group = groups.setdefault(",".join(uses), {"uses": uses, "queries": 0, "rows": 0})
                group["queries"] += 1
                group["rows"] += rows
                is_wanted = among is None or among == ",".join(uses)
                if is_wanted and (not sought or sought in query.name.lower() or sought in query.sql.lower()):
                    found.append((query, uses, rows))
            shown = [
                {"name": query.name, "sql": query.sql, "state": query.state, "rows": rows, "uses": uses}
                for query, uses, rows in found[:MOST_QUERIES]
            ]
            return {
                "uptime": round(time.monotonic() - self._begun, 3),
                "account": client.account.name,
                "role": client.account.role,
                "late": progress.late,
                "rejected": progress.rejected,
                "streams": [{"name": name, "rows": rows} for name, rows in progress.rows_in.items() if may_use(name)],
                "count": len(queries),
                "found": len(found),
                "groups": list(groups.values()),
                "queries": shown,
                "starting": dict(progress.backfilling) if client.account.streams is None else {},
            }

        return JSONResponse(await run_in_threadpool(work))

    async def stream(self, request: Request, client: Caller) -> Response:
        """One stream: what became of its rows, and what is kept."""
        definition = self._stream(request, client)

        def work() -> dict[str, Any]:
            figures = asdict(self._database.inspector.stream(definition.name))
            counts = figures.pop("counts")
            figures |= {name: plain(told(figures[name], definition)) for name in ("latest", "upto")}
            column = definition.time_column
            return {"name": definition.name, "time": column, "keeps": definition.keep is not None, **counts, **figures}

        return JSONResponse(await run_in_threadpool(work))

    async def peek_stream(self, request: Request, client: Caller) -> Response:
        """The latest rows of a stream since somebody looks: those in order, late ones or rejected ones."""
        name = self._stream(request, client).name
        side = request.query_params.get("side", "main")
        if side not in ("main", "late", "errors"):
            raise DataError(f"no side {side}", hint="main, late or errors")
        id = name if side == "main" else f"{side}({name})"
        return _rows(await run_in_threadpool(self._database.inspector.peek, id))

    def _stream(self, request: Request, client: Caller) -> StreamDef:
        definition = self._database.catalog.get(request.path_params["name"], StreamDef)
        client.require("reader", definition.name)
        return definition

    # -- operators -------------------------------------------------------------------------------------------------

    async def operators(self, request: Request, client: Caller) -> Response:
        """The operators of a query, or of all queries, with their figures."""
        query = self._find(request, client) if "name" in request.path_params else None
        if query is None:
            client.require("reader", *(name for each in self._database.queries() for name in reads(each)))
        found = await run_in_threadpool(self._database.inspector.operators, query.name if query is not None else None)
        streams = {
            entry.name.lower(): entry for entry in self._database.catalog.entries() if isinstance(entry, StreamDef)
        }
        timed = _timed(found, streams)
        told_of = [_operator(each, timed.get(each.id)) for each in found[:MOST_OPERATORS]]
        return JSONResponse({"operators": told_of, "count": len(found)})

    async def peek(self, request: Request, client: Caller) -> Response:
        """The latest rows that an operator of a query has emitted since somebody looks."""
        query, id = self._inside(request, client), request.path_params["id"]

        def work() -> pa.Table:
            inspector = self._database.inspector
            if id not in {each.id for each in inspector.operators(query.name)}:
                raise CatalogError(f"no operator {id} in query {query.name}")
            return inspector.peek(id)

        return _rows(await run_in_threadpool(work))

    def _inside(self, request: Request, client: Caller) -> Query:
        """A query whose inner rows the account may see: everything that it reads, also through views."""
        query = self._find(request, client)
        client.require("reader", *reads(query))
        return query

    # -- copies to step through ------------------------------------------------------------------------------------

    async def copy(self, request: Request, client: Caller) -> Response:
        """Copy a query with its state, to step through."""
        query = self._inside(request, client)

        def work() -> str:
            now = time.monotonic()
            for id, each in list(self._copies.items()):
                if now - each.used > COPY_SECONDS:
                    self._close(id)
            while len(self._copies) >= MOST_COPIES:  # the one that was left longest ago goes
                self._close(min(self._copies, key=lambda id: self._copies[id].used))
            id = secrets.token_urlsafe(9)
            stepping = self._database.inspector.copy(query.name)
            self._copies[id] = OpenCopy(query.name, client.account.name, stepping, now)
            return id

        return JSONResponse({"copy": await run_in_threadpool(work)})

    async def step(self, request: Request, client: Caller) -> Response:
        """Give a copy its next row, or a row of one's own: what passed each operator."""
        copy, asked = self._copy(request, client), await self._asked(request)

        def work() -> dict[str, Any]:
            copy.used = time.monotonic()
            stream = asked.get("stream")
            if stream is None:
                passed = copy.stepping.step()
            else:
                definition = self._database.catalog.get(str(stream), StreamDef)
                if definition.given != definition.schema:
                    raise DataError(
                        f"rows of stream {stream} get their time when they arrive", hint="push to the stream"
                    )
                rows, rejected = to_batch([asked.get("row")], definition.given, definition.name)
                if rejected:
                    raise DataError(rejected[0].error)
                passed = copy.stepping.push(definition.name, rows)
            return {
                "passed": {id: _listed(rows) for id, rows in passed.items()},
                "waiting": copy.stepping.waiting,
                "missed": copy.stepping.has_missed,
            }

        return JSONResponse(await run_in_threadpool(work))

    async def close_copy(self, request: Request, client: Caller) -> Response:
        """Let go of a copy."""
        self._copy(request, client)
        self._close(request.path_params["id"])
        return JSONResponse({})

    def _copy(self, request: Request, client: Caller) -> OpenCopy:
        found = self._copies.get(request.path_params["id"])
        if found is None or found.account != client.account.name:
            raise CatalogError("no such copy", hint="it is gone after ten minutes without a step; make another")
        return found

    def _close(self, id: str) -> None:
        found = self._copies.pop(id, None)
        if found is not None:
            found.stepping.close()


def reads(query: Query) -> frozenset[str]:
    """The streams and tables that a query reads, also through views."""
    return frozenset(name for node in walk(query.plan) for name in _read_by(node))


def _read_by(node: Physical) -> tuple[str, ...]:
    match node:
        case Source(stream=stream):
            return (stream,)
        case StoredTable(tables=tables):
            return tables
    return ()


def roles(query: Query, database: Database) -> dict[str, Any]:
    """Which columns of a query tell matches, variables, partitions and times, for drawing."""
    streams = (database.catalog.find(name) for name in reads(query))
    times = (stream.time_column for stream in streams if isinstance(stream, StreamDef))
    found = roles_of(query.plan, tuple(query.schema.names), frozenset(t.lower() for t in times if t is not None))
    return {"match": found.match, "variable": found.variable, "keys": found.keys, "times": sorted(found.times)}


def _timed(found: list[OperatorFigures], streams: dict[str, StreamDef]) -> dict[str, StreamDef]:
    """A stream that each operator is behind, whose time it tells."""
    by: dict[str, StreamDef] = {}
    for each in found:
        sources = [by[id] for id in each.inputs if id in by]
        own = streams.get(each.id.removeprefix("late(").removeprefix("errors(").rstrip(")").lower())
        if sources or own is not None:
            by[each.id] = sources[0] if sources else own  # type: ignore[assignment]
    return by


def _operator(figures: OperatorFigures, stream: StreamDef | None) -> dict[str, Any]:
    shown = {name: getattr(figures, name) for name in OperatorFigures.__slots__}
    if stream is not None:
        when = told(figures.upto, stream)
        shown["upto"] = plain(when)
        if when is not figures.upto and figures.behind is not None:
            shown["behind"] = figures.behind / 1e6
            shown["unit"] = "s"
    return shown


def _listed(rows: pa.Table) -> list[dict[str, Any]]:
    return [json.loads(line) for line in json_lines(rows).splitlines()]


def _rows(table: pa.Table) -> Response:
    return Response(json_lines(table), media_type=JSON_LINES)

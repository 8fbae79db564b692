"""A description of the HTTP interface for tools, made of its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import millstream
from millstream.wire import ARROW, CSV, JSON_LINES

_TEXT = {"type": "string"}
_SQL = {
    "type": "object",
    "required": ["sql"],
    "properties": {
        "sql": _TEXT,
        "params": {"type": ["object", "array", "null"]},
        "name": {"type": ["string", "null"]},
        "replace": {"type": "boolean"},
        "history": {"type": ["boolean", "string", "integer", "null"]},
    },
}
_ROWS = {
    ARROW: {},
    JSON_LINES: {"schema": _TEXT},
    "application/json": {"schema": {"type": "array"}},
    CSV: {"schema": _TEXT},
}

_TOLD: dict[str, tuple[str, dict[str, Any] | None]] = {
    "GET /metrics": ("Counters for Prometheus", None),
    "POST /v1/execute": ("Run statements", {"application/json": {"schema": _SQL}}),
    "POST /v1/sql": ("Start a query, or answer an ad-hoc one", {"application/json": {"schema": _SQL}}),
    "POST /v1/explain": (
        "How a query would run",
        {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["sql"],
                    "properties": {
                        "sql": _TEXT,
                        "params": {"type": ["object", "array", "null"]},
                        "mode": {"enum": ["", "VERBOSE", "RULES", "COST"]},
                        "format": {"enum": ["text", "dot", "svg"]},
                    },
                }
            }
        },
    ),
    "POST /v1/finish": ("End all inputs", None),
    "POST /v1/checkpoint": ("Take a checkpoint now", None),
    "POST /v1/backup": (
        "Copy the session to a named location",
        {"application/json": {"schema": {"type": "object", "required": ["to"], "properties": {"to": _TEXT}}}},
    ),
    "GET /v1/overview": ("Streams and queries with their counters", None),
    "GET /v1/operators": ("The operators of all queries with their counters", None),
    "GET /v1/queries/{name}/operators": ("The operators of a query with their counters", None),
    "GET /v1/queries/{name}/operators/{id}/peek": ("The latest rows that an operator emitted", None),
    "GET /v1/streams/{name}": ("What became of the rows of a stream", None),
    "GET /v1/streams/{name}/peek": ("The latest rows of a stream", None),
    "POST /v1/queries/{name}/copies": ("Copy a query with its state, to step through", None),
    "POST /v1/copies/{id}/step": (
        "Give a copy its next row, or a row of your own",
        {
            "application/json": {
                "schema": {"type": "object", "properties": {"stream": _TEXT, "row": {"type": ["object", "array"]}}}
            }
        },
    ),
    "DELETE /v1/copies/{id}": ("Close a copy", None),
    "GET /v1/catalog": ("Streams, tables and views with their columns", None),
    "GET /v1/queries": ("The running queries", None),
    "GET /v1/queries/{name}": ("One query with its state and counters", None),
    "DELETE /v1/queries/{name}": ("Stop a query", None),
    "GET /v1/queries/{name}/schema": ("The columns of a query, as Arrow", None),
    "POST /v1/queries/{name}/fetch": ("Rows that have not been fetched yet", None),
    "GET /v1/queries/{name}/snapshot": ("The content of a relation", None),
    "GET /v1/queries/{name}/explain": ("How a query runs", None),
    "GET /v1/queries/{name}/plan": ("The plan of a query as JSON", None),
    "POST /v1/queries/{name}/pause": ("Pause a query", None),
    "POST /v1/queries/{name}/resume": ("Resume a query", None),
    "POST /v1/queries/{name}/cancel": ("Cancel a query", None),
    "GET /v1/queries/{name}/rows": ("Rows as they are emitted", None),
    "POST /v1/queries/{name}/readers/{reader}/ack": (
        "Acknowledge the rows before a position",
        {"application/json": {"schema": {"type": "object", "properties": {"position": {"type": "integer"}}}}},
    ),
    "DELETE /v1/queries/{name}/readers/{reader}": ("End a reader", None),
    "POST /v1/streams/{name}/rows": ("Push rows", _ROWS),
    "POST /v1/streams/{name}/advance": (
        "Move the watermark of a stream",
        {"application/json": {"schema": {"type": "object", "properties": {"time": {"type": ["integer", "string"]}}}}},
    ),
}

_QUERY_PARAMETERS = {
    "/v1/queries/{name}/rows": ("since", "reader", "buffer", "positions"),
    "/v1/queries/{name}/snapshot": ("at", "window"),
    "/v1/overview": ("search", "uses"),
    "/v1/streams/{name}/peek": ("side",),
    "/v1/queries/{name}/explain": ("mode", "format"),
}

_ANSWERS = {
    "200": "done", "400": "the request or the statement is wrong", "401": "no valid token", "403": "not allowed",
    "404": "no such thing", "409": "cancelled", "413": "a limit was reached",
    "429": "too fast (see Retry-After), or as many queries or as much state as the account may have",
}  # fmt: skip


def description(routes: Iterable[Any]) -> dict[str, Any]:
    """The routes in the form OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        told = _TOLD.get(getattr(route, "name", ""))
        if told is not None:
            method = next(iter(route.methods - {"HEAD"}))
            path = route.path_format
            paths.setdefault(path, {})[method.lower()] = _operation(path, *told)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millstream", "version": millstream.__version__},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": paths,
    }


def _operation(path: str, summary: str, body: dict[str, Any] | None) -> dict[str, Any]:
    places = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in re.findall(r"{(\w+)}", path)]
    asked = [{"name": name, "in": "query", "schema": _TEXT} for name in _QUERY_PARAMETERS.get(path, ())]
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": places + asked,
        "responses": {code: {"description": told} for code, told in _ANSWERS.items()},
    }
    if body is not None:
        operation["requestBody"] = {"content": body}
    return operation

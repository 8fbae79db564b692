"""The format between servers and clients: rows as Arrow streams, errors as JSON."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from millstream import errors
from millstream.errors import MillstreamError, Span

ARROW = "application/vnd.apache.arrow.stream"
JSON_LINES = "application/x-ndjson"
CSV = "text/csv"
STATE = "millstream"
"""the metadata of a batch in a subscription: JSON with the position after it"""


def to_arrow_bytes(table: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_arrow_bytes(body: bytes) -> pa.Table:
    """The rows of an Arrow IPC stream."""
    try:
        return pa.ipc.open_stream(body).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise errors.DataError(f"this is not an Arrow stream: {error}") from None


def error_form(error: MillstreamError) -> dict[str, Any]:
    """An error as JSON, by the nearest of its classes that clients know."""
    span = None if error.span is None else [error.span.start, error.span.end]
    told = {"message": error.message, "detail": error.detail, "hint": error.hint, "span": span, "sql": error.sql}
    known = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return {"error": known, **{name: value for name, value in told.items() if value is not None}}


def error_of(form: dict[str, Any]) -> MillstreamError:
    """The error that such JSON tells of."""
    kind = getattr(errors, str(form.get("error")), MillstreamError)
    if not (isinstance(kind, type) and issubclass(kind, MillstreamError)):
        kind = MillstreamError
    span = form.get("span")
    return kind(
        str(form.get("message", "the server failed")),
        detail=form.get("detail"),
        hint=form.get("hint"),
        span=None if span is None else Span(*span),
        sql=form.get("sql"),
    )


def plain(value: Any) -> Any:
    """A parameter or a time as JSON has it; times are text that SQL reads."""
    match value:
        case dt.datetime():
            return value.isoformat(" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case list() | tuple():
            return [plain(each) for each in value]
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
    return value

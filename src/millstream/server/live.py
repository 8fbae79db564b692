"""Results as they are emitted: JSON lines, an Arrow stream, server-sent events, or a WebSocket.

A client that was cut off goes on at the position after the last row it has (`since=`, or `Last-Event-ID`). With a name
(`reader=`), the server keeps all rows that it has not acknowledged, also across a restart.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pyarrow as pa
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from millstream.connectors.sinks.render import json_values, lines
from millstream.errors import DataError, MillstreamError
from millstream.records import dataclass
from millstream.session.query import Query
from millstream.session.subscriptions import Reader
from millstream.wire import ARROW, JSON_LINES, STATE, error_form

SSE = "text/event-stream"
KEEP_ALIVE = 10.0
"""seconds without rows after which a subscription says that it is still there"""

BUFFER = 100_000
"""rows that wait for a client before the oldest are dropped; a client may ask for fewer"""


_WRITTEN_ROWS = 65_536
"""rows that are written at once"""


class EndingError(MillstreamError):
    """The server ends, and takes nothing new that lasts."""


@dataclass(frozen=True)
class Asked:
    """From where on a client wants rows, and how."""

    since: int | None = None
    reader: str | None = None
    buffer: int = BUFFER
    positions: bool = False

    @staticmethod
    def of(params: Mapping[str, str], last_id: str | None) -> Asked:
        return Asked(
            _number(params.get("since", last_id), "since"),
            params.get("reader") or None,
            min(_number(params.get("buffer"), "buffer") or BUFFER, BUFFER),
            params.get("positions", "").lower() in ("1", "true", "yes"),
        )


def _number(text: str | None, name: str) -> int | None:
    if text is None or text == "":
        return None
    if not text.isdigit():
        raise DataError(f"{name} is a number, not {text!r}")
    return int(text)


class Subscriptions:
    """The open subscriptions of a server. They end when it does, and their clients go on at the next one."""

    def __init__(self) -> None:
        self._readers: set[Reader] = set()
        self._draining = False

    @property
    def why_ended(self) -> str:
        """What a subscription that is at its end is told: the query has ended, or this server does."""
        return "server" if self._draining else "query"

    def __len__(self) -> int:
        return len(self._readers)

    def open(self, query: Query, asked: Asked) -> Reader:
        if self._draining:
            raise EndingError("the server is shutting down", hint="try again in a moment")
        reader = query.subscribe(since=asked.since, buffer=asked.buffer, when_full="drop", name=asked.reader)
        self._readers.add(reader)
        return reader

    async def batches(self, reader: Reader) -> AsyncIterator[pa.RecordBatch | None]:
        """Batches as they come; None if none came for a while."""
        try:
            while not reader.ended:
                try:
                    yield await asyncio.wait_for(anext(reader), KEEP_ALIVE)
                except TimeoutError:
                    yield None  # waiting was given up, and no row is lost by that
                except StopAsyncIteration:
                    return
        finally:
            self.close(reader)

    def close(self, reader: Reader) -> None:
        self._readers.discard(reader)
        reader.close()

    def drain(self) -> None:
        """End all of them."""
        self._draining = True
        for reader in list(self._readers):
            reader.close()


def respond(query: Query, asked: Asked, accept: str, among: Subscriptions) -> Response:
    """The rows of a query from now on, in the form that a client accepts."""
    reader = among.open(query, asked)
    if SSE in accept:
        return StreamingResponse(_events(reader, among), media_type=SSE, headers={"Cache-Control": "no-store"})
    if ARROW in accept:
        return StreamingResponse(_arrow(reader, query.schema, among), media_type=ARROW)
    return StreamingResponse(_lines(reader, asked.positions, among), media_type=JSON_LINES)


async def _lines(reader: Reader, positions: bool, among: Subscriptions) -> AsyncIterator[bytes]:
    """JSON lines. An empty line says that there is nothing new; with `positions`, a line after rows tells theirs."""
    try:
        async for batch in among.batches(reader):
            yield b"\n" if batch is None else json_lines(pa.Table.from_batches([batch]))
            if positions and batch is not None:
                yield json.dumps(_place(reader)).encode() + b"\n"
        if positions:
            yield json.dumps({**_place(reader), "ended": among.why_ended}).encode() + b"\n"
    except MillstreamError as error:
        yield json.dumps(error_form(error)).encode() + b"\n"


async def _arrow(reader: Reader, schema: pa.Schema, among: Subscriptions) -> AsyncIterator[bytes]:
    """An Arrow IPC stream: batches without rows say that there is nothing new. The metadata of each batch has the
    position after it; that of the last one says why it is the last."""
    sent, empty = _Sent(), pa.RecordBatch.from_pylist([], schema=schema)

    def written(batch: pa.RecordBatch, **more: str) -> bytes:
        writer.write_batch(batch, custom_metadata={STATE: json.dumps({**_place(reader), **more})})
        return sent.taken()

    with pa.ipc.new_stream(sent, schema) as writer:
        yield written(empty)
        try:
            async for batch in among.batches(reader):
                yield written(empty if batch is None else batch)
            yield written(empty, ended=among.why_ended)
        except MillstreamError as error:
            yield written(empty, **error_form(error))
    yield sent.taken()


def _place(reader: Reader) -> dict[str, Any]:
    return {"position": reader.position, "dropped": reader.dropped}


class _Sent(io.RawIOBase):
    """Bytes that were written and not yet sent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


async def _events(reader: Reader, among: Subscriptions) -> AsyncIterator[bytes]:
    """Server-sent events: a browser that was cut off sends the last id, and goes on there."""
    yield b"retry: 1000\n\n"
    dropped = 0
    try:
        async for batch in among.batches(reader):
            if batch is None:
                yield b": still here\n\n"
                continue
            rows = json_rows(pa.Table.from_batches([batch]))
            yield f"id: {reader.position}\ndata: {rows}\n\n".encode()
            if reader.dropped > dropped:
                yield f"event: dropped\ndata: {reader.dropped - dropped}\n\n".encode()
                dropped = reader.dropped
        yield f'event: end\ndata: {{"reason": "{among.why_ended}"}}\n\n'.encode()
    except MillstreamError as error:
        yield f"event: error\ndata: {json.dumps(error_form(error))}\n\n".encode()


async def converse(socket: WebSocket, query: Query, asked: Asked, among: Subscriptions) -> None:
    """Messages of rows, each with the position after it. The client may send `{"ack": position}`."""
    reader = among.open(query, asked)

    async def listen() -> None:
        try:
            while True:
                said = json.loads(await socket.receive_text())
                if isinstance(said, dict) and isinstance(said.get("ack"), int):
                    reader.ack(said["ack"])
        except (WebSocketDisconnect, ValueError, MillstreamError):
            reader.close()

    listening = asyncio.ensure_future(listen())
    try:
        async for batch in among.batches(reader):
            if batch is None:
                await socket.send_text('{"rows": []}')
                continue
            rows = json_rows(pa.Table.from_batches([batch]))
            await socket.send_text(f'{{"position": {reader.position}, "dropped": {reader.dropped}, "rows": {rows}}}')
        await socket.send_text(f'{{"ended": true, "reason": "{among.why_ended}"}}')
        await socket.close()
    except MillstreamError as error:
        await socket.send_text(json.dumps(error_form(error)))
        await socket.close(1011)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client is gone
    finally:
        listening.cancel()
        among.close(reader)


def json_rows(table: pa.Table) -> str:
    """Rows as a JSON list of objects."""
    return f"[{_objects(table, ',')[:-1].decode()}]"


def json_lines(table: pa.Table) -> bytes:
    """Rows as a JSON object a line."""
    return _objects(table, "\n")


def _objects(table: pa.Table, end: str) -> bytes:
    names = [json.dumps(name, ensure_ascii=False) for name in table.column_names]
    found = []
    for batch in table.to_batches(max_chunksize=_WRITTEN_ROWS):
        parts: list[pa.Array | str] = []
        for place, (name, column) in enumerate(zip(names, batch.columns, strict=True)):
            parts += [f"{',' if place else '{'}{name}:", json_values(column)]
        found.append(lines([*parts, "}" + end]))
    return b"".join(found)


def answer_of(table: pa.Table, accept: str, arrow: Any) -> Response:
    """Rows that are there, in the form that a client accepts."""
    if JSON_LINES in accept or "application/json" in accept:
        return Response(json_lines(table), media_type=JSON_LINES)
    return Response(arrow(table), media_type=ARROW)

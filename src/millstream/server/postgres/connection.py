"""One client's connection: log-in, then messages until it closes. ClientStatements run in threads, one at a time."""

from __future__ import annotations

import asyncio
import logging
import select
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from millstream import sql
from millstream.errors import CatalogError, LimitError, MillstreamError, ours
from millstream.records import dataclass
from millstream.server.access import Caller
from millstream.server.postgres import messages as M
from millstream.server.postgres import values as V
from millstream.server.postgres.copying import Incoming, Outgoing, pieces
from millstream.server.postgres.settings import REPORTED
from millstream.server.postgres.statements import (
    Answer,
    Answered,
    ClientStatements,
    CopyIn,
    CopyOut,
    Done,
    Live,
    Transaction,
    first_word,
)
from millstream.sql.complete import is_blank, split_complete

log = logging.getLogger("millstream.server")

_LOOK = 30.0
"""seconds without rows after which a subscription makes sure that its client is still there"""

_MOST_PORTALS = 100
"""each may keep rows that its client has yet to take"""

_Value = TypeVar("_Value")


class Reception(Protocol):
    """What a conversation needs of the server."""

    async def log_in(self, user: str, reader: StreamReader, writer: StreamWriter) -> Caller: ...

    def statements(self, client: Caller, process: int) -> ClientStatements: ...

    def push(self, client: Caller, target: str, rows: Any) -> tuple[int, str | None]: ...


@dataclass(frozen=True)
class Prepared:
    """A statement that a client has prepared, and the types that it gave for parameters."""

    text: str
    types: tuple[int, ...]


@dataclass
class Portal:
    """A prepared statement with values for its parameters, and what is left of its rows."""

    prepared: Prepared
    values: list[Any]
    binary: Sequence[int]
    answer: Answer | None = None
    left: pa.Table | None = None
    sent: int = 0

    def forms(self, columns: int) -> list[bool]:
        """Which columns are wanted in binary form: none, all by one number, or each."""
        if len(self.binary) == columns and columns != 1:
            return [bool(each) for each in self.binary]
        return [bool(self.binary and self.binary[0])] * columns


class Conversation:
    """One connection, after TLS was agreed on."""

    def __init__(
        self, service: Reception, reader: StreamReader, writer: StreamWriter, process: int, secret: int
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self.process, self.secret = process, secret
        self._statements: ClientStatements | None = None
        self._client: Caller | None = None
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._state = b"I"
        self._streaming: asyncio.Task[Any] | None = None
        self._skipping = False

    def cancel(self) -> None:
        """Another connection asks for an end of what runs here."""
        statements = self._statements
        if self._streaming is not None:
            self._streaming.cancel()
        elif statements is not None and (work := statements.work) is not None:
            work.cancel()

    async def run(self, start: M.Fields) -> None:
        """Everything from the start-up message on."""
        told = dict[str, str]()
        while not start.ended and (name := start.text()):
            told[name] = start.text()
        self._client = await self._service.log_in(told.get("user", ""), self._reader, self._writer)
        statements = self._statements = self._service.statements(self._client, self.process)
        for name, value in told.items():
            if name.lower() in statements.settings and name.lower() != "client_encoding":
                statements.settings[name.lower()] = value
        reported = [M.setting(name, statements.settings.get(name.lower(), value)) for name, value in REPORTED.items()]
        self._send(*reported, M.secret_key(self.process, self.secret), M.ready(b"I"))
        await self._writer.drain()
        try:
            await self._converse()
        finally:
            await asyncio.to_thread(statements.close)

    async def _converse(self) -> None:
        while (got := await M.read_message(self._reader)) is not None:
            kind, fields = got
            if kind == b"X":
                return
            if self._skipping and kind != b"S":
                continue  # after an error, up to the next Sync
            try:
                await self._handle(kind, fields)
            except M.ProtocolError:
                raise
            except ConnectionError:
                return
            except Exception as error:
                self._fail(ours(error), skip=kind not in (b"Q", b"F"))
                if kind == b"Q":
                    self._send(M.ready(self._state))
            if kind in (b"Q", b"S", b"H", b"F") or self._writer.transport.get_write_buffer_size() > 1 << 20:
                await self._writer.drain()

    async def _handle(self, kind: bytes, fields: M.Fields) -> None:
        match kind:
            case b"Q":
                await self._simple(fields.text())
            case b"P":
                name, text, types = fields.text(), fields.text(), fields.numbers("i")
                self._prepared[name] = Prepared(text, tuple(types))
                self._send(M.PARSED)
            case b"B":
                self._bind(fields)
            case b"D":
                await self._describe(fields.taken(1), fields.text())
            case b"E":
                await self._execute(fields.text(), fields.number())
            case b"C":
                kept: dict[str, Any] = self._prepared if fields.taken(1) == b"S" else self._portals
                kept.pop(fields.text(), None)
                self._send(M.CLOSED)
            case b"S":
                self._skipping = False
                if self._state != b"T":  # rows that were not taken are there until the end of their transaction
                    self._portals.clear()
                self._send(M.ready(self._state))
            case b"H" | b"d" | b"c" | b"f":
                pass  # a flush, or what is left of a COPY that failed
            case _:
                raise M.ProtocolError(f"unknown message {kind!r}")

    def _fail(self, error: MillstreamError, skip: bool) -> None:
        self._send(M.failure(error))
        self._skipping = skip
        if self._state == b"T":
            self._state = b"E"

    # -- simple queries --------------------------------------------------------------------------------------------

    async def _simple(self, text: str) -> None:
        complete, rest = split_complete(text)
        statements = [each for each in (*complete, rest) if not is_blank(each)]
        if not statements:
            self._send(M.EMPTY)
        for each in statements:
            answer = await self._perform(each)
            if isinstance(answer, Answered | Live):
                self._send(M.columns_told(columns := V.columns_of(answer.schema), [False] * len(columns)))
            await self._finish(answer, lambda width: [False] * width)
        self._send(M.ready(self._state))

    async def _perform(self, text: str, values: Sequence[Any] = ()) -> Answer:
        assert self._statements is not None
        if self._state == b"E" and first_word(text) not in ("ROLLBACK", "COMMIT", "END", "ABORT"):
            raise CatalogError("this transaction has failed; statements are ignored until it ends", hint="ROLLBACK")
        return await _in_thread(lambda: self._statements.perform(text, values))  # type: ignore[union-attr]

    async def _finish(self, answer: Answer, forms: Callable[[int], list[bool]]) -> None:
        """Send what a statement gives, and that it is done."""
        match answer:
            case Transaction(tag=tag, state=state):
                self._state = state
                self._send(M.complete(tag))
            case Done(tag=tag, notice=notice):
                if notice:
                    self._send(M.notice(notice))
                self._send(M.complete(tag))
            case Answered(tag=tag, table=table):
                await self._send_rows(table, forms(table.num_columns))
                self._send(M.complete(tag))
            case Live():
                wanted = forms(len(answer.schema))
                sent = await self._stream(answer, lambda table: self._send_rows(table, wanted))
                self._send(M.complete(f"SELECT {sent}"))
            case CopyOut():
                await self._copy_out(answer)
            case CopyIn():
                await self._copy_in(answer)

    # -- prepared statements ---------------------------------------------------------------------------------------

    def _bind(self, fields: M.Fields) -> None:
        portal, name = fields.text(), fields.text()
        prepared = self._find(name)
        formats, values, binary = fields.numbers(), fields.values(), fields.numbers()
        types = prepared.types + (0,) * (len(values) - len(prepared.types))
        forms = formats if len(formats) == len(values) else [formats[0] if formats else 0] * len(values)
        given = [V.parameter(*each) for each in zip(values, types, map(bool, forms), strict=False)]
        if portal not in self._portals and len(self._portals) >= _MOST_PORTALS:
            raise LimitError(f"{_MOST_PORTALS} portals are open", hint="close some, or end the transaction")
        self._portals[portal] = Portal(prepared, given, binary)
        self._send(M.BOUND)

    def _find(self, name: str) -> Prepared:
        found = self._prepared.get(name)
        if found is None:
            raise CatalogError(f"no prepared statement {name}")
        return found

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise CatalogError(f"no portal {name}")
        return found

    async def _describe(self, kind: bytes, name: str) -> None:
        if kind == b"P":
            assert self._statements is not None
            if name not in self._portals and (schema := self._statements.cursor_schema(name)) is not None:
                self._send(M.columns_told(columns := V.columns_of(schema), [False] * len(columns)))
                return
            portal = self._portal(name)
            if is_blank(portal.prepared.text):
                self._send(M.NO_DATA)
                return
            if portal.answer is None:
                portal.answer = await self._perform(portal.prepared.text, portal.values)
            self._tell_columns(portal.answer, portal.forms)
            return
        prepared = self._find(name)
        count = max((int(each) for each in sql.parameter_names(prepared.text) if each.isdigit()), default=0)
        types = prepared.types + (0,) * (count - len(prepared.types))
        self._send(M.parameters_told([each or V.TEXT for each in types[:count]]))
        if first_word(prepared.text) not in ("SELECT", "WITH", "SHOW", "VALUES", "FROM", "TABLE", "DESCRIBE", "FETCH"):
            self._send(M.NO_DATA)
            return
        self._tell_columns(await self._perform(prepared.text, [None] * count), lambda width: [False] * width)

    def _tell_columns(self, answer: Answer, forms: Callable[[int], list[bool]]) -> None:
        if isinstance(answer, Answered | Live):
            columns = V.columns_of(answer.schema)
            self._send(M.columns_told(columns, forms(len(columns))))
        else:
            self._send(M.NO_DATA)

    async def _execute(self, name: str, most: int) -> None:
        portal = self._portal(name)
        if is_blank(portal.prepared.text):
            self._send(M.EMPTY)
            return
        if portal.answer is None:
            portal.answer = await self._perform(portal.prepared.text, portal.values)
        answer = portal.answer
        if not isinstance(answer, Answered):
            await self._finish(answer, portal.forms)
            return
        left = answer.table if portal.left is None else portal.left
        now = left.slice(0, most) if most else left
        portal.left = left.slice(now.num_rows)
        await self._send_rows(now, portal.forms(now.num_columns))
        self._send(M.SUSPENDED if portal.left.num_rows else M.complete(answer.tag))

    # -- rows ------------------------------------------------------------------------------------------------------

    async def _send_rows(self, table: pa.Table, binary: list[bool]) -> None:
        for piece in pieces(table):
            encoded = await _in_thread(lambda piece=piece: b"".join(map(M.row, V.rows_of(piece, binary))))  # type: ignore[misc]
            self._send(encoded)
            await self._writer.drain()

    async def _stream(self, live: Live, send: Callable[[pa.Table], Any]) -> int:
        """Rows as they are emitted, until the query ends or somebody cancels; how many there were."""
        sent = dropped = 0
        watching = asyncio.ensure_future(self._gone())

        async def flow() -> None:
            nonlocal sent, dropped
            while not live.reader.ended:
                try:
                    batch = await asyncio.wait_for(anext(live.reader), _LOOK)
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    return
                await send(pa.Table.from_batches([batch]))
                sent += batch.num_rows
                if live.reader.dropped > dropped:
                    self._send(
                        M.notice(f"{live.reader.dropped - dropped} rows were dropped: this client reads too slowly")
                    )
                    dropped = live.reader.dropped

        task = self._streaming = asyncio.ensure_future(flow())
        try:
            await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ConnectionResetError("the client is gone")
            if task.cancelled():
                raise _cancelled()
            task.result()
        finally:
            self._streaming = None
            task.cancel()
            watching.cancel()
            await asyncio.to_thread(live.close)
        return sent

    async def _gone(self) -> None:
        """Wait until the client has left. Messages that it sent before, and that nobody reads, hide that from asyncio,
        so the socket is asked."""
        watched = select.poll()
        watched.register(self._writer.get_extra_info("socket").fileno(), getattr(select, "POLLRDHUP", 0))
        while not self._reader.at_eof() and not self._writer.is_closing() and not watched.poll(0):
            await asyncio.sleep(0.5)

    async def _copy_out(self, copy: CopyOut) -> None:
        outgoing = Outgoing(copy, copy.rows.schema)
        self._send(M.copy_begins(b"H", len(copy.rows.schema), copy.form == "binary"))

        async def send(table: pa.Table) -> None:
            # the next piece is written while the client reads this one
            sending: asyncio.Task[None] | None = None
            for piece in pieces(table):
                rows = await _in_thread(lambda piece=piece: outgoing.messages(piece))  # type: ignore[misc]
                if sending is not None:
                    await sending
                self._send(rows)
                sending = asyncio.ensure_future(self._writer.drain())
            if sending is not None:
                await sending

        if isinstance(copy.rows, Live):
            sent = await self._stream(copy.rows, send)
        else:
            await send(copy.rows.table)
            sent = copy.rows.table.num_rows
        self._send(outgoing.end(), M.COPY_DONE, M.complete(f"COPY {sent}"))

    async def _copy_in(self, copy: CopyIn) -> None:
        client = self._client
        assert client is not None
        notices: list[str] = []

        def push(rows: Any) -> int:
            accepted, notice = self._service.push(client, copy.target, rows)
            notices.extend([notice] if notice else [])
            return accepted

        incoming = Incoming(copy, push)
        self._send(M.copy_begins(b"G", len(copy.columns), copy.form == "binary"))
        await self._writer.drain()
        failed: MillstreamError | None = None
        while (got := await M.read_message(self._reader)) is not None:
            kind, fields = got
            match kind:
                case b"d" if failed is None:
                    try:
                        await _in_thread(lambda data=fields.rest: incoming.add(data))  # type: ignore[misc]
                    except MillstreamError as error:
                        failed = error  # the client goes on until it is done
                case b"c":
                    if failed is not None:
                        raise failed
                    accepted = await _in_thread(incoming.end)
                    self._send(*map(M.notice, notices[:10]), M.complete(f"COPY {accepted}"))
                    return
                case b"f":
                    raise CatalogError(f"the client gave up: {fields.text()}")
        raise ConnectionResetError("the client is gone")

    def _send(self, *parts: bytes) -> None:
        self._writer.write(b"".join(parts))


def _cancelled() -> MillstreamError:
    from millstream.limits import cancelled

    return cancelled()


async def _in_thread(work: Callable[[], _Value]) -> _Value:
    """A call of the engine. If the client leaves meanwhile, it ends all the same."""
    return await asyncio.to_thread(work)


async def close_quietly(writer: StreamWriter) -> None:
    writer.close()
    with suppress(Exception):
        await writer.wait_closed()

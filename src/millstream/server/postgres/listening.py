"""The server of PostgreSQL's protocol: it accepts connections, negotiates TLS, and authenticates clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from asyncio import Server, StreamReader, StreamWriter
from contextlib import suppress
from typing import Any

from millstream.errors import MillstreamError, ours
from millstream.server.access import Caller, Clients
from millstream.server.accounts import Account, Accounts
from millstream.server.postgres import messages as M
from millstream.server.postgres.catalog import SystemCatalog
from millstream.server.postgres.connection import Conversation, close_quietly
from millstream.server.postgres.statements import ClientStatements, push_notice
from millstream.server.scram import MECHANISM, Exchange, Verifier, WrongPasswordError
from millstream.session.database import Database

log = logging.getLogger("millstream.server")

_LOGIN_SECONDS = 30.0
"""a connection that has not logged in by then is closed"""

_WRONG_SECONDS = 0.5
"""how long a wrong password is waited with, so that guessing takes long"""

MOST_CONNECTIONS = 1_000

_NOBODY = Verifier.of(secrets.token_hex(16))
"""what the password of an unknown user is checked against, so that nobody learns which users there are"""


class PostgresServer:
    """A session for clients of PostgreSQL. Without `accounts`, everybody is let in, as admin."""

    def __init__(
        self, database: Database, accounts: Accounts | None, clients: Clients, tls: ssl.SSLContext | None = None
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._clients = clients
        self._tls = tls
        self._catalog = SystemCatalog(database.catalog)
        self._conversations: dict[int, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbered = 0
        self._server: Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which the system chooses for 0."""
        self._server = await asyncio.start_server(self._accept, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        self._catalog.close()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            writer.write(M.failure(M.ProtocolError("the server is shutting down"), "FATAL"))
        except MillstreamError as error:
            writer.write(M.failure(error, "FATAL"))
        except (ConnectionError, TimeoutError, ssl.SSLError):
            pass
        except Exception as error:
            log.exception("a connection failed")
            with suppress(Exception):
                writer.write(M.failure(ours(error), "FATAL"))
        finally:
            self._tasks.discard(task)
            await close_quietly(writer)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        start = await asyncio.wait_for(self._begin(reader, writer), _LOGIN_SECONDS)
        if start is None:
            return
        if len(self._conversations) >= MOST_CONNECTIONS:
            raise M.ProtocolError(f"{MOST_CONNECTIONS} clients are connected", hint="try again later")
        self._numbered += 1
        conversation = Conversation(self, reader, writer, self._numbered, secrets.randbits(31))
        self._conversations[conversation.process] = conversation
        try:
            await conversation.run(start)
        finally:
            del self._conversations[conversation.process]

    async def _begin(self, reader: StreamReader, writer: StreamWriter) -> M.Fields | None:
        """The start-up message; requests for encryption and for the end of a statement come before one."""
        while (start := await M.read_start(reader)) is not None:
            match code := start.number():
                case M.SSL_REQUEST if self._tls is not None:
                    writer.write(b"S")
                    await writer.drain()
                    await writer.start_tls(self._tls)
                case M.SSL_REQUEST | M.GSS_REQUEST:
                    writer.write(b"N")
                    await writer.drain()
                case M.CANCEL_REQUEST:
                    self._cancel(start.number(), start.number())
                    return None
                case _ if code >> 16 == 3:
                    if self._tls is not None and writer.get_extra_info("ssl_object") is None:
                        raise M.ProtocolError("this server needs TLS", hint="connect with sslmode=require")
                    return start
                case _:
                    raise M.ProtocolError(f"version {code >> 16}.{code & 65535} of the protocol is not supported")
        return None

    def _cancel(self, process: int, secret: int) -> None:
        found = self._conversations.get(process)
        if found is not None and secrets.compare_digest(str(found.secret), str(secret)):
            found.cancel()

    # -- what conversations need -----------------------------------------------------------------------------------

    async def log_in(self, user: str, reader: StreamReader, writer: StreamWriter) -> Caller:
        """Who is there; SCRAM proves it."""
        peer = writer.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else "local"
        if self._accounts is None:
            writer.write(M.authentication(0))
            return Caller(Account(user or "admin", "admin"), address, self._clients)
        account = self._accounts.find(user)
        client = Caller(account or Account(user, "reader"), address, self._clients)
        known = None if account is None else account.verifier
        exchange = Exchange(known or _NOBODY)
        try:
            async with asyncio.timeout(_LOGIN_SECONDS):
                writer.write(M.authentication(10, M.texts(MECHANISM), b"\0"))
                first = await self._said(reader)
                if first.text() != MECHANISM:
                    raise WrongPasswordError("only SCRAM-SHA-256 is supported")
                first.number()
                writer.write(M.authentication(11, exchange.challenge(_utf8(first.rest)).encode()))
                last = await self._said(reader)
                verdict = exchange.verdict(_utf8(last.rest))
        except WrongPasswordError:
            known = None
        if known is None or account is None:
            client.note("wrong password")
            await asyncio.sleep(_WRONG_SECONDS)
            raise M.LoginError(f"password authentication failed for user {user!r}")
        writer.write(M.authentication(12, verdict.encode()) + M.authentication(0))
        client.note("connected", by="postgres")
        return client

    async def _said(self, reader: StreamReader) -> M.Fields:
        got = await M.read_message(reader)
        if got is None or got[0] != b"p":
            raise M.ProtocolError("a password is expected")
        return got[1]

    def statements(self, client: Caller, process: int) -> ClientStatements:
        return ClientStatements(self._database, client, self._catalog, f"pg{process}")

    def push(self, client: Caller, target: str, rows: Any) -> tuple[int, str | None]:
        """Rows of COPY: how many were accepted, and what to tell of the others."""
        counts = client.push(self._database, target, rows)
        return counts.accepted, push_notice(target, counts.late, counts.rejected)


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WrongPasswordError("a message of the log-in is not UTF-8") from None

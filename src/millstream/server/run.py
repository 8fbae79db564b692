"""Starting a server: its session, its addresses and its accounts."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream
from millstream import spans
from millstream.errors import BindError, ConnectorError, EngineError, MillstreamError
from millstream.records import dataclass
from millstream.server import logs
from millstream.server.accounts import LEAST_SECRET, Accounts
from millstream.server.logs import Form
from millstream.session.database import Database

if TYPE_CHECKING:
    from millstream.server.access import Clients

OPERATOR = "admin"
"""the account whose token and password the operator gives at the start"""

_THREADS = 64
"""calls of the engine at a time; most of them wait"""

_FINISH_SECONDS = 30
"""how long calls that run when the server ends may take"""

_STATE_SECONDS = 2.0
"""how often the state of queries is measured for accounts with a limit"""

DRAIN_SECONDS = 1.0
"""how long a server that was asked to end still answers, so that balancers see it is not ready"""


@dataclass(frozen=True)
class Address:
    """Where a server listens, and how it proves who it is. `postgres` is the port of that protocol; 0: none."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    postgres: int = 0

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConnectorError(f"the certificate cannot be used: {error}", hint="--certificate and --key") from None
        return context


def serve(
    directory: Path | None,
    address: Address,
    token: str | None,
    locations: Mapping[str, str],
    drain: float = DRAIN_SECONDS,
    engine: str = "embedded",
    log: Form = "text",
) -> None:
    """Serve the session of a directory, or one in memory or on Spark, until the process is asked to end.

    `token` is the operator's; "" lets everybody in. Then it goes on for `drain` seconds, not ready.
    """
    accounts = Accounts(directory)
    check(address, token, len(accounts) > 0)
    if token:
        accounts.add(OPERATOR, "admin", token, keep=False)
    try:
        import uvicorn

        from millstream.server.access import Clients, open_audit_log
        from millstream.server.app import Service
        from millstream.server.patience import PatientProtocol, allow_many_connections
    except ModuleNotFoundError as error:
        raise EngineError(f"the server needs {error.name}", hint="pip install 'millstream[server]'") from None
    tls = address.tls()
    spans.begin()
    logs.begin(log)
    allow_many_connections()
    kept = {"durability": "disk"} if engine == "embedded" else {}
    database = millstream.connect(directory, engine=engine, profile="untrusted", locations=locations, **kept)
    open_audit_log(directory)
    clients, known = Clients(), accounts if token != "" else None

    @asynccontextmanager
    async def threads() -> AsyncIterator[None]:
        with ThreadPoolExecutor(_THREADS, "millstream-call") as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            yield

    @asynccontextmanager
    async def bounded() -> AsyncIterator[None]:
        watch = asyncio.create_task(_bound_state(clients, accounts, database))
        try:
            yield
        finally:
            watch.cancel()

    @asynccontextmanager
    async def postgres() -> AsyncIterator[None]:
        from millstream.server.postgres.listening import PostgresServer

        listening = PostgresServer(database, known, clients, tls)
        try:
            await listening.start(address.host, address.postgres)
        except OSError as error:
            raise ConnectorError(f"port {address.postgres} cannot be used: {error}") from None
        try:
            yield
        finally:
            await listening.stop()

    beside: list[type | object] = [threads, bounded]
    if address.postgres:
        beside.append(postgres)
    service = Service(database, known, clients)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            """Tell everybody, answer for a moment more, then end when the calls that run have."""
            service.drain()
            await asyncio.sleep(drain)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        service.app(*beside),  # type: ignore[arg-type]
        host=address.host,
        port=address.port,
        http=PatientProtocol,
        log_level="warning",
        log_config=None,
        timeout_graceful_shutdown=_FINISH_SECONDS,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        h11_max_incomplete_event_size=64 << 10,
        limit_concurrency=None,
        timeout_keep_alive=75,
    )
    Server(config).run()


async def _bound_state(clients: Clients, accounts: Accounts, database: Database) -> None:
    """Look now and then at what the queries of accounts keep that may not keep everything."""
    while True:
        await asyncio.sleep(_STATE_SECONDS)
        for account in [each for each in accounts if each.quota.state_bytes is not None]:
            try:
                await asyncio.to_thread(clients.bound_state, account, database)
            except MillstreamError:
                # a query that was there a moment ago was stopped
                continue


def check(address: Address, token: str | None, has_accounts: bool = False) -> None:
    """A server that anybody could use is not started."""
    if token is None and not has_accounts:
        raise BindError(
            "a server needs a token or an account",
            hint="set MILLSTREAM_TOKEN, add one with millstream account add, or use --no-token on loopback",
        )
    if token and len(token) < LEAST_SECRET:
        raise BindError(f"a token needs at least {LEAST_SECRET} characters")
    if not address.is_loopback and (token == "" or address.certificate is None):
        raise BindError(
            f"{address.host} can be reached from other machines",
            detail="tokens and rows would be sent unencrypted",
            hint="use --certificate and --key, or listen on 127.0.0.1",
        )

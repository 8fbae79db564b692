"""Starting a server: its session, its address and its token."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

import millstream
from millstream.errors import BindError, EngineError
from millstream.records import dataclass

LEAST_TOKEN = 6


@dataclass(frozen=True)
class Address:
    """Where a server listens, and how it proves who it is."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def serve(directory: Path | None, address: Address, token: str | None, locations: Mapping[str, str]) -> None:
    """Serve the session of a directory, or one in memory, until the process is asked to end."""
    check(address, token)
    try:
        import uvicorn

        from millstream.server.app import Service
    except ModuleNotFoundError as error:
        raise EngineError(f"the server needs {error.name}", hint="pip install 'millstream[server]'") from None
    database = millstream.connect(directory, profile="untrusted", locations=locations, durability="disk")
    secure = {"ssl_certfile": address.certificate, "ssl_keyfile": address.key} if address.certificate else {}
    uvicorn.run(
        Service(database, token).app(),
        host=address.host,
        port=address.port,
        log_level="warning",
        timeout_graceful_shutdown=5,
        **secure,  # type: ignore[arg-type]
    )


def check(address: Address, token: str | None) -> None:
    """A server that anybody could use is not started."""
    if token is None:
        raise BindError("a server needs a token", hint="set MILLSTREAM_TOKEN, or ask for --no-token on loopback")
    if token and len(token) < LEAST_TOKEN:
        raise BindError(f"a token has at least {LEAST_TOKEN} characters")
    if not address.is_loopback and (not token or address.certificate is None):
        raise BindError(
            f"{address.host} can be reached from other machines",
            detail="tokens and rows would travel readable for others",
            hint="give --certificate and --key, or listen on 127.0.0.1",
        )

"""`millstream serve`: a session for many clients."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.failures import explained
from millstream.cli.options import Debug, pairs

Locations = Annotated[
    list[str] | None,
    typer.Option("--location", metavar="NAME=DIR", help="A directory that SQL may name; may be given several times."),
]


class LogForm(Enum):
    """How the server writes what it has to tell."""

    TEXT = "text"
    JSON = "json"


def serve(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Keep catalog, tables, queries and their state here.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=1, max=65535)] = 8080,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="PEM", help="TLS: the certificate chain.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="PEM", help="TLS: the private key.")] = None,
    postgres: Annotated[
        int,
        typer.Option(
            "--postgres", metavar="PORT", min=0, max=65535, help="Also listen for PostgreSQL clients; 0: do not."
        ),
    ] = 0,
    location: Locations = None,
    engine: Annotated[
        str, typer.Option("--engine", help="Where the queries run: embedded, or spark (state is not kept).")
    ] = "embedded",
    no_token: Annotated[bool, typer.Option("--no-token", help="Loopback only: require no token.")] = False,
    drain: Annotated[
        float,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0,
            help="At shutdown: how long to answer requests while /ready returns 503.",
        ),
    ] = 1.0,
    log: Annotated[
        LogForm, typer.Option("--log", help="How warnings and errors are written to standard error.")
    ] = LogForm.TEXT,
    debug: Debug = False,
) -> None:
    """Serve a session over HTTP and PostgreSQL's protocol, until Ctrl-C or SIGTERM.

    Clients need the token in MILLSTREAM_TOKEN, or an account: see millstream account. Their SQL is not trusted: it
    reads and writes files only in named locations, and has limits of time and memory.

    **Examples**

        MILLSTREAM_TOKEN=secret millstream serve state/ --port 8080 --postgres 5432
        millstream serve --no-token
        millstream serve state/ --host 0.0.0.0 --certificate chain.pem --key key.pem --location in=/data/in
    """
    with explained(debug):
        from millstream.server.run import Address
        from millstream.server.run import serve as run

        token = "" if no_token else os.environ.get("MILLSTREAM_TOKEN") or None
        address = Address(host, port, certificate, key, postgres)
        run(directory, address, token, dict(pairs(location, "--location")), drain, engine, log.value)

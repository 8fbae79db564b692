"""`millstream account`: who may use a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from millstream.cli.failures import explained
from millstream.cli.options import Debug

app = typer.Typer(no_args_is_help=True, help="Add, list and remove the accounts of a server.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the server's session.")]


@app.command("add")
def add(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    role: Annotated[str, typer.Option("--role", help="reader, writer or admin")] = "reader",
    stream: Annotated[
        list[str] | None, typer.Option("--stream", help="A stream, table or view it may use; default: all.")
    ] = None,
    password: Annotated[
        str | None,
        typer.Option("--password", envvar="MILLSTREAM_PASSWORD", help="Default: generate one and print it."),
    ] = None,
    queries: Annotated[
        int | None, typer.Option("--queries", min=0, help="How many queries the account may run at once.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows-per-second", min=1, help="Rows per second that the account may push.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Add an account, or replace one. The password is also its token. A running server needs no restart."""
    with explained(debug):
        from millstream.server.accounts import Accounts

        secret = Accounts(directory).add(name, role, password, stream, queries, rows)
        if password is None:
            typer.echo(f"token and password of {name}: {secret}")


@app.command("list")
def list_(directory: Directory, debug: Debug = False) -> None:
    """List the accounts of a server."""
    with explained(debug):
        from millstream.server.accounts import Accounts

        table = Table("name", "role", "streams", "queries", "rows/s")
        for each in Accounts(directory):
            streams = "all" if each.streams is None else ", ".join(sorted(each.streams)) or "none"
            limits = ("" if limit is None else str(limit) for limit in (each.most_queries, each.rows_a_second))
            table.add_row(each.name, each.role, streams, *limits)
        Console().print(table)


@app.command("remove")
def remove(directory: Directory, name: Annotated[str, typer.Argument(metavar="NAME")], debug: Debug = False) -> None:
    """Remove an account. A server that runs must be started again."""
    with explained(debug):
        from millstream.server.accounts import Accounts

        Accounts(directory).remove(name)

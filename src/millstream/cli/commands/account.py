"""`millstream account`: who may use a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from millstream.cli.failures import explained
from millstream.cli.options import Debug

if TYPE_CHECKING:
    from millstream.server.accounts import Quota

app = typer.Typer(no_args_is_help=True, help="Add, list and remove the accounts of a server.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the server's session.")]

Queries = Annotated[int | None, typer.Option("--queries", min=0, help="How many queries an account may run at once.")]
Rows = Annotated[int | None, typer.Option("--rows-per-second", min=1, help="Rows per second that an account may push.")]
Statements = Annotated[
    int | None, typer.Option("--statements-per-second", min=1, help="Statements per second that an account may send.")
]
State = Annotated[
    int | None, typer.Option("--state-mb", min=1, help="MB of state that the queries of an account may keep together.")
]


def _quota(queries: int | None, rows: int | None, statements: int | None, state: int | None) -> Quota:
    """The limits that the options name; the server's part is imported only where it is needed."""
    from millstream.server.accounts import Quota

    return Quota(queries, rows, statements, None if state is None else state << 20)


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
    queries: Queries = None,
    rows: Rows = None,
    statements: Statements = None,
    state: State = None,
    debug: Debug = False,
) -> None:
    """Add an account, or replace one. The password is also its token. A running server needs no restart."""
    with explained(debug):
        from millstream.server.accounts import Accounts

        secret = Accounts(directory).add(name, role, password, stream, _quota(queries, rows, statements, state))
        if password is None:
            typer.echo(f"token and password of {name}: {secret}")


@app.command("list")
def list_(directory: Directory, debug: Debug = False) -> None:
    """List the accounts of a server."""
    with explained(debug):
        from millstream.server.accounts import Accounts

        def told(quota: Quota) -> list[str]:
            state = None if quota.state_bytes is None else quota.state_bytes >> 20
            limits = (quota.queries, quota.rows_a_second, quota.statements_a_second, state)
            return ["" if limit is None else str(limit) for limit in limits]

        accounts = Accounts(directory)
        table = Table("name", "role", "streams", "queries", "rows/s", "statements/s", "state MB")
        for each in accounts:
            streams = "all" if each.streams is None else ", ".join(sorted(each.streams)) or "none"
            table.add_row(each.name, each.role, streams, *told(each.quota))
        for role, quota in sorted(accounts.limits().items()):
            table.add_row(f"each {role}", role, "", *told(quota))
        Console().print(table)


@app.command("limit")
def limit(
    directory: Directory,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="reader, writer or admin")],
    queries: Queries = None,
    rows: Rows = None,
    statements: Statements = None,
    state: State = None,
    debug: Debug = False,
) -> None:
    """Set the limits of each account that has a role. Limits of an account go before them. Without options, none.

    A running server needs no restart.
    """
    with explained(debug):
        from millstream.server.accounts import Accounts

        Accounts(directory).limit(role, _quota(queries, rows, statements, state))


@app.command("remove")
def remove(directory: Directory, name: Annotated[str, typer.Argument(metavar="NAME")], debug: Debug = False) -> None:
    """Remove an account. A server that runs must be started again."""
    with explained(debug):
        from millstream.server.accounts import Accounts

        Accounts(directory).remove(name)

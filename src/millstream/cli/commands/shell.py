"""`millstream shell`: type SQL and see its results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import USER_ERROR, explained
from millstream.cli.options import Conf, Debug, EngineName, Master, pairs

if TYPE_CHECKING:
    from millstream.cli.shell.loop import Shell
    from millstream.session.database import Database


def shell(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Keep catalog, tables, queries and their state here.", show_default=False),
    ] = None,
    engine: Annotated[EngineName, typer.Option("--engine", "-e", help="Where the queries run.")] = EngineName.embedded,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect", metavar="URL", help="Work on the session of a server; the token is MILLSTREAM_TOKEN."
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    stop_on_error: Annotated[
        bool, typer.Option("--stop-on-error", help="In a script: stop at the first error.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Type SQL and see its results.

    Statements may take several lines and end with a semicolon; `help` lists the other commands. If standard input is
    not a terminal, it runs as a script: errors are printed, the rest still runs, and the exit code is 1 if anything
    failed.

    **Examples**

        millstream shell
        millstream shell state/
        millstream shell --stop-on-error < script.sql
        MILLSTREAM_TOKEN=secret millstream shell --connect http://127.0.0.1:8080
    """
    if directory is not None and directory.exists() and not directory.is_dir():
        raise typer.BadParameter(
            f"{directory} is a file, not the directory of a session; to run it: millstream shell < {directory}",
            param_hint="DIR",
        )
    with explained(debug):
        from millstream.cli.sessions import Wish, session
        from millstream.cli.shell.loop import Shell
        from millstream.cli.shell.reader import piped_lines

        with session(Wish(engine, directory, master, pairs(conf, "--conf"), server=connect)) as opened:
            loop = Shell(opened.database, stop_on_error=stop_on_error, debug=debug)
            if sys.stdin.isatty():
                _talk(loop)
                return
            finished = loop.script(piped_lines())
    if not finished:
        raise typer.Exit(USER_ERROR)


def _talk(loop: Shell) -> None:
    import millstream
    from millstream.cli.shell.reader import asker

    typer.echo(f"Millstream {millstream.__version__}. Type help for help, exit to leave.")
    loop.interactive(asker(lambda: _names(loop.database)))


def _names(database: Database) -> list[str]:
    """Words that can be completed: declared names, their columns, functions, aggregates and words of the language."""
    from millstream.cli.shell.describe import declared
    from millstream.expressions.functions.registry import known_names
    from millstream.library import TOPICS
    from millstream.plan.aggregates import NAMES

    words = {"SELECT", "FROM", "WHERE", "OVER", "PARTITION BY", "RANGE", "ROWS", "PRECEDING", "UNION ALL", "JOIN"}
    words |= {"CREATE STREAM", "CREATE TABLE", "CREATE SINK", "INSERT INTO", "EXPLAIN", "SHOW STREAMS", "SHOW QUERIES"}
    words |= {*known_names(), *NAMES, *TOPICS}
    for _, name, columns in declared(database):
        words |= {name, *(column for column, _ in columns)}
    return sorted(words)

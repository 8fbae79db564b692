"""Connections to PostgreSQL, for its sink and its source."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from millstream.connectors.addresses import POSTGRES, Url
from millstream.connectors.options import Options
from millstream.connectors.packages import needed
from millstream.errors import ConnectorError

EXAMPLE = "postgresql://user@localhost/db"
_TRANSIENT = ("08", "40", "53", "55", "57")
"""classes of errors that pass: lost connections, conflicts, too little of something, locks, a server that restarts"""


def library() -> Any:
    """The package psycopg."""
    return needed("psycopg", "postgres")


def place_from(options: Options, example: str) -> tuple[Url, tuple[str, ...]]:
    """The database and the table, perhaps with its schema, that options name."""
    address = Url.parsed(options.required("url", f"'{EXAMPLE}'"), POSTGRES, EXAMPLE)
    table = tuple(options.required("table", f"'{example}'").split("."))
    if not all(table) or len(table) > 2 or "\0" in "".join(table):
        raise ConnectorError("connector postgres: this is not a table", hint="table = 'name' or 'schema.name'")
    return address, table


def connected(at: Url, timeout: float, **settings: str) -> Any:
    """A connection on which each statement is a transaction, and may take so many seconds."""
    seconds = max(1, round(timeout))
    usual = {"application_name": "millstream", "connect_timeout": seconds, "tcp_user_timeout": 1000 * seconds}
    given = {"user": at.user, "password": at.password, "dbname": unquote(at.path.strip("/")) or None}
    place = {"host": at.host, "port": at.port, **{name: value for name, value in given.items() if value}}
    psycopg = library()
    # it knows the parameters of libpq, and no others
    info = psycopg.conninfo.make_conninfo(**(usual | at.parameters | place))
    connection = psycopg.connect(info, autocommit=True)
    for name, value in {"statement_timeout": str(round(1000 * timeout)), **settings}.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    return connection


def is_transient(error: Exception) -> bool:
    """Whether the same may work a little later."""
    state = getattr(error, "sqlstate", None)
    return isinstance(error, library().OperationalError) if state is None else state[:2] in _TRANSIENT


def told(error: Exception) -> str:
    """What PostgreSQL says, in one line."""
    return " ".join(str(error).split())


def quoted(*names: str) -> str:
    """A name, perhaps with its schema, as SQL writes it."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)

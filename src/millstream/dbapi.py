"""Millstream as a Python database (PEP 249): `connect()`, cursors, and the standard exceptions.

    import millstream.dbapi as dbapi

    with dbapi.connect() as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (k INTEGER, name VARCHAR)")
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b")])
        print(cursor.execute("SELECT * FROM t").fetchall())

A SELECT over a stream starts a continuous query; fetching returns the rows that it has emitted so far. There are no
transactions: every statement takes effect at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import millstream
from millstream import errors
from millstream.session.database import Database
from millstream.session.query import Query, Result

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

Warning = UserWarning
Error = errors.MillstreamError
InterfaceError = errors.MillstreamError
DatabaseError = errors.MillstreamError
ProgrammingError = errors.BindError
NotSupportedError = errors.UnsupportedError
DataError = errors.DataError
OperationalError = errors.ConnectorError
IntegrityError = errors.DataError
InternalError = errors.StateError


class TypeCodes:
    """Equal to the type codes in `description` of one kind: they are names of Arrow types."""

    def __init__(self, *beginnings: str) -> None:
        self._beginnings = beginnings

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other.startswith(self._beginnings))

    __hash__ = None  # type: ignore[assignment]


STRING, BINARY, ROWID = TypeCodes("string", "large_string"), TypeCodes("binary", "large_binary"), TypeCodes("rowid")
NUMBER = TypeCodes("int", "uint", "float", "halffloat", "double", "decimal", "bool")
DATETIME = TypeCodes("date", "time", "duration")
Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes
DateFromTicks, TimestampFromTicks = dt.date.fromtimestamp, dt.datetime.fromtimestamp

_Parameters = Sequence[Any] | Mapping[str, Any]


def TimeFromTicks(ticks: float) -> dt.time:
    """The local time of day, `ticks` seconds after the epoch."""
    return dt.datetime.fromtimestamp(ticks).time()


def connect(database: str | Path | None = None, **settings: Any) -> Connection:
    """Open a session in memory, or in a directory; `settings` are those of `millstream.connect`."""
    return Connection(millstream.connect(database, **settings))


class Connection:
    """A session. `database` is the `millstream.Database` behind it, for push, advance and subscriptions."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._closed = False

    def cursor(self) -> DbCursor:
        if self._closed:
            raise ProgrammingError("this connection is closed", hint="open another with connect()")
        return DbCursor(self)

    def commit(self) -> None:
        """Nothing to do: every statement takes effect at once."""

    def rollback(self) -> None:
        raise NotSupportedError("there are no transactions to roll back")

    def close(self) -> None:
        self._closed = True
        self.database.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DbCursor:
    """Runs statements and holds the rows of the last one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._result: Query | Result | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._closed = False

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]] | None:
        """(name, type, …) for each column of the last result; None if it had no rows."""
        if self._result is None:
            return None
        return [(field.name, str(field.type), None, None, None, None, None) for field in self._result.schema]

    @property
    def rowcount(self) -> int:
        """The rows of the last result; -1 for statements without rows and for continuous queries."""
        return self._result.fetch().num_rows if isinstance(self._result, Result) else -1

    def execute(self, operation: str, parameters: _Parameters | None = None) -> DbCursor:
        """Run one or more statements; `?` and `$name` in them take the parameters."""
        self._require_open()
        given = parameters if parameters is None or isinstance(parameters, Mapping) else list(parameters)
        self._result, self._rows = self.connection.database.execute(operation, given), []
        if isinstance(self._result, Result):
            self._take()
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[_Parameters]) -> DbCursor:
        """Run the same statement once for each set of parameters."""
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None if there is none (yet)."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows, at most `size` (or `arraysize`)."""
        self._require_open()
        if self._result is None:
            raise ProgrammingError("no rows to fetch", hint="execute a query first")
        if not self._rows and isinstance(self._result, Query):
            self._take()
        count = self.arraysize if size is None else size
        rows, self._rows = self._rows[:count], self._rows[count:]
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left; of a continuous query, those that it has emitted so far."""
        if isinstance(self._result, Query):
            self._take()
        return self.fetchmany(len(self._rows))

    def _take(self) -> None:
        assert self._result is not None
        table = self._result.fetch()
        self._rows += list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def setinputsizes(self, sizes: Any) -> None:
        """Nothing to do."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Forget the result; a continuous query keeps running."""
        self._closed, self._result, self._rows = True, None, []

    def _require_open(self) -> None:
        if self._closed:
            raise ProgrammingError("this cursor is closed", hint="open another with connection.cursor()")

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> DbCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

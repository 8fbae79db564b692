"""Stored tables, kept in DuckDB: in memory, or in a file of a persistent session."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa

from millstream import limits, sealed_duckdb
from millstream.arrays import one_batch
from millstream.catalog import SinkDef
from millstream.config import Config
from millstream.connectors.sinks.tables import STORES
from millstream.errors import DataError, StateError
from millstream.expressions.sql.text import to_duckdb_sql
from millstream.hosts.table_join import Added, Removed
from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.matching import tally_loops
from millstream.physical.nodes import StoredTable
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import INTERVAL, SqlType, fixed_length, from_duckdb

_MOST_CHANGES = 1_024
_MOST_CHANGED_ROWS = 1 << 17
"""changes of a table that are remembered for its readers; who is further behind reads the table again"""
_ROWS_AT_ONCE = 1 << 16
CHANGES = "__changes_"
"""how the names begin under which changes of tables wait"""
_count_rows = compile_kernel(source_of(tally_loops), "count_rows")
_CLOSING_SECONDS = 10.0
"""how long closing waits for statements that it interrupted"""


class TableStore:
    """The tables of one session. DuckDB is started when the first table is made."""

    def __init__(self, path: Path | None = None, config: Config | None = None) -> None:
        self.config = config or Config()
        self._path = path
        self.token = uuid4().hex
        STORES[self.token] = self
        self._lock = RLock()
        self._opening = Lock()
        self._connection: Any = None
        self._running: set[Any] = set()
        self._lent: ContextVar[Mapping[str, Any]] = ContextVar("lent", default={})  # noqa: B039
        self._versions: dict[str, int] = {}
        self._numbers: dict[str, str] = {}
        self._changes: dict[str, deque[tuple[int, Added | Removed]]] = {}
        self._met: dict[str, Any] = {}

    def create(
        self, name: str, schema: Schema, constraints: tuple[tuple[str, str], ...] = (), *, keep: bool = False
    ) -> None:
        """Make an empty table; one of that name goes, unless `keep` says to go on with it."""
        how = "CREATE TABLE IF NOT EXISTS" if keep else "CREATE OR REPLACE TABLE"
        kept = [*constraints, *((field.name, _no_months(field.name)) for field in schema if field.type == INTERVAL)]
        columns = [
            " ".join((quoted(field.name), field.type.stored, *(text for of, text in kept if of == field.name)))
            for field in schema
        ]
        self._run(f"{how} {quoted(name)} ({', '.join([*columns, *(text for of, text in constraints if not of)])})")
        self._touch([name])

    def create_as(self, name: str, sql: str) -> Schema:
        """Make a table of a query's rows; its schema comes from them."""
        self._run(f"CREATE OR REPLACE TABLE {quoted(name)} AS {sql}")
        self._touch([name])
        return self.schema_of(f"SELECT * FROM {quoted(name)}")

    def create_from(self, name: str, rows: pa.Table) -> Schema:
        """Make a table of these rows."""
        with self.lent({"__rows": rows}):
            return self.create_as(name, "SELECT * FROM __rows")

    def load(self, name: str, rows: pa.Table) -> None:
        """Put all rows of an Arrow table into a stored table of the same columns."""
        with self.lent({"__rows": rows}):
            self._run(f"INSERT INTO {quoted(name)} SELECT * FROM __rows")
        self._touch([name])

    @property
    def is_saved(self) -> bool:
        """Whether tables outlive the process."""
        return self._path is not None

    def found_by(self, sink: SinkDef | None) -> SinkDef | None:
        """A sink; that of a query which inserts into a table finds this store."""
        if sink is None or sink.options.get("connector") != "table":
            return sink
        return SinkDef(sink.name, {**sink.options, "$store": self.token})

    def put(self, table: str, rows: pa.Table, keys: Sequence[str] | None = None) -> None:
        """Rows come into a table, under the names of its columns. With `keys` they replace those of their keys, and the
        last column says of each whether it comes (u) or goes (d)."""
        with self.lent({"__rows": rows}):
            self._change_rows(table, "__rows", rows.column_names, keys)

    def put_aside(self, name: str, rows: pa.Table) -> None:
        """Rows wait under a name."""
        with self.lent({"__rows": rows}):
            self._run(f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT * FROM __rows")

    def aside(self, prefix: str) -> list[str]:
        """The names under which rows wait."""
        found, _ = self._answer(f"SELECT table_name FROM duckdb_tables() WHERE starts_with(table_name, '{prefix}')")
        return sorted(found.column(0).to_pylist())

    def rows_aside(self, name: str) -> pa.Table:
        """The rows that wait under a name; how many an answer may have is not asked."""
        with self._cursor(is_written=False) as cursor:
            answer = cursor.sql(f"FROM {quoted(name)}")
            kinds = [str(kind) for kind in answer.types]
            return _in_our_types(answer.to_arrow_table(), kinds)

    def take_aside(self, name: str, table: str | None, keys: Sequence[str] | None = None) -> None:
        """Rows that wait come into a table, or with None are dropped."""
        if table is None:
            return self._run(f"DROP TABLE {quoted(name)}")
        columns = self.schema_of(f"SELECT * FROM {quoted(name)}").names
        return self._change_rows(table, quoted(name), columns, keys, f"DROP TABLE {quoted(name)}")

    def _change_rows(
        self, table: str, source: str, columns: Sequence[str], keys: Sequence[str] | None, *then: str
    ) -> None:
        """Put rows into a table, all of them or none."""
        steps = []
        if keys is not None:
            # of several changes of a key the last one counts
            *columns, op = columns
            listed = ", ".join(map(quoted, keys))
            numbered = f"(SELECT *, row_number() OVER () AS __n FROM {source})"
            last = f"QUALIFY row_number() OVER (PARTITION BY {listed} ORDER BY __n DESC) = 1"
            source = f"(SELECT * FROM {numbered} {last})"
            steps.append(f"DELETE FROM {quoted(table)} WHERE ({listed}) IN (SELECT ({listed}) FROM {source})")
            source = f"{source} WHERE {quoted(op)} = 'u'"
        names = ", ".join(map(quoted, columns))
        steps += [f"INSERT INTO {quoted(table)} ({names}) SELECT {names} FROM {source}", *then]
        with self._lock, self._cursor(is_written=False) as cursor:
            cursor.begin()
            try:
                for step in steps:
                    cursor.execute(step)
                cursor.commit()
            except BaseException:
                cursor.rollback()
                raise
            self._keep_private()
        self._touch([table])

    def tell_changes(self, name: str, number: str) -> None:
        """Remember what comes into a table and goes, for those who read it; each row has a number of its own."""
        self._numbers[name.lower()] = number
        self._changes[name.lower()] = deque(maxlen=_MOST_CHANGES)

    def number_of(self, name: str) -> str | None:
        """The column with the number of each row of a table, if its changes are remembered."""
        return self._numbers.get(name.lower())

    def changes(self, name: str, since: int) -> list[Added | Removed] | None:
        """What happened to a table after a version, in order; None if that is not known."""
        known = [(version, change) for version, change in self._changes.get(name.lower(), ()) if version > since]
        complete = [version for version, _ in known] == list(range(since + 1, self.version(name) + 1))
        return [change for _, change in known] if complete else None

    def count_met(self, name: str) -> None:
        """Count from now on how many rows of streams meet each row of a table, by its number."""
        self._met[name.lower()] = np.zeros(0, dtype=np.int64)

    def met(self, name: str, numbers: Ints) -> None:
        """Rows of a stream met rows of a table, by their numbers."""
        counts = self._met.get(name.lower())
        if counts is None or not len(numbers):
            return
        size = int(numbers.max()) + 1
        if size > len(counts):
            counts = np.concatenate([counts, np.zeros(size + size // 8 - len(counts), dtype=np.int64)])
            self._met[name.lower()] = counts
        _count_rows(len(numbers), 0, len(numbers), numbers, counts)

    def met_rows(self, name: str) -> Ints | None:
        """How many rows met each row of a table, as far as its numbers go; None if none is counted, as on Spark, where
        they meet in workers."""
        counts = self._met.get(name.lower())
        return None if counts is None or not len(counts) else counts

    def add_rows(self, name: str, rows: pa.Table) -> None:
        """Rows come into a table whose changes are remembered."""
        combined = one_batch(rows.to_batches(), rows.schema)
        self.load(name, rows)
        self._remember(name, Added(combined) if combined.num_rows else None)

    def remove_rows(self, name: str, numbers: pa.RecordBatch) -> None:
        """The rows of these numbers leave a table whose changes are remembered."""
        number = quoted(self._numbers[name.lower()])
        with self.lent({"__gone": pa.Table.from_batches([numbers])}):
            self._run(f"DELETE FROM {quoted(name)} WHERE {number} IN (SELECT {number} FROM __gone)")
        self._touch([name])
        self._remember(name, Removed(numbers))

    def _remember(self, name: str, change: Added | Removed | None) -> None:
        if change is None:
            return
        remembered = self._changes[name.lower()]
        remembered.append((self.version(name), change))
        # who reads the table after a change so large reads all of it; the rows are not held twice for that
        while remembered and sum(each.rows.num_rows for _, each in remembered) > _MOST_CHANGED_ROWS:
            remembered.popleft()

    @contextmanager
    def lent(self, tables: Mapping[str, Any]) -> Iterator[None]:
        """Arrow tables and data sets that statements of this thread may read meanwhile, by name."""
        token = self._lent.set({**self._lent.get(), **tables})
        try:
            yield
        finally:
            self._lent.reset(token)

    def drop(self, name: str) -> None:
        self._run(f"DROP TABLE IF EXISTS {quoted(name)}")
        self._touch([name])
        self._numbers.pop(name.lower(), None)
        self._changes.pop(name.lower(), None)
        self._met.pop(name.lower(), None)

    def change(
        self, sql: str, tables: frozenset[str], check: Callable[[pa.Table], None] | None = None,
        noted: Noted | None = None,
    ) -> pa.Table:  # fmt: skip
        """Run INSERT, UPDATE or DELETE; readers of `tables` see it with their next rows. With `check`, which may refuse
        the rows that were changed by raising an error, these are returned. With `noted`, the rows that came and went
        wait aside for those who read them."""
        if check is None and noted is None:
            self._run(sql)
            changed = pa.table({})
        else:
            with self._lock, self._cursor() as cursor:
                cursor.execute("BEGIN TRANSACTION")
                try:
                    if noted is not None:
                        noted.begin(cursor)
                    answer = cursor.sql(f"{sql} RETURNING *")
                    kinds = [str(kind) for kind in answer.types]
                    rows = answer.to_arrow_table()
                    changed = _in_our_types(rows, kinds)
                    if check is not None:
                        check(changed)
                    if noted is not None:
                        noted.end(cursor, rows)
                except BaseException:
                    cursor.execute("ROLLBACK")
                    raise
                cursor.execute("COMMIT")
                self._keep_private()
        self._touch(tables)
        return changed

    def query(self, sql: str) -> pa.Table:
        """The answer of an ad-hoc query, in our types."""
        return _in_our_types(*self._answer(sql))

    def schema_of(self, sql: str) -> Schema:
        empty, kinds = self._answer(f"SELECT * FROM ({sql}) LIMIT 0")
        return Schema(tuple(_schema_of(empty.schema, kinds)))

    def read(self, table: StoredTable, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """A table's rows as a plan reads them; a query may also read tables that are lent to it."""
        columns = ", ".join(
            f"CAST({to_duckdb_sql(expr)} AS {expr.type.duckdb}) AS {quoted(name)}" for name, expr in table.columns
        )
        where = "" if table.predicate is None else f" WHERE {to_duckdb_sql(table.predicate)}"
        source = f"({table.query})" if table.table is None else quoted(table.table)
        with self.lent(lent or {}):
            rows, _ = self._answer(f"SELECT {columns} FROM {source}{where}", is_written=False)
        return _in_types(rows, [field.type for field in table.schema])

    def version(self, name: str) -> int:
        """A number that grows with every change of the table."""
        return self._versions.get(name.lower(), 0)

    def still(self) -> AbstractContextManager[Any]:
        """Meanwhile no table changes."""
        return self._lock

    def close(self) -> None:
        until = time.monotonic() + _CLOSING_SECONDS
        while self._running and time.monotonic() < until:
            for cursor in list(self._running):
                cursor.interrupt()
            time.sleep(0.01)
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _touch(self, names: frozenset[str] | list[str]) -> None:
        for name in names:
            self._versions[name.lower()] = self.version(name) + 1

    def _run(self, sql: str) -> None:
        # those who change tables take turns; those who read do not wait for them
        with self._lock, self._cursor() as cursor:
            cursor.execute(sql)
            self._keep_private()

    def _keep_private(self) -> None:
        """DuckDB makes its files for everybody to read."""
        for path in (self._path, self._path.with_name(f"{self._path.name}.wal")) if self._path is not None else ():
            with suppress(FileNotFoundError):
                path.chmod(0o600)

    def _answer(self, sql: str, *, is_written: bool = True) -> tuple[pa.Table, list[str]]:
        """The rows that DuckDB answers, and its names of their types."""
        with self._cursor(is_written=is_written) as cursor:
            answer = cursor.sql(sql)
            kinds = [str(kind) for kind in answer.types]
            allowed = self.config.limits
            if not allowed.rows:
                return answer.to_arrow_table(), kinds
            batches, count = [], 0
            reader = answer.to_arrow_reader(_ROWS_AT_ONCE)
            for batch in reader:
                batches.append(batch)
                count += batch.num_rows
                allowed.check_rows(count)
            return pa.Table.from_batches(batches, reader.schema), kinds

    @contextmanager
    def _cursor(self, *, is_written: bool = True) -> Iterator[Any]:
        """A connection for one statement, which others can interrupt, and which ends at its time limit. One that a user
        has written reads times in the session's zone."""
        with ExitStack() as stack:
            work = limits.current() or stack.enter_context(limits.working(self.config.limits))
            cursor = stack.enter_context(self._duckdb().cursor())
            for name, rows in self._lent.get().items():
                cursor.register(name, rows)
            if is_written and self.config.timezone != "UTC":
                cursor.execute(f"SET TimeZone = '{self.config.timezone}'")
            self._running.add(cursor)
            stack.callback(self._running.discard, cursor)
            with _plain_errors(), work.interruptible(cursor.interrupt):
                yield cursor

    def _duckdb(self) -> Any:
        with self._opening:
            if self._connection is None:
                self._connection = self._connected()
            return self._connection

    def _connected(self) -> Any:
        import duckdb

        try:
            return sealed_duckdb.connect(self._path, memory=self.config.memory_limit)
        except duckdb.Error as error:
            if self._path is None:
                raise
            raise StateError(
                f"cannot open {self._path}, which holds the stored tables",
                detail=str(error).splitlines()[0],
                hint="restore it from a copy of the directory",
            ) from None


@dataclass(frozen=True)
class Noted:
    """The changes of a table that are put aside in the transaction that makes them, under names that sort by their
    order: those that come (`istream`) and those that go (`dstream`), as far as somebody reads them.

    What INSERT and DELETE change is what they return. Otherwise, the table is compared with a copy.
    """

    table: str
    effect: Literal["insert", "delete", "any"]
    streams: tuple[str, ...]

    def begin(self, cursor: Any) -> None:
        cursor.execute("CREATE SEQUENCE IF NOT EXISTS __changes")
        if self.effect == "any":
            cursor.execute(f"CREATE TEMP TABLE __before AS FROM {quoted(self.table)}")

    def end(self, cursor: Any, returned: pa.Table) -> None:
        [(number,)] = cursor.execute("SELECT nextval('__changes')").fetchall()
        table, before = quoted(self.table), "temp.__before"
        changes = {
            "dstream": f"FROM {before} EXCEPT ALL FROM {table}",
            "istream": f"FROM {table} EXCEPT ALL FROM {before}",
        }
        if self.effect != "any":
            cursor.register("__returned", returned)
            changes = {"istream" if self.effect == "insert" else "dstream": "FROM __returned"}
        for how, query in changes.items():
            if f"{how}({self.table})".lower() in self.streams:
                name = quoted(f"{CHANGES}{number:019}_{how}({self.table})")
                order = " ORDER BY ALL" if self.effect == "any" else ""
                cursor.execute(f"CREATE TABLE {name} AS SELECT * FROM ({query}){order}")
        if self.effect == "any":
            cursor.execute(f"DROP TABLE {before}")


_KIND = re.compile(r"^(Binder|Constraint|Conversion|Invalid Input|Out of Range) Error: ")
"""what DuckDB puts in front of errors that say enough without it"""


@contextmanager
def _plain_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError) as error:
        # what fails while rows are read comes as an OSError of Arrow's
        first, *others = str(error).splitlines()
        known = next((line for line in others if line.startswith("Candidate")), "").partition(": ")[2].replace('"', "")
        hint = f"available: {known}" if known else None
        raise DataError(_KIND.sub("", first), hint=hint) from None


def quoted(name: str) -> str:
    """A name as SQL that means just this name."""
    return '"' + name.replace('"', '""') + '"'


def _no_months(name: str) -> str:
    """A constraint: an INTERVAL has a fixed length here."""
    return f"CHECK (year({quoted(name)}) = 0 AND month({quoted(name)}) = 0)"


def _in_types(table: pa.Table, types: list[SqlType]) -> pa.Table:
    """An answer of DuckDB's with columns of our types; names may repeat."""
    columns = []
    for column, type_ in zip(table.columns, types, strict=True):
        if pa.types.is_interval(column.type):
            column = pa.chunked_array([fixed_length(chunk) for chunk in column.chunks], type_.arrow)
        columns.append(column.cast(type_.arrow))
    return pa.Table.from_arrays(columns, names=table.column_names) if columns else table


def _in_our_types(table: pa.Table, kinds: list[str]) -> pa.Table:
    return _in_types(table, [field.type for field in _schema_of(table.schema, kinds)])


def _schema_of(schema: pa.Schema, kinds: list[str]) -> list[Field]:
    fields = []
    for column, kind in zip(schema, kinds, strict=True):
        type_ = from_duckdb(kind, column.type)
        if type_ is None:
            is_list = pa.types.is_list(column.type)
            raise DataError(
                f"column {column.name} has the type {column.type}, which is not supported",
                hint="take the inner values out with UNNEST" if is_list else "CAST it",
            )
        fields.append(Field(column.name, type_))
    return fields

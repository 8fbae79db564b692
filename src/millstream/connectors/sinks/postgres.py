"""The PostgreSQL sink: rows by COPY, as they are or as upserts, in transactions that also note the position."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.addresses import Url
from millstream.connectors.options import Options, OptionValue, upsert_keys
from millstream.connectors.postgres.client import connected, is_transient, library, place_from, quoted, told
from millstream.connectors.sinks.sending import Again, Sending, SendingSink, missing_rows
from millstream.connectors.sinks.writers import open_writer
from millstream.schema import Schema, unique_names
from millstream.types import SqlType

_NOTES = "millstream_sinks"
"""the table that says how many rows of each query are in the target"""
_TYPES = {
    "NULL": "text", "TINYINT": "smallint", "DOUBLE": "double precision", "VARCHAR": "text", "BLOB": "bytea",
    "ARRAY": "jsonb", "STRUCT": "jsonb", "MAP": "jsonb",
}  # fmt: skip
_DOMAINS = {"JSON": "jsonb", "UUID": "uuid"}


class PostgresSink(SendingSink):
    """Writes each part in a transaction, which also notes the position: rows that are there are passed over."""

    def __init__(self, address: Url, table: tuple[str, ...], keys: tuple[str, ...] | None, sending: Sending) -> None:
        super().__init__(f"the table {'.'.join(table)} at {address}", sending)
        self._address = address
        self._table = table
        self._keys = keys
        self._connection: Any = None

    @staticmethod
    def from_options(given: Mapping[str, OptionValue]) -> PostgresSink:
        options = Options("connector postgres", given)
        address, table = place_from(options, "results")
        sending = Sending.from_options(options, 50_000)
        options.choice("mode", ("append", "upsert"))
        keys = upsert_keys(given)
        if keys is not None:
            options.text("key")
        options.finish()
        library()
        return PostgresSink(address, table, keys, sending)

    def _begin(self, schema: Schema) -> None:
        """The tables are there, and the target has the columns."""
        with self._transaction() as cursor:
            self._noted(cursor)

    def _send(self, rows: pa.Table, first: int) -> None:
        with self._transaction() as cursor:
            noted = self._noted(cursor)
            if noted < first:
                raise self._cannot(missing_rows(noted, first))
            end, rows = first + rows.num_rows, rows.slice(noted - first)
            if rows.num_rows == 0:
                return
            if self._keys is None:
                self._copy(cursor, rows, quoted(*self._table), self._names)
            else:
                self._upsert(cursor, rows, self._keys)
            self._note(cursor, end)

    def _note(self, cursor: Any, position: int) -> None:
        cursor.execute(
            f"INSERT INTO {_NOTES} VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET rows = excluded.rows",
            (self._id, position, ".".join(self._table)),
        )

    def _noted(self, cursor: Any) -> int:
        """The position that is noted, locked until the transaction ends."""
        found = cursor.execute(f"SELECT rows FROM {_NOTES} WHERE id = %s FOR UPDATE", (self._id,)).fetchone()
        return 0 if found is None else int(found[0])

    def _copy(self, cursor: Any, rows: pa.Table, table: str, names: Sequence[str]) -> None:
        """CSV has an empty field for NULL and quotes for empty text; PostgreSQL converts it to the columns' types."""
        text = io.BytesIO()
        writer = open_writer("csv", text, self._schema, header=False)
        for batch in rows.to_batches():
            columns = [_spelled(column) for column in batch.columns]
            writer.write(pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))]))
        writer.finish()
        listed = ", ".join(map(quoted, names))
        with cursor.copy(f"COPY {table} ({listed}) FROM STDIN WITH (FORMAT csv, ENCODING 'UTF8')") as copying:
            copying.write(text.getbuffer())

    def _upsert(self, cursor: Any, rows: pa.Table, keys: Sequence[str]) -> None:
        """Of several changes of a key the last one counts."""
        lower = [name.lower() for name in self._names]
        places = [lower.index(key.lower()) for key in keys]
        if any(rows.column(place).null_count for place in places):
            raise self._cannot("a row without a key cannot be an upsert")
        columns = [*(rows.column(place) for place in places), pa.array(np.arange(rows.num_rows))]
        numbered = pa.table(columns, names=[*(f"k{place}" for place in places), "row"])
        last = numbered.group_by([f"k{place}" for place in places]).aggregate([("row", "max")]).column("row_max")
        rows = rows.take(pa.array(np.sort(last.to_numpy())))
        *values, op = (quoted(name) for name in self._names)
        target, key = quoted(*self._table), [quoted(self._names[place]) for place in places]
        cursor.execute("DROP TABLE IF EXISTS pg_temp.millstream_changes")
        cursor.execute(
            f"CREATE TEMPORARY TABLE millstream_changes ON COMMIT DROP AS "
            f"SELECT {', '.join(values)}, ''::text AS {op} FROM {target} LIMIT 0"
        )
        self._copy(cursor, rows, "pg_temp.millstream_changes", self._names)
        same = " AND ".join(f"held.{name} = changed.{name}" for name in key)
        cursor.execute(
            f"DELETE FROM {target} AS held USING pg_temp.millstream_changes AS changed "
            f"WHERE changed.{op} = 'd' AND {same}"
        )
        replaced = ", ".join(f"{name} = excluded.{name}" for name in values if name not in key)
        cursor.execute(
            f"INSERT INTO {target} ({', '.join(values)}) "
            f"SELECT {', '.join(values)} FROM pg_temp.millstream_changes WHERE {op} = 'u' "
            f"ON CONFLICT ({', '.join(key)}) DO {'UPDATE SET ' * bool(replaced)}{replaced or 'NOTHING'}"
        )

    # -- the connection ------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor in a transaction; errors of PostgreSQL come out as ours."""
        try:
            connection = self._connected()
            with connection.transaction(), connection.cursor() as cursor:
                yield cursor
        except library().Error as error:
            raise self._failure(error) from error

    def _connected(self) -> Any:
        """A connection on which the tables are known to be there."""
        if self._connection is None or self._connection.closed:
            self._connection = connected(self._address, self._sending.timeout)
            self._declare()
        return self._connection

    def _declare(self) -> None:
        self._names = unique_names(field.name for field in self._schema.fields)
        lower = [name.lower() for name in self._names]
        fields = list(zip(self._names, (field.type for field in self._schema.fields), strict=True))
        columns = [f"{quoted(name)} {_column_type(type_)}" for name, type_ in fields[: -1 if self._keys else None]]
        if self._keys:
            columns.append(
                f"PRIMARY KEY ({', '.join(quoted(self._names[lower.index(k.lower())]) for k in self._keys)})"
            )
        with self._connection.transaction(), self._connection.cursor() as cursor:
            # two sinks that begin at the same time would both create the tables
            cursor.execute("SELECT pg_advisory_xact_lock(7813269441052117)")
            for name, content in (
                ((_NOTES,), "id text PRIMARY KEY, rows bigint NOT NULL, target text NOT NULL"),
                (self._table, ", ".join(columns)),
            ):
                found = cursor.execute("SELECT to_regclass(%s)", (quoted(*name),)).fetchone()
                if found[0] is None:
                    cursor.execute(f"CREATE TABLE {quoted(*name)} ({content})")
            cursor.execute(
                f"INSERT INTO {_NOTES} VALUES (%s, 0, %s) ON CONFLICT DO NOTHING", (self._id, ".".join(self._table))
            )
            known = ", ".join(map(quoted, self._names[: -1 if self._keys else None]))
            cursor.execute(f"SELECT {known} FROM {quoted(*self._table)} LIMIT 0")

    def _failure(self, error: Exception) -> Exception:
        """What an error of PostgreSQL means to the host."""
        return Again(told(error)) if is_transient(error) else self._cannot(told(error))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _spelled(column: pa.Array) -> pa.Array:
    """The values as PostgreSQL reads them, where it does not read what other sinks write."""
    if pa.types.is_binary(column.type):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(column.type):
        return pc.binary_join_element_wise(column.cast(pa.int64()).cast(pa.string()), "microseconds", " ")
    return column


def _column_type(type_: SqlType) -> str:
    if type_.name == "DECIMAL":
        return f"numeric({type_.precision}, {type_.scale})"
    return _DOMAINS.get(type_.domain) or _TYPES.get(type_.name) or type_.name.lower()

"""The sink of a query whose rows go into a stored table.

In a session that is saved, rows wait for the checkpoint: it puts them aside in the table store (`prepare`), and when it
is known to be there they come into the table (`publish`), in one transaction. So a query that is replayed after a crash
meets the table as it was, and no row comes twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from millstream.connectors.contract import Offset
from millstream.errors import StateError
from millstream.schema import Schema


class RowStore(Protocol):
    """The part of the table store that takes rows."""

    @property
    def is_saved(self) -> bool: ...

    def put(self, table: str, rows: pa.Table, keys: Sequence[str] | None) -> None:
        """Rows come into a table; with `keys` they are changes by key, and their last column says which."""
        ...

    def put_aside(self, name: str, rows: pa.Table) -> None: ...

    def aside(self, prefix: str) -> list[str]: ...

    def take_aside(self, name: str, table: str | None, keys: Sequence[str] | None) -> None:
        """What was put aside comes into a table, or with None is dropped."""
        ...


STORES: WeakValueDictionary[str, RowStore] = WeakValueDictionary()
"""the table stores of this process, by the token that options have as `$store`"""


class TableSink:
    """Puts rows into a stored table; offsets are `{id, batch, rows}`."""

    def __init__(self, table: str, token: str, keys: tuple[str, ...] | None) -> None:
        self._table = table
        self._token = token
        self._keys = keys
        self._schema: Schema | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._id = ""
        self._batch = self._rows = 0

    def open(self, schema: Schema, committed: Offset) -> None:
        self._schema = schema
        self._waiting = []
        self._id = str(committed.get("id") or uuid.uuid4().hex)
        self._batch, self._rows = int(committed.get("batch", 0)), int(committed.get("rows", 0))
        for name in self._store.aside(self._prefix):
            known = name == f"{self._prefix}{self._batch}"
            self._store.take_aside(name, self._table if known else None, self._keys)

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        if self._store.is_saved:
            self._waiting.append(rows)
        else:
            self._store.put(self._table, self._as_table([rows]), self._keys)

    def prepare(self) -> Offset:
        if self._waiting:
            self._batch += 1
            self._store.put_aside(f"{self._prefix}{self._batch}", self._as_table(self._waiting))
            self._waiting = []
        return {"id": self._id, "batch": self._batch, "rows": self._rows}

    def publish(self) -> None:
        for name in self._store.aside(self._prefix):
            self._store.take_aside(name, self._table, self._keys)

    def commit(self) -> Offset:
        offset = self.prepare()
        self.publish()
        return offset

    def release(self) -> None:
        self._waiting = []

    def close(self) -> None:
        self.commit()

    @property
    def _prefix(self) -> str:
        return f"__aside_{self._id}_"

    @property
    def _store(self) -> RowStore:
        found = STORES.get(self._token)
        if found is None:
            raise StateError(f"the session of table {self._table} is closed")
        return found

    def _as_table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        assert self._schema is not None
        return pa.Table.from_batches(batches).rename_columns(list(self._schema.names))

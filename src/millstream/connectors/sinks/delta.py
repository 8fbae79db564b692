"""The Delta sink: each part is a commit of a Delta table, which also has the position as a transaction of ours."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.connectors.files.listing import confined
from millstream.connectors.options import Options
from millstream.connectors.packages import needed
from millstream.connectors.sinks.files import Existing, already_there
from millstream.connectors.sinks.sending import Again, Sending, SendingSink, first_line, layout_of, missing_rows
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import INTERVAL, NULL, TIME


def library() -> Any:
    """The package deltalake."""
    return needed("deltalake", "delta")


def delta_sink(options: Options, existing: Existing) -> DeltaSink:
    """The sink that the options of a declaration mean."""
    path = options.required("path", "'results'")
    if "://" not in path:
        path = str(confined(Path(path).expanduser().absolute(), options.within))
    sending = Sending.from_options(options, 100_000, flush_ms=60_000)
    options.finish()
    library()
    return DeltaSink(path, existing, sending)


class DeltaSink(SendingSink):
    """Appends each part in a commit. Its position is the version of an application transaction, so that the table
    itself says which rows it has."""

    def __init__(self, path: str, existing: Existing, sending: Sending) -> None:
        super().__init__(f"the Delta table {path}", sending)
        self._path = path
        self._existing = existing
        self._table: Any = None

    def _begin(self, schema: Schema) -> None:
        delta = library()
        missing = [f"{field.name} {field.type}" for field in schema if field.type in (TIME, INTERVAL, NULL)]
        if missing:
            raise ConnectorError(f"Delta has no type for {', '.join(missing)}", hint="cast it, for example to VARCHAR")
        layout = layout_of(schema)
        with self._told():
            if not delta.DeltaTable.is_deltatable(self._path):
                delta.DeltaTable.create(self._path, layout)
            elif self._existing == "overwrite":
                delta.write_deltalake(self._path, layout.empty_table(), mode="overwrite", schema_mode="overwrite")
            elif self._existing == "refuse" and delta.DeltaTable(self._path).file_uris():
                raise already_there(self._path)

    def _send(self, rows: pa.Table, first: int) -> None:
        delta = library()
        with self._told():
            if self._table is None:
                self._table = delta.DeltaTable(self._path)
            else:
                self._table.update_incremental()
            noted = int(self._table.transaction_version(self._id) or 0)
            if noted < first:
                raise self._cannot(missing_rows(noted, first))
            end, rows = first + rows.num_rows, rows.slice(noted - first)
            if rows.num_rows:
                delta.write_deltalake(
                    self._table, rows.rename_columns(layout_of(self._schema).names), mode="append",
                    commit_properties=delta.CommitProperties(app_transactions=[delta.Transaction(self._id, end)]),
                )  # fmt: skip

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the library as ours. It adds how it came to them from the second line on."""
        errors = importlib.import_module("deltalake.exceptions")
        try:
            yield
        except (Again, ConnectorError):
            raise
        except (errors.CommitFailedError, OSError) as error:
            # somebody else wrote at the same time, or the place does not answer
            raise Again(first_line(error)) from error
        except Exception as error:
            raise self._cannot(first_line(error)) from error

    def _disconnect(self) -> None:
        self._table = None

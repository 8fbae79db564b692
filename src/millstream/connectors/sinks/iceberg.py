"""The Iceberg sink: each part is a commit of an Iceberg table, which also notes the position as a property."""

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
from millstream.types import INTERVAL, NULL

_CATALOG_FILE = "catalog.db"


def iceberg_sink(options: Options, existing: Existing) -> IcebergSink:
    """The sink that the options of a declaration mean: a table of a directory with a catalog of its own, or of a
    catalog that the configuration of pyiceberg names."""
    named = options.text("catalog")
    if named is None:
        path = confined(Path(options.required("path", "'warehouse'")).expanduser().absolute(), options.within)
        catalog = {"type": "sql", "uri": f"sqlite:///{path / _CATALOG_FILE}", "warehouse": f"file://{path}"}
    else:
        path, catalog = None, {}
        if options.within is not None:
            raise ConnectorError("a table in a location has its catalog there", hint="leave out the option catalog")
    table = options.required("table", "'sales.orders'")
    if "." not in table:
        raise ConnectorError(f"table = {table!r} has no namespace", hint="for example table = 'sales.orders'")
    sending = Sending.from_options(options, 100_000, flush_ms=60_000)
    options.finish()
    needed("pyiceberg", "iceberg")
    return IcebergSink(named or "millstream", catalog, path, table, existing, sending)


class IcebergSink(SendingSink):
    """Appends each part in a commit. The same commit sets a property of the table to how many rows of the query it
    has, so that the table itself says which rows are there, whoever else writes to it or expires its snapshots."""

    def __init__(
        self,
        catalog: str,
        settings: dict[str, str],
        path: Path | None,
        table: str,
        existing: Existing,
        sending: Sending,
    ) -> None:
        super().__init__(f"the Iceberg table {table}", sending)
        self._catalog, self._settings, self._path = catalog, settings, path
        self._name = table
        self._existing = existing
        self._table: Any = None

    def _begin(self, schema: Schema) -> None:
        missing = [f"{field.name} {field.type}" for field in schema if field.type in (INTERVAL, NULL)]
        if missing:
            raise ConnectorError(
                f"Iceberg has no type for {', '.join(missing)}", hint="cast it, for example to VARCHAR"
            )
        with self._told():
            if self._path is not None:
                self._path.mkdir(parents=True, exist_ok=True)
            catalog = self._open()
            there = catalog.table_exists(self._name)
            if there and self._existing == "refuse" and catalog.load_table(self._name).current_snapshot() is not None:
                raise already_there(self._name)
            if there and self._existing == "overwrite":
                catalog.drop_table(self._name)
                there = False
            if not there:
                catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                catalog.create_table(self._name, layout_of(schema))

    def _send(self, rows: pa.Table, first: int) -> None:
        with self._told():
            if self._table is None:
                self._table = self._open().load_table(self._name)
            else:
                self._table.refresh()
            key = f"millstream.rows.{self._id}"
            noted = int(self._table.properties.get(key, 0))
            if noted < first:
                raise self._cannot(missing_rows(noted, first))
            end, rows = first + rows.num_rows, rows.slice(noted - first)
            if rows.num_rows:
                with self._table.transaction() as commit:
                    commit.append(rows.rename_columns(layout_of(self._schema).names))
                    commit.set_properties({key: str(end)})

    def _open(self) -> Any:
        return importlib.import_module("pyiceberg.catalog").load_catalog(self._catalog, **self._settings)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the library as ours."""
        errors = importlib.import_module("pyiceberg.exceptions")
        try:
            yield
        except (Again, ConnectorError):
            raise
        except (errors.CommitFailedException, errors.CommitStateUnknownException, OSError) as error:
            # somebody else wrote at the same time, or the place does not answer
            raise Again(first_line(error)) from error
        except Exception as error:
            raise self._cannot(first_line(error)) from error

    def _disconnect(self) -> None:
        self._table = None

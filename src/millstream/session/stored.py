"""Statements on stored tables, and on the current content of views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.bind import statements as act
from millstream.bind.history import history_name
from millstream.catalog import Options, TableDef
from millstream.connectors.contract import RowSource
from millstream.connectors.registry import make_source
from millstream.errors import CatalogError, ConnectorError, DataError
from millstream.hosts.contract import Host
from millstream.hosts.tables import Noted
from millstream.session.query import Query, Result

if TYPE_CHECKING:
    from millstream.session.database import Database


class StoredStatements:
    """Runs what asks or changes stored tables; the host has what views hold now and what is kept of streams. What is
    changed in tables that sets of queries follow is returned."""

    def __init__(self, database: Database, host: Host) -> None:
        self._database = database
        self._catalog = database.catalog
        self._tables = database.tables
        self._host = host

    def perform(self, action: act.OnTables) -> Result | None:
        """Answer a query, make a table of its answer, or change a table."""
        if action.create is not None:
            self._create(action, *action.create)
            return None
        if action.is_query:
            with self._tables.lent(self._contents(action)), self._database.turn.let_others():
                return Result(self._answer(action))
        check = noted = None
        if action.changed is not None:
            check = self._database.sets.check_of(action.changed)
            read = self._database.table_changes.read(action.changed)
            noted = Noted(action.changed, action.effect, read) if read else None
        with self._tables.lent(self._contents(action)):
            changed = self._tables.change(action.sql, action.reads, check, noted)
        return None if check is None else Result(changed)

    def followed(self, action: act.OnTables, result: Query | Result | None) -> Query | Result | None:
        """Let those know who follow a table that a statement has changed."""
        if action.changed is None:
            return result
        self._database.table_changes.tell()
        return self._database.sets.follow(action.changed, result) if isinstance(result, Result) else result

    def fill(self, entry: TableDef, options: Options) -> None:
        """Load a new table from a source; a table is complete or not there, so a row that does not fit is an error."""
        source = make_source(options, entry.schema, entry.name)
        if source is None or not source.bounded:
            raise ConnectorError(
                f"table {entry.name} needs a source that ends", hint="WITH (connector = 'file', path = …)"
            )
        for chunk in source.read({}, lambda: False):
            if chunk.rejected:
                wrong = chunk.rejected[0]
                raise DataError(f"{wrong.origin}: {wrong.error}", detail=f"table {entry.name} was not created")
            self._tables.load(entry.name, pa.Table.from_batches([chunk.rows]))

    def load(self, name: str, source: RowSource) -> None:
        """Put all rows of a source into a table."""
        for chunk in source.read({}, lambda: False):
            self._tables.load(name, pa.Table.from_batches([chunk.rows]))

    def _create(self, action: act.OnTables, name: str, replace: bool) -> None:
        if self._catalog.find(name) is not None and not replace:
            raise CatalogError(f"{name} already exists", hint="use CREATE OR REPLACE, or DROP it first")
        if action.own is None:
            with self._tables.lent(self._contents(action)):
                schema = self._tables.create_as(name, action.sql)
        else:
            with self._tables.lent(self._contents(action)):
                schema = self._tables.create_from(name, self._answer(action))
        self._catalog.add(TableDef(name, schema), replace=replace)

    def _contents(self, action: act.OnTables) -> dict[str, Any]:
        """What views hold at this moment, and what is kept of streams."""
        histories = {history_name(stream): self._host.history(stream) for stream in action.histories}
        return {**{view: self._host.content(view, None) for view in action.views}, **histories}

    def _answer(self, action: act.OnTables) -> pa.Table:
        from millstream.hosts.table_aggregates import answer

        return self._tables.query(action.sql) if action.own is None else answer(action.own, self._tables)

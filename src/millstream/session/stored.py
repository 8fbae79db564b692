"""Statements on stored tables, and on the current content of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millstream.bind import statements as act
from millstream.bind.history import history_name
from millstream.catalog import Catalog, Options, TableDef
from millstream.connectors.contract import RowSource
from millstream.connectors.registry import make_source
from millstream.errors import CatalogError, ConnectorError, DataError
from millstream.hosts.contract import Host
from millstream.hosts.tables import TableStore
from millstream.session.query import Result
from millstream.session.turns import StatementTurn


class StoredStatements:
    """Runs what asks or changes stored tables; the host has what views hold now and what is kept of streams. `check`
    says who must agree to rows of a table. What is changed there is returned."""

    def __init__(
        self,
        catalog: Catalog,
        tables: TableStore,
        host: Host,
        turn: StatementTurn,
        check: Callable[[str], Callable[[pa.Table], None] | None],
    ) -> None:
        self._catalog = catalog
        self._tables = tables
        self._host = host
        self._turn = turn
        self._check = check

    def perform(self, action: act.OnTables) -> Result | None:
        """Answer a query, make a table of its answer, or change a table."""
        if action.create is not None:
            self._create(action, *action.create)
            return None
        if action.is_query:
            with self._tables.lent(self._contents(action)), self._turn.let_others():
                return Result(self._answer(action))
        check = None if action.changed is None else self._check(action.changed)
        with self._tables.lent(self._contents(action)):
            changed = self._tables.change(action.sql, action.reads, check)
        return None if check is None else Result(changed)

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

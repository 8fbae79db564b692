"""The query sets of a session, and the stored tables that some of them are made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.bind import statements as act
from millstream.catalog import TableDef
from millstream.errors import CatalogError
from millstream.session.cohorts import QuerySetDef
from millstream.session.constants import Rows
from millstream.session.query import Result
from millstream.session.query_sets import QuerySet

if TYPE_CHECKING:
    from millstream.session.database import Database


class QuerySets:
    """The sets of queries of a session."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sets: dict[str, QuerySet] = {}

    def start(self, name: str, text: str, rows: Rows, key: str, merged: bool) -> QuerySet:
        """Start a set of queries."""
        made = QuerySet(self._database, name, text, key, merged=merged)
        made.begin(rows)
        return made

    def get(self, name: str) -> QuerySet:
        """The set of that name."""
        found = self._sets.get(name.lower())
        if found is None:
            known = ", ".join(each.name for each in self._sets.values())
            hint = f"there is {known}" if known else "start one: sql_many()"
            raise CatalogError(f"no set of queries {name}", hint=hint)
        return found

    def all(self) -> list[QuerySet]:
        """The sets that run, oldest first."""
        return list(self._sets.values())

    def keep(self, made: QuerySet) -> None:
        """A set as it is now."""
        self._sets[made.name.lower()] = made
        self._database.perform(act.KeepSet(made.name))

    def adopt(self, kept: QuerySetDef) -> None:
        """A set that ran before, and whose programs run again."""
        self._sets[kept.name.lower()] = QuerySet.reopened(self._database, kept)

    def catch_up(self) -> None:
        """Let sets see what became of their tables after they were saved."""
        for each in self._sets.values():
            if each.table is not None:
                each.catch_up()

    def forget(self, name: str) -> None:
        """A set has ended."""
        self._sets.pop(name.lower(), None)

    def stop(self, name: str) -> None:
        """Stop what has that name: a set, or a query."""
        found = self._sets.get(name.lower())
        if found is not None:
            found.stop()
        else:
            self._database.perform(act.StopQuery(name))

    def begin(self, action: act.StartSet) -> None:
        """Start the queries that the rows of a stored table are."""
        database = self._database
        database.free_name(action.name)
        if action.name.lower() in self._sets:
            raise CatalogError(f"queries {action.name} are already running", hint=f"DROP QUERIES {action.name}")
        made = QuerySet(database, action.name, action.text, action.key, action.table, action.sink)
        made.begin_with(database.catalog.get(action.table, TableDef))

    def check_of(self, table: str) -> Callable[[pa.Table], None] | None:
        """Who must agree to rows of a table: the sets that follow it."""
        own = self._over(table)

        def check(rows: pa.Table) -> None:
            for each in own:
                each.check(rows)

        return check if own else None

    def follow(self, table: str, changed: Result) -> Result | None:
        """Let sets follow what was done to a table, which is no answer to anybody."""
        for each in self._over(table):
            each.follow(changed.arrow())
        return None

    def _over(self, table: str) -> list[QuerySet]:
        return [each for each in self._sets.values() if each.table is not None and each.table.lower() == table.lower()]

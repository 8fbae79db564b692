"""What CREATE and DROP do: entries of the catalog, with what the host and the stored tables hold for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.bind import statements as act
from millstream.catalog import Entry, Options, SinkDef, StreamDef, TableDef, ViewDef
from millstream.connectors.registry import make_sink
from millstream.errors import MillstreamError
from millstream.session.planned import Planned

if TYPE_CHECKING:
    from millstream.session.database import Database


def define(
    db: Database, action: act.Define, planned: Planned | None, fill: Callable[[TableDef, Options], None]
) -> None:
    """Add an entry, and start what it is made of: `planned` is a view's query, `fill` loads a table from its source."""
    entry = action.entry
    if action.if_not_exists and db.catalog.like(entry) is not None:
        return
    if isinstance(entry, SinkDef):
        make_sink(entry.options, entry.name)
    db.catalog.add(entry, replace=action.replace, uses=action.uses, in_use=action.in_use)
    try:
        if isinstance(entry, StreamDef):
            db._host.declare(entry)
        elif isinstance(entry, ViewDef) and planned is not None:
            if entry.name.lower() in db.views:
                _stop_view(db, entry.name)
            db.go_on(planned, db._host.start)
        elif isinstance(entry, TableDef):
            db.tables.create(entry.name, entry.schema, entry.constraints)
            if action.rows_from is not None:
                fill(entry, action.rows_from)
    except MillstreamError:
        db.catalog.drop(entry.name, (type(entry),))
        raise


def adopt(db: Database, entry: Entry, uses: frozenset[str]) -> None:
    """Make known what was defined before and is still there: nothing is started, and tables keep their rows."""
    if isinstance(entry, ViewDef) and entry.name.lower() in db.views:
        _stop_view(db, entry.name)
    db.catalog.add(entry, replace=True, uses=uses, in_use=True)
    if isinstance(entry, StreamDef):
        db._host.declare(entry)
    elif isinstance(entry, TableDef):
        db.tables.create(entry.name, entry.schema, entry.constraints, keep=True)


def remove(db: Database, action: act.Remove) -> None:
    """Undo a definition."""
    if action.if_exists and not db.catalog.has(action.name, action.kinds):
        return
    entry = db.catalog.find(action.name)
    db.catalog.drop(action.name, action.kinds)
    if not isinstance(entry, action.kinds):
        return
    if isinstance(entry, StreamDef):
        db._host.forget(entry.name)
    elif isinstance(entry, ViewDef):
        _stop_view(db, entry.name)
    elif isinstance(entry, TableDef):
        db.tables.drop(entry.name)
        db.table_changes.forget(entry.name)


def _stop_view(db: Database, name: str) -> None:
    db.views.discard(name.lower())
    db.withdraw(name)

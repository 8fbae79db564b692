"""What CREATE and DROP do: entries of the catalog, with what the host and the stored tables hold for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.bind import statements as act
from millstream.catalog import Entry, Options, SinkDef, StreamDef, TableDef
from millstream.connectors.registry import make_sink
from millstream.errors import MillstreamError
from millstream.session.planned import Planned

if TYPE_CHECKING:
    from millstream.session.database import Database


def define(
    db: Database, action: act.Define, planned: Planned | None, fill: Callable[[TableDef, Options], None]
) -> None:
    """Add an entry, and start what it is made of: `planned` is the query of a view, or of a stream that keeps its rows;
    `fill` loads a table from its source."""
    entry = action.entry
    if action.if_not_exists and db.catalog.like(entry) is not None:
        return
    if isinstance(entry, SinkDef):
        make_sink(entry.options, entry.name)
    db.catalog.add(entry, replace=action.replace, uses=action.uses, in_use=action.in_use)
    try:
        if _stop_view(db, entry):
            db.catalog.hold(entry.name, action.uses)
        if isinstance(entry, StreamDef):
            db._host.declare(entry)
        if planned is not None:
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
    _stop_view(db, entry)
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
    _stop_view(db, entry)
    if isinstance(entry, StreamDef):
        db._host.forget(entry.name)
    elif isinstance(entry, TableDef):
        db.tables.drop(entry.name)
        db.table_changes.forget(entry.name)


def _stop_view(db: Database, entry: Entry) -> bool:
    """Whether what had the name of an entry was computed, as a view or for a stream that keeps it; it is no more."""
    is_computed = entry.name.lower() in db.views and db.catalog.like(entry) is db.catalog.find(entry.name)
    if is_computed:
        db.views.discard(entry.name.lower())
        db.withdraw(entry.name)
    return is_computed

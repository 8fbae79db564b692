"""What a statement starts is planned ahead, before rows have to wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.bind import statements as act
from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.bind.statements import delivered
from millstream.catalog import ViewDef
from millstream.errors import refusing_depth
from millstream.hosts.embedded.host import EmbeddedHost
from millstream.session.planned import Planned

if TYPE_CHECKING:
    from millstream.session.database import Database


@refusing_depth()
def planned_ahead(db: Database, action: act.Action, text: str, name: str | None) -> Planned | None:
    """The query that a statement starts, if it starts one and does not replace another."""
    planned = _planned(db, action, text, name)
    host = db._host
    if planned is not None and isinstance(host, EmbeddedHost):
        with host.lock.aside():
            host.graph.make_ready(planned.program.plan)
    return planned


def _planned(db: Database, action: act.Action, text: str, name: str | None) -> Planned | None:
    match action:
        case act.StartQuery(bound=bound, uses=uses, sink=sink, replace=replace) if not replace or name is None:
            return db.plan(db.free_name(name), bound, sink, uses, text)
        case act.Define(entry=ViewDef() as view, if_not_exists=lenient, replace=replace, uses=uses):
            if (lenient or not replace) and db.catalog.like(view) is not None:
                return None
            if view.name.lower() not in db.views:
                db.free_name(view.name)
            bound = delivered(Bound(view.plan, view.names), Context(db.catalog, view.sql))
            return db.plan(view.name, bound, None, uses, view.sql, view=True)
    return None

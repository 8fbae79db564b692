"""Plans what a statement starts before it takes the host's lock, so that rows do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.bind import statements as act
from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.bind.statements import delivered
from millstream.catalog import StreamDef, ViewDef
from millstream.errors import refusing_depth
from millstream.session.altering import planned_alteration
from millstream.session.planned import Planned

if TYPE_CHECKING:
    from millstream.session.database import Database


@refusing_depth()
def planned_ahead(db: Database, action: act.Action, text: str, name: str | None) -> Planned | None:
    """The query that a statement starts, or that takes the place of another by ALTER QUERY, if it has one."""
    if isinstance(action, act.StartQuery | act.AlterQuery):
        db.coming = action.name if isinstance(action, act.AlterQuery) else name or "", text
    planned = _planned(db, action, text, name)
    if planned is not None:
        db.coming = planned.program.name, planned.text
        db._host.prepare(planned.program)
    return planned


def _planned(db: Database, action: act.Action, text: str, name: str | None) -> Planned | None:
    match action:
        case act.AlterQuery():
            return planned_alteration(db, action)
        case act.StartQuery(bound=bound, uses=uses, sink=sink, replace=replace) if not replace or name is None:
            return db.templates.plan(db.free_name(name), bound, uses, sink, text, action.history)
        case act.Define(entry=StreamDef(plan=plan) as fed) if plan is not None:
            if (action.if_not_exists or not action.replace) and db.catalog.like(fed) is not None:
                return None
            if fed.name.lower() not in db.views:
                db.free_name(fed.name)
            return db.plan(fed.name, Bound(plan, plan.schema.names), None, action.uses, text, view=True)
        case act.Define(entry=ViewDef() as view, if_not_exists=lenient, replace=replace, uses=uses):
            if (lenient or not replace) and db.catalog.like(view) is not None:
                return None
            if view.name.lower() not in db.views:
                db.free_name(view.name)
            bound = delivered(Bound(view.plan, view.names), Context(db.catalog, view.sql))
            return db.plan(view.name, bound, None, uses, view.sql, view=True, history=action.history)
    return None

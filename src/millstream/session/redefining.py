"""CREATE OR REPLACE of a derived stream or view that others use: these follow its new definition, all at one instant.

They are bound and planned before anything changes, so a definition that one of them cannot follow is refused as a
whole. Queries that follow keep what state is still valid, their sinks and their readers, as with ALTER QUERY.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream import sql
from millstream.bind import statements as act
from millstream.bind.statements import bind
from millstream.catalog import DerivedDef, Entry, ViewDef, word_for
from millstream.errors import CatalogError, MillstreamError
from millstream.session.ahead import planned_ahead
from millstream.session.planned import Planned

if TYPE_CHECKING:
    from millstream.session.database import Database

Follower = tuple[act.Define | act.AlterQuery, Planned | None]
"""what uses a definition, bound to the new one, and the query that runs for it, if any"""


def followers(db: Database, action: act.Action) -> list[Follower]:
    """What uses the derived stream or view that a statement replaces, directly or through others, in the order in
    which they depend on each other; CatalogError if not all of it can follow."""
    if not isinstance(action, act.Define) or not action.replace or action.in_use:
        return []
    entry, known = action.entry, db.catalog.like(action.entry)
    if not isinstance(entry, DerivedDef | ViewDef) or type(known) is not type(entry):
        return []
    names = _users(db, entry.name)
    if itself := sorted({name.lower() for name in action.uses} & set(names)):
        raise CatalogError(f"{entry.name} would use itself through {itself[0]}", hint="give it another name")
    before: list[Entry] = [known]
    db.catalog.redefine(entry)
    try:
        found = []
        for name in names:
            try:
                follower = _bound(db, name)
                if isinstance(follower, act.Define):
                    before.append(db.catalog.get(name, type(follower.entry)))
                    db.catalog.redefine(follower.entry)
                planned = planned_ahead(db, follower, _text(follower), None)
                if planned is not None:
                    db._host.explain_alteration(planned.program)
                found.append((follower, planned))
            except MillstreamError as error:
                raise CatalogError(
                    f"{name} uses {word_for(type(entry))} {entry.name}, and cannot use its new definition",
                    detail=error.message if error.detail is None else f"{error.message}: {error.detail}",
                    hint=f"change the new definition, or stop or drop {name} first",
                ) from error
        return found
    finally:
        for each in before:
            db.catalog.redefine(each)


def follow(db: Database, follower: Follower) -> None:
    """Let what uses a definition take the new one."""
    action, planned = follower
    if isinstance(action, act.Define):
        db.catalog.add(action.entry, replace=True, uses=action.uses, in_use=True)
    if planned is not None:
        db.query(planned.program.name).become(db.go_on(planned, db._host.alter))


def _users(db: Database, name: str) -> list[str]:
    """All that uses a name: each before those that use it."""
    found: dict[str, None] = {}

    def visit(user: str) -> None:
        for further in db.catalog.users_of(user):
            visit(further)
        found.pop(user, None)
        found[user] = None

    for user in db.catalog.users_of(name):
        visit(user)
    return list(reversed(found))


def _bound(db: Database, name: str) -> act.Define | act.AlterQuery:
    """What has that name, bound again."""
    known = db.catalog.find(name)
    running = {query.name.lower(): query for query in db.queries() if query.name.lower() not in db.views}
    if isinstance(known, DerivedDef | ViewDef) and known.statement:
        action = bind(sql.parse(known.statement)[0].ast, db.catalog, known.statement)
        if isinstance(action, act.Define):
            return replace(action, replace=True, if_not_exists=False, in_use=True)
    elif name in running:
        text = running[name].sql
        action = bind(sql.parse(text)[0].ast, db.catalog, text)
        if isinstance(action, act.StartQuery):
            return act.AlterQuery(running[name].name, action, text)
    raise CatalogError("it was not defined by a statement of its own")


def _text(action: act.Define | act.AlterQuery) -> str:
    match action:
        case act.AlterQuery(text=text):
            return text
        case act.Define(entry=DerivedDef(statement=text) | ViewDef(statement=text)):
            return text
    return ""

"""Changing what runs: another definition or window for a running query, pauses, and how much streams keep."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from millstream import sql
from millstream.bind import statements as act
from millstream.bind.new_windows import rewindowed
from millstream.bind.statements import bind
from millstream.catalog import FromHistory, StreamDef, ViewDef, word_for
from millstream.errors import BindError, CatalogError, StateError, refusing_depth
from millstream.physical.nodes import streams_of
from millstream.session.explain import explained
from millstream.session.planned import Planned, Planning, ways_to_plan
from millstream.session.times import Moment, instant_of

if TYPE_CHECKING:
    from millstream.session.database import Database
    from millstream.session.query import Query

Alteration = act.AlterQuery | act.AlterWindow | act.AlterStream | act.PauseQuery
HistoryAsked = bool | Moment | None
"""as `sql(history=…)` takes it: all that is kept, or from an instant on"""


def settled(db: Database, action: act.Action) -> act.Action:
    """The action with what it says of a running query worked out: another window is another definition."""
    match action:
        case act.AlterWindow(name=name, stream=stream, window=window):
            text = rewindowed(db.query(name).sql, stream, window, db.catalog)
            query = bind(sql.parse(text)[0].ast, db.catalog, text)
            if not isinstance(query, act.StartQuery):
                raise BindError(f"query {name} has no window that can be set")
            return act.AlterQuery(name, query, text)
        case act.Define(entry=ViewDef() as view, replace=True, history=None) if db.catalog.like(view) == view:
            # it is that already, and goes on with what it keeps
            return replace(action, replace=False, if_not_exists=True)
    return action


def with_window(db: Database, name: str, window: str) -> Planned:
    """The definition of a running query with another window, which is written as after SET WINDOW."""
    quoted = '"' + name.replace('"', '""') + '"'
    text = f"ALTER QUERY {quoted} SET WINDOW {window}"
    parsed = sql.parse(text)
    action = bind(parsed[0].ast, db.catalog, text)
    if len(parsed) != 1 or not isinstance(action, act.AlterWindow):
        raise BindError(f"{window!r} is not a window", hint="window='RANGE 10 MINUTES'")
    action = settled(db, action)
    assert isinstance(action, act.AlterQuery)
    return planned_alteration(db, action)


def require_query(db: Database, name: str, instead: str) -> None:
    """Refuse to treat a view, or a stream that keeps what a query gives, as a query."""
    if name.lower() in db.views:
        word = word_for(type(db.catalog.find(name)))
        raise CatalogError(f"{name} is a {word}", hint=f"{instead} {word.upper()} {name}")


def planned_alteration(db: Database, action: act.AlterQuery) -> Planned:
    """The new definition of a query, as it would run in its place."""
    query = db.query(action.name)
    require_query(db, query.name, "CREATE OR REPLACE")
    before = db.planned(query.name).program
    asked = action.query
    if asked.history is None:
        shared = db.templates.altered(db.planned(query.name), asked.bound, asked.uses, action.text)
        if shared is not None:
            return shared
    return db.plan(query.name, asked.bound, before.sink, asked.uses, action.text, history=asked.history)


def perform(db: Database, action: Alteration, planned: Planned | None) -> Query | None:
    """Change what runs."""
    match action:
        case act.AlterQuery(name=name):
            assert planned is not None
            return db.query(name).become(db.go_on(planned, db._host.alter))
        case act.PauseQuery(name=name, resume=resume):
            query = db.query(name)
            (db._host.go_on if resume else db._host.pause)(query.name)
        case act.AlterStream(name=name, keep=keep):
            entry = replace(db.catalog.get(name, StreamDef), keep=keep)
            db.catalog.redefine(entry)
            db._host.keep(entry)
    return None


def explained_statement(
    db: Database, asked: act.StartQuery | act.AlterQuery | act.AlterWindow, mode: str, text: str, format: str
) -> str:
    """How a query would run; of ALTER QUERY, what it would reuse and compute anew: a dry run."""
    asked = settled(db, asked)  # type: ignore[assignment]
    if isinstance(asked, act.StartQuery):
        planned = db.plan("query", asked.bound, asked.sink, text=text, history=asked.history, view=asked.view)
        if format == "text":
            return explained(planned, mode, db.catalog, db._host)
        from millstream.session.drawing import drawn

        return drawn(planned.program.plan, format)
    assert isinstance(asked, act.AlterQuery)
    planned = planned_alteration(db, asked)
    return "state:\n" + "\n".join(f"  {line}" for line in db._host.explain_alteration(planned.program))


def with_history(db: Database, action: act.Action, asked: HistoryAsked) -> act.Action:
    """A query that starts, with the rows of the past that `sql(history=…)` asks for."""
    if asked is None or asked is False:
        return action
    if not isinstance(action, act.StartQuery):
        raise BindError("only a continuous query takes history", hint="leave history= out")
    if asked is True:
        return replace(action, history=FromHistory())
    names = (name for name in action.uses if isinstance(db.catalog.find(name), StreamDef))
    streams = [db.catalog.get(name, StreamDef) for name in sorted(names)] or [
        db.catalog.get(name, StreamDef) for name in streams_of(db.plan("query", action.bound, None).program.plan)
    ]
    return replace(action, history=FromHistory(instant_of(streams[0], asked)))


@refusing_depth()
def replaced(db: Database, action: act.StartQuery, text: str, name: str) -> Query:
    """Plan a query such that it keeps what the one of its name keeps, as that was planned or as it would be now."""
    refused: StateError | None = None
    ways = ways_to_plan(Planning.of(db.config, db._host.statistics()))
    plans = (db.plan(name, action.bound, action.sink, action.uses, text, how) for how in ways)
    shared = db.templates.altered(db.planned(name), action.bound, action.uses, text)
    for planned in plans if shared is None else chain([shared], plans):
        try:
            return db.go_on(planned, db._host.replace)
        except StateError as error:
            refused = refused or error
    assert refused is not None
    raise refused

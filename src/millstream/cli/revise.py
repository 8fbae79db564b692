"""An edited pipeline on the session of an earlier version: unchanged parts stay and keep their state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.bind import statements as act
from millstream.catalog import AggregateDef, DerivedDef, Entry, FunctionDef, word_for
from millstream.cli.pipeline import each_statement
from millstream.errors import StateError

if TYPE_CHECKING:
    from millstream.session.database import Database
    from millstream.session.query import Result
    from millstream.sql import Statement


def revise(database: Database, text: str, show: Callable[[Result], None], home: Path) -> None:
    """Bring a session up to a text. Queries go on one by one, in their order; those that are gone are stopped.

    Changes of tables were made when the pipeline started, and are not made again.
    """
    from millstream.session.query import Result

    running = {query.name for query in database.queries() if not database.planned(query.name).program.view}
    numbers = count(1)

    def revised(statement: Statement) -> None:
        action = act.bind(statement.ast, database.catalog, statement.text)
        match action:
            case act.Define(entry=entry):
                known = database.catalog.like(entry)
                if known is None:
                    database.perform(action, statement.text)
                elif not _is_same(known, entry):
                    _redefine(database, action, statement.text, home)
            case act.StartQuery():
                name = f"q{next(numbers)}"
                if name not in running:
                    database.perform(action, statement.text, name)
                    return
                running.discard(name)
                before = database.planned(name).program
                if before.sink != action.sink:
                    raise _another(home, f"the rows of query {name} went elsewhere")
                if (before.bound, before.columns) != (action.bound.plan, action.bound.names):
                    database.perform(replace(action, replace=True), statement.text, name)
            case act.OnTables(is_query=False) | act.Remove() | act.StopQuery():
                pass
            case _:
                result = database.perform(action, statement.text)
                if isinstance(result, Result):
                    show(result)

    each_statement(text, revised)
    for name in running:
        database.stop(name)


def _is_same(known: Entry, entry: Entry) -> bool:
    if isinstance(known, FunctionDef | AggregateDef) and isinstance(entry, FunctionDef | AggregateDef):
        # their texts are no part of what makes them equal
        return known == entry and str(known.body) == str(entry.body)
    return known == entry


def _redefine(database: Database, action: act.Define, text: str, home: Path) -> None:
    """Give a name another meaning: the queries that use it follow in the text."""
    if not isinstance(action.entry, DerivedDef | FunctionDef | AggregateDef):
        raise _another(home, f"{word_for(type(action.entry))} {action.entry.name} is declared differently")
    database.perform(replace(action, replace=True, in_use=True), text)


def _another(home: Path, why: str) -> StateError:
    return StateError(
        f"{home} belongs to a run of another pipeline",
        detail=f"{why}; its text is in pipeline.sql there",
        hint="use a new directory, or remove this one to start from the beginning",
    )

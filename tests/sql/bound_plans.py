"""Statements bound against a catalog, and the golden files of the plans that come of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millstream import sql
from millstream.bind import statements as act
from millstream.catalog import Catalog, DerivedDef, ViewDef
from millstream.plan import nodes as P


def perform(text: str, catalog: Catalog) -> act.Action:
    """Bind statements, and put into the catalog what they define; what the last one asks for."""
    for statement in sql.parse(text):
        action = act.bind(statement.ast, catalog, text)
        if isinstance(action, act.Define):
            catalog.add(action.entry, replace=action.replace, uses=action.uses)
    return action


def plan_of(text: str, catalog: Catalog) -> P.Node:
    """The plan of what the last statement defines or asks for."""
    action = perform(text, catalog)
    if isinstance(action, act.Define):
        assert isinstance(action.entry, DerivedDef | ViewDef)
        return action.entry.plan
    assert isinstance(action, act.StartQuery)
    return action.bound.plan


def golden(path: Path) -> Iterator[tuple[str, str]]:
    """The queries of a golden file, and their plans: blank lines stand between them, ---- within."""
    for case in path.read_text(encoding="utf-8").strip().split("\n\n"):
        query, _, plan = case.partition("\n----\n")
        yield query, plan

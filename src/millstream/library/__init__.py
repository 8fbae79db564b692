"""Aggregates that come with the engine, written in its own language: one file of SQL for each topic.

A query that calls one by name finds it without further ado; who defines an aggregate of the same name hides it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from millstream.errors import CatalogError

if TYPE_CHECKING:
    from millstream.catalog import AggregateDef, Catalog
    from millstream.session import Database

TOPICS = {
    "decayed_avg": "decay",
    "welford_variance": "spread",
    "welford_stddev": "spread",
    "string_agg": "text",
    "median": "quantiles",
    "quantile": "quantiles",
    "max_by": "extremes",
    "min_by": "extremes",
    "top_k": "top",
    "frequency": "frequent",
    "priority_sample": "sample",
    "ones_in_last": "histogram",
    "sessionise": "sessions",
    "gap_fill": "gaps",
}
"""Which file of this folder defines an aggregate."""

LEAVE_OUT_NULLS = frozenset(
    ("median", "quantile", "string_agg", "max_by", "min_by", "top_k", "welford_variance", "welford_stddev")
)
"""Aggregates to which a row whose first argument is NULL is as if it were not there."""


@cache
def text(topic: str) -> str:
    """The SQL of a topic."""
    return files(__name__).joinpath(f"{topic}.sql").read_text(encoding="utf-8")


def definitions(name: str, catalog: Catalog) -> list[AggregateDef]:
    """The versions of an aggregate of the library; none if it has none of that name."""
    topic = TOPICS.get(name.lower())
    if topic is None:
        return []
    from millstream.bind.context import Context
    from millstream.bind.programs import define_aggregate
    from millstream.sql import parse
    from millstream.sql.nodes import CreateAggregate

    found = []
    for statement in parse(text(topic)):
        if isinstance(statement.ast, CreateAggregate) and statement.ast.name.lower() == name.lower():
            found.append(define_aggregate(statement.ast, Context(catalog, text(topic))))
    return found


def load(db: Database, *names: str) -> None:
    """Define aggregates of the library in a session, as if their text had been executed there; without names, all."""
    from millstream.sql import parse, to_sql

    for name in names or TOPICS:
        topic = TOPICS.get(name.lower())
        if topic is None:
            raise CatalogError(f"no aggregate {name} in the library", hint="there is " + ", ".join(TOPICS))
        for statement in parse(text(topic)):
            if statement.ast.name.lower() == name.lower():
                db.execute(to_sql(statement.ast))

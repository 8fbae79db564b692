"""Aggregates that come with the engine, written in its own language: one file of SQL for each topic.

A query that calls one by name finds it without further ado; who defines an aggregate of the same name hides it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Protocol

from millstream.errors import CatalogError
from millstream.sql import Statement, parse, to_sql


class Session(Protocol):
    """Where statements are executed."""

    def execute(self, sql: str, /) -> object: ...


ACTIVE = {fn: f"active_{fn}" for fn in ("count", "sum", "avg", "min", "max")}
"""What the built-in aggregates are under ACTIVE EXPIRATION."""

WIDE = {fn: f"wide_{fn}" for fn in ("sum", "avg", "min", "max")}
"""What the built-in aggregates are over numbers of more than 18 digits."""

TOPICS = {
    "decayed_avg": "decay",
    "welford_variance": "spread",
    "welford_stddev": "spread",
    "string_agg": "text",
    "array_agg": "arrays",
    "median": "quantiles",
    "quantile": "quantiles",
    "top_k": "top",
    "frequency": "frequent",
    "priority_sample": "sample",
    "ones_in_last": "histogram",
    "sessionise": "sessions",
    "gap_fill": "gaps",
    "decision_tree": "trees",
    **dict.fromkeys(ACTIVE.values(), "active"),
    **dict.fromkeys(WIDE.values(), "wide"),
}
"""Which file of this folder defines an aggregate."""

LEAVE_OUT_NULLS = frozenset(
    ("median", "quantile", "string_agg", "top_k", "welford_variance", "welford_stddev", *WIDE.values())
)
"""Aggregates to which a row whose first argument is NULL is as if it were not there."""


@cache
def text(topic: str) -> str:
    """The SQL of a topic."""
    return files(__name__).joinpath(f"{topic}.sql").read_text(encoding="utf-8")


def statements(name: str) -> list[Statement]:
    """The statements that define an aggregate of the library; none if it has none of that name."""
    topic = TOPICS.get(name.lower())
    return [] if topic is None else [each for each in parse(text(topic)) if each.ast.name.lower() == name.lower()]


def load(db: Session, *names: str) -> None:
    """Define aggregates of the library in a session, as if their text had been executed there; without names, all."""
    for name in names or TOPICS:
        if name.lower() not in TOPICS:
            raise CatalogError(f"no aggregate {name} in the library", hint="available: " + ", ".join(TOPICS))
        for statement in statements(name):
            db.execute(to_sql(statement.ast))

"""Aggregates that come with the engine, written in its own language: one file of SQL for each topic.

A query that calls one by name finds it without further ado; who defines an aggregate of the same name hides it.
"""

from __future__ import annotations

import re
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

_TWINS = {
    "active_max": ("active_min", {"min(": "max(", "least": "greatest"}),
    "wide_max": ("wide_min", {"x < v": "x > v"}),
    "welford_stddev": ("welford_variance", {"m2 / (n - 1) END": "sqrt(m2 / (n - 1)) END"}),
    "median": ("quantile", {"x DOUBLE, fraction DOUBLE": "x DOUBLE", "fraction": "0.5", "w, wf": "w"}),
}
"""Aggregates that are others with some words changed; the files have only those."""

LEAVE_OUT_NULLS = frozenset(
    ("median", "quantile", "string_agg", "top_k", "welford_variance", "welford_stddev", *WIDE.values())
)
"""Aggregates to which a row whose first argument is NULL is as if it were not there."""


@cache
def text(topic: str) -> str:
    """The SQL of a topic."""
    written = files(__name__).joinpath(f"{topic}.sql").read_text(encoding="utf-8").rstrip().removesuffix(";")
    twins = [_twin(written, name) for name in _TWINS if TOPICS[name] == topic]
    return ";\n".join((written, *twins))


def _twin(written: str, name: str) -> str:
    """The definitions of an aggregate that is another with some words changed."""
    other, changes = _TWINS[name]
    definitions = re.split(r"\n(?=CREATE )", written)
    made = "\n".join(each for each in definitions if f"AGGREGATE {other}(" in each).replace(other, name)
    for word, changed in changes.items():
        made = made.replace(word, changed)
    return made.rstrip().removesuffix(";")


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

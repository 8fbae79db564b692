"""Aggregates of the library, defined when a query calls one."""

from __future__ import annotations

from millstream import library
from millstream.bind.context import Context
from millstream.bind.programs.binding import define_aggregate
from millstream.catalog import AggregateDef, Catalog
from millstream.sql.nodes import CreateAggregate


def definitions(name: str, catalog: Catalog) -> tuple[AggregateDef, ...]:
    """The versions of an aggregate of the library; none if it has none of that name."""
    found = [each.ast for each in library.statements(name)]
    return tuple(
        define_aggregate(ast, Context(catalog, library.text(library.TOPICS[name.lower()])))
        for ast in found
        if isinstance(ast, CreateAggregate)
    )

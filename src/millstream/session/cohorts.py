"""The cohorts of a set of queries: those of its queries that run as one program. And what is kept of both."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from millstream.catalog import SinkDef
from millstream.physical.nodes import Apply, Physical, StoredTable, TableJoin, walk
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.session.query import Query


@dataclass
class Cohort:
    """Queries of a set that run as one program, over one table of constants."""

    fixed: tuple[tuple[str, Any], ...]
    table: str
    query: Query
    open: bool
    """whether queries may join while it runs: none of its windows is shared"""
    size: int = 0
    ended: bool = False


@dataclass(frozen=True)
class CohortDef:
    """What is kept of a cohort: the values that its plan is made of, and where it runs."""

    fixed: tuple[tuple[str, Any], ...]
    table: str
    query: str
    open: bool


@dataclass(frozen=True)
class QuerySetDef:
    """What is kept of a set; its queries are the rows of its tables."""

    name: str
    sql: str
    key: str
    schema: Schema
    fixed: tuple[str, ...]
    cohorts: tuple[CohortDef, ...]
    made: int
    table: str | None = field(default=None, metadata={"later": True})
    """the stored table whose rows it follows"""
    sink: SinkDef | None = field(default=None, metadata={"later": True})
    merged: bool = field(default=False, metadata={"later": True})
    """whether a row is given once for all queries that emit it"""


def is_open(plan: Physical, table: str) -> bool:
    """Whether no state is shared: every row that a kernel takes in is of one query, by the join with the constants."""

    def is_apart(node: Physical) -> bool:
        if isinstance(node, TableJoin) and node.how in ("inner", "gather") and node.table.table == table:
            return True
        below = [child for child in node.inputs if not isinstance(child, StoredTable)]
        return bool(below) and all(map(is_apart, below))

    return all(is_apart(child) for node in walk(plan) if isinstance(node, Apply) for child in node.inputs)

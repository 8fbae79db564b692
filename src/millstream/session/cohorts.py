"""The cohorts of a set of queries: those of its queries that run as one program. And what is kept of both."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.bind import statements as act
from millstream.catalog import SinkDef, TableDef
from millstream.hosts.tables import quoted
from millstream.kernels.batch import Ints
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.session.query import Query
from millstream.types import BIGINT

if TYPE_CHECKING:
    from millstream.session.database import Database

NUMBER = "$number"
"""the column of a table of constants that tells queries apart: a key that comes again is another query"""

_ENDINGS = Schema((Field(NUMBER, BIGINT), Field("place", BIGINT)))
"""queries that ended while rows of theirs waited, and the place in the results up to which rows are theirs"""


@dataclass
class Cohort:
    """Queries of a set that run as one program, over one table of constants."""

    fixed: tuple[tuple[str, Any], ...]
    table: str
    query: Query
    open: bool
    """whether queries may join while it runs: none of its windows is shared"""
    longest: tuple[tuple[str, int], ...] = ()
    """of parameters that are durations, the longest that its queries may have"""
    size: int = 0
    ended: bool = False


@dataclass(frozen=True)
class CohortDef:
    """What is kept of a cohort: the values that its plan is made of, and where it runs."""

    fixed: tuple[tuple[str, Any], ...]
    table: str
    query: str
    open: bool
    longest: tuple[tuple[str, int], ...] = field(default=(), metadata={"later": True})


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
    numbered: int = field(default=0, metadata={"later": True})
    """how many queries it ever had: the number of one that ended is not given again"""


def waits(database: Database, cohort: Cohort) -> bool:
    """Whether rows of a program wait to be fetched."""
    fetched, end = database._host.unfetched(cohort.query.name)
    return end > fetched


def note_end(database: Database, cohort: Cohort, numbers: Ints) -> int:
    """The place in the results up to which rows are of queries that end now. Where results outlive the process, it is
    kept before the queries go: those that are still there after a crash go on."""
    fetched, end = database._host.unfetched(cohort.query.name)
    if not database.tables.is_saved:
        # rows of queries that are gone are left out as they come
        return 0
    if end > fetched:
        table = _endings_table(cohort)
        if database.catalog.find(table) is None:
            database.perform(act.Define(TableDef(table, _ENDINGS)))
        known = endings(database, cohort)
        past = known.filter(pa.array(known.column(1).to_numpy() <= fetched)).column(0).combine_chunks()
        if len(past):
            database.perform(act.ChangeRows(table, None, pa.RecordBatch.from_arrays([past], names=[NUMBER])))
        places = np.full(len(numbers), end, dtype=np.int64)
        database.perform(act.ChangeRows(table, pa.table([numbers, places], names=list(_ENDINGS.names)), None))
    return end


def endings(database: Database, cohort: Cohort) -> pa.Table:
    """The numbers of queries that ended while rows waited, and the places."""
    table = _endings_table(cohort)
    if database.catalog.find(table) is None:
        return _ENDINGS.arrow.empty_table()
    if database.tables.number_of(table) is None:
        database.tables.tell_changes(table, NUMBER)
    return database.tables.query(f"SELECT {quoted(NUMBER)}, place FROM {quoted(table)}")


def tables_of(database: Database, cohort: Cohort) -> list[str]:
    """The stored tables that a cohort has of its own."""
    return [name for name in (cohort.table, _endings_table(cohort)) if database.catalog.find(name) is not None]


def _endings_table(cohort: Cohort) -> str:
    return f"{cohort.query.name}$ended"

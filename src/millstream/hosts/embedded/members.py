"""Queries that differ only in constants and run as one: the tables of their constants, and what each is apart for.

Each row is one query, which brings it when it starts and takes it away when it ends, so these tables are saved with
their queries. Behind the operators that they share, a filter on its number gives each its rows. What goes wrong with
the rows of one query there stops that query alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import MillstreamError, ours
from millstream.expressions.nodes import Column, Literal
from millstream.hosts.contract import MEMBER, Member, ReadyQuery
from millstream.hosts.embedded.operators import ComputeColumns, Stateless
from millstream.hosts.filter_groups import constant_column
from millstream.hosts.table_join import Added, Removed, TableMatches
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.streams.failing import failing_places
from millstream.physical.nodes import Compute, Physical, Source, StoredTable, TableJoin
from millstream.plan.templates import QUERY
from millstream.records import dataclass
from millstream.schema import Schema

Fail = Callable[[MillstreamError], None]
_MOST_CHANGES = 4_096
"""so many changes of a table are remembered; who is further behind reads it again"""


@dataclass(eq=False)
class _Table:
    schema: Schema
    rows: dict[int, Member] = field(default_factory=dict)
    fails: dict[int, Fail] = field(default_factory=dict)
    since: dict[int, Mapping[str, int]] = field(default_factory=dict)
    """from which arrival on a query sees the rows of streams that waited to be put in order when it started"""
    forgotten: int = 0
    """how many changes are not remembered"""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """numbers that came (1) and went (-1), since then"""

    @property
    def version(self) -> int:
        return self.forgotten + len(self.changes)

    def note(self, number: int, how: int) -> None:
        self.changes.append((number, how))
        if len(self.changes) > _MOST_CHANGES:
            self.forgotten += len(self.changes) // 2
            self.changes = self.changes[len(self.changes) // 2 :]


class Members:
    """The tables of constants of queries that run as one."""

    def __init__(self) -> None:
        self.numbered = 0
        """how many queries ever ran so: the number of one that ended is not given again, what it left may be there"""
        self._tables: dict[str, _Table] = {}
        self._changed = 0
        """how often tables that are gone were changed: one that comes again is another version"""

    def of_one(self, member: Member | None, fail: Fail) -> Members:
        """What a copy of a query reads: its own row."""
        made = Members()
        if member is not None:
            made.enter(member, fail, self.since(member))
        return made

    def new_number(self) -> int:
        self.numbered += 1
        return self.numbered

    def enter(self, member: Member, fail: Fail, since: Mapping[str, int]) -> None:
        """A query sees the rows that come from now on."""
        table = self._tables.setdefault(member.table, _Table(member.schema, forgotten=self._changed))
        self.numbered = max(self.numbered, member.number)
        known = table.rows.get(member.number)
        table.fails[member.number], table.since[member.number] = fail, since
        if known is None:
            table.rows[member.number] = member
            table.note(member.number, 1)

    def leave(self, member: Member) -> None:
        """A query has ended."""
        table = self._tables.get(member.table)
        if table is None or table.rows.pop(member.number, None) is None:
            return
        del table.fails[member.number], table.since[member.number]
        table.note(member.number, -1)
        if not table.rows:
            self._changed = max(self._changed, table.version)
            del self._tables[member.table]

    def since(self, member: Member) -> Mapping[str, int]:
        """From which arrival on a query sees rows, by stream."""
        table = self._tables.get(member.table)
        return {} if table is None else table.since.get(member.number, {})

    def count(self, member: Member) -> int:
        """How many queries run as one with a query."""
        table = self._tables.get(member.table)
        return 0 if table is None else len(table.rows)

    def first_arrivals(self, name: str, stream: str) -> dict[int, int]:
        """From which arrival on queries see rows of a stream, if not all that come are for them."""
        table = self._tables.get(name)
        found = {} if table is None else table.since
        return {number: since[stream] for number, since in found.items() if stream in since}

    def fail(self, name: str, number: int, error: MillstreamError) -> None:
        """A query can go no further; the others do."""
        table = self._tables.get(name)
        if table is not None and number in table.fails:
            table.fails[number](error)

    # -- as joins read tables --------------------------------------------------------------------------------------

    def read(self, table: StoredTable) -> pa.Table:
        known = self._tables.get(str(table.table))
        members = [] if known is None else list(known.rows.values())
        columns: list[Any] = []
        for name, expr in table.columns:
            assert isinstance(expr, Column)
            columns.append(_values(members, expr.name, table.schema, name))
        return pa.Table.from_arrays(columns, schema=table.schema.arrow)

    def version(self, name: str) -> int:
        table = self._tables.get(name)
        return self._changed if table is None else table.version

    def number_of(self, name: str) -> str | None:
        return MEMBER

    def changes(self, name: str, since: int) -> list[Added | Removed] | None:
        table = self._tables.get(name)
        if table is None or not table.forgotten <= since:
            return None
        came: dict[int, None] = {}
        went: list[int] = []
        for number, how in table.changes[since - table.forgotten :]:
            if how > 0:
                came[number] = None
            elif number in came:
                del came[number]
            else:
                went.append(number)
        members = [table.rows[number] for number in came if number in table.rows]
        columns = [_values(members, each.name, table.schema, each.name) for each in table.schema]
        added = pa.RecordBatch.from_arrays(columns, schema=table.schema.arrow)
        gone = pa.RecordBatch.from_arrays([pa.array(went, pa.int64())], names=[MEMBER])
        return [*([Removed(gone)] if went else []), *([Added(added)] if members else [])]

    def met(self, name: str, numbers: Ints) -> None: ...


def _values(members: list[Member], column: str, schema: Schema, name: str) -> pa.Array:
    if column == MEMBER:
        return pa.array([member.number for member in members], pa.int64())
    place = int(column.removeprefix("c"))
    return constant_column([member.constants[place].value for member in members], schema[name])


class JoinMembers(Stateless):
    """The rows of a stream with the queries that they are for."""

    def __init__(self, node: TableJoin, members: Members) -> None:
        self.schema = node.schema
        self._members = members
        self._table = str(node.table.table)
        self._matches = TableMatches(node, members)
        self._number = next(name for name, e in node.table.columns if isinstance(e, Column) and e.name == MEMBER)
        below: Physical = node
        while not isinstance(below, Source):
            below = below.inputs[0]
        self._stream = below.stream.lower()

    def step(self, batch: Batch) -> Batch:
        made = self._matches.step(batch)
        since = self._members.first_arrivals(self._table, self._stream) if len(made) else {}
        if not since or made.seq.min() >= max(since.values()):
            return made
        numbers = made.rows.column(self._number).to_numpy()
        # rows that were still being put in order when a query started are history for it
        kept = made.seq >= np.array([since.get(number, 0) for number in numbers.tolist()], np.int64)
        return made if kept.all() else made.take(np.flatnonzero(kept))


class ComputeApart(ComputeColumns):
    """Filter, then project rows of several queries: one that fails fails alone."""

    def __init__(self, node: Compute, members: Members, table: str) -> None:
        super().__init__(node)
        self._members = members
        self._table = table
        self._failed: dict[int, MillstreamError] = {}

    def without_failing(self, batch: Batch) -> Batch:
        """What becomes of the rows of each query up to the first that cannot be computed."""
        places = failing_places(self._stage, batch.rows)
        numbers = batch.rows.column(QUERY).to_numpy()
        kept = np.ones(len(batch), dtype=np.bool_)
        for place in sorted(places):
            number = int(numbers[place])
            if not kept[place]:
                continue
            try:
                self._compute.step(batch.slice(place, place + 1))
            except Exception as error:
                self._failed[number] = ours(error)
                kept[place:] &= numbers[place:] != number
        return self._compute.step(batch.take(np.flatnonzero(kept)))

    def fail_those(self) -> None:
        """Tell the queries of which rows were left out that they can go no further."""
        failed, self._failed = self._failed, {}
        for number, error in failed.items():
            self._members.fail(self._table, number, error)


def alone(program: ReadyQuery) -> ReadyQuery:
    """A query with operators of its own, in place of those that it shares."""
    if program.member is None or program.member.is_alone:
        return program
    shared, own = program.member, program.member.alone

    def moved(node: Physical) -> Physical:
        match node:
            case StoredTable() if node.table == shared.table:
                return replace(node, tables=(own.table,))
            case TableJoin(input=below, table=table):
                made = moved(table)
                assert isinstance(made, StoredTable)
                return replace(node, input=moved(below), table=made)
            case _ if hasattr(node, "over"):
                return replace(node, over=tuple(map(moved, node.inputs)))  # type: ignore[call-arg]
            case _ if hasattr(node, "input"):
                return replace(node, input=moved(node.inputs[0]))  # type: ignore[call-arg]
        return node

    return replace(program, plan=moved(program.plan), member=own)


def constants_told(constants: tuple[Literal, ...]) -> str:
    """The constants of a query, for people."""
    return ", ".join(map(str, constants))

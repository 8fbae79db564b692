"""The plans of a set of queries: which of their constants are values of rows, and which a plan is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream import sql
from millstream.bind import statements as act
from millstream.bind.queries.outputs import Bound
from millstream.bind.statements import bind
from millstream.catalog import SinkDef
from millstream.errors import BindError, MillstreamError
from millstream.expressions.nodes import Parameter
from millstream.plan.channels import durations_of
from millstream.plan.lengths import RowLength
from millstream.plan.node import Node
from millstream.plan.nodes import Scan, walk
from millstream.plan.templates import CHANNELS, CannotShare, ConstantsTable, for_all, for_sink, lengths_of, own_windows
from millstream.plan.window_tables import MOST_WINDOWS, OwnWindows
from millstream.schema import Field, Schema
from millstream.session.cohorts import NUMBER
from millstream.session.constants import Fixed, longest_of, sample_of
from millstream.sql.parameters import Symbol
from millstream.types import BIGINT

if TYPE_CHECKING:
    from millstream.session.database import Database


class SetPlans:
    """Binds and plans the text of a set with some parameters given, the others as columns of its constants."""

    def __init__(
        self, database: Database, text: str, key: str, schema: Schema, sink: SinkDef | None, merged: bool, follows: bool
    ) -> None:
        self.used = sql.parameter_names(text)
        self.columns = Schema((Field(NUMBER, BIGINT), *schema))
        self._database = database
        self._sql = text
        self._key = key
        self._schema = schema
        self._sink = sink
        self._merged = merged
        self._follows = follows
        self._lengths: frozenset[str] | None = None
        self._durations: dict[Fixed, frozenset[str]] = {}
        self._stepping: tuple[OwnWindows, ...] = ()
        """windows that have two lengths, of which one has to fit the other"""
        self._right: dict[str, tuple[Any, Any]] = {}
        """the shortest and the longest of windows that are known to be right"""

    def structural(self, first: dict[str, Any]) -> tuple[str, ...]:
        """The parameters that a plan is made of: those that cannot stand for values that rows have."""
        found = []
        for name in self.used:
            try:
                self.bound({other: first[other] for other in self.used if other != name})
            except MillstreamError:
                found.append(name)
        if len(found) < len(self.used) and not self._can_share({name: first[name] for name in found}):
            # lengths of windows that all rows are in: a plan for each, which its queries share
            lengths = lengths_of(self.bound({name: first[name] for name in found}).bound.plan)
            found = [name for name in self.used if name in found or name in lengths]
            if not (lengths and len(found) < len(self.used) and self._can_share({name: first[name] for name in found})):
                found = list(self.used)
        # what no constants make right is an error of the text
        self.bound({name: first[name] for name in found})
        return tuple(found)

    def _can_share(self, given: Mapping[str, Any]) -> bool:
        try:
            self.planned(given, self.constants(""))
        except (CannotShare, MillstreamError):
            return False
        return True

    def constants(self, table: str, longest: tuple[tuple[str, int], ...] = ()) -> ConstantsTable:
        """The constants in a stored table, as plans read them."""
        return ConstantsTable(table, self._key, self.columns, NUMBER, longest)

    def longest(self, fixed: Fixed, rows: pa.Table) -> tuple[tuple[str, int], ...]:
        """The longest durations that queries have, of parameters that are durations of events."""
        if fixed not in self._durations:
            self._durations[fixed] = durations_of(self.bound(dict(fixed)).bound.plan)
        return longest_of(rows.select(sorted(self._durations[fixed])), self._schema)

    def check(self, fixed: Fixed, rows: pa.Table) -> None:
        """Refuse constants that no window can have as its length: the shortest and the longest tell."""
        given = dict(fixed)
        if self._lengths is None:
            plan = self.bound(given).bound.plan
            self._lengths = lengths_of(plan)
            self._stepping = tuple(windows for windows in own_windows(plan) if windows.slide is not None)
        for name in self._lengths:
            column = rows.column(name)
            bounds = (
                pc.min_max(column.cast(pa.int64())).cast(pa.struct(dict.fromkeys(("min", "max"), column.type))).as_py()
            )
            low, high = self._right.get(name, (None, None))
            tried = [None] if column.null_count else [bounds["min"], bounds["max"]]
            for value in tried:
                if value is None or low is None or not low <= value <= high:
                    self._try(given, {name: value})
            self._right[name] = (
                (bounds["min"], bounds["max"]) if low is None else (min(low, bounds["min"]), max(high, bounds["max"]))
            )

        for windows in self._stepping:
            size, slide = _values(windows.size, rows), _values(windows.slide, rows)
            wrong = (size - 1) // MOST_WINDOWS >= slide
            if windows.grows:
                wrong |= size % slide != 0
            for place in np.flatnonzero(wrong)[:1].tolist():
                self._try(given, {name: rows.column(name)[place].as_py() for name in sorted(_names(windows))})

    def _try(self, given: Mapping[str, Any], lengths: Mapping[str, Any]) -> None:
        try:
            self.bound({**given, **lengths})
        except MillstreamError as error:
            told, many = " and ".join(f"${name}" for name in lengths), len(lengths) > 1
            values = " and ".join("NULL" if value is None else str(value) for value in lengths.values())
            raise BindError(
                f"{told} cannot be the length{'s' * many} of a window",
                detail=f"{'they are' if many else 'it is'} {values} for one of the queries: {error.message}",
                span=error.span,
                sql=error.sql,
            ) from None

    def bound(self, given: Mapping[str, Any]) -> act.StartQuery:
        """The query with some parameters given, the others as values of the constants' rows."""
        open_ = {name: Symbol(name) for name in self.used if name not in given}
        parsed = sql.parse(self._sql, {**given, **open_})
        types = {name: self._schema[name].type for name in open_}
        action = bind(parsed[0].ast, self._database.catalog, self._sql, types) if len(parsed) == 1 else None
        if not isinstance(action, act.StartQuery):
            raise BindError("sql_many takes one query over streams")
        return action

    def planned(self, given: Mapping[str, Any], constants: ConstantsTable) -> tuple[act.StartQuery, Bound]:
        """The plan of all queries with these parameters, over the stream joined with their constants."""
        action = self.bound(given)
        # operators become automata once constants have their places between them
        plan = self._database.optimized(action.bound.plan, without=frozenset(["fuse_events"]))
        without = self._database.config.disabled_rules
        if self._follows and not self._database._host.knows_what_waits and _streams_of(plan) > 1:
            # a second event that waits would be seen by queries that come later: then each keeps its own instances
            without |= {CHANNELS}
        made = for_all(plan, constants, without, self._merged)
        if self._sink is not None:
            return action, Bound(for_sink(made, constants), ("query", *action.bound.names))
        return action, Bound(made, (NUMBER, "queries" if self._merged else "query", *action.bound.names))

    def sample(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Constants with which a plan can be tried."""
        return {name: sample_of(self._schema[name].type) for name in names}


def _streams_of(plan: Node) -> int:
    """How many streams a plan reads."""
    return len({scan.stream for scan in walk(plan) if isinstance(scan, Scan)})


def _names(windows: OwnWindows) -> set[str]:
    """The parameters that are lengths of windows."""
    lengths = (length for length in (windows.size, windows.slide) if isinstance(length, RowLength))
    return {length.of.name for length in lengths if isinstance(length.of, Parameter)}


def _values(length: RowLength | int | None, rows: pa.Table) -> Any:
    """A length of the windows of each query."""
    if not isinstance(length, RowLength):
        return np.array(length)
    assert isinstance(length.of, Parameter)
    return rows.column(length.of.name).cast(pa.int64()).to_numpy() * length.unit

"""Many continuous queries of one shape: one row of constants each, one plan for all of them.

A set runs as few programs as it can. Queries that differ in constants of conditions and expressions share one; those
that differ in what a plan is made of, as the length of a window, run in a cohort for each such value. A query that is
added later sees no rows from before, so where queries share windows, those that come later form a cohort of their own.
Automata that they share tell which queries came later, and take them in unless they allow longer durations.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream import sql
from millstream.arrays import release_unused
from millstream.bind import statements as act
from millstream.catalog import SinkDef, TableDef
from millstream.errors import CatalogError, DataError, MillstreamError
from millstream.hosts.tables import quoted
from millstream.kernels.keys import KeyTable
from millstream.physical.nodes import Apply, walk
from millstream.physical.of_queries import is_open, second_inputs
from millstream.schema import Schema
from millstream.session.cohorts import (
    NUMBER,
    Cohort,
    CohortDef,
    QuerySetDef,
    endings,
    note_end,
    tables_of,
    waits,
)
from millstream.session.constants import Fixed, Rows, as_table, divided, put, schema_of, typed
from millstream.session.outboxes import Outboxes, counters, merged, rows_in
from millstream.session.query import Query
from millstream.session.set_plans import SetPlans
from millstream.session.turns import in_turn

if TYPE_CHECKING:
    from millstream.session.database import Database

_MANY = 1 << 16
"""so many queries at once need memory for a moment that is worth giving back"""


class QuerySet:
    """Standing queries of one shape, made by `sql_many`. Their results carry the key of the query as column `query`."""

    def __init__(
        self,
        database: Database,
        name: str,
        text: str,
        key: str,
        table: str | None = None,
        sink: SinkDef | None = None,
        merged: bool = False,
    ) -> None:
        self.name = name
        self.sql = text
        self.key = key
        self.table = table
        self.sink = sink
        self.merged = merged
        self._database = database
        self._cohorts: list[Cohort] = []
        self._made = 0
        self._numbered = 0
        self._kept: list[pa.Table] = []
        self._boxes = Outboxes(
            lambda: database.config.max_unfetched_per_query,
            lambda: database.config.when_unfetched == "stop",
        )
        self.stopped: list[Any] = []
        """the keys of queries that stopped because too many of their rows waited to be fetched"""
        self._number_of: npt.NDArray[Any] = np.empty(0, dtype=np.int64)
        self._cohort_of: npt.NDArray[Any] = np.empty(0, dtype=np.int32)

    # -- queries come and go ---------------------------------------------------------------------------------------

    @property
    def turn(self) -> AbstractContextManager[Any]:
        return self._database.turn

    @in_turn
    def add(self, rows: Rows) -> None:
        """Start queries, one for each row of constants; they see the rows that arrive from now on."""
        self._of_its_own()
        self._add(self._table_of(rows))

    def _add(self, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        keys = table.column(self.key).combine_chunks()
        self._check_new(keys)
        numbers = np.arange(self._numbered, self._numbered + table.num_rows, dtype=np.int64)
        numbered = table.add_column(0, NUMBER, pa.array(numbers))
        cohorts = np.empty(table.num_rows, dtype=np.int32)
        divided = [
            (fixed, places, self._open_for(fixed, table.take(pa.array(places))))
            for fixed, places in self._divided(table)
        ]
        for fixed, places, running in divided:
            # all of them start, or none does
            self._check(fixed, table.take(pa.array(places)), running)
        self._numbered += table.num_rows
        for fixed, places, running in divided:
            cohort = running or self._start(fixed, table.take(pa.array(places)))
            cohorts[places] = self._cohorts.index(cohort)
            self._database.perform(act.ChangeRows(cohort.table, numbered.take(pa.array(places)), None))
            cohort.size += len(places)
        self._enter(self._keys.encode([keys]), numbers, cohorts)
        self._database.sets.keep(self)
        if table.num_rows > _MANY:
            release_unused()

    def _enter(self, slots: Any, numbers: Any, cohorts: Any) -> None:
        self._boxes.open(numbers)
        self._number_of = put(self._number_of, slots, numbers)
        self._cohort_of = put(self._cohort_of, slots, cohorts)

    def _open_for(self, fixed: Fixed, rows: pa.Table) -> Cohort | None:
        """The program that can take these queries in."""
        return next((each for each in self._open(fixed) if self._fits(each, rows)), None)

    def _open(self, fixed: Fixed) -> list[Cohort]:
        return [each for each in self._cohorts if each.open and each.fixed == fixed and not each.ended]

    def _fits(self, cohort: Cohort, rows: pa.Table) -> bool:
        """Whether queries may join a program: none needs a longer duration than it allows, or would see an event that
        came before."""
        if cohort.longest:
            asked = dict(self._plans.longest(cohort.fixed, rows))
            if any(asked.get(name, most) > most for name, most in cohort.longest):
                return False
        name = cohort.query.name
        seconds = second_inputs(self._database.planned(name).program.plan, cohort.table)
        return self._database._host.takes_in(name, seconds)

    @in_turn
    def drop(self, keys: Iterable[Any]) -> None:
        """Stop queries, by their keys."""
        self._of_its_own()
        self._drop(pa.array(list(keys), self._schema[self.key].type.arrow))

    def _of_its_own(self) -> None:
        if self.table is not None:
            raise CatalogError(
                f"the queries of {self.name} are the rows of table {self.table}",
                hint=f"INSERT INTO {self.table}, or DELETE FROM it",
            )

    def _drop(self, gone: pa.Array) -> None:
        slots = np.unique(self._slots_of(gone))
        for place in np.unique(self._cohort_of[slots]):
            cohort = self._cohorts[place]
            numbers = self._number_of[slots[self._cohort_of[slots] == place]]
            self._database._host.emit_so_far(cohort.query.name)
            # what they emitted up to here still waits to be fetched
            self._boxes.close(numbers, note_end(self._database, cohort, numbers))
            going = pa.RecordBatch.from_arrays([pa.array(numbers)], names=[NUMBER])
            self._database.perform(act.ChangeRows(cohort.table, None, going))
            cohort.size -= len(numbers)
        self._end_unused()
        self._keys.release(slots)

    def _end_unused(self) -> None:
        """Stop programs that run no query and need not get any, once all of their rows are fetched."""
        for cohort in self._cohorts:
            if self._is_unused(cohort) and not waits(self._database, cohort):
                self._end(cohort)

    def _is_unused(self, cohort: Cohort) -> bool:
        """Whether a program runs no query, and can get none or there is an older one that can."""
        if cohort.ended or cohort.size:
            return False
        return not cohort.open or self._open(cohort.fixed)[0] is not cohort

    def __len__(self) -> int:
        """The number of queries."""
        return sum(cohort.size for cohort in self._cohorts)

    def keys(self) -> list[Any]:
        """The keys of the queries."""
        found: list[Any] = self._keys.keys().column(0).to_pylist()
        return found

    @in_turn
    def stop(self) -> None:
        """Stop all queries of the set."""
        self._database.perform(act.ForgetSet(self.name))
        self._database.catalog.release(_holder(self.name))
        for cohort in self._cohorts:
            if not cohort.ended:
                self._kept.append(self._fetched(cohort))
                self._end(cohort)

    # -- results ---------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The columns of the results: the query's key first, or the keys of the queries."""
        hidden = 1 if self.sink is None else 0
        if self._cohorts:
            return self._formed(pa.schema(list(self._cohorts[0].query.schema)[hidden:]).empty_table()).schema
        bound = self._plans.planned(self._plans.sample(self._fixed), self._plans.constants(""))[1]
        types = (each.type.arrow for each in bound.plan.schema)
        columns = [pa.field(*each) for each in zip(bound.names, types, strict=True)]
        return self._formed(pa.schema(columns[hidden:]).empty_table()).schema

    def fetch(self) -> pa.Table:
        """The rows emitted since the last fetch. Rows of one query are in order, those of different queries in any.
        If a program of the set failed, its error is raised once all rows are fetched."""
        parts, self._kept, failed = self._kept, [], None
        for cohort in self._cohorts:
            try:
                parts += [] if cohort.ended or self.sink is not None else [self._fetched(cohort)]
            except MillstreamError as error:
                failed = failed or error
        if len(over := self._boxes.fetched()):
            self._stop_alone(over)
        elif any(map(self._is_unused, self._cohorts)):
            with self.turn:
                self._end_unused()
        parts = [part for part in parts if part.num_rows]
        if failed is not None and not parts:
            raise failed
        return pa.concat_tables(parts or [self.schema.empty_table()])

    def _fetched(self, cohort: Cohort) -> pa.Table:
        """What a program produced for queries that were there: windows go on for a while without their query."""
        if self._is_saved:
            with self.turn:
                rows = cohort.query.fetch()
                fetched, _ = self._database._host.unfetched(cohort.query.name)
                batches = list(self._boxes.admit_from(rows, fetched - rows.num_rows))
        else:
            rows = cohort.query.fetch()
            batches = rows.to_batches()
        return self._formed(pa.Table.from_batches(batches, rows.schema).remove_column(0))

    def _formed(self, rows: pa.Table) -> pa.Table:
        return merged(rows) if self.merged else rows

    @property
    def _is_saved(self) -> bool:
        """Whether rows have places that outlive the process: then none is left out on its way to them."""
        return self._database.tables.is_saved

    @in_turn
    def _stop_alone(self, numbers: Any) -> None:
        """Stop queries with too many waiting rows; the others continue."""
        slots = self._keys.live()
        keys = self._keys.keys(slots[np.isin(self._number_of[slots], numbers)]).column(0)
        self._drop(keys)
        self.stopped += keys.to_pylist()

    def metrics(self, keys: Iterable[Any] | None = None) -> pa.Table:
        """Counters of each query, or of each of `keys`, those with most rows first: `rows_in` that met its
        conditions, `rows_out` that it emitted, `dropped` rows because too many waited to be fetched, and its `share` of
        the rows in and out of all queries, an estimate of its share of their time and state."""
        every = self._keys.live()
        slots = every if keys is None else self._slots_of(pa.array(list(keys), self._schema[self.key].type.arrow))
        total = sum(int(counts.sum()) for counts in self._counted(every))
        order, columns = counters(*self._counted(slots), self._boxes.lost(self._number_of[slots]), total)
        return pa.table({"query": self._keys.keys(slots[order]).column(0), **columns})

    def _counted(self, slots: Any) -> tuple[Any, Any]:
        """The rows that each query took in, and gave out."""
        numbers, met = self._number_of[slots], self._database.tables.met_rows
        went = self._boxes.emitted(numbers)
        return rows_in(numbers, self._cohort_of[slots], [met(each.table) for each in self._cohorts], went), went

    def queries(self) -> list[Query]:
        """The programs that run the set: each gives the results of the queries that share it."""
        return [cohort.query for cohort in self._cohorts if not cohort.ended]

    def sharing(self) -> list[tuple[str, int, str]]:
        """How many queries each program of the set runs, and why it does not run all."""
        return [(cohort.query.name, cohort.size, self._reason(cohort)) for cohort in self._cohorts if not cohort.ended]

    def explain(self, mode: str = "") -> str:
        """How each program of the set runs."""
        return "\n\n".join(query.explain(mode) for query in self.queries())

    def _reason(self, cohort: Cohort) -> str:
        if cohort.fixed:
            return "own plan for " + ", ".join(f"${name} = {value!r}" for name, value in cohort.fixed)
        if not cohort.open:
            return "windows are shared, so queries added later have their own"
        older = self._open(cohort.fixed)[0]
        if older is cohort:
            return ""
        if older.longest != cohort.longest:
            return "durations up to " + ", ".join(f"${name} = {most}" for name, most in cohort.longest)
        return "the older program has rows from before these queries"

    def begin(self, rows: Rows) -> None:
        """The first queries of the set: their constants decide about the types of parameters."""
        table, used = as_table(rows), sql.parameter_names(self.sql)
        self._know(schema_of(table, self.key, used))
        self._fixed = self._plans.structural({name: table.column(name)[0].as_py() for name in used})
        self.add(table)

    # -- the rows of a stored table ----------------------------------------------------------------------------------

    def begin_with(self, table: TableDef) -> None:
        """The queries that a stored table has rows for."""
        used = sql.parameter_names(self.sql)
        self._know(Schema(tuple(each for each in table.schema if each.name == self.key or each.name in used)))
        self._fixed = self._plans.structural(self._plans.sample(used))
        self.hold()
        try:
            if not self._fixed:
                # a job that is started now takes in the queries that come later
                self._start((), self._rows_of_table())
            self._database.sets.keep(self)
            self.catch_up()
        except BaseException:
            self.stop()
            raise

    def _rows_of_table(self) -> pa.Table:
        columns = ", ".join(quoted(name) for name in self._schema.names)
        return self._table_of(self._database.tables.query(f"SELECT {columns} FROM {quoted(str(self.table))}"))

    def hold(self) -> None:
        """The table stays as long as its rows are queries."""
        if self.table is not None:
            self._database.catalog.hold(_holder(self.name), frozenset([self.table]))

    def check(self, rows: pa.Table) -> None:
        """Raise an error for rows that cannot become a query."""
        table = self._table_of(rows)
        for fixed, places in self._divided(table):
            own = table.take(pa.array(places))
            self._check(fixed, own, self._open_for(fixed, own))

    def _check(self, fixed: Fixed, rows: pa.Table, running: Cohort | None) -> None:
        if running is None:
            self._plans.bound(dict(fixed))
        self._plans.check(fixed, rows)

    def follow(self, rows: pa.Table) -> None:
        """Update the queries after rows of the table were inserted, changed or deleted."""
        keys = rows.column(self.key).combine_chunks()
        tables, table, key = self._database.tables, quoted(str(self.table)), quoted(self.key)
        columns = ", ".join(map(quoted, self._schema.names))
        with tables.lent({"__changed": pa.table({self.key: keys})}):
            now = tables.query(f"SELECT {columns} FROM {table} WHERE {key} IN (SELECT {key} FROM __changed)")
        self._drop(keys.filter(pa.array(self._keys.lookup([keys]) >= 0)))
        self._add(self._table_of(now))
        if tables.query(f"SELECT count(*) FROM {table}").column(0)[0].as_py() != len(self):
            # keys were changed, and nobody says what they were
            self.catch_up()

    def catch_up(self) -> None:
        """Compare all queries with all rows of the table, and stop those whose rows were deleted or changed."""
        assert self.table is not None
        columns = ", ".join(quoted(name) for name in self._schema.names)
        own = [f"SELECT {columns} FROM {quoted(each.table)}" for each in self._cohorts if not each.ended]
        run = " UNION ALL ".join(own)
        of_table = f"SELECT {columns} FROM {quoted(self.table)}"
        query = self._database.tables.query
        gone = query(f"SELECT {quoted(self.key)} FROM ({run} EXCEPT {of_table})") if run else None
        new = query(f"{of_table} EXCEPT ({run})" if run else of_table)
        if gone is not None:
            self._drop(gone.column(0).combine_chunks())
        self._add(self._table_of(new))

    def _know(self, schema: Schema) -> None:
        """The columns of the constants."""
        self._schema = schema
        self._keys = KeyTable((schema[self.key].type,))
        follows = self.table is not None
        self._plans = SetPlans(self._database, self.sql, self.key, schema, self.sink, self.merged, follows)

    @property
    def definition(self) -> QuerySetDef:
        """What is kept of the set."""
        cohorts = tuple(
            CohortDef(each.fixed, each.table, each.query.name, each.open, each.longest) for each in self._cohorts
        )
        own = (self.name, self.sql, self.key, self._schema, self._fixed)
        return QuerySetDef(*own, cohorts, self._made, self.table, self.sink, self.merged, self._numbered)

    @staticmethod
    def reopened(database: Database, kept: QuerySetDef) -> QuerySet:
        """A saved set: its programs already run, and their tables hold its queries."""
        made = QuerySet(database, kept.name, kept.sql, kept.key, kept.table, kept.sink, kept.merged)
        made.hold()
        made._know(kept.schema)
        made._fixed, made._made, made._numbered = kept.fixed, kept.made, kept.numbered
        running = {query.name.lower(): query for query in database.queries()}
        for each in kept.cohorts:
            if each.query.lower() in running:
                made._go_on(Cohort(each.fixed, each.table, running[each.query.lower()], each.open, each.longest))
        made._boxes.make_room(made._numbered)
        return made

    def _go_on(self, cohort: Cohort) -> None:
        number, key, table = (quoted(name) for name in (NUMBER, self.key, cohort.table))
        rows = self._database.tables.query(f"SELECT {number}, {key} FROM {table}")
        self._database.tables.tell_changes(cohort.table, NUMBER)
        self._join(cohort)
        cohort.size = rows.num_rows
        ended = endings(self._database, cohort)
        if ended.num_rows:
            numbers = ended.column(0).to_numpy()
            self._numbered = max(self._numbered, int(numbers.max()) + 1)
            self._boxes.make_room(self._numbered)
            self._boxes.close(numbers, ended.column(1).to_numpy())
        if rows.num_rows:
            numbers = rows.column(0).to_numpy()
            slots = self._keys.encode([rows.column(1).combine_chunks()])
            self._numbered = max(self._numbered, int(numbers.max()) + 1)
            self._enter(slots, numbers, np.full(len(slots), len(self._cohorts) - 1))

    def _start(self, fixed: Fixed, rows: pa.Table | None = None) -> Cohort:
        self._made += 1
        name = self.name if self._made == 1 else f"{self.name}${self._made}"
        table = f"{name}$constants"
        longest = () if rows is None else self._plans.longest(fixed, rows)
        action, bound = self._plans.planned(dict(fixed), self._plans.constants(table, longest))
        self._database.perform(act.Define(TableDef(table, self._plans.columns)))
        self._database.tables.tell_changes(table, NUMBER)
        started = act.StartQuery(bound, action.uses, self.sink)
        query = self._database.perform(started, self.sql, name)
        assert isinstance(query, Query)
        cohort = Cohort(fixed, table, query, is_open(self._database.planned(name).program.plan, table), longest)
        self._join(cohort)
        return cohort

    def _join(self, cohort: Cohort) -> None:
        """A program runs for queries of the set."""
        self._cohorts.append(cohort)
        name = cohort.query.name
        if any(isinstance(node, Apply) for node in walk(self._database.planned(name).program.plan)):
            # otherwise queries take in what they give out
            self._database.tables.count_met(cohort.table)
        if not self._is_saved and self.sink is None:
            self._database._host.admit(name, self._boxes.admit)

    def _end(self, cohort: Cohort) -> None:
        self._database.perform(act.StopQuery(cohort.query.name))
        for table in tables_of(self._database, cohort):
            self._database.perform(act.Remove(table, (TableDef,)))
        cohort.size = 0
        cohort.ended = True

    def _divided(self, table: pa.Table) -> Iterable[tuple[Fixed, Any]]:
        return divided(table, self._fixed)

    def _table_of(self, rows: Rows) -> pa.Table:
        return typed(rows, self._schema)

    def _slots_of(self, keys: pa.Array) -> Any:
        found = self._keys.lookup([keys])
        if (found < 0).any():
            raise CatalogError(f"no query {keys[int(np.argmin(found))].as_py()!r} in {self.name}")
        return found

    def _check_new(self, keys: pa.Array) -> None:
        if keys.null_count:
            raise DataError(f"a query has no key: {self.key} is NULL")
        known = self._keys.lookup([keys])
        if (known >= 0).any():
            raise CatalogError(f"query {keys[int(np.argmax(known >= 0))].as_py()!r} is already in {self.name}")
        if len(pc.unique(keys)) < len(keys):
            raise CatalogError(f"two of the queries have the same {self.key}")


def _holder(name: str) -> str:
    """The name under which the catalog notes that a set needs its table."""
    return f"queries {name}"

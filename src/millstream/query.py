"""What a user holds in the hand: a running query, or a result that is already there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.catalog import StreamDef
from millstream.errors import UnsupportedError
from millstream.hosts.contract import Host, Program
from millstream.physical.nodes import streams_of
from millstream.times import Moment, instant_of

if TYPE_CHECKING:
    from millstream.session import Database

POLL_SECONDS = 0.02


class Query:
    """A standing query: it runs until it is stopped, and its rows wait until they are fetched."""

    def __init__(
        self, database: Database, host: Host, program: Program, sql: str, explain: Callable[[str], str]
    ) -> None:
        self._database = database
        self._host = host
        self._program = program
        self._explain = explain
        self._looked_at: pa.Table | None = None
        self.sql = sql

    @property
    def name(self) -> str:
        return self._program.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        fields = zip(self._program.columns, self._program.plan.schema, strict=True)
        return pa.schema([pa.field(name, field.type.arrow) for name, field in fields])

    def fetch(self) -> pa.Table:
        """What the query produced since the last fetch; after `finish()`, everything that is left."""
        rows = self._host.fetch(self.name)
        if self._looked_at is not None:
            rows, self._looked_at = pa.concat_tables([self._looked_at, rows]), None
        return rows

    def arrow(self) -> pa.Table:
        """Read the bounded sources of this query to their end and return all rows not yet fetched."""
        self._host.run((self.name,))
        return self.fetch()

    def df(self) -> Any:
        """Like `arrow`, as a pandas DataFrame."""
        return self.arrow().to_pandas()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches as they are produced, until the sources end or the query is stopped."""
        failure: list[BaseException] = []

        def work() -> None:
            try:
                self._host.run((self.name,))
            except BaseException as error:
                failure.append(error)

        thread = Thread(target=work, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                yield from self.fetch().to_batches()
            if failure:
                raise failure[0]
            yield from self.fetch().to_batches()
        finally:
            if thread.is_alive():
                self._host.interrupt()
                thread.join()

    def snapshot(self, at: Moment | None = None) -> pa.Table:
        """The content of a relation now, or at an instant still held: one that its streams have not passed.

        Now is the latest time that a row or a heartbeat of its streams has had.
        """
        if not self._program.relation:
            raise UnsupportedError(
                "only a relation has a content at an instant",
                detail=f"query {self.name} delivers events: things that happened, each at its time",
                hint="fetch() what it produced",
            )
        if at is None:
            return self._host.content(self.name, None)
        stream = next(iter(streams_of(self._program.plan)))
        return self._host.content(self.name, instant_of(self._database.catalog.get(stream, StreamDef), at))

    def plot(self, x: str | None = None, y: str | None = None, ax: Any = None) -> Any:
        """Draw `y` over `x` with the matches of a pattern marked, rows coloured by variable; gives matplotlib's axes.

        It draws what `arrow` would give, and takes nothing away from it. `x` is the time, and `y` the first number
        that is neither key nor match number, unless told. Matches are marked where MATCH_NUMBER() and CLASSIFIER() are
        among the columns of ALL ROWS PER MATCH.
        """
        from millstream.plotting import plot, roles_of

        times = (self._database.catalog.get(name, StreamDef).time_column for name in streams_of(self._program.plan))
        roles = roles_of(
            self._program.plan, self._program.columns, frozenset(t.lower() for t in times if t is not None)
        )
        self._looked_at = self.arrow()
        return plot(self._looked_at, roles, x, y, ax)

    def explain(self, mode: str = "") -> str:
        """How the query runs; mode VERBOSE adds the plan after every rule, RULES the reasons."""
        return self._explain(mode.upper())

    def plan_json(self) -> str:
        """The plan that runs, as JSON text; `millstream.plan_form.loads` reads it."""
        from millstream.plan_form import dumps

        return dumps(self._program)

    def stop(self) -> None:
        """End the query; what nobody has fetched is gone."""
        self._database.stop(self.name)

    def __repr__(self) -> str:
        return f"<query {self.name}: {' '.join(self.sql.split())[:60]}>"


class Result:
    """Rows that are already there: an ad-hoc query on tables, EXPLAIN, SHOW."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def fetch(self) -> pa.Table:
        return self._table

    def arrow(self) -> pa.Table:
        return self._table

    def df(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self._table.to_pandas()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.to_batches())

    def __repr__(self) -> str:
        return f"<result of {self._table.num_rows} rows>"


def text_table(column: str, lines: list[str]) -> Result:
    """A result of one text column."""
    return Result(pa.table({column: pa.array(lines, pa.string())}))

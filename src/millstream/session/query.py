"""What `Database.sql` returns: a running query, or a result that is already there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.bind.actions import PauseQuery
from millstream.catalog import StreamDef
from millstream.errors import CatalogError, DataError, MillstreamError, UnsupportedError
from millstream.hosts.contract import Counts, Host, Left, ReadyQuery
from millstream.hosts.results import ResultLog, WhenFull
from millstream.physical.nodes import Physical, streams_of
from millstream.session.display import SHOWN, Displayed, as_html, as_text
from millstream.session.subscriptions import Reader, await_news
from millstream.session.times import Completeness, Moment, completeness, instant_of

if TYPE_CHECKING:
    from millstream.session.database import Database


class Query(Displayed):
    """A continuous query: it runs until it is stopped, and its rows wait until you fetch them."""

    def __init__(
        self, database: Database, host: Host, program: ReadyQuery, sql: str, explain: Callable[[str], str]
    ) -> None:
        self._database = database
        self._host = host
        self._program = program
        self._explain = explain
        self._looked_at: pa.Table | None = None
        self._left: Left | None = None
        self._callbacks: list[Reader] = []
        self.sql = sql

    @property
    def name(self) -> str:
        return self._program.name

    @property
    def plan(self) -> Physical:
        """The operators that run."""
        return self._program.plan

    @property
    def uses(self) -> frozenset[str]:
        """The names of the streams, tables, views and functions that its text names."""
        return self._database.planned(self.name).uses

    @property
    def owner(self) -> str:
        """The account of a server that started it; empty without one."""
        return self._database.planned(self.name).owner

    @property
    def state(self) -> str:
        """running, paused, failed or ended."""
        return self._host.state(self.name)

    @property
    def coverage(self) -> Completeness:
        """From when on its answers are complete. A query that starts late has missed rows, unless it started with
        history."""
        stream = self._database.catalog.get(next(iter(streams_of(self._program.plan))), StreamDef)
        return completeness(self._host.coverage(self.name), stream)

    def pause(self) -> None:
        """Pause the query: no rows reach it, and its state is kept."""
        self._database.perform(PauseQuery(self.name))

    def resume(self) -> None:
        """Resume after a pause. The query first processes the rows that its streams kept meanwhile."""
        self._database.perform(PauseQuery(self.name, resume=True))

    def become(self, other: Query) -> Query:
        """Stand for another definition that took its place; whoever holds this object holds that one."""
        self._program, self._explain, self.sql = other._program, other._explain, other.sql
        self._database._queries[self.name.lower()] = self
        return self

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        fields = zip(self._program.columns, self._program.plan.schema, strict=True)
        return pa.schema([pa.field(name, field.type.arrow) for name, field in fields])

    def fetch(self) -> pa.Table:
        """The rows emitted since the last fetch, as an Arrow table. After `finish()`, all remaining rows.

        A stopped query returns once more the rows that it had emitted before.
        """
        rows = self._last_rows()
        if rows is None:
            rows = self._host.fetch(self.name)
        if self._looked_at is not None:
            rows, self._looked_at = pa.concat_tables([self._looked_at, rows]), None
        return rows

    def _last_rows(self) -> pa.Table | None:
        """What a stopped query has left, once."""
        left, self._left = self._left, None
        rows = None if left is None else left()
        return rows if rows is not None and rows.num_rows else None

    def leave(self, left: Left) -> None:
        """The query was stopped."""
        self._left = left
        self._database.templates.ended(self.name)

    def arrow(self) -> pa.Table:
        """Read the bounded sources of this query to their end and return all rows not yet fetched."""
        self._host.run((self.name,))
        return self.fetch()

    def show(self, limit: int = SHOWN) -> None:
        """Print the first rows of what `arrow` would return. They stay there for `fetch`."""
        self._looked_at = self.arrow()
        print(as_text(self._looked_at, limit))

    def metrics(self) -> dict[str, int]:
        """Counters so far: rows `emitted`, and rows that its streams `accepted`, or found `late` or `rejected`."""
        emitted = self._host.progress().rows_out.get(self.name, 0)
        return {"emitted": emitted, **asdict(self.counts)}

    def _repr_html_(self) -> str:
        from html import escape

        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"<p>query <b>{escape(self.name)}</b> ({escape(columns)})</p><pre>{escape(self.sql)}</pre>"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows that `fetch` would return, in batches as they are emitted.

        Declared sources are read meanwhile. It ends when all inputs of the query have, or when it is stopped.
        """
        log = self._host.results(self.name)
        read = Event()
        failure: list[BaseException] = []

        def work() -> None:
            try:
                self._host.run((self.name,))
            except BaseException as error:
                failure.append(error)
            read.set()
            log.wake()

        thread = Thread(target=work, daemon=True)
        with log.iterated():
            thread.start()
            yield from self._batches(log, read, failure, thread)

    def _batches(
        self, log: ResultLog, read: Event, failure: list[BaseException], thread: Thread
    ) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                done = read.is_set()
                ended = log.closed or (done and not self._host.waits(self.name))
                position = log.end
                try:
                    rows = self.fetch()
                except CatalogError:
                    if log.closed:  # somebody stopped the query
                        return
                    raise
                yield from rows.to_batches()
                if failure:
                    raise failure[0]
                if ended:
                    return
                await_news(log, partial(_nothing_new, log, position, read, done))
        finally:
            if thread.is_alive():
                self._host.interrupt()
                thread.join()

    def subscribe(
        self,
        callback: Callable[[pa.RecordBatch], Any] | None = None,
        *,
        since: int | None = None,
        buffer: int = 10_000,
        when_full: WhenFull = "block",
        name: str | None = None,
    ) -> Reader:
        """A reader of the rows to come. It takes no rows from `fetch` or from other readers.

        It starts with the next row, or at the position `since` of another reader, if those rows are still kept. With a
        callback, a thread calls it with every batch. `buffer` is how many rows may wait for the reader. When there are
        more, `push` waits ("block"), the oldest are dropped and counted ("drop"), or the reader fails ("end").

        A reader with a `name` continues after the last row that was acknowledged under that name (`reader.ack()`). All
        later rows are kept for it until `unsubscribe(name)`; in a session with a directory, also across crashes.
        """
        log, acknowledge = self._host.results(self.name), None
        if name is not None:
            known = log.acknowledged().get(name)
            since = next(place for place in (since, known, log.end) if place is not None)
            acknowledge = partial(self._host.acknowledge, self.name, name)
            if known is None:
                acknowledge(since)
        reader = Reader(log, self.schema, since, buffer, when_full, acknowledge)
        if callback is not None:
            reader.call(callback)
            self._callbacks.append(reader)
        return reader

    def acknowledge(self, name: str, position: int) -> None:
        """Acknowledge rows for the reader of that name: rows before the position need not be kept."""
        log = self._host.results(self.name)
        if not log.acknowledged().get(name, position + 1) <= position <= log.end:
            self._require_reader(name)
            raise DataError(f"position {position} is behind or ahead of reader {name}")
        self._host.acknowledge(self.name, name, position)

    def unsubscribe(self, name: str) -> None:
        """End the reader of that name: no more rows are kept for it."""
        self._require_reader(name)
        self._host.acknowledge(self.name, name, None)

    def _require_reader(self, name: str) -> None:
        if name not in self._host.results(self.name).acknowledged():
            raise DataError(f"query {self.name} has no reader {name}")

    def wait_for_callbacks(self, timeout: float = 10.0) -> None:
        """Wait until subscribed functions have received all rows."""
        for reader in self._callbacks:
            with suppress(Exception):  # its thread has told
                reader.wait(timeout)

    @property
    def dropped(self) -> int:
        """How many rows were dropped before they were fetched: see the setting `max_unfetched_rows`. With readers, only
        the latest million rows wait."""
        return self._host.results(self.name).unfetched_lost

    @property
    def counts(self) -> Counts:
        """How many rows its streams have accepted, and how many were late or rejected."""
        return self._host.counts(self.name)

    def snapshot(self, at: Moment | None = None, window: str | None = None) -> pa.Table:
        """The content of a query over windows, now or at another instant.

        "Now" is the latest time of a row or a heartbeat on its streams. A past instant is computed from the rows
        that its streams keep (KEEP), as if the query had always been running. With `window`, such as
        "RANGE 10 MINUTES", it is the content that the query would have with that window, from kept rows, too.
        """
        if not self._program.relation:
            raise UnsupportedError(
                "only a relation has a snapshot",
                detail=f"query {self.name} emits events",
                hint="use fetch() for its rows",
            )
        stream = self._database.catalog.get(next(iter(streams_of(self._program.plan))), StreamDef)
        instant = None if at is None else instant_of(stream, at)
        if window is None:
            return self._host.content(self.name, instant)
        from millstream.session.altering import with_window

        with self._database.turn:
            planned = with_window(self._database, self.name, window)
        return self._host.content_of(planned.program, instant)

    def plot(self, x: str | None = None, y: str | None = None, ax: Any = None) -> Any:
        """Draw `y` over `x` with the matches of a pattern marked and rows coloured by variable. Returns the axes.

        It draws what `arrow` would return, and removes nothing from it. By default `x` is the time, and `y` the first
        number that is neither key nor match number. Matches are marked if MATCH_NUMBER() and CLASSIFIER() are among the
        columns of ALL ROWS PER MATCH.
        """
        from millstream.session.plotting import plot, roles_of

        times = (self._database.catalog.get(name, StreamDef).time_column for name in streams_of(self._program.plan))
        roles = roles_of(
            self._program.plan, self._program.columns, frozenset(t.lower() for t in times if t is not None)
        )
        self._looked_at = self.arrow()
        return plot(self._looked_at, roles, x, y, ax)

    def explain(self, mode: str = "", format: str = "text") -> str:
        """How the query runs; mode VERBOSE adds the plan after every rule, RULES the reasons.

        With `format` "dot" or "svg", it draws the automata of NEXT and FOLD and the row patterns instead.
        """
        if format != "text":
            from millstream.session.drawing import drawn

            return drawn(self._program.plan, format)
        return self._explain(mode.upper())

    def plan_json(self) -> str:
        """The plan that runs, as JSON text; `millstream.plan_form.loads` reads it."""
        from millstream.plan_form import dumps

        return dumps(self._program)

    def stop(self) -> None:
        """End the query. You can still fetch the remaining rows from this object."""
        self._database.stop(self.name)

    def cancel(self, error: MillstreamError | None = None) -> None:
        """Cancel the query, from any thread: readers get a CancelledError, or the given error, and it processes no more
        rows.

        `stop` removes the query.
        """
        self._host.cancel(self.name, error)

    def __repr__(self) -> str:
        return f"<query {self.name}: {' '.join(self.sql.split())[:60]}>"


class Result(Displayed):
    """The rows of an ad-hoc query on tables, EXPLAIN or SHOW."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def fetch(self) -> pa.Table:
        return self._table

    def arrow(self) -> pa.Table:
        return self._table

    def show(self, limit: int = SHOWN) -> None:
        """Print the first rows."""
        print(as_text(self._table, limit))

    def _repr_html_(self) -> str:
        return as_html(self._table, SHOWN)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.to_batches())

    def __repr__(self) -> str:
        return f"<result of {self._table.num_rows} rows>"


def _nothing_new(log: ResultLog, position: int, read: Event, done: bool) -> bool:
    return log.end == position and not log.closed and read.is_set() is done


def text_table(column: str, lines: list[str]) -> Result:
    """A result of one text column."""
    return Result(pa.table({column: pa.array(lines, pa.string())}))

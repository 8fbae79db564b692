"""Changes of stored tables as events: ISTREAM(t) and DSTREAM(t).

A statement puts the rows that it changes aside in its own transaction. Then they are pushed, each change once: what is
still aside when a session is opened again was not pushed, or its push is known by its number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.catalog import StreamDef
from millstream.connectors.rows import to_batch
from millstream.errors import UnsupportedError
from millstream.hosts.contract import Once, ReadyQuery
from millstream.hosts.tables import CHANGES
from millstream.physical.nodes import streams_of

if TYPE_CHECKING:
    from millstream.hosts.contract import Host
    from millstream.session.database import Database


class TableChanges:
    """Who reads the changes of a session's tables, and what they have not been told yet."""

    def __init__(self, database: Database, host: Host) -> None:
        self._database = database
        self._host = host
        self._declared: dict[str, StreamDef] = {}

    def declare(self, streams: Iterable[str]) -> None:
        """Make those of these streams known to the host that are changes of tables."""
        for name in streams:
            entry = self._database.catalog.find(name)
            # a table that was made anew may have other columns
            if isinstance(entry, StreamDef) and entry.table is not None and self._declared.get(name.lower()) != entry:
                self._host.declare(entry)
                self._declared[name.lower()] = entry

    def forget(self, table: str) -> None:
        """A table is gone."""
        for name in self._of(table):
            self._host.forget(name)
            del self._declared[name]

    def admit(self, program: ReadyQuery) -> None:
        """Let a query read changes of tables. One that reads those of a table which a query fills is refused."""
        self.declare(own := streams_of(program.plan))
        filled = program.sink is not None and self._of(program.sink.name)
        if not filled and not self._declared.keys() & own:
            return
        others = (each.name for each in self._database.queries() if each.name.lower() != program.name.lower())
        programs = [program, *(self._database.planned(name).program for name in others)]
        read = {name for each in programs for name in streams_of(each.plan)}
        for sink in (each.sink for each in programs if each.sink is not None):
            if sink.options.get("connector") == "table" and read & self._of(sink.name):
                raise UnsupportedError(
                    f"a query inserts into table {sink.name}, and another reads the changes of {sink.name}",
                    hint="read the inserted rows instead: CREATE STREAM changes AS SELECT …",
                )

    def read(self, table: str) -> tuple[str, ...]:
        """The streams of a table's changes that some query reads."""
        if not (own := self._of(table)):
            return ()
        queries = [each for each in self._database.queries() if self._host.state(each.name) != "ended"]
        streams = {name for each in queries for name in streams_of(self._database.planned(each.name).program.plan)}
        return tuple(sorted(own & streams))

    def _of(self, table: str) -> set[str]:
        """The streams of a table's changes that queries have read."""
        return self._declared.keys() & {f"{how}({table})".lower() for how in ("istream", "dstream")}

    def tell(self) -> None:
        """Push the changes that wait."""
        if not self._declared:
            return
        tables, is_saved = self._database.tables, self._database.tables.is_saved
        for name in tables.aside(CHANGES):
            number, _, stream = name.removeprefix(CHANGES).partition("_")
            entry = self._database.catalog.find(stream)
            if isinstance(entry, StreamDef) and stream.lower() in self._declared:
                rows, _ = to_batch(tables.rows_aside(name), entry.given, entry.name)
                once = Once(entry.name, int(number)) if is_saved else None
                if rows.num_rows:
                    self._host.push(entry.name, rows, (), once)
            tables.take_aside(name, None)

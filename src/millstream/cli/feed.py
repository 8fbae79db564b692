"""Rows of queries without a sink, on their way to the screen: counted, and kept only if they are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.session.query import Query


class Feed:
    """One query's rows: how many there were, the first `limit` (if they are kept) and the latest few."""

    LATEST = 8

    def __init__(self, query: Query, limit: int | None, *, keep: bool) -> None:
        self.query = query
        self._limit = limit
        self._keep = keep
        self._lock = Lock()
        self.count = 0
        self.shown = 0
        self._first: list[pa.Table] = []
        self._latest: pa.Table | None = None

    def drain(self) -> pa.Table:
        """Fetch what is there and return the part of it that is still within the limit."""
        import pyarrow as pa

        rows = self.query.fetch()
        with self._lock:
            self.count += rows.num_rows
            wanted = rows if self._limit is None else rows.slice(0, max(0, self._limit - self.shown))
            self.shown += wanted.num_rows
            if wanted.num_rows and self._keep:
                self._first.append(wanted)
            if rows.num_rows:
                tail = rows.slice(max(0, rows.num_rows - self.LATEST))
                known = [] if self._latest is None else [self._latest]
                both = pa.concat_tables([*known, tail])
                self._latest = both.slice(max(0, both.num_rows - self.LATEST))
        return wanted

    @property
    def first(self) -> pa.Table:
        """The rows within the limit."""
        import pyarrow as pa

        with self._lock:
            return pa.concat_tables(self._first) if self._first else self.query.schema.empty_table()

    @property
    def latest(self) -> pa.Table:
        """The rows that came last."""
        with self._lock:
            return self._latest if self._latest is not None else self.query.schema.empty_table()


def print_as_text(feeds: Sequence[Feed], write: Callable[[str], None]) -> Callable[[Feed, pa.Table], None]:
    """A printer of rows as they come: tab-separated lines below a head with the query's name and columns."""
    from millstream.cli.terminal import plain_rows

    current: list[Feed] = []

    def show(feed: Feed, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if current[-1:] != [feed]:
            current[:] = [feed]
            names = "\t".join(rows.schema.names)
            write(f"-- {feed.query.name}\n{names}\n" if len(feeds) > 1 else f"{names}\n")
        write("".join("\t".join("NULL" if cell is None else cell for cell in row) + "\n" for row in plain_rows(rows)))

    return show

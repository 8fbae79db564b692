"""What the in-process host holds: streams, sources, running queries and their graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.config import Config
from millstream.connectors.contract import Offset, RowSource
from millstream.errors import CatalogError
from millstream.hosts.contract import not_running
from millstream.hosts.embedded.graph import Graph, Vertex
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.members import Members
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.embedded.turns import Turns
from millstream.hosts.results import Gate
from millstream.hosts.tables import TableStore
from millstream.kernels import jit
from millstream.physical import nodes as physical

if TYPE_CHECKING:
    from millstream.hosts.embedded.starting import CatchUp


class HostState:
    """All that calls of several threads take turns to look at and to change; `let_in` begins each turn."""

    def __init__(self, tables: TableStore, config: Config, let_in: Callable[[], None]) -> None:
        self.tables = tables
        self.config = config
        self.home: Path | None = None  # where the history of streams is, of a session in a directory
        self.ahead: dict[str, CatchUp] = {}
        """queries that are about to start with history, by name"""
        self.is_watched = False
        """whether somebody gets rows without asking: a reader or a sink"""
        self.lock = Turns(
            lambda: jit.session_policy(self.config.jit, self.config.threads), lambda: self.config.limits, let_in
        )
        self.streams: dict[str, Stream] = {}
        self.sources: dict[str, RowSource] = {}
        self.offsets: dict[str, Offset] = {}
        self.queries: dict[str, GraphQuery] = {}
        self.members = Members()
        self.graph = Graph(tables, self.members, self._entry)
        self.arrivals = 0
        self.gate = Gate()

    def _entry(self, node: physical.Source) -> tuple[Vertex, int]:
        """Where a stream enters the graph, and from which arrival on a query that starts now reads it."""
        stream = self.streams[node.stream.lower()]
        return stream.sides[node.side], self.arrivals if node.side == "main" and stream.waiting else 0

    def behind(self, plan: physical.Physical) -> set[str]:
        """The streams that a query reads, and those that they are derived from."""
        found = set(physical.streams_of(plan))
        for name in list(found):
            if self.streams[name].definition.plan is not None and name in self.queries:
                found |= self.behind(self.queries[name].program.plan)
        return found

    def _find(self, stream: str) -> Stream:
        entry = self.streams.get(stream.lower())
        if entry is None:
            raise CatalogError(f"no stream {stream}")
        return entry

    def _running(self, name: str) -> GraphQuery:
        if name.lower() not in self.queries:
            raise not_running(name)
        return self.queries[name.lower()]

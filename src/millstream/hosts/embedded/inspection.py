"""Looking at what runs: figures of operators, the rows that pass them, and copies of queries to step through."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.arrays import from_numpy
from millstream.errors import CatalogError, DataError, MillstreamError
from millstream.hosts.contract import OperatorFigures, StreamFigures
from millstream.hosts.embedded.graph import Graph, Outlet, Vertex, emit, sources_of, vertices
from millstream.hosts.embedded.operators import RunKernel
from millstream.hosts.embedded.sharing import queries_behind
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.sizes import size_of
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.physical import nodes as physical

if TYPE_CHECKING:
    from millstream.hosts.embedded.graph_query import GraphQuery
    from millstream.hosts.embedded.host_state import HostState

PEEK_ROWS = 200
"""rows that are kept of an operator somebody looks at"""
PEEK_SECONDS = 15.0
"""so long after the last look they are kept"""
COPY_ROWS = 10_000
"""rows that wait for a copy, at most"""
COPY_SECONDS = 600.0
"""so long after its last step a copy is kept"""


class GraphInspector:
    """Looks at the graph of a host."""

    def __init__(self, host: HostState) -> None:
        self._host = host

    def operators(self, query: str | None = None) -> list[OperatorFigures]:
        with self._host.lock:
            tops = [self._host._running(query).top] if query is not None else self._tops()
            latest = {side: stream for stream in self._host.streams.values() for side in stream.sides.values()}
            known: dict[Vertex, tuple[str, ...]] = {}
            return [_figures(vertex, latest, len(queries_behind(vertex, known))) for vertex in _all(tops)]

    def stream(self, name: str) -> StreamFigures:
        with self._host.lock:
            stream = self._host._find(name)
            kept = stream.history.rows if stream.history is not None else 0
            return StreamFigures(stream.counts, _told(stream.latest), _told(stream.frontier), stream.waiting, kept)

    def peek(self, id: str) -> pa.Table:
        with self._host.lock:
            vertex = self._find(id)
            found = [monitor for monitor in vertex.monitors if isinstance(monitor, _LatestRows)]
            if not found:
                found = [_LatestRows(vertex.operator.schema.arrow)]
                vertex.monitors.extend(found)
            return found[0].look()

    def copy(self, query: str) -> GraphCopy:
        with self._host.lock:
            return GraphCopy(self._host, self._host._running(query))

    def _tops(self) -> list[Vertex]:
        return [running.top for running in self._host.queries.values()]

    def _find(self, id: str) -> Vertex:
        sides = (side for stream in self._host.streams.values() for side in stream.sides.values())
        for vertex in (*sides, *_all(self._tops())):
            if vertex.id == id:
                return vertex
        raise CatalogError(f"no operator {id}", hint="it may have been stopped")


def _all(tops: Iterable[Vertex]) -> list[Vertex]:
    """The vertices below these, each once, after those it takes from."""
    found: dict[Vertex, None] = {}

    def look(vertex: Vertex) -> None:
        if vertex not in found:
            for source in vertex.inputs:
                look(source)
            found[vertex] = None

    for top in tops:
        look(top)
    return list(found)


def _told(instant: int) -> int | None:
    return instant if BEGIN < instant < FOREVER else None


def _figures(vertex: Vertex, sides: dict[Vertex, Stream], queries: int) -> OperatorFigures:
    node = vertex.key[0] if vertex.key is not None else None
    latest = max((sides[source].latest for source in _entries(vertex) if source in sides), default=BEGIN)
    upto = _told(vertex.upto)
    return OperatorFigures(
        vertex.id,
        f"Stream {vertex.id}" if node is None else node.label(),
        tuple(source.id for source in vertex.inputs),
        vertex.rows,
        upto,
        None if upto is None or latest == BEGIN else max(latest - upto, 0),
        size_of(vertex.operator.state) if isinstance(vertex.operator, RunKernel) else None,
        sum(pace.seconds for pace in vertex.paces.values()),
        queries,
        None if vertex.error is None else vertex.error.message,
    )


def _entries(vertex: Vertex) -> Iterator[Vertex]:
    if vertex.inputs:
        for source in sources_of(vertex):
            yield source.inputs[0]
    else:
        yield vertex


class _LatestRows:
    """Keeps the latest rows of an operator, as long as somebody asks for them now and then."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: deque[Batch] = deque()
        self._rows = 0
        self._until = 0.0

    def take(self, batch: Batch) -> bool:
        if time.monotonic() > self._until:
            return False
        if len(batch):
            self._batches.append(batch.slice(max(0, len(batch) - PEEK_ROWS), len(batch)))
            self._rows += len(self._batches[-1])
            while self._rows - len(self._batches[0]) >= PEEK_ROWS:
                self._rows -= len(self._batches.popleft())
        return True

    def look(self) -> pa.Table:
        if time.monotonic() > self._until:  # what was there when the last one went is long past
            self._batches.clear()
            self._rows = 0
        self._until = time.monotonic() + PEEK_SECONDS
        return as_rows(list(self._batches), self._schema).slice(max(0, self._rows - PEEK_ROWS))


def as_rows(batches: list[Batch], schema: pa.Schema) -> pa.Table:
    """Rows as they pass an operator. Those of a relation, and events that last, are told with both ends."""
    rows = pa.Table.from_batches([batch.rows for batch in batches], schema=schema)
    if any(batch.other is not None for batch in batches):
        one = np.concatenate([batch.time for batch in batches])
        other = np.concatenate([batch.time if batch.other is None else batch.other for batch in batches])
        for name, ends in (("(until)", np.maximum(one, other)), ("(from)", np.minimum(one, other))):
            rows = rows.add_column(0, name, from_numpy(ends))
    return rows


class GraphCopy:
    """A copy of a query's operators with their state, and of the entries of its streams.

    What has arrived at the streams since waits until it is stepped; the query itself, and others, notice nothing.
    """

    def __init__(self, host: HostState, running: GraphQuery) -> None:
        self._host = host
        self._streams = {stream.definition.name.lower(): stream.copied() for stream in running.streams}
        self._waiting: deque[tuple[Callable[[Batch], None], Batch]] = deque()
        self._count = 0
        self._missed = False
        self._until = time.monotonic() + COPY_SECONDS
        self._error: MillstreamError | None = None
        plan = running.program.plan
        members = host.members.of_one(running.program.member, self._fail)
        graph = Graph(host.tables, members, lambda node: (self._streams[node.stream.lower()].sides[node.side], 0))
        top = graph.attach(running.program, Outlet(lambda _: None, self._fail))
        self._seen: dict[str, list[Batch]] = {}
        self._schemas: dict[str, pa.Schema] = {}
        for mine, theirs in zip(vertices(top, plan), vertices(running.top, plan), strict=True):
            state = theirs.operator.snapshot()
            if state is not None:
                mine.operator.restore(state)
            self._watch(mine, theirs.id)
        by_name = {stream.definition.name.lower(): stream for stream in running.streams}
        for name, side in {(n.stream.lower(), n.side) for n in physical.walk(plan) if isinstance(n, physical.Source)}:
            entry, original = self._streams[name].sides[side], by_name[name].sides[side]
            self._watch(entry, original.id)
            take = self._streams[name].take if side == "main" else partial(emit, entry)
            original.monitors.append(_Arrivals(self, take))

    def _watch(self, vertex: Vertex, id: str) -> None:
        self._schemas[id] = vertex.operator.schema.arrow
        vertex.monitors.append(_Passing(self._seen.setdefault(id, [])))

    def _fail(self, error: MillstreamError) -> None:
        self._error = error

    @property
    def waiting(self) -> int:
        with self._host.lock:
            return self._count

    @property
    def has_missed(self) -> bool:
        """Whether more rows came than may wait for it, so that the later ones are not there."""
        return self._missed

    def arrived(self, take: Callable[[Batch], None], batch: Batch) -> bool:
        """Rows, or time, that wait from now on; False if nobody steps any more."""
        if time.monotonic() > self._until or self._missed:
            return False
        room = COPY_ROWS - self._count
        if len(batch) > room:
            self._missed = True
            if room == 0:
                return False
            batch = batch.slice(0, room).with_upto(int(batch.time[room - 1]))
        if len(batch) == 0 and self._waiting and self._waiting[-1][0] == take:
            _, last = self._waiting.pop()
            batch = last.with_upto(batch.upto)
            self._count -= len(last)
        self._waiting.append((take, batch))
        self._count += len(batch)
        return True

    def push(self, stream: str, rows: pa.RecordBatch) -> dict[str, pa.Table]:
        entry = self._streams.get(stream.lower())
        if entry is None:
            raise CatalogError(f"the query does not read stream {stream}", hint=", ".join(self._streams))
        with self._host.lock:
            self._begin()
            if entry.arrive(rows, (), entry.rows, max(rows.num_rows, 1)).late:
                raise DataError("the row is late", detail=f"time has come further in stream {stream}")
            return self.passed()

    def step(self) -> dict[str, pa.Table]:
        with self._host.lock:
            self._begin()
            if self._waiting:
                take, batch = self._waiting.popleft()
                rest = batch.slice(1, len(batch))
                if len(rest):
                    # rows are in order, so none that follows is before this one
                    self._waiting.appendleft((take, rest))
                    batch = batch.slice(0, 1).with_upto(int(batch.time[0]))
                self._count -= len(batch)
                take(batch)
            return self.passed()

    def _begin(self) -> None:
        self._until = time.monotonic() + COPY_SECONDS
        for passed in self._seen.values():
            passed.clear()

    def passed(self) -> dict[str, pa.Table]:
        """What passed each operator in the last step."""
        if self._error is not None:
            raise self._error
        found = {id: [batch for batch in batches if len(batch)] for id, batches in self._seen.items()}
        return {id: as_rows(batches, self._schemas[id]) for id, batches in found.items() if batches}

    def close(self) -> None:
        self._until = 0.0


class _Arrivals:
    """Takes what arrives at a stream for a copy."""

    def __init__(self, copy: GraphCopy, take: Callable[[Batch], None]) -> None:
        self._copy, self._take = copy, take

    def take(self, batch: Batch) -> bool:
        return self._copy.arrived(self._take, batch)


class _Passing:
    """Notes all rows that pass."""

    def __init__(self, into: list[Batch]) -> None:
        self._into = into

    def take(self, batch: Batch) -> bool:
        self._into.append(batch)
        return True

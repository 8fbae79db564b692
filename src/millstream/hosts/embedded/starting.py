"""How queries begin: with the next row, where they were saved, or with rows of the past.

A query that begins with history is built apart from the others. Kept rows pass through its own operators while the
others go on; then, in one turn of the host, those that came meanwhile follow, and its streams are plugged in. So it
sees every row once. A query that goes on after a pause catches up in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from millstream.connectors.contract import Offset
from millstream.connectors.files.wanted import Wanted
from millstream.connectors.registry import make_sink
from millstream.errors import MillstreamError, StateError
from millstream.expressions.nodes import Expr
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.embedded import kept
from millstream.hosts.embedded.graph import Outlet, emit, plug, sources_of, tell_progress
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.members import alone
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.history import Conditions, Pinned
from millstream.hosts.results import ResultLog
from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.physical import nodes as physical
from millstream.physical.of_queries import common_streams

if TYPE_CHECKING:
    from millstream.hosts.embedded.host_state import HostState


def start(host: HostState, program: ReadyQuery, ids: list[str] | None, committed: Offset) -> None:
    """In a turn of the host: start a query, on saved vertices if `ids` are given; its sink goes on after
    `committed`."""
    if ids is None and program.history is not None:
        with went_ahead(host, program) as ahead:
            catch_up = ahead or begin_apart(host, program, committed)
            catch_up.join()
            running = catch_up.running
    else:
        if ids is None:
            _rewind(host, program)
        if ids is None:
            program = _parted(host, program)
        running = opened(host, program, committed)
        joined(host, running, None if ids is None else {})
        running.top = host.graph.attach(program, outlet_of(running), ids)
        if ids is None:
            reached = {side: stream.frontier for stream in running.streams for side in stream.sides.values()}
            tell_progress(running.top, reached, running.deliver)
            running.covered = {name: _from_now_on(host.streams[name]) for name in physical.streams_of(program.plan)}
    enter(host, running)


def enter(host: HostState, running: GraphQuery) -> None:
    """A query counts from now on."""
    host.queries[running.program.name.lower()] = running
    for stream, reach in kept.reaches_of(running.program).items():
        if stream in host.streams:
            kept.hold_for(host.streams[stream], running.program.name, reach)


def opened(host: HostState, program: ReadyQuery, committed: Offset | None) -> GraphQuery:
    """A query with its results and its sink, but without operators. None is `committed` if its sink is still that of
    the query whose place it takes."""
    feeds, fetched = physical.streams_of(program.plan), program.sink is None and not program.view
    results = ResultLog(host.behind(program.plan), host.gate, fetched, lambda: host.config.unfetched)
    running = GraphQuery(program, [host.streams[name] for name in feeds], results)
    if program.view and not program.relation:
        running.gives_to = host.streams[program.name.lower()]
    if program.sink is not None and committed is not None:
        host.is_watched = True
        # a plan that was saved has the token of another process
        found = host.tables.found_by(program.sink) or program.sink
        running.sink = make_sink(found.options, found.name)
        running.sink.open(program.plan.schema, committed)
        # where it begins is known from now on, also of an output that it is appended to
        running.committed = committed or running.sink.prepare()
    return running


def joined(host: HostState, running: GraphQuery, since: Mapping[str, int] | None) -> None:
    """Let a query that shares its operators have the rows that come from now on, or from the arrivals `since` on."""
    member = running.program.member
    if member is None:
        return
    if since is None:
        read = physical.streams_of(running.program.plan)
        since = {name: host.arrivals for name in read if host.streams[name].waiting}
    host.members.enter(member, running.fail, since)
    running.leave = lambda: host.members.leave(member)


def _parted(host: HostState, program: ReadyQuery) -> ReadyQuery:
    """A query that shares its operators, with its own if they would let it see rows from before it: those that wait to
    be put in order, where what follows an event is looked for among the rows for all queries."""
    if program.member is None:
        return program
    common = common_streams(program.plan, program.member.table) or ()
    return alone(program) if any(host.streams[name].waiting for name in common) else program


def outlet_of(running: GraphQuery) -> Outlet:
    # relations go by time, also where nothing happens; others have nothing to do without rows
    return Outlet(running.deliver, running.fail, running.program.relation or running.gives_to is not None)


def begin_apart(host: HostState, program: ReadyQuery, committed: Offset | None) -> CatchUp:
    """A query with operators of its own that has seen nothing yet. If it takes the place of another (`committed` is
    None), it gives nothing meanwhile: the other one gave that."""
    with host.lock:
        running = opened(host, program, committed)
        running.is_muted = committed is None
        if program.member is not None and not host.members.count(program.member):
            joined(host, running, {})
        running.top = host.graph.attach_apart(program, outlet_of(running))
        catch_up = CatchUp(host, running, None, program.history.since if program.history is not None else None)
        catch_up.looks_from = kept.filling_of(program, running.streams).pulled_from
        return catch_up


def begin_ahead(host: HostState, program: ReadyQuery) -> None:
    """Let the rows that are kept now pass through a query that is about to start, while the others go on."""
    forget_ahead(host, program.name)
    catch_up = begin_apart(host, program, {})
    host.ahead[program.name.lower()] = catch_up
    with host.lock.aside():
        catch_up.feed()


@contextmanager
def went_ahead(host: HostState, program: ReadyQuery) -> Iterator[CatchUp | None]:
    """What has been done ahead for a query that starts now; others see how far it is until it has."""
    try:
        yield host.ahead.get(program.name.lower())
    finally:
        host.ahead.pop(program.name.lower(), None)


def forget_ahead(host: HostState, name: str) -> None:
    """A query that was about to start does not."""
    found = host.ahead.pop(name.lower(), None)
    if found is not None:
        with suppress(MillstreamError, OSError):
            found.running.close_sink(saved=True)


class CatchUp:
    """A query that no rows of its streams reach yet, on its way through those that are kept."""

    def __init__(
        self, host: HostState, running: GraphQuery, seen: Mapping[str, int] | None = None, since: int | None = None
    ) -> None:
        self.running = running
        self.rows = 0
        self._rows_kept = 0
        self._joins = False
        self.until = FOREVER
        """the last instant whose rows it sees"""
        self.looks_from: Mapping[str, int] = {}
        """by stream, before which instant rows have no effect any more"""
        self._host = host
        self._since = since
        self._sources = sources_of(running.top)
        self._streams: dict[str, Stream] = {
            name: host.streams[name] for name in physical.streams_of(running.program.plan)
        }
        # what windows hold is not saved: a query that goes on after a pause would not find it again after a crash
        self._stores = {
            name: stream.history for name, stream in self._streams.items() if seen is None or stream.definition.keep
        }
        self._seen = {name: (seen or {}).get(name, 0) for name in self._streams}
        for name, stream in self._streams.items():
            running.covered[name] = self._covered(name, stream)

    def _covered(self, name: str, stream: Stream) -> int:
        """From when on the query has all rows of a stream: what it has seen, and what is kept."""
        before = self.running.covered.get(name, BEGIN)
        if stream.emitted <= self._seen[name]:
            return before
        history = self._stores.get(name)
        if history is None:
            return _from_now_on(stream)
        if self._seen[name] and history.start <= self._seen[name]:
            return before
        return history.begins(self._since)

    @property
    def share(self) -> float:
        """How much of the kept rows it has seen, about."""
        return self.rows / self._rows_kept if self._rows_kept else 0.0

    @property
    def phase(self) -> str:
        return "synchronising" if self._joins else f"backfilling {self.share:.0%}".replace("%", " %")

    def feed(self) -> None:
        """Let all rows that are kept now, and were not seen, pass through the query."""
        with ExitStack() as pins:
            with self._host.lock:
                waiting = {
                    name: pins.enter_context(
                        history.pinned(
                            self._seen[name],
                            max((i for i in (self._since, self.looks_from.get(name)) if i is not None), default=None),
                            self.until,
                            self._columns_of(name),
                            self._conditions_on(name),
                        )
                    )
                    for name, history in self._stores.items()
                    if history is not None
                }
                self._seen = {name: stream.emitted for name, stream in self._streams.items()}
            rows = sum(pinned.rows for pinned in waiting.values())
            self._rows_kept += rows
            with jit.using(bulk=rows >= jit.BULK_ROWS):
                for name, batch in in_order(waiting):
                    if batch.upto > self.until:
                        end = int(np.searchsorted(batch.time, self.until, "right"))
                        batch = batch.slice(0, end).with_upto(self.until)
                    self.rows += len(batch)
                    self._give(name, batch)

    def join(self) -> None:
        """In a turn of the host: what came meanwhile, and how far time is; from now on rows come by themselves."""
        self._joins = True
        self.feed()
        for vertex in self._sources:
            node = vertex.key[0] if vertex.key is not None else None
            assert isinstance(node, physical.Source)
            stream = self._streams[node.stream.lower()]
            if stream.frontier > BEGIN:
                emit(vertex, vertex.operator.step(Batch.empty(vertex.inputs[0].operator.schema.arrow, stream.frontier)))
            plug(vertex)

    def _columns_of(self, stream: str) -> set[str]:
        """What the query reads of a stream."""
        side = self._streams[stream].sides["main"]
        return {name for vertex in self._sources if vertex.inputs[0] is side for name in vertex.operator.schema.names}

    def _conditions_on(self, stream: str) -> Conditions:
        """What the readers of a stream in the query's plan ask of its rows before all else."""
        found: dict[physical.Physical, tuple[Expr, ...]] = {}
        plan = self.running.program.plan
        for node in physical.walk(physical.Compute(plan.schema, plan, None, None)):
            for source in node.inputs:
                if isinstance(source, physical.Source) and source.stream.lower() == stream and source.side == "main":
                    predicate = node.predicate if isinstance(node, physical.Compute) else None
                    found[node] = Wanted(frozenset(), predicate).conditions
        return tuple(found.values())

    def _give(self, stream: str, batch: Batch) -> None:
        side = self._streams[stream].sides["main"]
        for vertex in self._sources:
            if vertex.inputs[0] is side:
                emit(vertex, vertex.operator.step(batch))


def in_order(waiting: Mapping[str, Pinned]) -> Iterator[tuple[str, Batch]]:
    """The rows of several streams, the stream that is furthest behind first."""
    readers = {name: iter(pinned) for name, pinned in waiting.items()}
    heads = {name: batch for name, reader in readers.items() if (batch := next(reader, None)) is not None}
    while heads:
        name = min(heads, key=lambda name: heads[name].upto)
        yield name, heads[name]
        following = next(readers[name], None)
        if following is None:
            del heads[name]
        else:
            heads[name] = following


def _from_now_on(stream: Stream) -> int:
    """From when on a query that starts now sees all rows of a stream."""
    return stream.latest + 1 if stream.rows else BEGIN


def _rewind(host: HostState, program: ReadyQuery) -> None:
    """A bounded source that has been read is read again from the start for a query that comes later."""
    for name in physical.streams_of(program.plan):
        source, stream = host.sources.get(name), host.streams[name]
        if source is None or not (source.bounded and source.replayable and stream.rows):
            continue
        waiting = [running.program.name for running in host.queries.values() if stream in running.streams]
        if waiting and not stream.ended:
            raise StateError(
                f"stream {stream.definition.name} is being read for {', '.join(sorted(waiting))}",
                detail="a query that starts now needs its rows from the start",
                hint="read that query to its end first, or stop it; or start all queries before you read rows",
            )
        host.streams[name] = kept.declared(stream.definition, host.home)
        host.offsets[name] = {}

"""Queries that change while they run: replaced definitions, and paused queries.

What of the running operators still computes what the new definition asks for goes on as it is, with its state: their
plans below are equal. If other operators keep state, the whole definition is computed anew from kept rows, silently, up
to the instant at which it takes over; without kept rows those operators begin empty.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from millstream.errors import StateError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.embedded import kept
from millstream.hosts.embedded.checkpoint import aligned
from millstream.hosts.embedded.content import ValidRows
from millstream.hosts.embedded.graph import Vertex, plug, sources_of, tell_progress, vertices
from millstream.hosts.embedded.graph import nodes as vertex_nodes
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.members import alone
from millstream.hosts.embedded.starting import CatchUp, begin_apart, enter, joined, opened, outlet_of, went_ahead
from millstream.kernels.batch import BEGIN
from millstream.kernels.over.spec import AheadSpec, OverSpec
from millstream.physical import nodes as physical
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.hosts.embedded.host_state import HostState


@dataclass(frozen=True)
class Alteration:
    """What becomes of the operators of a query when its definition changes."""

    reused: dict[physical.Physical, Vertex] = field(default_factory=dict)
    fresh: tuple[physical.Apply, ...] = ()
    """the operators with state that the running query has not"""
    replays: bool = False
    """whether everything is computed anew from kept rows"""
    rows: int = 0
    """how many those are"""
    kept: int = 0
    """how many are kept; others have no effect any more"""

    def lines(self) -> list[str]:
        """What is reused and what is computed anew, for EXPLAIN."""
        if self.replays:
            some = f"the last {self.rows} of " if self.rows < self.kept else ""
            return [f"all operators: computed again from {some}{self.kept} kept rows"]
        kernels = [node for node in self.reused if isinstance(node, physical.Apply)]
        found = [f"{node.label()}: continues with its state" for node in kernels]
        found += [f"{node.label()}: starts empty, no history reaches back far enough" for node in self.fresh]
        return found or ["no operator keeps state: the new definition takes over at once"]


def alteration(host: HostState, program: ReadyQuery) -> Alteration:
    """What becomes of the running query of a program's name."""
    running = host.queries[program.name.lower()]
    plan = alone(running.program).plan
    placed = zip(vertex_nodes(plan), vertices(running.top, plan), strict=True)
    own = dict(placed) if running.paused is None and running.error is None else {}
    reused: dict[physical.Physical, Vertex] = {}
    fresh: dict[physical.Apply, None] = {}

    def look(node: physical.Physical) -> None:
        if node in own:
            reused[node] = own[node]
            return
        if isinstance(node, physical.Apply):
            fresh[node] = None
        for child in () if isinstance(node, physical.Source) else node.inputs:
            if not isinstance(child, physical.StoredTable):
                look(child)

    look(program.plan)
    kept_on = any(isinstance(below, physical.Apply) for node in reused for below in physical.walk(node))
    streams = {name: host.streams[name] for name in physical.streams_of(program.plan)}
    stores = {name: stream.history for name, stream in streams.items() if stream.history is not None}
    reaches_back = len(stores) == len(streams) and all(
        not kept_on or store.begins() <= running.covered.get(name, BEGIN) for name, store in stores.items()
    )
    replays = bool(fresh) and reaches_back and any(store.rows for store in stores.values())
    if not replays:
        return Alteration(reused, tuple(fresh))
    looks_from = _looks_from(host, running, program)
    rows = sum(store.pinned(since=looks_from.get(name)).rows for name, store in stores.items())
    return Alteration({}, tuple(fresh), True, rows, sum(store.rows for store in stores.values()))


def alter(host: HostState, program: ReadyQuery) -> None:
    """Let a program take the place of the running query of its name, at the instant that its streams have reached."""
    with went_ahead(host, program) as ahead:
        _alter(host, program, ahead)


def _alter(host: HostState, program: ReadyQuery, ahead: CatchUp | None) -> None:
    before = host.queries[program.name.lower()]
    check_columns(before, program)
    found = alteration(host, program)
    if found.reused and before.program != (own := alone(before.program)):
        # what it goes on with has to be its own
        _take_out(host, before, own)
        for source in sources_of(before.top):
            plug(source)
        found = alteration(host, program)
    cut = before.cut
    if found.replays:
        catch_up = ahead or _begun(host, program)
        catch_up.join()
        after = catch_up.running
        after.is_muted = False
        cut = _cut(host, before, after)
        _leave(host, before)
    else:
        after = opened(host, program, None)
        before.top.outlets.pop(before.program.name, None)
        before.top.rewired()
        after.top = host.graph.attach_apart(program, outlet_of(after), found.reused)
        reached = {side: stream.frontier for stream in after.streams for side in stream.sides.values()}
        tell_progress(after.top, reached, after.deliver)
        going_on = {source for vertex in found.reused.values() for source in sources_of(vertex)}
        for source in sources_of(after.top):
            if source not in going_on:
                plug(source)
        host.graph.prune(before.top)
        now = {name: host.streams[name].latest + 1 for name in physical.streams_of(program.plan)}
        after.covered = now if found.fresh else {name: before.covered.get(name, BEGIN) for name in now}
        after.held = before.held if found.reused and not found.fresh else ValidRows([], max(now.values()) - 1)
    since = {} if before.program.member is None else host.members.since(before.program.member)
    before.leave()
    joined(host, after, since)
    _hand_over(host, before, after)
    after.take_over(cut)
    for stream in before.streams:
        kept.release(stream, program.name)
    enter(host, after)


def alter_ahead(host: HostState, program: ReadyQuery) -> None:
    """Compute the state of a definition that is about to take over, while the others go on."""
    with host.lock:
        check_columns(host.queries[program.name.lower()], program)
        if not alteration(host, program).replays:
            return
        catch_up = host.ahead[program.name.lower()] = _begun(host, program)
    with host.lock.aside():
        catch_up.feed()


def _begun(host: HostState, program: ReadyQuery) -> CatchUp:
    before, catch_up = host.queries[program.name.lower()], begin_apart(host, program, None)
    if _hands_over_by_row(before, program):
        catch_up.running.muted_from = _given_before(host, before)
        catch_up.looks_from = _looks_from(host, before, program)
    return catch_up


def _looks_from(host: HostState, before: GraphQuery, program: ReadyQuery) -> dict[str, int]:
    """By stream, from when on rows matter to a definition that takes over. Where results do not belong to rows, all do:
    what has been valid for long is still to be given."""
    if not _hands_over_by_row(before, program):
        return {}
    return kept.matters_from(program, _given_before(host, before))


def _hands_over_by_row(before: GraphQuery, program: ReadyQuery) -> bool:
    rests = before.paused is not None or before.error is not None
    return not rests and _answers_rows(before.program) and _answers_rows(program)


def _cut(host: HostState, before: GraphQuery, after: GraphQuery) -> tuple[int, int] | None:
    """Up to which row of its stream a query has given all its results, if each result belongs to such a row.

    Definitions differ in when they do: with a row, when time has passed it, or when later rows have come. Those of
    which the old one has not given the results get them from the new one.
    """
    if after.muted_from is None:
        return None
    instant, number = _given_before(host, before), 0
    if not any(isinstance(node, physical.Apply) and _waits(node) for node in physical.walk(before.program.plan)):
        number = host.arrivals
    elif before.last is not None and before.last[0] == instant:
        number = before.last[1] + 1
    # what the one before that gave, it did not give again
    return max((instant, number), before.cut or (BEGIN, 0))


def _given_before(host: HostState, running: GraphQuery) -> int:
    """The instant before which a query has given all its results."""
    reached = {side: stream.frontier for stream in running.streams for side in stream.sides.values()}
    told = [BEGIN]
    tell_progress(running.top, reached, lambda batch: told.append(batch.upto))
    return told[-1]


def _answers_rows(program: ReadyQuery) -> bool:
    """Whether each result of a query belongs to one row of its stream, and has its arrival number."""
    if program.relation:
        return False
    nodes = vertex_nodes(program.plan)
    return sum(isinstance(node, physical.Source) for node in nodes) == 1 and all(
        isinstance(node.spec, OverSpec | AheadSpec) for node in nodes if isinstance(node, physical.Apply)
    )


def _waits(node: physical.Apply) -> bool:
    return not isinstance(node.spec, OverSpec) or node.spec.waits


def check_columns(before: GraphQuery, program: ReadyQuery) -> None:
    """Refuse other columns while a sink or a reader relies on those that there are."""
    if _columns(before.program) == _columns(program):
        return
    who = "its sink" if before.sink is not None else "its readers" if before.results.has_readers else None
    if who is not None:
        raise StateError(
            f"query {program.name} cannot change its columns",
            detail=f"{who} rely on ({', '.join(before.program.columns)})",
            hint="select the same columns, or stop the query and start another",
        )


def _columns(program: ReadyQuery) -> tuple[object, ...]:
    return program.columns, program.plan.schema.arrow, program.relation


def _leave(host: HostState, running: GraphQuery) -> None:
    running.top.outlets.pop(running.program.name, None)
    running.top.rewired()
    host.graph.prune(running.top)


def _hand_over(host: HostState, before: GraphQuery, after: GraphQuery) -> None:
    """Results that were not fetched, readers and the sink stay."""
    after.sink, after.committed, after.rows, after.last = before.sink, before.committed, before.rows, before.last
    if _columns(before.program) == _columns(after.program) and not before.results.closed:
        after.results = before.results
        after.results.feeds = frozenset(host.behind(after.program.plan))
        return
    log = before.results
    rows = [aligned(batch, before.program, after.program) for batch in log.rows_from(log.kept_from)]
    after.results.restore(rows, before.rows, log.fetched_to, {}, log.unfetched_lost)


# -- queries that rest -------------------------------------------------------------------------------------------------


def pause(host: HostState, name: str) -> None:
    """Let no more rows reach a query. Its state becomes its own, and stays."""
    running = host.queries[name.lower()]
    if running.paused is not None:
        return
    _take_out(host, running, alone(running.program))
    running.paused = {name: host.streams[name].emitted for name in physical.streams_of(running.program.plan)}


def _take_out(host: HostState, running: GraphQuery, own: ReadyQuery) -> None:
    """Let a query go on with a copy of its state, in operators of its own that no rows reach yet."""
    plan, before = running.program.plan, running.top
    states = [vertex.operator.snapshot() for vertex in vertices(before, plan)]
    before.outlets.pop(running.program.name, None)
    before.rewired()
    if own.member is not None and running.program.member is not None:
        since = host.members.since(running.program.member)
        running.leave()
        running.program = own
        joined(host, running, since)
    running.top = host.graph.attach_apart(running.program, outlet_of(running))
    for vertex, state in zip(vertices(running.top, running.program.plan), states, strict=True):
        if state is not None:
            vertex.operator.restore(state)
    host.graph.prune(before)


def go_on(host: HostState, name: str) -> None:
    """Let a query that rests catch up with rows that were kept meanwhile, and go on."""
    running = host.queries[name.lower()]
    if running.paused is None:
        return
    catch_up = CatchUp(host, running, running.paused)
    running.paused = None
    catch_up.join()

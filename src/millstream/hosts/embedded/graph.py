"""The push graph of all running queries: batches enter at streams and flow to every query that reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from threading import Lock
from typing import Protocol

import pyarrow as pa

from millstream import limits
from millstream.errors import DataError, MillstreamError, ours
from millstream.hosts.contract import Member, ReadyQuery
from millstream.hosts.embedded.consumers import Consumers, VertexGroup
from millstream.hosts.embedded.members import ComputeApart, JoinMembers, Members
from millstream.hosts.embedded.operators import (
    ComputeColumns,
    JoinStoredTable,
    Operator,
    RunKernel,
    RunStage,
    SelectColumns,
)
from millstream.hosts.pieces import Pace, in_pieces
from millstream.hosts.tables import TableStore
from millstream.kernels.batch import BEGIN, FOREVER, Batch, concat
from millstream.kernels.contract import KernelSpec
from millstream.limits import Work
from millstream.physical.nodes import Apply, Compute, Physical, Source, Staged, StoredTable, TableJoin
from millstream.plan.templates import GROUP, QUERY, SHARE
from millstream.records import dataclass

Key = tuple[Physical, tuple[str, ...], int]
"""What a vertex computes: its operator, the ids of the vertices it takes from, and from which arrival on."""

Deliver = Callable[[Batch], None]
Fail = Callable[[MillstreamError], None]


class Monitor(Protocol):
    """Somebody who looks at the rows that a vertex emits, for a while."""

    def take(self, batch: Batch) -> bool:
        """Look at a batch; False if nobody looks any more."""
        ...


@dataclass(eq=False)
class Vertex:
    """An operator in the graph with those that take its output: further operators (with port) and queries."""

    id: str
    operator: Operator
    inputs: tuple[Vertex, ...] = ()
    key: Key | None = None
    consumers: Consumers = field(default_factory=Consumers)
    outlets: dict[str, Outlet] = field(default_factory=dict)
    group: VertexGroup | None = None
    """the filters that it is evaluated together with"""
    paces: dict[int, Pace] = field(default_factory=lambda: defaultdict(Pace))
    """by input: rows of one may wait for those of another, and cost nothing"""
    error: MillstreamError | None = None
    """why it goes no further: it failed, or all queries behind it were cancelled"""
    work: Work = field(default_factory=Work)
    rows: int = 0
    """how many rows it has emitted"""
    upto: int = BEGIN
    """how far time has come behind it"""
    monitors: list[Monitor] = field(default_factory=list)
    """who looks at its rows at the moment"""

    @property
    def in_use(self) -> bool:
        return bool(self.consumers.all or self.outlets)

    def rewired(self) -> None:
        """Others take its output now."""
        if self.group is not None:
            self.group.changed()

    @property
    def hears_progress(self) -> bool:
        """Whether somebody must hear how far time has come, also without rows."""
        return bool(self.consumers.all) or any(outlet.hears_progress for outlet in self.outlets.values())


@dataclass(frozen=True)
class Outlet:
    """Where a query's rows go, and who is told if the query can go no further."""

    deliver: Deliver
    fail: Fail
    hears_progress: bool = True
    """whether it must hear how far time has come, also without rows"""


class Graph:
    """Vertices by what they compute; a new query shares them where that cannot be seen in its result."""

    def __init__(self, tables: TableStore, members: Members, entry: Callable[[Source], tuple[Vertex, int]]) -> None:
        self._tables = tables
        self._members = members
        self._member: Member | None = None
        """the row of constants of the query that is built: its operators have seen no row of it, whatever they saw"""
        self._entry = entry
        self._shared: dict[Key, Vertex] = {}
        self._restored: dict[str, Vertex] = {}
        """the vertices that a checkpoint had, by their ids there"""
        self._made = 0
        self._ready: dict[KernelSpec, RunKernel] = {}
        self._known: set[int] = set()
        self._giving_up = Lock()
        """queries are cancelled without waiting for a turn"""
        self._apart: dict[Key, Vertex] | None = None
        """the vertices of a query that is built apart"""
        self._own: Mapping[Physical, Vertex] = {}

    def new_id(self) -> str:
        """An id that no vertex has."""
        self._made += 1
        return f"{self._made}"

    def make_ready(self, plan: Physical) -> None:
        """Open the kernels of a query that is about to start and that are new here: the first of its kind is imported,
        and its source generated. That may take long, so it is done before anybody waits for it."""
        for node in nodes(plan):
            if isinstance(node, Apply) and hash(node.spec) not in self._known:
                self._known.add(hash(node.spec))
                self._ready[node.spec] = RunKernel(node.spec)

    def attach(self, program: ReadyQuery, outlet: Outlet, ids: list[str] | None = None) -> Vertex:
        """Add a query; `ids` (from a checkpoint) say which saved vertices it runs on, in the order of `vertices`."""
        wanted = iter(ids) if ids is not None else None
        with self._giving_up:
            self._member = program.member
            try:
                return self._let_out(program.name, self._build(program.plan, wanted), outlet)
            finally:
                self._member = None

    def attach_apart(self, program: ReadyQuery, outlet: Outlet, own: Mapping[Physical, Vertex] | None = None) -> Vertex:
        """Add a query with vertices of its own that no rows reach yet (see `plug`), over those that it has already."""
        with self._giving_up:
            self._apart, self._own, self._member = {}, own or {}, program.member
            try:
                return self._let_out(program.name, self._build(program.plan, None), outlet)
            finally:
                self._apart, self._own, self._member = None, {}, None

    def _let_out(self, name: str, top: Vertex, outlet: Outlet) -> Vertex:
        top.outlets[name] = outlet
        self._ready.clear()
        top.rewired()
        return top

    def give_up(self, name: str, top: Vertex, error: MillstreamError) -> None:
        """From any thread: what works for this query alone ends, also within a batch."""
        with self._giving_up:
            top.outlets.pop(name, None)
            _end(top, error)

    def detach(self, name: str, top: Vertex) -> None:
        """Remove a query and every vertex that only it used."""
        top.outlets.pop(name, None)
        top.rewired()
        self.prune(top)

    def prune(self, vertex: Vertex) -> None:
        """Remove a vertex that nobody uses, and those below that only it used."""
        if vertex.in_use or not vertex.inputs:
            return
        self._forget(vertex)
        for source in vertex.inputs:
            source.consumers.remove(vertex)
            source.rewired()
            self.prune(source)

    def keep_apart(self, top: Vertex) -> None:
        """Let no new query share the vertices of one that rests."""
        self._forget(top)
        for source in top.inputs:
            self.keep_apart(source)

    def _forget(self, vertex: Vertex) -> None:
        if vertex.key is not None and self._shared.get(vertex.key) is vertex:
            del self._shared[vertex.key]
        if self._restored.get(vertex.id) is vertex:
            del self._restored[vertex.id]

    def _build(self, node: Physical, ids: Iterator[str] | None) -> Vertex:
        if self._own and node in self._own:
            return self._own[node]
        if isinstance(node, Source):
            stream, since = self._entry(node)
            shares = self._member is not None and not self._member.is_alone
            if ids is not None or self._apart is not None or shares:
                # what comes too early for a query that shares its operators is left out where it meets its constants
                since = 0
            return self._place(node, (stream,), lambda: SelectColumns(node.schema, since), ids, since)
        match node:
            case Compute(input=below):
                return self._place(node, (self._build(below, ids),), lambda: self._compute(node), ids)
            case Staged(input=below):
                return self._place(node, (self._build(below, ids),), lambda: RunStage(node), ids)
            case TableJoin(input=below):
                source = self._build(below, ids)
                return self._place(node, (source,), lambda: self._join(node), ids)
            case Apply(over=inputs, spec=spec):
                sources = tuple(self._build(child, ids) for child in inputs)
                return self._place(node, sources, lambda: self._ready.pop(spec, None) or RunKernel(spec), ids)
        raise NotImplementedError(node.label())

    def _join(self, node: TableJoin) -> JoinStoredTable | JoinMembers:
        if self._member is not None and node.table.table == self._member.table:
            return JoinMembers(node, self._members)
        return JoinStoredTable(node, self._tables)

    def _compute(self, node: Compute) -> ComputeColumns:
        if self._member is not None and QUERY in node.input.schema:
            return ComputeApart(node, self._members, self._member.table)
        return ComputeColumns(node)

    def _place(
        self,
        node: Physical,
        inputs: tuple[Vertex, ...],
        make: Callable[[], Operator],
        ids: Iterator[str] | None,
        since: int = 0,
    ) -> Vertex:
        key = (node, tuple(vertex.id for vertex in inputs), since)
        if self._apart is not None:
            if key not in self._apart:
                self._apart[key] = vertex = Vertex(self.new_id(), make(), inputs, key)
                for port, source in enumerate(inputs):
                    if source.inputs:  # streams are plugged in later
                        source.consumers.add(vertex, port, node, self._has(GROUP))
                        source.rewired()
            return self._apart[key]
        saved = next(ids) if ids is not None else None
        known = self._shared.get(key) if saved is None else self._restored.get(saved)
        if (
            known is not None
            and known.error is None
            # a stream that is read again from its start is another one of the same name
            and known.inputs == inputs
            and (self._may_share(known) if saved is None else known.key == key)
        ):
            return known
        vertex = Vertex(saved or self.new_id(), make(), inputs, key)
        if saved is not None:
            self._made = max(self._made, int(saved))
            self._restored[saved] = vertex
        for port, source in enumerate(inputs):
            source.consumers.add(vertex, port, node, self._has(GROUP))
            source.rewired()
        if saved is None or key not in self._shared:
            self._shared[key] = vertex
        return vertex

    def _may_share(self, known: Vertex) -> bool:
        """Whether a new query cannot notice that an operator was there before it."""
        return self._member is not None or (self._has(SHARE) and not known.operator.touched)

    def _has(self, rule: str) -> bool:
        """Whether a rule of sharing applies to a query that is added now."""
        return self._member is not None or rule not in self._tables.config.disabled_rules


def plug(vertex: Vertex) -> None:
    """Let the rows of its stream reach a vertex."""
    assert vertex.key is not None
    vertex.inputs[0].consumers.add(vertex, 0, vertex.key[0])
    vertex.inputs[0].rewired()


def unplug(vertex: Vertex) -> None:
    """Let no more rows of its stream reach a vertex."""
    vertex.inputs[0].consumers.remove(vertex)
    vertex.inputs[0].rewired()


def sources_of(top: Vertex) -> list[Vertex]:
    """The vertices of a query that read streams, each once."""
    found: dict[Vertex, None] = {}
    rest = [top]
    while rest:
        vertex = rest.pop()
        if vertex.key is not None and isinstance(vertex.key[0], Source):
            found[vertex] = None
        else:
            rest += vertex.inputs
    return list(found)


def nodes(plan: Physical) -> list[Physical]:
    """The operators of a plan that become vertices, in the order of `vertices`."""
    children = () if isinstance(plan, Source) else plan.inputs
    return [*(n for child in children if not isinstance(child, StoredTable) for n in nodes(child)), plan]


def vertices(top: Vertex, plan: Physical) -> list[Vertex]:
    """The vertices of a query in the order in which `attach` visits them, streams' own left out."""
    found: list[Vertex] = []
    if not isinstance(plan, Source):
        children = [child for child in plan.inputs if not isinstance(child, StoredTable)]
        for child, vertex in zip(children, top.inputs, strict=True):
            found += vertices(vertex, child)
    found.append(top)
    return found


def emit(vertex: Vertex, batch: Batch) -> None:
    """Hand a batch on to all who take it; one that fails is cut off with the queries behind it, others go on."""
    vertex.rows += len(batch)
    vertex.upto = batch.upto
    if vertex.monitors:
        vertex.monitors = [monitor for monitor in vertex.monitors if monitor.take(batch)]
    for outlet in list(vertex.outlets.values()):
        outlet.deliver(batch)
    alone, groups = vertex.consumers.dispatch()
    for group in groups:
        parts = group.together(batch)
        if parts is None:
            _ask(vertex, [(member, 0) for member in group.members.values()], batch)
            continue
        for member, part in parts.items():
            emit(member, part)
        silent = group.listeners if batch.upto < FOREVER else group.members.values()
        for member in [member for member in silent if member not in parts]:
            emit(member, Batch.empty(member.operator.schema.arrow, batch.upto))
    _ask(vertex, alone, batch)


def _ask(vertex: Vertex, consumers: list[tuple[Vertex, int]], batch: Batch) -> None:
    for consumer, port in list(consumers):
        try:
            result = _stepped(consumer, batch.on_port(port))
        except Exception as error:
            if isinstance(error, DataError) and isinstance(consumer.operator, ComputeApart):
                # its rows are of several queries, of which those fail that cannot be computed
                emit(consumer, consumer.operator.without_failing(batch))
                consumer.operator.fail_those()
                continue
            if isinstance(error, DataError) and isinstance(consumer.operator, ComputeColumns):
                # rows that came before the failing one may only be in its batch because small pushes wait
                before = consumer.operator.before_failing(batch)
                if before is not None:
                    emit(consumer, before)
            # also one that is nobody's fault but ours: half the queries with a push and half without it would be worse
            _cut(consumer, ours(error))
            vertex.consumers.remove(consumer)
            continue
        emit(consumer, result)


def _stepped(vertex: Vertex, batch: Batch) -> Batch:
    """A step within the limits of the session whose turn it is. Each operator has them for itself: what one query
    costs is not held against others."""
    operator, allowed = vertex.operator, limits.allowed()

    def may_go_on(taken: Batch) -> None:
        if vertex.error is not None:
            raise vertex.error
        if allowed.memory and isinstance(operator, RunKernel):
            operator.check_memory(allowed, taken)

    if vertex.error is not None:
        raise vertex.error
    vertex.work.begin(allowed)
    token = limits.enter(vertex.work)
    try:
        return in_pieces(operator.step, batch, vertex.paces[batch.port], allowed, may_go_on)
    finally:
        limits.leave(token)


def tell_progress(top: Vertex, reached: Mapping[Vertex, int], deliver: Deliver) -> None:
    """Tell a query that has just started how far its streams have come, and nobody else: vertices that it shares with
    others know it already."""
    told: dict[Vertex, list[Batch]] = {}

    def progress_of(vertex: Vertex) -> list[Batch]:
        if vertex not in told:
            now = reached.get(vertex, BEGIN)
            made = [Batch.empty(vertex.operator.schema.arrow, now)] if now > BEGIN else []
            for port, source in enumerate(vertex.inputs):
                made += [vertex.operator.step(batch.on_port(port)) for batch in progress_of(source)]
            told[vertex] = [concat([batch for batch in made if len(batch)] or made[-1:], made[-1].upto)] if made else []
        return told[vertex]

    for batch in progress_of(top):
        deliver(batch)


def _end(vertex: Vertex, error: MillstreamError) -> None:
    """End a vertex that nobody needs, and those before it that nobody else needs."""
    if vertex.inputs and not vertex.outlets and all(taker.error is not None for taker, _ in vertex.consumers.all):
        vertex.error = error
        vertex.work.cancel()
        for source in vertex.inputs:
            _end(source, error)


def _cut(vertex: Vertex, error: MillstreamError) -> None:
    vertex.error = vertex.error or error
    for outlet in vertex.outlets.values():
        outlet.fail(error)
    cut_behind(vertex, error)


def cut_behind(vertex: Vertex, error: MillstreamError) -> None:
    """Nothing more comes from a vertex: those who take its output fail with it."""
    for consumer, _ in vertex.consumers.all:
        _cut(consumer, error)


def as_table(batches: list[pa.RecordBatch], schema: pa.Schema, names: tuple[str, ...]) -> pa.Table:
    """Batches as one table under the names a query delivers, which may repeat."""
    return pa.Table.from_batches(batches, schema=schema).rename_columns(list(names))

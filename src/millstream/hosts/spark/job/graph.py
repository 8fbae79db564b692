"""Queries → the graph of one job: sources, stages by level, and the fans between them.

Nothing here needs a Spark session: the graph says what is read, which kernels run at which level, and where the rows
of each go. Stages of a level run in one operator. Rows for a later level are carried through those between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import NamedTuple, Protocol

import pyarrow as pa

from millstream.errors import EngineError
from millstream.expressions.nodes import Expr
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.branches import ORDER_BITS
from millstream.hosts.spark.build import fused, is_exchange
from millstream.hosts.spark.feeds import whole_keys
from millstream.hosts.spark.job.control import Steering
from millstream.hosts.spark.job.fan import BatchWork, Fan, Leaf, ReadColumns, TableJoined, ToOutlet, ToStage
from millstream.hosts.spark.spans import with_ends
from millstream.hosts.spark.stage import LateRows, Stage
from millstream.hosts.spark.steps import Computed, StageStep
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import keys_of
from millstream.kernels.saving.signatures import signature_of
from millstream.limits import Limits
from millstream.physical.nodes import Apply, Compute, Partial, Physical, Source, Staged, StoredTable, TableJoin, walk
from millstream.physical.partials import with_partials, with_records
from millstream.records import dataclass
from millstream.schema import Schema

NEVER = 1 << 62
"""An arrival number that no row has."""


class Surroundings(Protocol):
    """What a query needs from the session that it belongs to."""

    @property
    def number(self) -> int:
        """Tells sessions apart whose queries run in one job."""
        ...

    @property
    def allowed(self) -> Limits:
        """What each operator may cost for a batch of rows."""
        ...

    def is_pushed(self, node: Source) -> bool:
        """Whether rows are pushed to a stream, which a query sees from its start on."""
        ...

    def partitioned_by(self, node: Source) -> str | None:
        """The column by which a source is divided, so that a task can read all rows of a key; None if it is not."""
        ...

    def bits(self, node: Source) -> int:
        """How many bits the arrival numbers of a source need."""
        ...

    def table(self, node: StoredTable) -> pa.Table:
        """The rows of a table, as the plan reads it."""
        ...


@dataclass(frozen=True)
class JobQuery:
    """A query of a job: its outlet is its place among them."""

    program: ReadyQuery
    around: Surroundings
    since: int = 0
    """the arrival number of the first pushed row that it sees"""
    generation: int = 0
    """queries share kernels only with those that were started with them, whose state is the same"""
    after: tuple[tuple[str, int], ...] = ()
    """of each stream the instant from which on it also sees older rows"""
    paused: bool = False
    """whether no rows reach it"""
    apart: tuple[int, ...] | None = None
    """which operators of its plan stay on their own because others read them, too; None if that is still open"""
    fed: bool = True
    """whether joins share an exchange with the kernels below them; those of older checkpoints do not"""
    records: bool = True
    """whether groups of relations may keep records, so that partials come to them; those of older checkpoints do not"""
    anew: bool = False
    """whether its state may be computed from what was read before, if it is not what was kept"""

    @property
    def plan(self) -> Physical:
        """The plan as it runs on Spark."""
        return with_ends(with_records(self.program.plan) if self.records else self.program.plan)

    @property
    def key(self) -> str:
        """Tells it apart from all queries that the job ever had."""
        return f"{self.program.name}.{self.generation}"

    @property
    def sees(self) -> object:
        """Equal for queries that see the same rows of a stream."""
        return self.around.number, self.since, self.generation, self.after, self.paused


@dataclass(frozen=True)
class Resting:
    """Neither rows nor time reach a query that is paused, so its state stays as it is."""

    def build(self) -> Callable[[Batch], Batch]:
        return lambda batch: batch.slice(0, 0).with_upto(BEGIN)


class Origin(NamedTuple):
    """Where rows come from: a source or a stage, by number."""

    is_stage: bool
    number: int


@dataclass(frozen=True)
class JobFlow:
    """Rows on their way: from where, through which work, with which arrival numbers."""

    origin: Origin
    schema: Schema
    works: tuple[BatchWork, ...] = ()
    bits: int = 0
    lane: int = 0
    fresh: bool = False
    clocks: int = 1
    below: tuple[int, ...] = ()
    """the stages that its rows have passed, in the order they were met"""

    def after(self, work: BatchWork, schema: Schema) -> JobFlow:
        return replace(self, works=(*self.works, work), schema=schema)


@dataclass
class JobSource:
    """A source of the job, with all columns that some query reads."""

    around: Surroundings
    node: Source
    predicates: list[Expr | None] = field(default_factory=list)
    """the filter directly above it, of each query that reads it; None if there is none"""
    fan: Fan = field(default_factory=Fan)


@dataclass
class JobStage:
    """A kernel of the job; its state is kept under `name`: the first query that uses it, and its place there. One of
    level 0 runs where the rows of its source are read."""

    stage: Stage
    level: int
    number: int
    """under which packed rows are sent to it"""
    name: str = ""
    home: int = 0
    fan: Fan = field(default_factory=Fan)


@dataclass
class JobGraph:
    """All of a job. `stages_of` tells, of each query, the places of its stages in the order they were met."""

    queries: list[JobQuery]
    sources: list[JobSource]
    stages: list[JobStage]
    stages_of: list[list[int]]
    buckets: int
    tables: tuple[StoredTable, ...] = ()
    """the stored tables that it reads at each micro-batch"""

    @property
    def levels(self) -> int:
        # where stages run beside a source, there is a source of time, too
        return max((max(stage.level, 1) for stage in self.stages), default=0)

    def at(self, level: int) -> dict[int, JobStage]:
        return {stage.number: stage for stage in self.stages if stage.level == level}

    def beside(self, source: JobSource) -> dict[int, JobStage]:
        """The stages that run where the rows of a source are read."""
        fed = {leaf.stage for leaf in source.fan.all_leaves() if isinstance(leaf, ToStage)}
        return {number: stage for number, stage in self.at(0).items() if number in fed}


class Numbers:
    """Numbers of things by their names. None is ever used again, so they mean the same while queries come and go."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self._known.setdefault(name, len(self._known))


@dataclass
class GraphBuilder:
    """Builds the graph of one job. `state_name` gives the name of the k-th stage of a query."""

    streaming: bool
    buckets: int
    idle: int | None = None
    state_name: Callable[[JobQuery, int], str] = lambda query, place: f"{query.program.name}#{place}"
    known: Sequence[Source] = ()
    """sources that the job has in any case, first and in this order"""
    around: Surroundings | None = None
    """whose sources these are; None if they are those of the first query"""
    partials: bool = True
    """whether rows may be put together before they travel"""
    steering: Steering | None = None
    """how stored tables reach workers at each micro-batch; without it their rows travel with the work"""
    merges: bool = False
    """whether unions are kernels, which wait for the slower branch; otherwise rows just pass"""
    beside_sources: bool = False
    """whether stages may run where rows are read, if all rows of a key are in one partition of a source"""
    numbers: tuple[Numbers, Numbers] | None = None
    """of stages, and of outlets, for a job whose queries come and go; otherwise these are their places"""

    def __post_init__(self) -> None:
        self._sources: list[JobSource] = []
        self._stages: list[JobStage] = []
        self._paths: dict[Origin, list[tuple[tuple[BatchWork, ...], Leaf]]] = {}
        self._made: dict[object, tuple[JobFlow, ...]] = {}
        self._read: dict[tuple[int, str, str], int] = {}
        self._tables: dict[StoredTable, None] = {}

    def build(self, queries: Sequence[JobQuery]) -> JobGraph:
        plans = [query.plan for query in queries]
        shared = _shared(plans, queries)
        queries = [
            query if query.apart is not None else replace(query, apart=_places(plan, shared[query.sees]))
            for plan, query in zip(plans, queries, strict=True)
        ]
        plans = [
            fused(plan, _at(plan, query.apart or ()), query.fed) for plan, query in zip(plans, queries, strict=True)
        ]
        if self.partials:
            plans = [with_partials(plan) for plan in plans]
        for node in self.known:
            self._source_of(node, self.around or queries[0].around)
        for plan, query in zip(plans, queries, strict=True):
            self._gather_sources(plan, query, None)
        stages_of = []
        for outlet, (plan, query) in enumerate(zip(plans, queries, strict=True)):
            flows = self._node(plan, query)
            width = max(flow.bits for flow in flows)
            for flow in flows:
                number = outlet if self.numbers is None else self.numbers[1](query.key)
                self._lead(flow, ToOutlet(number, flow.schema, flow.lane << width))
            own = _passed(flows)
            for place, number in enumerate(own):
                self._stages[number].name = self._stages[number].name or self.state_name(query, place)
            stages_of.append(list(own))
        if self.numbers is not None:
            for stage in self._stages:
                stage.number = self.numbers[0](stage.name)
                stage.stage = replace(stage.stage, number=stage.number)
        for number, source in enumerate(self._sources):
            source.fan = self._fan(Origin(False, number))
        for number, stage in enumerate(self._stages):
            stage.fan = self._fan(Origin(True, number))
        return JobGraph(list(queries), self._sources, self._stages, stages_of, self.buckets, tuple(self._tables))

    def _fan(self, origin: Origin) -> Fan:
        paths = self._paths.get(origin, ())
        if self.numbers is None:
            return Fan.of(paths)
        return Fan.of((works, self._numbered(leaf)) for works, leaf in paths)

    def _numbered(self, leaf: Leaf) -> Leaf:
        return replace(leaf, stage=self._stages[leaf.stage].number) if isinstance(leaf, ToStage) else leaf

    # -- sources ---------------------------------------------------------------------------------------------------

    def _gather_sources(self, node: Physical, query: JobQuery, above: Physical | None) -> None:
        """Note what is read of each stream, by all queries."""
        if not isinstance(node, Source):
            for child in node.inputs:
                self._gather_sources(child, query, node)
            return
        node = self._side(node)
        source = self._source_of(node, query.around)
        known = source.node.schema
        more = tuple(field for field in node.schema if field.name not in known)
        source.node = replace(source.node, schema=Schema((*known.fields, *more)))
        source.predicates.append(above.predicate if isinstance(above, Compute) else None)

    def _source_of(self, node: Source, around: Surroundings) -> JobSource:
        key = (around.number, node.stream.lower(), node.side)
        if key not in self._read:
            self._read[key] = len(self._sources)
            self._sources.append(JobSource(around, node))
        return self._sources[self._read[key]]

    def _side(self, node: Source) -> Source:
        """In a streaming query late rows are found among the stream's own, by a stage."""
        return replace(node, side="main") if self.streaming and node.side == "late" else node

    # -- flows -----------------------------------------------------------------------------------------------------

    def _node(self, node: Physical, query: JobQuery) -> tuple[JobFlow, ...]:
        key = (node, query.sees)
        if key not in self._made:
            self._made[key] = self._flows(node, query)
        return self._made[key]

    def _flows(self, node: Physical, query: JobQuery) -> tuple[JobFlow, ...]:
        match node:
            case Source(side="late") if self.streaming:
                return self._applied(Apply(node.schema, (self._side(node),), LateRows(node.schema)), query)
            case Source():
                return (self._source(node, query),)
            case Compute(input=below):
                work = Computed(ComputeStage(below.schema, node.predicate, node.columns))
                return tuple(flow.after(work, node.schema) for flow in self._node(below, query))
            case Staged(input=below):
                return tuple(_staged(flow, node) for flow in self._node(below, query))
            case TableJoin(input=below):
                joined = self._joined(node, query.around)
                return tuple(flow.after(joined, node.schema) for flow in self._node(below, query))
            case Apply() if not is_exchange(node) and not self.merges:
                flat = [flow for child in node.over for flow in self._node(child, query)]
                return tuple(replace(flow, lane=lane, schema=node.schema) for lane, flow in enumerate(flat))
            case Apply():
                return self._applied(node, query)
        raise EngineError(f"{node.label()} does not run on Spark")

    def _joined(self, node: TableJoin, around: Surroundings) -> TableJoined:
        if self.steering is not None:
            self._tables[node.table] = None
            return TableJoined(node, around.number, None, self.steering.table(node.table))
        return TableJoined(node, around.number, around.table(node.table))

    def _source(self, node: Source, query: JobQuery) -> JobFlow:
        number = self._read[query.around.number, node.stream.lower(), node.side]
        source = self._sources[number]
        flow = JobFlow(
            Origin(False, number), source.node.schema, bits=query.around.bits(source.node), fresh=self.streaming
        )
        after = dict(query.after).get(node.stream.lower())
        since = query.since if query.around.is_pushed(node) else 0 if after is None else NEVER
        if source.node.schema != node.schema or since:
            flow = flow.after(ReadColumns(node.schema, since, after), node.schema)
        return flow.after(Resting(), node.schema) if query.paused else flow

    def _applied(self, node: Apply, query: JobQuery) -> tuple[JobFlow, ...]:
        """A kernel behind an exchange."""
        spec = node.spec
        partials = [child.partials if isinstance(child, Partial) else None for child in node.over]
        children = [child.input if isinstance(child, Partial) else child for child in node.over]
        ports = [self._node(child, query) for child in children]
        width = max(flow.bits for flows in ports for flow in flows)
        bits = width + max((len(flows) - 1).bit_length() for flows in ports)
        if bits > ORDER_BITS:
            raise EngineError(
                "too many union branches meet in one operator",
                hint="write intermediate results to a sink, and read them from there",
            )
        number, keys = len(self._stages), spec.keys or ()
        beside = self.beside_sources and whole_keys(node, query.around.partitioned_by) is not None
        home = 0 if beside else int(signature_of(spec).digest[:8], 16) % self.buckets
        of_port: list[int] = []
        level = 0 if beside else 1
        for port, flows in enumerate(ports):
            for flow in flows:
                lane = flow.lane << width
                divided = ((), 1) if beside else (keys_of(spec, port), self.buckets)
                where = spec.inputs[port], *divided, home, lane
                joined = None if beside else partials[port], len(spec.inputs) + port
                leaf = ToStage(number, port, *where, flow.fresh, len(of_port), *joined)
                self._lead(flow, leaf)
                of_port += [port] * flow.clocks
                if flow.origin.is_stage:
                    level = max(level, self._stages[flow.origin.number].level + 1)
        allowed = query.around.allowed
        stage = Stage(
            spec,
            self.buckets if keys else 1,
            (True,) * len(of_port),
            idle=self.idle,
            number=number,
            allowed=allowed,
            ports=tuple(of_port),
            beside=beside,
        )
        self._stages.append(JobStage(stage, level, number, home=home))
        below = (*_passed([flow for flows in ports for flow in flows]), number)
        return (JobFlow(Origin(True, number), spec.output, bits=bits, clocks=stage.buckets, below=below),)

    def _lead(self, flow: JobFlow, leaf: Leaf) -> None:
        self._paths.setdefault(flow.origin, []).append((flow.works, leaf))


def _passed(flows: Sequence[JobFlow]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for flow in flows for number in flow.below))


def _staged(flow: JobFlow, node: Staged) -> JobFlow:
    """Work on rows and their times; copies of a row are numbered apart while there are bits for that."""
    spread = (node.stage.most - 1).bit_length()
    if flow.bits + spread >= ORDER_BITS:
        spread = 0
    stage = node.stage.numbered(spread) if spread else node.stage
    return replace(flow.after(StageStep(stage), node.schema), bits=flow.bits + spread)


def _shared(plans: Sequence[Physical], queries: Sequence[JobQuery]) -> dict[object, frozenset[Physical]]:
    """Kernels that several operators read: each is a stage of its own, not part of a chain. They are told apart by what
    queries see."""
    readers: dict[tuple[Physical, object], set[object]] = {}

    def note(node: Physical, query: JobQuery, above: object) -> None:
        key = (node, query.sees)
        known = key in readers
        readers.setdefault(key, set()).add(above)
        if not known:
            for child in node.inputs:
                note(child, query, node)

    for number, (plan, query) in enumerate(zip(plans, queries, strict=True)):
        note(plan, query, number)
    found: dict[object, set[Physical]] = {query.sees: set() for query in queries}
    for (node, sees), above in readers.items():
        if len(above) > 1:
            found[sees].add(node)
    return {sees: frozenset(nodes) for sees, nodes in found.items()}


def _places(plan: Physical, nodes: frozenset[Physical]) -> tuple[int, ...]:
    return tuple(n for n, node in enumerate(walk(plan)) if isinstance(node, Compute | Apply) and node in nodes)


def _at(plan: Physical, places: tuple[int, ...]) -> frozenset[Physical]:
    """The inverse of `_places`."""
    nodes = list(walk(plan)) if places else []
    return frozenset(nodes[place] for place in places)

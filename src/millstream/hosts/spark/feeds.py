"""A kernel of several inputs, such as a join, together with the kernels that its rows come from: one exchange for all.

Where rows below are grouped by the key that they meet by above, or by more than that, those that meet are already in
one place. Then the kernels run one after the other in the same worker, and rows travel once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from millstream.expressions.nodes import Column
from millstream.hosts.spark.spans import EndedStage
from millstream.hosts.spark.steps import Computed, StageStep
from millstream.kernels.batch import Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import PARTIALS, KernelSpec, Partials, RowStage, keys_of, partials_of
from millstream.kernels.relations.stages import CoarsenStage, PeriodStage, RangeStage
from millstream.kernels.streams.chain import ChainSpec, StagedKernel, StagesState
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, Partial, Physical, Source, Staged, TableJoin
from millstream.records import dataclass
from millstream.schema import Schema

Work = Computed | StageStep
Names = tuple[str, ...]


@dataclass(frozen=True)
class KernelFeed:
    """What rows pass on their way to a kernel: another kernel, then work that keeps nothing; or nothing at all."""

    schema: Schema
    """of the rows that come in"""
    keys: Names
    """the columns of these that they meet by"""
    spec: KernelSpec | None = None
    works: tuple[Work, ...] = ()

    @property
    def partials(self) -> Partials | None:
        return None if self.spec is None else partials_of(self.spec)[0]


@dataclass(frozen=True)
class FedSpec:
    """A kernel with a feed for each of its inputs."""

    feeds: tuple[KernelFeed, ...]
    spec: KernelSpec

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return tuple(feed.schema for feed in self.feeds)

    @property
    def output(self) -> Schema:
        return self.spec.output

    @property
    def keys(self) -> Names | None:
        return self.feeds[0].keys

    @property
    def keys_by_port(self) -> tuple[Names, ...]:
        """Other inputs may have other names for them."""
        return tuple(feed.keys for feed in self.feeds)

    @property
    def partials(self) -> tuple[Partials | None, ...]:
        return tuple(feed.partials for feed in self.feeds)

    def state_signature(self) -> object:
        """That of the kernels, and which columns say where a key's state is."""
        places = tuple(tuple(feed.schema.index(name) for name in feed.keys) for feed in self.feeds)
        return (places, tuple(feed.spec for feed in self.feeds), self.spec)

    def build(self) -> FedKernel:
        return FedKernel(self)

    def describe(self) -> str:
        below = "; ".join(feed.spec.describe() for feed in self.feeds if feed.spec is not None)
        return f"{self.spec.describe()} of [{below}]"


class FedKernel(StagedKernel):
    """Runs a FedSpec. Partials of an input come on the port that follows all inputs by as many."""

    def __init__(self, spec: FedSpec) -> None:
        self.spec = spec
        self._first = [None if feed.spec is None else feed.spec.build() for feed in spec.feeds]
        self._works = [[work.build() for work in feed.works] for feed in spec.feeds]
        self._last = spec.spec.build()
        self._kernels = [*(kernel for kernel in self._first if kernel is not None), self._last]

    def step(self, state: StagesState, batch: Batch) -> Batch:
        put_together, port = divmod(batch.port, len(self.spec.feeds))
        kernel = self._first[port]
        if kernel is not None:
            own = sum(before is not None for before in self._first[:port])
            batch = kernel.step(state.states[own], batch.on_port(PARTIALS if put_together else 0))
        for work in self._works[port]:
            batch = work(batch)
        return self._last.step(state.states[-1], batch.on_port(port))


def fed(node: Apply, given: tuple[Physical, ...], shared: frozenset[Physical]) -> Apply:
    """A kernel with those below it that can share its exchange; `given` are its inputs before anything was fused."""
    keys = node.spec.keys
    if not keys or isinstance(node.spec, MergeSpec | FedSpec) or len(set(given)) < len(given):
        return node
    found = [_feed(child, plain, keys, shared) for child, plain in zip(node.over, given, strict=True)]
    if len(found) < 2 or not any(found):
        return node
    whole = [KernelFeed(schema, keys) for schema in node.spec.inputs]
    feeds = tuple(own if below is None else below[0] for own, below in zip(whole, found, strict=True))
    over = tuple(child if below is None else below[1] for child, below in zip(node.over, found, strict=True))
    return replace(node, over=over, spec=FedSpec(feeds, node.spec))


def _feed(
    node: Physical, given: Physical, keys: Names, shared: frozenset[Physical]
) -> tuple[KernelFeed, Physical] | None:
    """A kernel below and the work above it, with what comes to that; None if rows would not be in the right place."""
    works: list[Work] = []
    names: Names | None = keys
    while isinstance(node, Compute | Staged):
        if given in shared or names is None:
            return None
        if isinstance(node, Compute):
            stage = ComputeStage(node.input.schema, node.predicate, node.columns)
            work: Work = Computed(stage)
            names = _computed_from(names, stage)
        else:
            work = StageStep(node.stage)
            names = names if _keeps_columns(node.stage) else None
        works.insert(0, work)
        assert isinstance(given, Compute | Staged)
        node, given = node.input, given.input
    if not isinstance(node, Apply) or isinstance(node.spec, MergeSpec) or len(node.over) != 1 or given in shared:
        return None
    for part in _stages(node.spec):
        if names is not None:
            names = _computed_from(names, part) if isinstance(part, ComputeStage) else _keyed_by(names, part)
    if names is None:
        return None
    schema = node.spec.inputs[0]
    return KernelFeed(schema, tuple(schema[name].name for name in names), node.spec, tuple(works)), node.over[0]


def _stages(spec: KernelSpec) -> Iterator[KernelSpec | ComputeStage]:
    """From the last to the first."""
    return reversed(spec.stages) if isinstance(spec, ChainSpec) else iter((spec,))


def _computed_from(names: Names, stage: ComputeStage) -> Names | None:
    """The columns that others are copies of."""
    if stage.columns is None:
        return names
    known = {name.lower(): expr for name, expr in stage.columns}
    exprs = [known.get(name.lower()) for name in names]
    found = tuple(expr.name for expr in exprs if isinstance(expr, Column))
    return found if len(found) == len(names) else None


def _keyed_by(names: Names, spec: KernelSpec) -> Names | None:
    """The same columns, if a row that leaves the kernel has in them what it came with."""
    own = {name.lower() for name in spec.keys or ()}
    known = {name.lower() for name in spec.inputs[0].names}
    return names if all(name.lower() in own & known for name in names) else None


def _keeps_columns(stage: RowStage) -> bool:
    """Whether the rows of a stage have the columns that came in."""
    own = stage.stage if isinstance(stage, EndedStage) else stage
    return isinstance(own, RangeStage | PeriodStage | CoarsenStage)


def whole_keys(node: Apply, partitioned_by: Callable[[Source], str | None]) -> Source | None:
    """The source below a kernel each partition of which has all rows of its keys: it can run where these are read."""
    found = [_divided_by(child, keys_of(node.spec, port), partitioned_by) for port, child in enumerate(node.over)]
    streams = {None if source is None else (source.stream.lower(), source.side == "errors") for source in found}
    return found[0] if len(streams) == 1 else None


def _divided_by(node: Physical, names: Names, partitioned_by: Callable[[Source], str | None]) -> Source | None:
    """The source that is divided by one of these columns, if there is only work below that leaves rows where they
    are."""
    match node:
        case Source():
            column = partitioned_by(node)
            return node if column is not None and column.lower() in map(str.lower, names) else None
        case Compute():
            stage = ComputeStage(node.input.schema, node.predicate, node.columns)
            copied = (_computed_from((name,), stage) for name in names)
            return _divided_by(node.input, tuple(name for own in copied for name in own or ()), partitioned_by)
        case TableJoin():
            own = tuple(name for name in names if name in node.input.schema)
            return _divided_by(node.input, own, partitioned_by)
        case Staged() if not _keeps_columns(node.stage):
            return None
        case Staged() | Partial():
            return _divided_by(node.input, names, partitioned_by)
    return None

"""Where the rows of one source or kernel go: a tree of work on batches, whose leaves are stages and outlets.

Workers that have rows push them through the tree, so queries that read the same rows, or begin with the same work,
share it. What arrives at the leaves leaves the worker as packed rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.hosts.filter_groups import LEAST_MEMBERS, FilterGroup, FilterShape, shape_of
from millstream.hosts.spark import blobs
from millstream.hosts.spark.carry import Carried, Carrier
from millstream.hosts.spark.job.control import SteeredTable
from millstream.hosts.spark.steps import PACK_ROWS, Arrows, Batches, Computed, divided, in_lane
from millstream.hosts.table_join import FixedTable, TableMatches
from millstream.kernels.batch import BEGIN, Batch, concat
from millstream.kernels.contract import PARTIALS, Partials
from millstream.physical.nodes import TableJoin
from millstream.records import dataclass
from millstream.schema import Schema

JOB_ROWS = (
    "bucket INT, stage INT, port INT, fresh BOOLEAN, clock INT, upto BIGINT, rows BIGINT, late BIGINT, waiting BIGINT, "
    "state BIGINT, blob BINARY"
)
"""A packed row of a job. `stage` is the number of a stage, or below 0 that of an outlet (`outlet_number`). With a blob
it has rows for that bucket and port; without one it is a heartbeat, or with port TOLD what a stage tells of itself."""

TOLD = -1

WRITTEN = -2
"""The port of packed rows that tell of rows in part files: how many, of which task (the bucket), in which directory."""

_LONGS = ("upto", "rows", "late", "waiting", "state")

PACKED_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("stage", pa.int32()),
        ("port", pa.int32()),
        ("fresh", pa.bool_()),
        ("clock", pa.int32()),
        *[(name, pa.int64()) for name in _LONGS],
        ("blob", pa.binary()),
    ]
)


def outlet_number(stage: int) -> int:
    """The outlet that packed rows of a negative stage belong to, and the inverse.

    >>> outlet_number(-1), outlet_number(0)
    (0, -1)
    """
    return -1 - stage


# -- work --------------------------------------------------------------------------------------------------------------


class BatchWork(Protocol):
    """Work on batches that keeps nothing; equal work over the same rows is done once."""

    def __hash__(self) -> int: ...

    def build(self) -> Callable[[Batch], Batch]: ...


@dataclass(frozen=True)
class ReadColumns:
    """Some columns of a source's rows: from arrival number `since` on, and all that are not before the time `after`."""

    schema: Schema
    since: int = 0
    after: int | None = None

    def build(self) -> Callable[[Batch], Batch]:
        names = list(self.schema.names)

        def step(batch: Batch) -> Batch:
            if self.since and len(batch):
                wanted = batch.seq >= self.since
                wanted |= False if self.after is None else batch.time >= self.after
                batch = batch.take(np.flatnonzero(wanted))
            return batch if batch.rows.schema.names == names else batch.with_rows(batch.rows.select(names))

        return step


@dataclass(frozen=True)
class TableJoined:
    """Each row with its matches in a table, whose rows travel with the work, or are read at each micro-batch."""

    node: TableJoin
    place: int
    """which session's table it is"""
    table: pa.Table | None = field(compare=False)
    steered: SteeredTable | None = None
    """instead of the rows: where workers find them, at each micro-batch"""

    def build(self) -> Callable[[Batch], Batch]:
        if self.steered is not None:
            return TableMatches(self.node, self.steered.of(self.node.table)).step
        assert self.table is not None
        return TableMatches(self.node, FixedTable(self.table)).step


@lru_cache(512)
def _built(work: BatchWork) -> Callable[[Batch], Batch]:
    """A worker builds each piece of work once."""
    return work.build()


# -- the tree ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToStage:
    """A leaf: rows for one input of a kernel."""

    stage: int
    port: int
    schema: Schema
    keys: tuple[str, ...]
    buckets: int
    home: int
    """the bucket of all rows, if there are no keys"""
    lane: int
    fresh: bool
    clock: int
    partials: Partials | None = None
    """how rows may be put together"""
    partial_port: int = PARTIALS
    """the input that takes what was"""

    def packed(self, batch: Batch, _: int) -> list[dict[str, Any]]:
        carrier = Carrier(self.port, self.schema, self.partials, self.partial_port, self.stage, self.fresh)
        return [row for carried in carrier(in_lane(batch, self.lane)) for row in self._carried(carried)]

    def _carried(self, carried: Carried) -> Iterator[dict[str, Any]]:
        rows = blobs.from_batch(carried.batch, blobs.layout_of(carried.schema))
        for bucket, part in divided(rows, carried.schema, self.keys, self.buckets, self.home):
            yield self._row(bucket, rows=part.num_rows, blob=part.serialize()) | {"port": carried.port}

    def heartbeats(self, reached: dict[int, int]) -> list[dict[str, Any]]:
        """To every bucket, how far time has come."""
        buckets = range(self.buckets) if self.keys else (self.home,)
        return [
            self._row(bucket, clock=self.clock + clock, upto=upto)
            for bucket in buckets
            for clock, upto in reached.items()
        ]

    def _row(self, bucket: int, **told: Any) -> dict[str, Any]:
        return {"bucket": bucket, "stage": self.stage, "port": self.port, "fresh": self.fresh, **told}


@dataclass(frozen=True)
class ToOutlet:
    """A leaf: rows of a query's result, as they are."""

    outlet: int
    schema: Schema
    lane: int

    def packed(self, batch: Batch, bucket: int) -> list[dict[str, Any]]:
        rows = blobs.from_batch(in_lane(batch, self.lane), blobs.layout_of(self.schema))
        stage = outlet_number(self.outlet)
        return [{"bucket": bucket, "stage": stage, "rows": rows.num_rows, "blob": rows.serialize()}]

    def heartbeats(self, reached: dict[int, int]) -> list[dict[str, Any]]:
        return []


Leaf = ToStage | ToOutlet


class Writing(Protocol):
    """What writes rows of outlets in a task, for those that it takes."""

    def takes(self, outlet: int) -> bool: ...

    def write(self, outlet: int, columns: list[pa.Array]) -> None: ...

    def rest(self, packed: pa.RecordBatch) -> pa.RecordBatch:
        """Write what packed rows hold for these outlets; the others."""
        ...

    def end(self) -> Arrows:
        """The files are whole: packed rows that tell of them."""
        ...


class Writes(Protocol):
    """How rows of outlets are written in the tasks that make them."""

    def begin(self) -> Writing: ...


@dataclass(frozen=True)
class Fan:
    """What is done with rows: they go to all leaves, and through each work to the tree behind it."""

    leaves: tuple[Leaf, ...] = ()
    branches: tuple[tuple[BatchWork, Fan], ...] = ()

    @staticmethod
    def of(paths: Iterable[tuple[tuple[BatchWork, ...], Leaf]]) -> Fan:
        """The tree with these ways from its root to its leaves; equal beginnings are one."""
        leaves: list[Leaf] = []
        behind: dict[BatchWork, list[tuple[tuple[BatchWork, ...], Leaf]]] = {}
        for works, leaf in paths:
            if works:
                behind.setdefault(works[0], []).append((works[1:], leaf))
            elif leaf not in leaves:
                leaves.append(leaf)
        return Fan(tuple(leaves), tuple((work, Fan.of(rest)) for work, rest in behind.items()))

    def at_home(self, bucket: int, stages: frozenset[int]) -> Fan:
        """The same, where all rows for these stages belong to one bucket."""
        leaves = tuple(
            replace(leaf, home=bucket) if isinstance(leaf, ToStage) and leaf.stage in stages else leaf
            for leaf in self.leaves
        )
        return Fan(leaves, tuple((work, behind.at_home(bucket, stages)) for work, behind in self.branches))

    def all_leaves(self) -> Iterator[Leaf]:
        yield from self.leaves
        for _, behind in self.branches:
            yield from behind.all_leaves()


@contextmanager
def blaming(leaves: Iterable[Leaf], stage: int | None = None) -> Iterator[None]:
    """Work for the queries behind these leaves, or behind a stage: if it fails, the error says whose it was."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "blamed"):
            behind = list(leaves)
            stages = [leaf.stage for leaf in behind if isinstance(leaf, ToStage)]
            outlets = [leaf.outlet for leaf in behind if isinstance(leaf, ToOutlet)]
            error.blamed = (stages if stage is None else [*stages, stage], outlets)  # type: ignore[attr-defined]
        raise


@dataclass(frozen=True)
class Spread:
    """What packed rows need to know of the job: how many buckets there are, their numbers, whether time is told."""

    buckets: int
    ids: tuple[int, ...] | None = None
    """under which number Spark knows each bucket, if not under its own"""
    beats: bool = False


Branches = tuple[tuple[BatchWork, Fan], ...]


@lru_cache(512)
def _divided(fan: Fan) -> tuple[Branches, tuple[FilterGroup[int], ...]]:
    """The branches that are asked one by one, and groups of those that begin with filters of one shape, by place."""
    groups: dict[FilterShape, FilterGroup[int]] = {}
    for place, (work, _) in enumerate(fan.branches):
        found = shape_of(work.stage) if isinstance(work, Computed) else None
        if found is not None:
            groups.setdefault(found[0], FilterGroup(found[0])).add(place, found[1])
    shared = [group for group in groups.values() if group.is_indexed and len(group) >= LEAST_MEMBERS]
    places = {place for group in shared for place in group.members.values()}
    return tuple(branch for place, branch in enumerate(fan.branches) if place not in places), tuple(shared)


def _beats(fan: Fan, place: int) -> bool:
    return any(isinstance(leaf, ToStage) for leaf in fan.branches[place][1].all_leaves())


class FanRun:
    """A fan at work in one task: rows are gathered at its leaves."""

    def __init__(self, fan: Fan, spread: Spread, bucket: int = 0, writing: Writing | None = None) -> None:
        self._spread = spread
        self._bucket = bucket
        self._writing = writing
        self._gathering: dict[Leaf, _Gathering] = {leaf: _Gathering() for leaf in fan.all_leaves()}
        self._fan = fan

    def take(self, batch: Batch) -> Arrows:
        """Rows come, or time passes; packed rows leave when enough have been gathered."""
        full: list[Leaf] = []
        self._push(self._fan, batch, full)
        rows = [row for leaf in full for row in self._flush(leaf)]
        if rows:
            yield self._packed(rows)

    def end(self) -> Arrows:
        """The rest of the rows, and how far time has come."""
        rows = [row for leaf in self._gathering for row in self._flush(leaf)]
        if self._spread.beats:
            rows += [row for leaf, held in self._gathering.items() for row in leaf.heartbeats(held.reached)]
        if rows:
            yield self._packed(rows)

    def _push(self, fan: Fan, batch: Batch, full: list[Leaf]) -> None:
        for leaf in fan.leaves:
            if self._gathering[leaf].add(batch):
                full.append(leaf)
        alone, groups = _divided(fan)
        for group in groups:
            parts = group.together(batch)
            if parts is None:
                alone = (*alone, *(fan.branches[place] for place in group.members.values()))
                continue
            for place, part in parts.items():
                self._push(fan.branches[place][1], part, full)
            # stages must hear how far time has come, also of those that let nothing through
            alone = (*alone, *(fan.branches[p] for p in group.members.values() if p not in parts and _beats(fan, p)))
        for work, behind in alone:
            with blaming(behind.all_leaves()):
                made = _built(work)(batch)
            self._push(behind, made, full)

    def _flush(self, leaf: Leaf) -> list[dict[str, Any]]:
        batch = self._gathering[leaf].taken()
        if batch is None:
            return []
        if isinstance(leaf, ToOutlet) and self._writing is not None and self._writing.takes(leaf.outlet):
            self._writing.write(leaf.outlet, batch.rows.columns)
            return []
        # rows that only pass on their way to an outlet are spread over the tasks of the exchanges between
        self._bucket = (self._bucket + 1) % self._spread.buckets
        return leaf.packed(batch, self._bucket)

    def _packed(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        return packed_rows(rows, self._spread)


class _Gathering:
    """Batches on their way to one leaf."""

    def __init__(self) -> None:
        self.reached: dict[int, int] = {}
        self._parts: list[Batch] = []
        self._count = 0

    def add(self, batch: Batch) -> bool:
        if batch.upto > BEGIN:
            self.reached[batch.port] = max(self.reached.get(batch.port, BEGIN), batch.upto)
        if len(batch):
            self._parts.append(batch)
            self._count += len(batch)
        return self._count >= PACK_ROWS

    def taken(self) -> Batch | None:
        if not self._parts:
            return None
        batch, self._parts, self._count = concat(self._parts, BEGIN), [], 0
        return batch


def packed_rows(rows: list[dict[str, Any]], spread: Spread) -> pa.RecordBatch:
    """Packed rows as Arrow; what is not given of one is 0, or NULL for its blob."""
    ids = spread.ids
    columns: list[pa.Array] = []
    for name, type_ in zip(PACKED_SCHEMA.names, PACKED_SCHEMA.types, strict=True):
        if name == "blob":
            columns.append(blobs.column([row.get("blob") for row in rows]))
        elif name == "bucket" and ids is not None:
            columns.append(pa.array([ids[row["bucket"]] for row in rows], type_))
        else:
            columns.append(pa.array([row.get(name, False if name == "fresh" else 0) for row in rows], type_))
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


@dataclass(frozen=True)
class FanOut:
    """How rows leave a worker that read them."""

    columns = PACKED_SCHEMA

    fan: Fan
    spread: Spread
    writes: Writes | None = None
    """if no stage comes after: how rows of outlets are written"""

    def __call__(self, batches: Batches) -> Arrows:
        writing = None if self.writes is None else self.writes.begin()
        run = FanRun(self.fan, self.spread, _task(), writing)
        for batch in batches:
            yield from run.take(batch)
        yield from run.end()
        if writing is not None:
            yield from writing.end()


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())

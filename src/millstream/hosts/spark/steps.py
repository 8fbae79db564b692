"""The work of Spark's Python workers between two exchanges: rows come in, pass through steps, go out packed or as rows.

Inside a worker rows are the kernels' batches, so time travels with them: a batch without rows is a heartbeat. The three
kinds of work are plain values that travel to the workers, put together as one `Pipeline`, so nothing leaves the worker
between them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.errors import EngineError
from millstream.hosts.pieces import Bounded
from millstream.hosts.spark import blobs
from millstream.hosts.spark.carry import Carried, Carrier, schemas_of, stepped_with
from millstream.hosts.spark.checkpoints import bucket_count
from millstream.hosts.spark.stage import bucket_ids
from millstream.hosts.table_join import FixedTable, TableMatches
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import PARTIALS, Kernel, KernelSpec, Partials, RowStage
from millstream.limits import NO_LIMITS, Limits
from millstream.physical.nodes import TableJoin
from millstream.records import dataclass
from millstream.schema import Schema

Arrows = Iterator[pa.RecordBatch]
Batches = Iterator[Batch]

PACKED = "bucket INT, port INT, fresh BOOLEAN, clock INT, upto BIGINT, rows BIGINT, ts TIMESTAMP, blob BINARY"
"""A packed row: one bucket's rows of one input, `fresh` if they come from a source and may be late; `ts` is the latest
of their times, for Spark's watermark. Without a blob it is a heartbeat: the clock of that number is at `upto`."""

_PACKED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("port", pa.int32()),
        ("fresh", pa.bool_()),
        ("clock", pa.int32()),
        ("upto", pa.int64()),
        ("rows", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("blob", pa.binary()),
    ]
)

PACK_ROWS = 1 << 17
"""Rows gathered before they are divided into buckets: fewer, larger blobs."""

KERNEL_ROWS = 1 << 18
"""Rows a kernel sees at once in a bounded run."""

ROW_BITS, TASK_BITS, ROUND_BITS = 27, 10, 22
"""How an arrival number in a streaming query divides: row in the task, task in the micro-batch, micro-batch."""

ARRIVAL_BITS = ROW_BITS + TASK_BITS + ROUND_BITS


class Opening(Protocol):
    """How rows enter a worker."""

    def __call__(self, arrows: Arrows) -> Batches: ...


class Step(Protocol):
    """Work on batches."""

    def __call__(self, batches: Batches) -> Batches: ...


class ClosingStep(Protocol):
    """How rows leave a worker."""

    @property
    def columns(self) -> pa.Schema: ...

    def __call__(self, batches: Batches) -> Arrows: ...


@dataclass(frozen=True)
class Pipeline:
    """All that a worker does to the rows of its task."""

    opening: Opening
    steps: tuple[Step, ...]
    closing: ClosingStep

    def __call__(self, arrows: Arrows) -> Arrows:
        yield from self.closing(opened(self.opening, self.steps, arrows))
        spare_collector()


def opened(opening: Opening, steps: tuple[Step, ...], arrows: Arrows) -> Batches:
    """The rows of a task after all steps."""
    batches = opening(arrows)
    for step in steps:
        batches = step(batches)
    return batches


# -- openings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FromRows:
    """Rows of Spark's, with their times and arrival numbers in the first two columns."""

    schema: Schema

    def __call__(self, arrows: Arrows) -> Batches:
        layout = blobs.layout_of(self.schema)
        for rows in arrows:
            if rows.num_rows:
                yield blobs.to_batch(blobs.fit(rows, layout), self.schema, BEGIN, 0)


@dataclass(frozen=True)
class Beside:
    """A kernel that runs where its rows are read: what would be exchanged goes on to it in the same worker."""

    packed: Pipeline
    kernel: Opening

    def __call__(self, arrows: Arrows) -> Batches:
        return self.kernel(self.packed(arrows))


@dataclass(frozen=True)
class Unpack:
    """Packed output of a stateful stage; heartbeats tell by their port which bucket's time they are."""

    schema: Schema

    def __call__(self, arrows: Arrows) -> Batches:
        layout = blobs.layout_of(self.schema)
        empty = Batch.empty(self.schema.arrow, BEGIN)
        for packed in arrows:
            columns = (packed.column(name) for name in ("bucket", "upto", "blob"))
            for bucket, upto, blob in zip(*columns, strict=True):
                if blob.is_valid:
                    yield blobs.to_batch(blobs.decode(blob.as_buffer(), layout), self.schema, BEGIN, bucket.as_py())
                elif upto.is_valid:
                    yield empty.with_upto(upto.as_py()).on_port(bucket.as_py())


# -- steps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Computed:
    """Filter and project where the rows are, with the expressions of the in-process engine."""

    stage: ComputeStage

    def __call__(self, batches: Batches) -> Batches:
        return map(self.build(), batches)

    def build(self) -> Callable[[Batch], Batch]:
        return self.stage.build().step


@dataclass(frozen=True)
class StageStep:
    """Work on rows and their times that keeps nothing."""

    stage: RowStage

    def __call__(self, batches: Batches) -> Batches:
        return map(self.build(), batches)

    def build(self) -> Callable[[Batch], Batch]:
        return self.stage.step


@dataclass(frozen=True)
class TableStep:
    """Each row with its matches in a stored table, by conditions that Spark SQL has not; the table travels along."""

    node: TableJoin
    rows: pa.Table = field(compare=False)

    def __call__(self, batches: Batches) -> Batches:
        return map(self.build(), batches)

    def build(self) -> Callable[[Batch], Batch]:
        return TableMatches(self.node, FixedTable(self.rows)).step


@dataclass(frozen=True)
class Numbered:
    """The rows of a streaming query's source, numbered as they pass: rising within a task, different in every task and
    micro-batch. Their times and numbers are news of how far time has come: the last batch tells it."""

    slack: int
    latent: bool = False
    """the arrival number is the time, and comes only once"""

    def __call__(self, batches: Batches) -> Batches:
        numbers, highest, told, last = _arrival_numbers(), BEGIN, BEGIN, None
        for batch in batches:
            told = max(told, batch.upto)
            seq = numbers(len(batch))
            time = seq if self.latent else batch.time
            highest = max(highest, int(time.max(initial=BEGIN)))
            last = Batch(batch.rows, time, seq, BEGIN, batch.other)
            yield last
        if last is not None and max(highest, told) > BEGIN:
            upto = highest + 1 if self.latent else max(highest, BEGIN + self.slack) - self.slack
            yield last.slice(0, 0).with_upto(max(upto, told))


# -- closings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToRows:
    """Rows for Spark, with their times and arrival numbers in the first two columns; or without, if nobody asks."""

    schema: Schema
    hidden: bool = True

    @property
    def columns(self) -> pa.Schema:
        nothing = pa.RecordBatch.from_pylist([], schema=blobs.layout_of(self.schema))
        return blobs.for_spark(nothing.select(self._names)).schema

    @property
    def _names(self) -> list[str]:
        names: list[str] = blobs.layout_of(self.schema).names
        return names if self.hidden else names[2:]

    def __call__(self, batches: Batches) -> Arrows:
        layout, names = blobs.layout_of(self.schema), self._names
        return (blobs.for_spark(blobs.from_batch(batch, layout).select(names)) for batch in batches if len(batch))


@dataclass(frozen=True)
class Pack:
    """Rows packed for a kernel: one blob per bucket of each gathered batch, and at the end to every bucket how far time
    has come."""

    columns = _PACKED

    schema: Schema
    keys: tuple[str, ...]
    buckets: int
    port: int = 0
    lane: int = 0
    """added to the arrival numbers, so that branches of a union keep an order among ties"""
    fresh: bool = False
    clock: int = 0
    """the number of this input's first clock among those of the kernel"""
    tick: int = 1
    """microseconds for Spark's watermark per unit of time"""
    ids: tuple[int, ...] | None = None
    """under which number Spark knows each bucket, if not under its own"""
    partials: Partials | None = None
    """how rows may be put together"""
    partial_port: int = PARTIALS
    """the input that takes what was"""
    stage: int = 0
    """the number of the stage that they go to"""
    fixed: bool = True
    """whether there are just so many buckets; otherwise that many at most, and the checkpoint says how many"""

    def __call__(self, batches: Batches) -> Arrows:
        if self.fixed:
            return self._all(batches)
        buckets = bucket_count(self.buckets)
        return replace(self, buckets=buckets, ids=bucket_ids(buckets))._all(batches)

    def _all(self, batches: Batches) -> Arrows:
        carrier = Carrier(self.port, self.schema, self.partials, self.partial_port, self.stage, self.fresh)
        reached: dict[int, int] = {}
        for batch in _gathered(batches, reached):
            latest = int(batch.time.max()) * self.tick
            for carried in carrier(in_lane(batch, self.lane)):
                yield self._packed(carried, latest)
        if reached:
            yield self._heartbeats(reached)

    def _packed(self, carried: Carried, latest: int) -> pa.RecordBatch:
        rows = blobs.from_batch(carried.batch, blobs.layout_of(carried.schema))
        parts = divided(rows, carried.schema, self.keys, self.buckets)
        return self._rows(
            [number for number, _ in parts],
            carried.port,
            rows=pa.array([part.num_rows for _, part in parts], pa.int64()),
            ts=pa.array([latest] * len(parts), pa.int64()).cast(pa.timestamp("us", "UTC")),
            blob=blobs.column([part.serialize() for _, part in parts]),
        )

    def _heartbeats(self, reached: dict[int, int]) -> pa.RecordBatch:
        beats = [
            (bucket, self.clock + clock, upto) for bucket in range(self.buckets) for clock, upto in reached.items()
        ]
        return self._rows(
            [bucket for bucket, _, _ in beats],
            self.port,
            clock=pa.array([clock for _, clock, _ in beats], pa.int32()),
            upto=pa.array([upto for _, _, upto in beats], pa.int64()),
        )

    def _rows(self, bucket: list[int], port: int, **given: pa.Array) -> pa.RecordBatch:
        """Packed rows for these buckets; columns that are not given are NULL."""
        count = len(bucket)
        given["bucket"] = pa.array(bucket if self.ids is None else [self.ids[number] for number in bucket], pa.int32())
        given["port"] = pa.array([port] * count, pa.int32())
        given["fresh"] = pa.array([self.fresh] * count, pa.bool_())
        columns = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in _PACKED]
        return pa.RecordBatch.from_arrays(columns, schema=_PACKED)


def in_lane(batch: Batch, lane: int) -> Batch:
    """The rows with arrival numbers that tell the branches of a union apart."""
    return Batch(batch.rows, batch.time, batch.seq + lane, batch.upto, batch.other, batch.port) if lane else batch


def divided(
    rows: pa.RecordBatch, schema: Schema, keys: tuple[str, ...], buckets: int, home: int = 0
) -> list[tuple[int, pa.RecordBatch]]:
    """The rows (of a schema's layout) of each bucket that has any; without keys all are in the bucket `home`."""
    from millstream.kernels.keys import bucket_of

    if not keys or buckets == 1:
        return [(home, rows)]
    return blobs.split(rows, bucket_of([rows.column(2 + schema.index(key)) for key in keys], buckets), buckets)


# -- bounded runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelOpening:
    """An opening: all packed rows of a task through one kernel, to the end of time."""

    spec: KernelSpec
    allowed: Limits = NO_LIMITS
    """what the kernel may cost, for each batch"""

    def __call__(self, arrows: Arrows) -> Batches:
        layouts = [blobs.layout_of(schema) for schema in schemas_of(self.spec)]
        parts: list[list[pa.RecordBatch]] = [[] for _ in layouts]
        for packed in arrows:
            for port, blob in zip(packed.column("port").to_pylist(), packed.column("blob"), strict=True):
                if blob.is_valid:
                    parts[port].append(blobs.decode(blob.as_buffer(), layouts[port]))
        return self.over(parts)

    def over(self, parts: list[list[pa.RecordBatch]]) -> Batches:
        """What the kernel makes of all rows, given by port and in any order."""
        kernel, bounded = kernel_of(self.spec), Bounded(self.allowed)
        step = partial(bounded.step, kernel, kernel.open())
        for episode, upto in _episodes(parts):
            yield from self._stepped(step, list(stepped_with(self.spec, episode)), upto)

    def until(self, parts: list[list[pa.RecordBatch]], ends: dict[int, int]) -> Batches:
        """What is final of all rows when each port has come so far; the last batch tells what the kernel promises."""
        kernel, bounded = kernel_of(self.spec), Bounded(self.allowed)
        state = kernel.open()
        for port, schema, rows in stepped_with(self.spec, parts):
            given = Batch.empty(schema.arrow, BEGIN) if rows is None else blobs.to_batch(rows, schema, BEGIN, port)
            upto = ends[port % len(self.spec.inputs)]
            yield bounded.step(kernel, state, given.with_upto(upto).on_port(port))

    def _stepped(
        self,
        step: Callable[[Batch], Batch],
        inputs: list[tuple[int, Schema, pa.RecordBatch | None]],
        last: int,
    ) -> Batches:
        time = [_NO_TIMES if rows is None else blobs.times(rows) for _, _, rows in inputs]
        done = [0] * len(inputs)
        for upto in _cuts(time, last):
            for number, (port, schema, rows) in enumerate(inputs):
                if rows is None:
                    out = step(Batch.empty(schema.arrow, upto, port))
                else:
                    end = rows.num_rows if upto == last else int(np.searchsorted(time[number], upto))
                    part = rows.slice(done[number], end - done[number])
                    out = step(blobs.to_batch(part, schema, upto, port))
                    done[number] = end
                if len(out):
                    yield out


_NO_TIMES: Ints = np.empty(0, dtype=np.int64)
_KERNELS: dict[Any, Kernel] = {}
_loaded = (0, 0)


def spare_collector() -> None:
    """Keep what a worker has loaded out of garbage collection.

    PySpark collects all garbage after every task: looking through the modules and compiled kernels, which never are
    garbage, took a quarter of the time of a micro-batch's workers.
    """
    global _loaded
    now = len(sys.modules), len(_KERNELS)
    if now != _loaded:
        gc.freeze()
        _loaded = now


def kernel_of(spec: KernelSpec) -> Kernel:
    """A worker builds each kernel once, to run on the one core that its task has."""
    if spec not in _KERNELS:
        from millstream.kernels import jit

        jit.enter(replace(jit.current(), threads=1))
        _KERNELS[spec] = spec.build()
    return _KERNELS[spec]


def _episodes(parts: list[list[pa.RecordBatch]]) -> Iterator[tuple[list[list[pa.RecordBatch]], int]]:
    """The parts of all ports divided where one ends before the next begins, each with the time up to which it goes.

    Files mostly follow each other in time, and then nothing needs to be put together or sorted.
    """
    spans = [
        (int(time.min()), int(time.max()), port, rows)
        for port, own in enumerate(parts)
        for rows in own
        if len(time := blobs.times(rows))
    ]
    spans.sort(key=lambda span: span[0])
    episode: list[list[pa.RecordBatch]] = [[] for _ in parts]
    reached = BEGIN
    for first, last, port, rows in spans:
        if reached > BEGIN and first > reached:
            yield episode, first
            episode = [[] for _ in parts]
        episode[port].append(rows)
        reached = max(reached, last)
    if spans:
        yield episode, FOREVER


def _cuts(time: list[Ints], last: int) -> list[int]:
    """Instants that divide the inputs into parts of about KERNEL_ROWS rows, and the one where they end."""
    longest = max(time, key=len)
    return [*np.unique(longest[KERNEL_ROWS::KERNEL_ROWS]).tolist(), last]


def _gathered(batches: Batches, reached: dict[int, int]) -> Batches:
    """Batches joined to at least PACK_ROWS rows each, if there are as many; heartbeats are noted in `reached`."""
    parts: list[Batch] = []
    count = 0
    for batch in batches:
        if batch.upto > BEGIN:
            reached[batch.port] = max(reached.get(batch.port, BEGIN), batch.upto)
        if len(batch):
            parts.append(batch)
            count += len(batch)
        if count >= PACK_ROWS:
            yield concat(parts, BEGIN)
            parts, count = [], 0
    if parts:
        yield concat(parts, BEGIN)


def _arrival_numbers() -> Callable[[int], Ints]:
    """Numbers for rows as they pass."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    this_round = int(context.getLocalProperty("streaming.sql.batchId") or 0) % (1 << ROUND_BITS)
    task = context.partitionId() % (1 << TASK_BITS)
    base = (this_round << (TASK_BITS + ROW_BITS)) | (task << ROW_BITS)
    given = 0

    def give(count: int) -> Ints:
        nonlocal given
        first, given = base + given, given + count
        if given > 1 << ROW_BITS:
            raise EngineError(
                f"one task of a micro-batch reads more than {1 << ROW_BITS:,} rows",
                hint="limit the files or rows per trigger, or split the input into more parts",
            )
        return np.arange(first, first + count, dtype=np.int64)

    return give

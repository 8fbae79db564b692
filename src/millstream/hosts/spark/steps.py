"""The steps that run in Spark's Python workers, between Arrow batches: pack, run a kernel, unpack.

A step is a plain value that travels to the workers; calling it maps an iterator of batches to another one, so two
steps that follow each other become one without leaving the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.hosts.spark import blobs
from millstream.kernels.batch import FOREVER, Ints
from millstream.kernels.contract import Kernel, KernelSpec
from millstream.schema import Schema

Batches = Iterator[pa.RecordBatch]

PACKED = "bucket INT, port INT, fresh BOOLEAN, ts TIMESTAMP, blob BINARY"
"""A packed row: one bucket's rows of one input. `fresh` rows come from a source and may be late."""

PACK_ROWS = 1 << 17
"""Rows gathered before they are divided into buckets: fewer, larger blobs."""

KERNEL_ROWS = 1 << 18
"""Rows a kernel sees at once in a bounded run."""

ROW_BITS, TASK_BITS, ROUND_BITS = 30, 11, 18
"""How an arrival number in a streaming query divides: row in the task, task in the micro-batch, micro-batch."""

ARRIVAL_BITS = ROW_BITS + TASK_BITS + ROUND_BITS


class Step(Protocol):
    def __call__(self, batches: Batches) -> Batches: ...


@dataclass(frozen=True)
class Chain:
    """One step after another."""

    first: Step
    second: Step

    def __call__(self, batches: Batches) -> Batches:
        return self.second(self.first(batches))


@dataclass(frozen=True)
class Emit:
    """The last step before rows become Spark's own."""

    def __call__(self, batches: Batches) -> Batches:
        return map(blobs.for_spark, batches)


@dataclass(frozen=True)
class Pack:
    """Rows to packed rows, one blob per bucket of each gathered batch."""

    schema: Schema
    keys: tuple[str, ...]
    buckets: int
    port: int = 0
    lane: int = 0
    """added to the arrival numbers, so that branches of a union keep an order among ties"""
    fresh: bool = False
    number: bool = False
    """arrival numbers are still to be given: this is a streaming query's source"""
    latent: bool = False
    """the arrival number is the time"""
    tick: int = 1
    """microseconds for Spark's watermark per unit of time"""

    def __call__(self, batches: Batches) -> Batches:
        layout = blobs.layout_of(self.schema)
        numbering = _arrival_numbers() if self.number else None
        for rows in _gathered(batches, layout):
            yield self._packed(self._numbered(rows, numbering))

    def _numbered(self, rows: pa.RecordBatch, numbering: Callable[[int], Ints] | None) -> pa.RecordBatch:
        if numbering is None and not self.lane:
            return rows
        seq = blobs.numbers(rows) if numbering is None else numbering(rows.num_rows)
        time = pa.array(seq) if self.latent and numbering is not None else rows.column(0)
        columns = [time, pa.array(seq + self.lane), *rows.columns[2:]]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

    def _packed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        from millstream.kernels.keys import bucket_of

        if self.keys:
            columns = [rows.column(2 + self.schema.index(key)) for key in self.keys]
            bucket = bucket_of(columns, self.buckets)
        else:
            bucket = np.zeros(rows.num_rows, dtype=np.int32)
        parts = blobs.split(rows, bucket, self.buckets)
        latest = [int(blobs.times(part).max()) * self.tick for _, part in parts]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([number for number, _ in parts], pa.int32()),
                pa.array([self.port] * len(parts), pa.int32()),
                pa.array([self.fresh] * len(parts), pa.bool_()),
                pa.array(latest, pa.int64()).cast(pa.timestamp("us", "UTC")),
                pa.array([blobs.encode(part) for _, part in parts], pa.binary()),
            ],
            names=["bucket", "port", "fresh", "ts", "blob"],
        )


@dataclass(frozen=True)
class Unpack:
    """Packed output of a stateful stage to rows."""

    schema: Schema

    def __call__(self, batches: Batches) -> Batches:
        layout = blobs.layout_of(self.schema)
        for packed in batches:
            for blob in packed.column("blob"):
                yield blobs.decode(blob.as_buffer(), layout)


@dataclass(frozen=True)
class RunKernel:
    """All packed rows of a task through one kernel, to the end of time: a bounded run."""

    spec: KernelSpec

    def __call__(self, batches: Batches) -> Batches:
        layouts = [blobs.layout_of(schema) for schema in self.spec.inputs]
        parts: list[list[pa.RecordBatch]] = [[] for _ in layouts]
        for packed in batches:
            for port, blob in zip(packed.column("port").to_pylist(), packed.column("blob"), strict=True):
                parts[port].append(blobs.decode(blob.as_buffer(), layouts[port]))
        if any(parts):
            inputs = [blobs.in_order(part, layout) for part, layout in zip(parts, layouts, strict=True)]
            yield from self._stepped(inputs)

    def _stepped(self, inputs: list[pa.RecordBatch]) -> Batches:
        kernel, layout = kernel_of(self.spec), blobs.layout_of(self.spec.output)
        state = kernel.open()
        time = [blobs.times(rows) for rows in inputs]
        done = [0] * len(inputs)
        for upto in _cuts(time):
            for port, rows in enumerate(inputs):
                end = rows.num_rows if upto == FOREVER else int(np.searchsorted(time[port], upto))
                part = rows.slice(done[port], end - done[port])
                out = kernel.step(state, blobs.to_batch(part, self.spec.inputs[port], upto, port))
                done[port] = end
                if len(out):
                    yield blobs.from_batch(out, layout)


_KERNELS: dict[Any, Kernel] = {}


def kernel_of(spec: KernelSpec) -> Kernel:
    """A worker builds each kernel once, to run on the one core that its task has."""
    if spec not in _KERNELS:
        from millstream.kernels import jit

        jit.set_threads(1)
        _KERNELS[spec] = spec.build()
    return _KERNELS[spec]


def _cuts(time: list[Ints]) -> list[int]:
    """Instants that divide the inputs into parts of about KERNEL_ROWS rows, the end of time last."""
    longest = max(time, key=len)
    return [*np.unique(longest[KERNEL_ROWS::KERNEL_ROWS]).tolist(), FOREVER]


def _gathered(batches: Batches, layout: pa.Schema) -> Batches:
    """Batches of the layout joined to at least PACK_ROWS rows each, if there are as many."""
    parts: list[pa.RecordBatch] = []
    count = 0
    for rows in batches:
        if rows.num_rows:
            parts.append(blobs.fit(rows, layout))
            count += rows.num_rows
        if count >= PACK_ROWS:
            yield blobs.joined(parts, layout)
            parts, count = [], 0
    if parts:
        yield blobs.joined(parts, layout)


def _arrival_numbers() -> Callable[[int], Ints]:
    """Numbers for rows as they pass, rising within the task, different in every task and micro-batch."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    this_round = int(context.getLocalProperty("streaming.sql.batchId") or 0) % (1 << ROUND_BITS)
    task = context.partitionId() % (1 << TASK_BITS)
    base = (this_round << (TASK_BITS + ROW_BITS)) | (task << ROW_BITS)
    given = 0

    def give(count: int) -> Ints:
        nonlocal given
        first, given = base + given, given + count
        return np.arange(first, first + count, dtype=np.int64)

    return give

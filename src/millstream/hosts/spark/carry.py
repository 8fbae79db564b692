"""What travels to a kernel: rows, or partials of them where these are clearly fewer.

A row of a streaming query is late if its time had passed before its micro-batch, which the kernel's stage knows and the
workers that read rows do not. Once rows are put together, the late ones among them cannot be told any more. So stages
note after each micro-batch how far time may have come at most; workers of the next one put together only rows that are
not below it. Where they find no such note, because the query has just been resumed or the stage ran on another machine,
rows travel as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.hosts.spark import blobs
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.contract import KernelSpec, Partials, partials_of
from millstream.physical.partials import MOST_LEFT
from millstream.records import dataclass
from millstream.schema import Schema

ROWS_FOR_A_WHILE = 15
"""Batches that travel as rows after one whose partials were too many: then they are tried again."""

_as_rows: dict[Partials, int] = {}
"""In this worker, how many batches more travel as rows."""

_noted: dict[int, tuple[str, str]] = {}
"""In this worker, the micro-batch of a query's run in which each stage noted last."""


@dataclass(frozen=True)
class Carried:
    """Rows, or partials of rows, as they travel."""

    port: int
    schema: Schema
    batch: Batch
    counted: int
    """how many rows it stands for"""


class Carrier:
    """What travels of the batches of a task to one input of a stage."""

    def __init__(
        self, port: int, schema: Schema, partials: Partials | None, partial_port: int, stage: int, fresh: bool
    ) -> None:
        self._port, self._schema, self._partials = port, schema, partials
        self._partial_port = partial_port
        self._stage, self._fresh = stage, fresh

    @cached_property
    def _bound(self) -> int | None:
        """No row from this time on is late; None if that is not known."""
        return bound_of(self._stage) if self._fresh else BEGIN

    def __call__(self, batch: Batch) -> Iterator[Carried]:
        partials = self._partials
        if partials is None or len(batch) < 2 or _as_rows.get(partials, 0) or self._bound is None:
            if partials is not None and _as_rows.get(partials, 0):
                _as_rows[partials] -= 1
            yield self._rows(batch)
            return
        in_time = batch
        if int(batch.time.min()) < self._bound:
            in_time = batch.take(np.flatnonzero(batch.time >= self._bound))
            yield self._rows(batch.take(np.flatnonzero(batch.time < self._bound)))
        if not len(in_time):
            return
        made = partials.step(in_time)
        if len(made) <= MOST_LEFT * len(in_time):
            yield Carried(self._partial_port, partials.output, made, len(in_time))
        else:
            _as_rows[partials] = ROWS_FOR_A_WHILE
            yield self._rows(in_time)

    def _rows(self, batch: Batch) -> Carried:
        return Carried(self._port, self._schema, batch, len(batch))


def schemas_of(spec: KernelSpec) -> tuple[Schema, ...]:
    """What comes to a kernel on each port."""
    partials = partials_of(spec)
    if all(own is None for own in partials):
        return spec.inputs
    each = zip(spec.inputs, partials, strict=True)
    return (*spec.inputs, *(schema if own is None else own.output for schema, own in each))


def counted(spec: KernelSpec, port: int, rows: pa.RecordBatch) -> int:
    """How many rows there are, or partials stand for."""
    partials = None if port < len(spec.inputs) else partials_of(spec)[port - len(spec.inputs)]
    if partials is None:
        return int(rows.num_rows)
    return partials.counted(blobs.to_batch(rows, partials.output, BEGIN, port).rows)


def stepped_with(
    spec: KernelSpec, parts: Sequence[list[pa.RecordBatch]]
) -> Iterator[tuple[int, Schema, pa.RecordBatch | None]]:
    """What a kernel is stepped with, port by port: the parts in order, or nothing. Rows beside partials become
    partials, too, as both must come in order of time."""
    count = len(spec.inputs)
    for port, (schema, partials) in enumerate(zip(spec.inputs, partials_of(spec), strict=True)):
        rows, put_together = parts[port], parts[count + port] if len(parts) > count else []
        if partials is None or not put_together:
            yield port, schema, blobs.in_order(rows, blobs.layout_of(schema)) if rows else None
            continue
        layout = blobs.layout_of(partials.output)
        each = (partials.each(blobs.to_batch(part, schema, BEGIN, 0)) for part in rows)
        made = [blobs.from_batch(batch, layout) for batch in each]
        yield count + port, partials.output, blobs.in_order([*put_together, *made], layout)


# -- how far time may have come ----------------------------------------------------------------------------------------


def note_bound(stage: int, bound: int) -> None:
    """After a micro-batch: no row of the next one is late for this stage that is not below the bound."""
    run, number = _place()
    if not run or _noted.get(stage) == (run, number):
        return
    path = _path(run, stage)
    own = path.with_suffix(f".{os.getpid()}")
    own.write_text(f"{number} {bound}")
    own.replace(path)
    _noted[stage] = run, number


def bound_of(stage: int) -> int | None:
    """In the next one: that bound; None if it is not known."""
    run, number = _place()
    if not number:
        return None
    if int(number) == 0:
        return BEGIN
    try:
        noted, bound = _path(run, stage).read_text().split()
    except (OSError, ValueError):
        return None
    return int(bound) if int(noted) == int(number) - 1 else None


def _place() -> tuple[str, str]:
    """The run of the streaming query and the number of the micro-batch that this task belongs to."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    if context is None:
        return "", ""
    run, number = (context.getLocalProperty(name) for name in ("spark.jobGroup.id", "streaming.sql.batchId"))
    return run or "", number or ""


def _path(run: str, stage: int) -> Path:
    """A file among those that Spark has on this machine, and removes at its end."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / f"millstream-{run}-{stage}"

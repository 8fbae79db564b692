"""Work on events and their times that keeps nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Batch
from millstream.kernels.keys.words import instants, validity
from millstream.kernels.one_input import AtMostOne, KeepsColumns, OneInput
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType, from_kernel


@dataclass(frozen=True)
class TimesStage(AtMostOne, OneInput):
    """Events with some of their times as columns; see `Times`."""

    columns: tuple[tuple[str, str], ...]
    type: SqlType
    keeps: bool = True
    """whether they are events that last still, not points in time"""

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, *(Field(name, self.type) for name, _ in self.columns)))

    def describe(self) -> str:
        return "times " + ", ".join(f"{name} := {what}" for name, what in self.columns)

    def step(self, batch: Batch) -> Batch:
        starts = batch.time if batch.other is None else batch.other
        known = {"start": starts, "end": batch.time, "duration": batch.time - starts}
        added = [from_kernel(known[what], None, self.type) for _, what in self.columns]
        rows = pa.RecordBatch.from_arrays([*batch.rows.columns, *added], schema=self.output.arrow)
        return replace(batch, rows=rows, other=batch.other if self.keeps else None)


@dataclass(frozen=True)
class SinceStage(AtMostOne, KeepsColumns):
    """Events that start at the value of a column; where that is NULL or later than their end, they are points in
    time."""

    start: str

    def describe(self) -> str:
        return f"since {self.start}"

    def step(self, batch: Batch) -> Batch:
        column = batch.rows.column(self.input.index(self.start))
        starts = instants(column, self.input[self.start].type)
        mask = validity(column)
        starts = np.minimum(starts if mask is None else np.where(mask, starts, batch.time), batch.time)
        return replace(batch, other=np.ascontiguousarray(starts, dtype=np.int64))


@dataclass(frozen=True)
class PointsStage(AtMostOne, KeepsColumns):
    """Events as points in time: what they end at."""

    def describe(self) -> str:
        return "ends"

    def step(self, batch: Batch) -> Batch:
        return replace(batch, other=None)


@dataclass(frozen=True)
class InstantsStage(AtMostOne, KeepsColumns):
    """Points in time as events that start when they end, to go with others that last."""

    def describe(self) -> str:
        return "instants"

    def step(self, batch: Batch) -> Batch:
        return batch if batch.other is not None else replace(batch, other=batch.time)

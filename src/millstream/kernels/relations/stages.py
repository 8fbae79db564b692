"""Relations by work on each row alone: time windows, coarser time, and validity as columns. No state, no exchange."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.keys.words import instants, validity
from millstream.kernels.one_input import AtMostOne, KeepsColumns
from millstream.kernels.own_lengths import own_lengths
from millstream.plan.lengths import RowLength, length_told
from millstream.plan.relations import RangeWindow
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import SqlType, from_kernel


@dataclass(frozen=True)
class RangeStage(AtMostOne, KeepsColumns):
    """Events as a relation: each row is valid while a time window holds it."""

    window: RangeWindow

    def describe(self) -> str:
        return f"window {self.window}"

    def moved(self, batch: Batch) -> Batch:
        """The same rows at their starts."""
        start, _ = window_bounds(batch.time, self.window)
        return replace(batch, time=start, upto=window_upto(batch.upto, self.window))

    def step(self, batch: Batch) -> Batch:
        upto = window_upto(batch.upto, self.window)
        if not len(batch):
            return Batch.empty(self.output.arrow, upto, batch.port)
        start, end = window_bounds(batch.time, self.window)
        return _during(batch, start, end, upto)


@dataclass(frozen=True)
class OwnRangeStage(AtMostOne, KeepsColumns):
    """Events as a relation: each row is valid for as long as it says itself."""

    length: RowLength

    def describe(self) -> str:
        return f"window RANGE {self.length}"

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.output.arrow, batch.upto, batch.port)
        lengths = own_lengths(batch.rows, self.input, self.length)
        _check(batch.time, int(lengths.max()))
        return _during(batch, batch.time, batch.time + lengths, batch.upto)


@dataclass(frozen=True)
class PeriodStage(AtMostOne, KeepsColumns):
    """Events as a relation: each row is valid until the time in a column, or for ever where that is NULL."""

    until: str

    def describe(self) -> str:
        return f"valid until {self.until}"

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.output.arrow, batch.upto, batch.port)
        column = batch.rows.column(self.input.index(self.until))
        end, known = instants(column, self.input[self.until].type), validity(column)
        end = np.ascontiguousarray(end if known is None else np.where(known, end, FOREVER), dtype=np.int64)
        return _during(batch, batch.time, end, batch.upto)


@dataclass(frozen=True)
class CoarsenStage(AtMostOne, KeepsColumns):
    """A relation at multiples of `granule`: both ends of a row move up to the next one; what is empty then is gone."""

    granule: int

    def __post_init__(self) -> None:
        if self.granule <= 0:
            raise ValueError("a granule is positive")

    def describe(self) -> str:
        return f"granularity {length_told(self.granule)}"

    def moved(self, batch: Batch) -> Batch:
        """The same rows at their starts."""
        _check(batch.time, self.granule)
        return replace(batch, time=-(-batch.time // self.granule) * self.granule, upto=self._upto(batch.upto))

    def _upto(self, upto: int) -> int:
        return upto if upto in (BEGIN, FOREVER) else min(-(-upto // self.granule) * self.granule, FOREVER - 1)

    def step(self, batch: Batch) -> Batch:
        granule, upto = self.granule, self._upto(batch.upto)
        if not len(batch):
            return Batch.empty(self.output.arrow, upto, batch.port)
        open_end = ends_of(batch) == FOREVER
        end = np.where(open_end, 0, ends_of(batch))
        _check(batch.time, granule)
        _check(end, granule)
        start = -(-batch.time // granule) * granule
        end = np.where(open_end, FOREVER, -(-end // granule) * granule)
        return _during(batch, start, end, upto)


@dataclass(frozen=True)
class ValidityStage(AtMostOne):
    """A relation's rows as events at their start, with both ends as columns; the end of what stays is NULL."""

    by_instant = True

    input: Schema
    output: Schema
    type: SqlType

    def describe(self) -> str:
        return "validity as columns"

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.output.arrow, batch.upto, batch.port)
        end = ends_of(batch)
        known = end != FOREVER
        bounds = [from_kernel(batch.time, None, self.type), from_kernel(np.where(known, end, 0), known, self.type)]
        rows = pa.RecordBatch.from_arrays([*batch.rows.columns, *bounds], schema=self.output.arrow)
        return replace(batch, rows=rows, other=None)


def ends_of(batch: Batch) -> Ints:
    """The ends of a relation's rows."""
    if batch.other is None:
        if len(batch):
            raise ValueError("a relation's rows have ends")
        return np.empty(0, dtype=np.int64)
    return batch.other


def window_bounds(time: Ints, window: RangeWindow) -> tuple[Ints, Ints]:
    """From when to when a time window holds the rows of these times; equal ends where it never does."""
    slide, size = window.slide, window.size
    _check(time, slide + (size or 0))
    start = time if slide == 1 else -(-(time + 1) // slide) * slide - 1
    if size is None:
        return start, np.full(len(time), FOREVER, dtype=np.int64)
    return start, time + size if slide == 1 else (time + (size + slide)) // slide * slide - 1


def window_upto(upto: int, window: RangeWindow) -> int:
    """The earliest start of a row that is to come, when no row before `upto` is."""
    if window.slide == 1 or upto in (BEGIN, FOREVER):
        return upto
    return min(-(-(upto + 1) // window.slide) * window.slide - 1, FOREVER - 1)


def _check(time: Ints, reach: int) -> None:
    if reach >= FOREVER or (len(time) and int(time.max()) >= FOREVER - reach):
        raise DataError("a row would be valid beyond the largest possible time")


def _during(batch: Batch, start: Ints, end: Ints, upto: int) -> Batch:
    """The rows with these intervals, without empty ones."""
    batch = replace(batch, time=start, other=end, seq=np.zeros(len(batch), dtype=np.int64), upto=upto)
    kept = end > start
    return batch if kept.all() else batch.take(np.flatnonzero(kept))

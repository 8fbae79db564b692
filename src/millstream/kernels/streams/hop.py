"""Each row once for every window it is in: TUMBLE, HOP and CUMULATE. No state, so no exchange."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.own_lengths import lengths
from millstream.plan.window_tables import END, START, FixedWindows, Hopping, OwnWindows, Windows
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType, from_kernel


@dataclass(frozen=True)
class WindowStage:
    """The rows with the start and the end of a window, earlier windows first; windows are given by a row's time."""

    input: Schema
    windows: Windows
    type: SqlType
    spread: int = 0
    """bits by which arrival numbers are moved up, so that a row's copies get numbers of their own; 0: they share it"""

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, Field(START, self.type), Field(END, self.type)))

    @property
    def most(self) -> int:
        return self.windows.most

    def numbered(self, spread: int) -> WindowStage:
        return replace(self, spread=spread)

    def describe(self) -> str:
        return f"AddWindows {self.windows.describe(self.type)}"

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.output.arrow, batch.upto, batch.port)
        if isinstance(self.windows, OwnWindows):
            size = lengths(batch.rows, self.input, self.windows.size)
            if self.windows.slide is None:
                check_reach(batch.time, 3 * int(np.max(size)))
                start = batch.time // size * size
                return self._with_bounds(batch, start, start + size)
            slide = lengths(batch.rows, self.input, self.windows.slide)
            check_reach(batch.time, 2 * int(np.max(size)) + int(np.max(slide)))
            which, copy, start, end = _copies(batch.time, size, slide, self.windows.grows)
        else:
            which, copy, start, end = windows_of(batch.time, self.windows)
        single = len(which) == len(batch) and not copy.any()
        chosen = batch if single else batch.take(which)
        if self.spread:
            chosen = replace(chosen, seq=(chosen.seq << self.spread) + copy)
        return self._with_bounds(chosen, start, end)

    def _with_bounds(self, chosen: Batch, start: Ints, end: Ints) -> Batch:
        bounds = [from_kernel(start, None, self.type), from_kernel(end, None, self.type)]
        return chosen.with_rows(pa.RecordBatch.from_arrays([*chosen.rows.columns, *bounds], schema=self.output.arrow))


def windows_of(time: Ints, windows: FixedWindows) -> tuple[Ints, Ints, Ints, Ints]:
    """For each window of each row, in order: the row, which of the row's windows it is, its start and its end."""
    check_range(time, windows)
    slide = windows.slide if isinstance(windows, Hopping) else windows.step
    which, copy, start, end = _copies(time - windows.offset, windows.size, slide, windows.grows)
    return which, copy, start + windows.offset, end + windows.offset


def _copies(time: Ints, size: Ints | int, slide: Ints | int, grows: bool) -> tuple[Ints, Ints, Ints, Ints]:
    """The same of windows that are counted from 0, and whose lengths are those of all rows or of each."""
    base: Ints = time // size * size if grows else time
    first: Ints = (time - (base if grows else size)) // slide + 1
    counts: Ints = (size if grows else time) // slide - first + 1
    which: Ints = np.repeat(np.arange(len(time)), counts)
    copy: Ints = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    moved: Ints = (first[which] + copy) * _at(slide, which)
    if grows:
        return which, copy, base[which], base[which] + moved
    return which, copy, moved, moved + _at(size, which)


def _at(length: Ints | int, which: Ints) -> Ints | int:
    return length if isinstance(length, int) else length[which]


def check_range(time: Ints, windows: FixedWindows) -> None:
    """DataError if a bound of some row's window cannot be told."""
    reach = 2 * (windows.size + abs(windows.offset)) + (windows.slide if isinstance(windows, Hopping) else 0)
    check_reach(time, reach)


def check_reach(time: Ints, reach: int) -> None:
    """DataError if times are too far away for windows that reach so far."""
    if reach >= FOREVER or int(time.min()) < BEGIN + reach or int(time.max()) > FOREVER - reach:
        raise DataError("a window of a row is beyond the largest possible time")

"""Each row once for every element of an array: UNNEST. No state, so no exchange."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import to_numpy
from millstream.kernels.batch import Batch
from millstream.plan.unnest import element_of
from millstream.records import dataclass
from millstream.schema import Field, Schema


@dataclass(frozen=True)
class UnnestStage:
    """The rows with an element of the array in column `array`, in order; arrays that are NULL or empty give none."""

    most = 1 << 12

    input: Schema
    array: str
    name: str
    spread: int = 0
    """bits by which arrival numbers are moved up, so that elements get numbers of their own; 0: they share the row's"""

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, Field(self.name, element_of(self.input[self.array].type))))

    def numbered(self, spread: int) -> UnnestStage:
        return replace(self, spread=spread)

    def describe(self) -> str:
        return f"Unnest {self.array} as {self.name}"

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.output.arrow, batch.upto, batch.port)
        arrays = batch.rows.column(self.input.index(self.array))
        which = to_numpy(pc.list_parent_indices(arrays)).astype(np.int64)
        chosen = batch.take(which)
        if self.spread:
            copy = np.arange(len(which)) - np.searchsorted(which, which)
            chosen = replace(chosen, seq=(chosen.seq << self.spread) + np.minimum(copy, (1 << self.spread) - 1))
        columns = [*chosen.rows.columns, pc.list_flatten(arrays)]
        return chosen.with_rows(pa.RecordBatch.from_arrays(columns, schema=self.output.arrow))

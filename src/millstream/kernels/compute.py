"""Work on each row alone: a filter, then computed columns."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.arrays import to_numpy
from millstream.expressions.nodes import Expr
from millstream.kernels.batch import Batch
from millstream.kernels.one_input import OneInput
from millstream.records import dataclass
from millstream.schema import Field, Schema


@dataclass(frozen=True)
class ComputeStage(OneInput):
    """Keep rows where `predicate` holds, then compute `columns` (None keeps the input's)."""

    predicate: Expr | None
    columns: tuple[tuple[str, Expr], ...] | None

    @cached_property
    def output(self) -> Schema:
        if self.columns is None:
            return self.input
        return Schema(tuple(Field(name, expr.type) for name, expr in self.columns))

    def build(self) -> Computation:
        return Computation(self)

    def describe(self) -> str:
        what = [] if self.columns is None else [", ".join(f"{name} := {expr}" for name, expr in self.columns)]
        where = [] if self.predicate is None else [f"where {self.predicate}"]
        return " ".join(["compute", *what, *where])


class Computation:
    """Runs a ComputeStage; rows keep their times and numbers."""

    def __init__(self, stage: ComputeStage) -> None:
        # Expressions come with DuckDB and SQL, which a kernel without computed columns does not need.
        from millstream.expressions.evaluator import compile_arrow, compile_filter

        self.schema = stage.output
        self._mask = None if stage.predicate is None else compile_filter(stage.predicate, stage.input)
        self._columns = None
        if stage.columns is not None:
            self._columns = compile_arrow([expr for _, expr in stage.columns], stage.input)

    def step(self, batch: Batch) -> Batch:
        if self._mask is not None and len(batch):
            chosen = np.flatnonzero(to_numpy(self._mask(batch.rows)))
            if not len(chosen):
                batch = batch.slice(0, 0)
            elif len(chosen) < len(batch):
                batch = batch.take(chosen)
        if self._columns is None:
            return batch
        if not len(batch):
            return Batch.empty(self.schema.arrow, batch.upto, batch.port)
        return batch.with_rows(pa.RecordBatch.from_arrays(self._columns(batch.rows), schema=self.schema.arrow))

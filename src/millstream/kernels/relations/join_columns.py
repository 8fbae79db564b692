"""The columns of a join: what it keeps of each side, what its condition reads, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.relations.join import LEFT, RIGHT, JoinSpec
from millstream.schema import Schema

Source = Callable[[Sequence[int]], list[pa.Array]]
"""From the numbers of kept columns of a side to their values, one for each pair."""

Sources = tuple[Source | None, Source | None]
"""Both sides of pairs; None for the one whose columns are NULL."""


class JoinColumns:
    """Columns of pairs of rows."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        # What is kept of each side: keys, so that the state can be divided, and what results and conditions read.
        keys = {name.lower() for name in spec.by}
        read = spec.read if spec.residual is not None else ()
        wanted = [
            keys | {name.lower() for own, name in (*spec.results, *read) if own == side} for side in (LEFT, RIGHT)
        ]
        self.kept = [
            Schema(tuple(field for field in schema if field.name.lower() in names) or schema.fields[:1])
            for schema, names in zip(spec.sides, wanted, strict=True)
        ]
        self._results = pa.schema([spec.sides[side].arrow.field(spec.sides[side].index(n)) for side, n in spec.results])
        self._residual = None
        if spec.residual is not None:
            # Expressions come with DuckDB and SQL, which a join without a condition does not need.
            from millstream.expressions.evaluator import compile_filter

            self._read = Schema(tuple(spec.sides[side][name] for side, name in spec.read))
            self._residual = compile_filter(spec.residual, self._read)

    def keep(self, rows: pa.RecordBatch, side: int) -> pa.RecordBatch:
        """The columns of a side that are kept."""
        kept = self.kept[side]
        columns = [rows.column(self._spec.sides[side].index(name)) for name in kept.names]
        return pa.RecordBatch.from_arrays(columns, schema=kept.arrow)

    def matchable(self, rows: pa.RecordBatch, side: int) -> npt.NDArray[np.bool_]:
        """Which rows have a key that can equal another: NULL does not."""
        matchable = np.ones(len(rows), dtype=np.bool_)
        for column in self.keys(rows, side):
            if column.null_count:
                matchable &= column.is_valid().to_numpy(zero_copy_only=False)
        return matchable

    def keys(self, rows: pa.RecordBatch, side: int) -> list[pa.Array]:
        """The keys of rows that are kept."""
        return [rows.column(self.kept[side].index(name)) for name in self._spec.by]

    def holds(self, sources: Sources, size: int) -> npt.NDArray[np.bool_] | None:
        """For which pairs the condition holds; None if there is none."""
        if self._residual is None:
            return None
        columns = self._gather(sources, size, self._spec.read)
        mask: npt.NDArray[Any] = np.asarray(
            self._residual(pa.RecordBatch.from_arrays(columns, schema=self._read.arrow)), dtype=np.bool_
        )
        return mask

    def results(self, sources: Sources, size: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._gather(sources, size, self._spec.results), schema=self._results)

    def _gather(self, sources: Sources, size: int, wanted: Sequence[tuple[int, str]]) -> list[pa.Array]:
        columns: dict[tuple[int, str], pa.Array] = {}
        for side, source in enumerate(sources):
            names = [name for number, name in wanted if number == side]
            kept = self.kept[side]
            if source is None:
                taken = [pa.nulls(size, kept[name].type.arrow) for name in names]
            else:
                taken = source([kept.index(name) for name in names]) if names else []
            columns |= {(side, name): array for name, array in zip(names, taken, strict=True)}
        return [columns[place] for place in wanted]

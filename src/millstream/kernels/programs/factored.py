"""The engine of a product: an engine for each of its factors, over the same tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.programs.engine import Engine, Groups, Returned, TableRows
from millstream.kernels.programs.factors import Factor


class FactoredEngine:
    """Runs a program by its factors; implements `engine.Engine`. Only the end of a group returns rows, and each factor
    one for each group."""

    def __init__(self, factors: Sequence[Factor], engines: Sequence[Engine]) -> None:
        self._parts = list(zip(factors, engines, strict=True))
        self.numbers_tuples = any(engine.numbers_tuples for engine in engines)

    def open(self) -> list[Any]:
        return [engine.open() for _, engine in self._parts]

    def arrive(self, state: list[Any], slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        made = [
            engine.arrive(own, slots, time, ids, [args[i] for i in factor.args], upto)
            for (factor, engine), own in zip(self._parts, state, strict=True)
        ]
        return self._together(made)

    def close(self, state: list[Any], slots: Ints) -> Returned:
        return self._together([engine.close(own, slots) for (_, engine), own in zip(self._parts, state, strict=True)])

    def _together(self, made: list[Returned]) -> Returned:
        columns = {
            place: column
            for (factor, _), returned in zip(self._parts, made, strict=True)
            for place, column in zip(factor.results, returned.columns, strict=True)
        }
        return Returned(made[0].origin, made[0].time, [columns[place] for place in range(len(columns))])

    def export(self, state: list[Any], slots: Ints) -> Groups:
        tables: dict[str, TableRows] = {}
        seen = slots
        for (factor, engine), own in zip(self._parts, state, strict=True):
            groups = engine.export(own, slots)
            seen = groups.seen
            names = (table.name for table in factor.program.tables)
            tables |= {whole: groups.tables[name] for whole, name in zip(factor.tables, names, strict=True)}
        return Groups(seen, tables)

    def load(self, groups: Groups) -> list[Any]:
        state = []
        for factor, engine in self._parts:
            names = zip(factor.program.tables, factor.tables, strict=True)
            state.append(engine.load(Groups(groups.seen, {own.name: groups.tables[whole] for own, whole in names})))
        return state

    def rows_held(self, state: list[Any]) -> int:
        return sum(engine.rows_held(own) for (_, engine), own in zip(self._parts, state, strict=True))

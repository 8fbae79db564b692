"""The engine of a product: an engine for each of its factors, over the same tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.programs.engine import Engine, Groups, Returned, TableRows
from millstream.records import dataclass


@dataclass(frozen=True)
class Part:
    """An engine for some of the arguments and results of the whole, and what that calls its tables."""

    engine: Engine
    args: Sequence[int]
    results: Sequence[int]
    tables: Mapping[str, str]


class FactoredEngine:
    """Runs a program by its factors; implements `engine.Engine`. Only the end of a group returns rows, and each factor
    one for each group."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.numbers_tuples = any(part.engine.numbers_tuples for part in parts)

    def open(self) -> list[Any]:
        return [part.engine.open() for part in self._parts]

    def arrive(self, state: list[Any], slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        made = [
            part.engine.arrive(own, slots, time, ids, [args[i] for i in part.args], upto)
            for part, own in zip(self._parts, state, strict=True)
        ]
        return self._together(made)

    def close(self, state: list[Any], slots: Ints) -> Returned:
        return self._together([part.engine.close(own, slots) for part, own in zip(self._parts, state, strict=True)])

    def _together(self, made: list[Returned]) -> Returned:
        columns = {
            place: column
            for part, returned in zip(self._parts, made, strict=True)
            for place, column in zip(part.results, returned.columns, strict=True)
        }
        return Returned(made[0].origin, made[0].time, [columns[place] for place in range(len(columns))])

    def export(self, state: list[Any], slots: Ints) -> Groups:
        tables: dict[str, TableRows] = {}
        seen = slots
        for part, own in zip(self._parts, state, strict=True):
            groups = part.engine.export(own, slots)
            seen = groups.seen
            tables |= {whole: groups.tables[name] for name, whole in part.tables.items()}
        return Groups(seen, tables)

    def load(self, groups: Groups) -> list[Any]:
        return [
            part.engine.load(Groups(groups.seen, {own: groups.tables[whole] for own, whole in part.tables.items()}))
            for part in self._parts
        ]

    def rows_held(self, state: list[Any]) -> int:
        return sum(part.engine.rows_held(own) for part, own in zip(self._parts, state, strict=True))

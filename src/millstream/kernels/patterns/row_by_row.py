"""Conditions that have no kernel form, evaluated in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.expressions.object_values import to_values
from millstream.kernels.patterns.coding import decode
from millstream.kernels.patterns.log import RowLog
from millstream.kernels.patterns.replay import summed
from millstream.kernels.patterns.threads_source import ThreadLoops
from millstream.plan.patterns.search import Search
from millstream.types import SqlType

_PLAIN = {"BOOLEAN": bool, "DOUBLE": float}
_CELL = 3


class RowByRow:
    """What generated source asks about the rows of a log."""

    def __init__(self, search: Search, generated: ThreadLoops, log: RowLog) -> None:
        self._search, self._generated, self._log = search, generated, log

    def __call__(self, number: int, values: tuple[Any, ...], nulls: tuple[Any, ...]) -> bool:
        """Whether a condition holds for these values of what it reads."""
        types = self._generated.asked_types[number]
        frame = [self._value(*each) for each in zip(values, nulls, types, strict=True)]
        return self._generated.asked[number](frame)

    def summed(self, which: int, cells: Any, cell: int, v: int, p: int, number: int) -> Any:
        """An aggregate, by number, over the rows that a thread took, and the row p as the variable v (-1: none)."""
        taken = [] if p < 0 else [(p, 2 * v)]
        while cell >= 0:
            taken.append((int(cells[_CELL * cell + 1]), int(cells[_CELL * cell + 2])))
            cell = cells[_CELL * cell]
        rows, labels = np.array(taken[::-1], dtype=np.int64).reshape(-1, 2).T
        return summed(self._search, self._search.summaries[which], self._log, rows, labels, int(number))

    def _value(self, given: Any, null: Any, typed: tuple[SqlType, str] | None) -> Any:
        if null or typed is None:
            return None if null else given
        type_, of = typed
        if type_.is_coded or type_.name == "DECIMAL":
            column = decode(np.array([given]), np.array([True]), type_, self._log.texts, self._log.tables.get(of))
            return to_values(column, type_)[0]
        return _PLAIN.get(type_.name, int)(given)

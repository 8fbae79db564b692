"""Conditions that have no kernel form, evaluated in Python."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from millstream.expressions.object_values import to_values
from millstream.kernels.batch import Ints
from millstream.kernels.patterns.coding import decode
from millstream.kernels.patterns.conditions import Doubt
from millstream.kernels.patterns.log import RowLog
from millstream.kernels.patterns.replay import summed
from millstream.kernels.patterns.thread_loops import CLOCK, NUMBERED
from millstream.kernels.patterns.threads_source import ThreadLoops
from millstream.plan.patterns.search import Search
from millstream.records import dataclass
from millstream.types import SqlType

_PLAIN = {"BOOLEAN": bool, "DOUBLE": float}
_CELL = 3


def _shown(value: Any, low: int | None = None) -> Any:
    return value if low is None else value * 2**32 + low


@dataclass(frozen=True)
class Report:
    """A condition that could not be computed: when, what of it, and the values that it read, as JSON."""

    time: int
    seq: int
    error: str
    row: str


class RowByRow:
    """What generated source asks about the rows of a log; `meta` has the time at which it does."""

    def __init__(self, search: Search, generated: ThreadLoops, log: RowLog, meta: Ints) -> None:
        self._search, self._generated, self._log, self._meta = search, generated, log, meta
        self.reported: list[Report] = []
        self._known: set[Report] = set()

    def __call__(self, number: int, values: tuple[Any, ...], nulls: tuple[Any, ...]) -> bool:
        """Whether a condition holds for these values of what it reads."""
        types = self._generated.asked_types[number]
        frame = [self._value(*each) for each in zip(values, nulls, types, strict=True)]
        for doubt in self._generated.doubts[number]:
            if doubt.fails(frame):
                self._report(doubt, frame)
        return self._generated.asked[number](frame)

    def _report(self, doubt: Doubt, frame: list[Any]) -> None:
        """Other attempts may have found the same at the same time."""
        values = {name: _shown(*(frame[place] for place in places)) for name, places in doubt.shown.items()}
        row = json.dumps(dict(sorted(values.items())), default=str, ensure_ascii=False)
        report = Report(int(self._meta[CLOCK]), int(self._meta[NUMBERED]), f"cannot evaluate {doubt.said}", row)
        if report not in self._known:
            self._known.add(report)
            self.reported.append(report)

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

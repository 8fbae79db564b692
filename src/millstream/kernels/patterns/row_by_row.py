"""Conditions that have no kernel form, evaluated in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.errors import DataError
from millstream.expressions.object_values import to_values
from millstream.kernels.batch import Ints
from millstream.kernels.patterns.coding import decode
from millstream.kernels.patterns.log import RowLog
from millstream.kernels.patterns.replay import read_last, summed
from millstream.kernels.patterns.thread_loops import CLOCK, NUMBERED
from millstream.kernels.patterns.threads_source import ThreadLoops
from millstream.kernels.streams.failing import as_text
from millstream.plan.patterns.search import Search
from millstream.records import dataclass
from millstream.types import SqlType

_PLAIN = {"BOOLEAN": bool, "DOUBLE": float}
_CELL = 3


def _shown(value: Any, low: int | None = None) -> Any:
    return value if low is None else value * 2**32 + low


@dataclass(frozen=True)
class Report:
    """A condition, or an aggregate, that could not be computed: when, what of it, and the values that it read."""

    time: int
    seq: int
    error: str
    values: dict[str, Any]
    slot: int = -1
    """of which partition a match is"""


@dataclass(frozen=True)
class _Failed:
    """Stands for the value of an aggregate that could not be computed: why, and what it read last."""

    why: str
    values: dict[str, Any]


class RowByRow:
    """What generated source asks about the rows of a log; `meta` has the time at which it does."""

    def __init__(self, search: Search, generated: ThreadLoops, log: RowLog, meta: Ints, lenient: bool) -> None:
        self._search, self._generated, self._log, self._meta = search, generated, log, meta
        self._lenient = lenient
        self.reported: list[Report] = []
        self._known: set[tuple[int, int, str, str]] = set()

    def __call__(self, number: int, values: tuple[Any, ...], nulls: tuple[Any, ...]) -> bool:
        """Whether a condition holds for these values of what it reads."""
        if failed := [value for value in values if isinstance(value, _Failed)]:
            self._report(failed[0].why, failed[0].values)
            return False
        types = self._generated.asked_types[number]
        frame = [self._value(*each) for each in zip(values, nulls, types, strict=True)]
        for doubt in self._generated.doubts[number]:
            if doubt.fails(frame):
                read = {name: _shown(*(frame[place] for place in places)) for name, places in doubt.shown.items()}
                self._report(f"cannot evaluate {doubt.said}", dict(sorted(read.items())))
        return self._generated.asked[number](frame)

    def _report(self, why: str, values: dict[str, Any]) -> None:
        """Other attempts may have found the same at the same time."""
        report = Report(int(self._meta[CLOCK]), int(self._meta[NUMBERED]), why, values)
        known = (report.time, report.seq, why, as_text(values))
        if known not in self._known:
            self._known.add(known)
            self.reported.append(report)

    def summed(self, which: int, cells: Any, cell: int, v: int, p: int, number: int) -> Any:
        """An aggregate, by number, over the rows that a thread took, and the row p as the variable v (-1: none)."""
        taken = [] if p < 0 else [(p, 2 * v)]
        while cell >= 0:
            taken.append((int(cells[_CELL * cell + 1]), int(cells[_CELL * cell + 2])))
            cell = cells[_CELL * cell]
        rows, labels = np.array(taken[::-1], dtype=np.int64).reshape(-1, 2).T
        summary = self._search.summaries[which]
        try:
            return summed(self._search, summary, self._log, rows, labels, int(number))
        except DataError as error:
            if not self._lenient:
                raise
            return _Failed(error.message, read_last(self._search, summary, self._log, rows))

    def _value(self, given: Any, null: Any, typed: tuple[SqlType, str] | None) -> Any:
        if null or typed is None:
            return None if null else given
        type_, of = typed
        if type_.is_coded or type_.name == "DECIMAL":
            column = decode(np.array([given]), np.array([True]), type_, self._log.texts, self._log.tables.get(of))
            return to_values(column, type_)[0]
        return _PLAIN.get(type_.name, int)(given)

"""Chains searched for row by row, naively and by tables of shifts: what both find, and how much they ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.expressions.nodes import Expr
from millstream.plan.patterns.chains import Chain
from millstream.plan.patterns.search import Search
from millstream.plan.patterns.shifts import RunPlace, Shift, Shifts
from tests.support.pattern_values import Attempt, Labels, MatchValues, Row

Match = tuple[int, int, Labels]
"""The first row, the row behind the last, and the labels."""


@dataclass
class Asked:
    """How often conditions were evaluated at rows, how often checks were, and how many attempts there were."""

    conditions: int = 0
    checks: int = 0
    attempts: int = 0


@dataclass
class _Failure:
    way: str
    element: int


@dataclass
class _State:
    """An attempt: where the run of each element began, and the next row."""

    first: list[int]
    row: int


@dataclass
class ChainSearch:
    """One partition and a search for a chain in it, past the last row of each match."""

    search: Search
    chain: Chain
    rows: Sequence[Row]
    times: Sequence[int] = ()
    asked: Asked = field(default_factory=Asked)

    def naive(self) -> list[Match]:
        """All matches; every row that is in none of them is tried as a first row."""
        return self._matches(None)

    def shifted(self, shifts: Shifts) -> list[Match]:
        """All matches; a failure says where the search goes on."""
        return self._matches(shifts)

    def _matches(self, shifts: Shifts | None) -> list[Match]:
        found: list[Match] = []
        state = _State([0], 0)
        while state.first[0] < len(self.rows):
            start = state.first[0]
            self.asked.attempts += 1
            failure = self._run(state, len(found) + 1)
            if failure is None:
                found.append((start, state.row, self._labels(state)))
                state = self._after_match(state, shifts)
            elif shifts is None:
                row = self._after_failure(state, failure)
                state = _State([row], row)
            else:
                table: tuple[Shift | None, ...] = getattr(shifts, failure.way)
                shift = table[failure.element]
                assert shift is not None, f"{self.chain} cannot be {failure.way} at {failure.element}"
                state = _shifted(state, shift)
                assert state.first[0] > start, "the search does not go on"
        return found

    def _after_failure(self, state: _State, failure: _Failure) -> int:
        """The row after the first; of whole runs the one behind the first run, if there was any."""
        start = state.first[0]
        took = failure.way != "failed" or failure.element > 0
        return max(start + 1, state.first[1]) if self.search.whole_runs and took else start + 1

    def _after_match(self, state: _State, shifts: Shifts | None) -> _State:
        start, behind = state.first[0], state.row
        resumed = behind if behind > start else start + 1
        if shifts is not None and not shifts.ender_begins and behind > start and self._in_time(start, behind):
            resumed += 1
        return _State([resumed], resumed)

    def _run(self, state: _State, number: int) -> _Failure | None:
        elements, first = self.chain.elements, state.first
        while len(first) <= len(elements):
            j = len(first) - 1
            element, count = elements[j], state.row - first[j]
            is_full = element.most is not None and count == element.most
            if not is_full and not self._in_time(first[0], state.row):
                way = "late" if state.row < len(self.rows) else "ended"
                return self._over(state, number, way)
            if not is_full and self._asks(element.condition, state, number, element.variable):
                state.row += 1
                continue
            if count < element.least:
                return _Failure("failed", j)
            first.append(state.row)
            if not self._asks(element.check, state, number, None):
                return _Failure("filled" if is_full else "checked", j)
        return None

    def _over(self, state: _State, number: int, way: str) -> _Failure | None:
        """The attempt takes no more rows: what is left must be complete, or may be empty."""
        elements, first = self.chain.elements, state.first
        j = len(first) - 1
        least = [elements[j].least <= state.row - first[j], *(one.least == 0 for one in elements[j + 1 :])]
        first.append(state.row)
        if not all(least) or not all(self._asks(one.check, state, number, None) for one in elements[j:]):
            return _Failure(way, j)
        first.extend([state.row] * (len(elements) - j - 1))
        return None

    def _in_time(self, start: int, row: int) -> bool:
        within = self.search.within
        if row >= len(self.rows):
            return False
        return within is None or self.times[row] - self.times[start] <= within

    def _asks(self, condition: Expr | None, state: _State, number: int, variable: str | None) -> bool:
        if condition is None:
            return True
        labels = self._labels(state)
        if variable is None:
            self.asked.checks += 1
        else:
            self.asked.conditions += 1
            labels = (*labels, (variable, False))
        attempt = Attempt(state.first[0], 0, len(self.rows), number)
        return MatchValues(self.search, self.rows, 1 << 62).holds(condition, attempt, labels)

    def _labels(self, state: _State) -> Labels:
        bounds = [*state.first, state.row]
        return tuple(
            (element.variable, element.excluded)
            for element, low, high in zip(self.chain.elements, bounds, bounds[1:], strict=False)
            for _ in range(low, high)
        )


def _shifted(state: _State, shift: Shift) -> _State:
    first = state.first

    def row(place: RunPlace) -> int:
        return first[place.run] + place.ahead

    for start in shift:
        if start.run is None or row(start.begins[0]) < first[start.run + 1]:
            return _State([row(begin) for begin in start.begins], row(start.at))
    raise AssertionError("none of the attempts is possible")

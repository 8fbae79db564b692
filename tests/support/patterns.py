"""Row patterns by plain backtracking over all rows of a partition: a second opinion on what a search means, and slow.

What rows that have not come yet could change is left open, so the same code says what must be out after the first rows
of a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

from millstream.errors import DataError
from millstream.kernels.batch import FOREVER
from millstream.plan.patterns import expressions as plan
from millstream.plan.patterns.expressions import Pattern
from millstream.plan.patterns.search import Search
from tests.support.pattern_values import Attempt, Labels, MatchValues, OpenError, Row


@dataclass(frozen=True)
class Told:
    """A row that comes out: the place of the input row that it repeats (None: of none), and `Search.columns`."""

    row: int | None
    values: tuple[Any, ...]


def told(search: Search, rows: Sequence[Row], times: Sequence[int], upto: int = FOREVER) -> list[Told]:
    """What comes out of one partition, in order, when these rows have come and none will before `upto`.

    With `FOREVER`, the partition has ended. An error of the data is raised where the search cannot go on.
    """
    found: list[Told] = []
    try:
        for result in _Partition(search, rows, times, upto).results():
            found += result
    except OpenError:
        pass
    return found


def told_when(search: Search, rows: Sequence[Row], times: Sequence[int]) -> list[tuple[int, int, Told]]:
    """What comes out of a partition that ends, each with its time and the place of the last row that had come."""
    found: list[tuple[int, int, Told]] = []

    def look(count: int, upto: int, time: int) -> None:
        known = told(search, rows[:count], times[:count], upto)
        assert [entry[2] for entry in found] == known[: len(found)], "what was certain changed"
        found.extend((time, count - 1, one) for one in known[len(found) :])

    deadlines = [] if search.within is None else sorted({time + search.within + 1 for time in times})
    for i, time in enumerate(times):
        for deadline in deadlines:
            if i and times[i - 1] < deadline <= time:
                look(i, deadline, deadline)
        look(i + 1, time, time)
    for deadline in deadlines:
        if deadline > times[-1]:
            look(len(rows), deadline, deadline)
    look(len(rows), FOREVER, FOREVER - 1)
    return found


class _Partition:
    def __init__(self, search: Search, rows: Sequence[Row], times: Sequence[int], upto: int) -> None:
        self._search, self._rows, self._times, self._upto = search, rows, times, upto
        self._conditions = dict(search.conditions)
        self._match = MatchValues(search, rows, upto)
        self._stuck: Labels | None = None

    def results(self) -> Iterator[list[Told]]:
        """What comes out, by match or row that it is certain with."""
        return self._each() if self._search.given.rows == "each" else self._matches()

    def _matches(self) -> Iterator[list[Told]]:
        given, nothing = self._search.given, (None,) * len(self._search.columns)
        start = number = covered = 0
        while start < len(self._rows):
            attempt = Attempt(start, 0, FOREVER, number + 1)
            labels = self._find(attempt)
            if labels is None:
                if self._search.timeouts and self._stuck:
                    yield self._told(Attempt(start, 0, FOREVER, None), self._stuck, timed_out=True)
                if given.rows == "all" and given.unmatched and start >= covered:
                    yield [Told(start, nothing)]
                start += 1
                continue
            number += 1
            yield self._told(attempt, labels)
            covered = max(covered, start + len(labels))
            start = self._resume(start, start, labels)

    def _each(self) -> Iterator[list[Told]]:
        """Every row, with the match that is found from it; the rows of its frame are all there is for that search."""
        given, nothing = self._search.given, (None,) * len(self._search.columns)
        number, resume = 0, 0
        for row in range(len(self._rows)):
            if row < resume:
                yield [Told(row, nothing)]
                continue
            high = FOREVER if given.most is None else row + given.most + 1
            start, labels = row, None
            while labels is None and (start == row or given.seek):
                if start >= min(high, len(self._rows)):
                    if start < high and self._upto < FOREVER:
                        raise OpenError
                    break
                attempt = Attempt(start, row, high, number + 1)
                labels = self._find(attempt)
                start += 1
            if labels is None:
                yield [Told(row, nothing)]
                continue
            number += 1
            yield [Told(row, self._values(attempt, labels, len(labels) - 1))]
            resume = self._resume(row, attempt.start, labels)

    def _find(self, attempt: Attempt) -> Labels | None:
        """The preferred match that begins at a row. `_stuck` is the preferred beginning that the deadline ended."""
        self._stuck = None
        return next(self._paths(self._search.pattern, attempt, ()), None)

    def _paths(self, pattern: Pattern, attempt: Attempt, labels: Labels, hidden: bool = False) -> Iterator[Labels]:
        """The ways to match a pattern behind what has been matched, in order of preference."""
        place = attempt.start + len(labels)
        match pattern:
            case plan.Variable(name):
                if self._may_take(attempt, place, labels):
                    taken = (*labels, (name, hidden))
                    condition = self._conditions.get(name)
                    if condition is None or self._match.holds(condition, attempt, taken):
                        yield taken
            case plan.Sequence(items):
                yield from self._in_turn(items, attempt, labels, hidden)
            case plan.Either(options):
                for option in options:
                    yield from self._paths(option, attempt, labels, hidden)
            case plan.Permute(items):
                for order in permutations(items):
                    yield from self._in_turn(order, attempt, labels, hidden)
            case plan.Repeat(greed="possessive"):
                yield from islice(self._repeated(pattern, 0, attempt, labels, hidden), 1)
            case plan.Repeat():
                yield from self._repeated(pattern, 0, attempt, labels, hidden)
            case plan.Excluded(body):
                yield from self._paths(body, attempt, labels, hidden=True)
            case plan.Edge(end=False):
                if place == 0:
                    yield labels
            case plan.Edge():
                if place >= len(self._rows):
                    if self._upto < FOREVER:
                        raise OpenError
                    yield labels
            case plan.Check(condition):
                if self._match.holds(condition, attempt, labels):
                    yield labels

    def _in_turn(self, items: tuple[Pattern, ...], attempt: Attempt, labels: Labels, hidden: bool) -> Iterator[Labels]:
        if not items:
            yield labels
            return
        for after in self._paths(items[0], attempt, labels, hidden):
            yield from self._in_turn(items[1:], attempt, after, hidden)

    def _repeated(
        self, repeat: plan.Repeat, done: int, attempt: Attempt, labels: Labels, hidden: bool
    ) -> Iterator[Labels]:
        """The ways to go on after `done` repetitions."""
        if repeat.greed == "reluctant" and done >= repeat.least:
            yield labels
        if repeat.most is None or done < repeat.most:
            for after in self._paths(repeat.body, attempt, labels, hidden):
                if done < repeat.least or len(after) > len(labels):
                    yield from self._repeated(repeat, done + 1, attempt, after, hidden)
                else:
                    # a repetition without a row is the last
                    yield after
        if repeat.greed != "reluctant" and done >= repeat.least:
            yield labels

    def _may_take(self, attempt: Attempt, place: int, labels: Labels) -> bool:
        """Whether there is a row here, in the frame and in time."""
        if place >= attempt.high:
            return False
        within = self._search.within
        deadline = FOREVER if within is None else self._times[attempt.start] + within
        is_known = place < len(self._rows)
        if (self._times[place] if is_known else self._upto) > deadline:
            self._stuck = self._stuck or labels
            return False
        if not is_known and self._upto < FOREVER:
            raise OpenError
        return is_known

    def _values(self, attempt: Attempt, labels: Labels, at: int, timed_out: bool = False) -> tuple[Any, ...]:
        return tuple(self._match.value(name, attempt, labels, at, timed_out) for name in self._search.columns)

    def _told(self, attempt: Attempt, labels: Labels, timed_out: bool = False) -> list[Told]:
        given = self._search.given
        if not labels:
            row = attempt.start if given.rows == "all" else None
            return [Told(row, self._values(attempt, labels, -1))] if given.empty else []
        if given.rows == "one":
            return [Told(None, self._values(attempt, labels, len(labels) - 1, timed_out))]
        return [
            Told(attempt.start + at, self._values(attempt, labels, at, timed_out))
            for at, (_, hidden) in enumerate(labels)
            if not hidden
        ]

    def _resume(self, row: int, start: int, labels: Labels) -> int:
        """Where the search that began at a row goes on after its match."""
        skip = self._search.skip
        if not labels or skip.to == "next":
            return row + 1
        if skip.to == "past last":
            return start + len(labels)
        places = [start + i for i, (variable, _) in enumerate(labels) if variable in skip.variables]
        if not places:
            raise DataError("AFTER MATCH SKIP goes to a row that the match does not have")
        place = places[0 if skip.to == "first" else -1]
        if place == start:
            raise DataError("AFTER MATCH SKIP goes to the first row of the match")
        return place

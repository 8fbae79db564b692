"""Where the search goes on when an attempt has failed: the tables of the optimised pattern search.

The naive search takes the row after the failed attempt's first and knows nothing; the tables only save work.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.expressions.nodes import columns_of
from millstream.plan.patterns.chains import Chain
from millstream.plan.patterns.search import MATCH_NUMBER, Search
from millstream.plan.patterns.shift_analysis import History, Knowledge, RowClass, Way
from millstream.plan.patterns.shift_tables import RunPlace, Shift, Shifts, Start

__all__ = ["RunPlace", "Shift", "Shifts", "Start", "shifts_of"]


def shifts_of(chain: Chain, search: Search, last_rows: bool = False) -> Shifts:
    """The tables of a chain, which is the pattern of the search; with `last_rows`, an attempt may begin at the last row
    of a run (a place with `ahead` -1), where else it would begin at an earlier one."""
    knowledge = Knowledge(chain, search)
    tables = {way: _table(knowledge, way, last_rows) for way in ("failed", "checked", "filled", "late", "ended")}
    limited = search.within is not None or search.given.most is not None
    rescans = any(
        start.at.run < (j if way == "failed" else j + 1) or start.at.ahead < 0
        for way, table in tables.items()
        if way != "late" or limited
        for j, shift in enumerate(table)
        for start in shift or ()
    )
    return Shifts(**tables, ender_begins=_ender_begins(knowledge), rescans=rescans)


def _table(knowledge: Knowledge, way: Way, last_rows: bool) -> tuple[Shift | None, ...]:
    elements = knowledge.chain.elements
    result: list[Shift | None] = []
    for j, element in enumerate(elements):
        possible = {
            "failed": element.least > 0 and element.condition is not None,
            "checked": element.check is not None and element.most != element.least and element.condition is not None,
            "filled": element.check is not None and element.most is not None,
        }
        history = History(knowledge, way, j)
        result.append(_Search(history, last_rows).shift() if possible.get(way, True) else None)
    return tuple(result)


def _ender_begins(knowledge: Knowledge) -> bool:
    chain = knowledge.chain
    if not chain.elements or chain.elements[-1].most is not None:
        return True
    conditions = [one.condition for one in chain.elements if one.condition is not None]
    if any(MATCH_NUMBER in columns_of(condition) for condition in conditions):
        # the next match has another number
        return True
    last = len(chain.elements) - 1
    return History(knowledge, "matched", last).may_succeed(RowClass(last + 1, False, None))


class _Search:
    """The attempts after a failure that may succeed."""

    def __init__(self, history: History, last_rows: bool) -> None:
        self._history = history
        self._elements = history.elements
        self._last_rows = last_rows

    def shift(self) -> Shift:
        starts: list[Start] = []
        inside = self._history.knowledge.search.whole_runs and self._history.hand > 0
        for run in range(1 if inside else 0, self._history.hand + 1):
            for start in self._starts(run):
                starts.append(start)
                if start.run is None:
                    return tuple(starts)
        behind = RunPlace(self._history.hand, 1)
        return (*starts, Start((behind,), behind))

    def _starts(self, run: int) -> Iterator[Start]:
        """The attempts that may succeed and begin in a run, or at the row at hand."""
        history = self._history
        alive = [row for row in history.firsts(run) if history.may_succeed(row)]
        if alive and history.may_be_first(run):
            # Where everything before may be empty, the failed attempt may have begun here.
            yield Start((RunPlace(0, 1),), RunPlace(0, 1))
            return
        is_certain = run == history.hand or history.least(run) > 0
        at_first = self._played(run, 0, None if is_certain else run) if alive else None
        if run == history.hand or self._elements[run].most == 1 or not all(row.is_last for row in alive):
            if at_first:
                yield at_first
            return
        # Of a run of several rows, the first cannot begin a match.
        middle, last = map(history.may_succeed, history.later(run))
        if self._last_rows and run and is_certain and not middle and (last or alive):
            yield self._played(run + 1, -1, None)
            return
        if middle or last:
            yield self._played(run, 1, run)
        if at_first:
            yield at_first

    def _played(self, run: int, ahead: int, only_with: int | None) -> Start:
        """The attempt that begins at the first or second row of a run, or at the last before one, as far as it is known
        to get."""
        history, play = self._history, _Play(self._history)
        place, row = RunPlace(run, ahead), self._begun(run, ahead)
        while True:
            is_over = row.run == history.hand and history.way in ("late", "ended")
            if is_over or not play.step(row, self._plain(place)):
                return play.stopped(self._plain(place), only_with)
            if row.run == history.hand:
                return play.stopped(RunPlace(row.run, 1), only_with)
            if ahead >= 0 and self._elements[row.run].most != 1 and not play.stays(history.later(row.run)[0]):
                return play.stopped(self._plain(RunPlace(row.run, place.ahead + 1)), only_with)
            following, ahead = row.run + 1, 0
            place = RunPlace(following)
            if following < history.hand and not history.least(following):
                return play.stopped(self._plain(place), only_with)
            row = RowClass(following, False, row.run)

    def _begun(self, run: int, ahead: int) -> RowClass:
        """What is known of the first row of an attempt."""
        if ahead < 0:
            return RowClass(run - 1, True, None)
        if ahead:
            return RowClass(run, True, run)
        befores = {row.before for row in self._history.firsts(run)}
        return RowClass(run, False, befores.pop() if len(befores) == 1 else None)

    def _plain(self, place: RunPlace) -> RunPlace:
        """The same row as a place in the last run that certainly has it: the row behind a single one is the next."""
        run, ahead = place.run, place.ahead
        while run < self._history.hand:
            if not self._history.has_rows(run):
                run += 1
            elif ahead > 0 and self._elements[run].is_single:
                run, ahead = run + 1, ahead - 1
            else:
                break
        return RunPlace(run, ahead)


class _Play:
    """A later attempt on rows of which everything that matters is known."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._elements = history.elements
        self._begins: list[RunPlace] = []
        self._element = 0
        self._entry: RowClass | None = None

    def step(self, row: RowClass, place: RunPlace) -> bool:
        """Go over a row; false, and the attempt stays before it, if it is not known what happens there, or if that
        ends the pattern."""
        while True:
            one = self._elements[self._element]
            if len(self._begins) == self._element:
                self._begins.append(place)
            holds = self._history.verdict(row, self._element, self._entry is not None)
            is_last = self._element + 1 == len(self._elements)
            if holds is True and one.most is None:
                self._entry = self._entry or row
                return True
            if holds is True and one.most == 1 and one.check is None and not is_last:
                self._element, self._entry = self._element + 1, None
                return True
            if holds is not False or is_last or not self._is_complete(row):
                return False
            self._element, self._entry = self._element + 1, None

    def _is_complete(self, row: RowClass) -> bool:
        """Whether the element is known to be complete before a row that it does not take."""
        one = self._elements[self._element]
        if self._entry is None:
            return one.least == 0 and one.check is None
        return self._history.check_verdict(self._element, self._entry, row) is True

    def stays(self, row: RowClass) -> bool:
        """Whether any number of rows of a class, even none, leaves the attempt where it is."""
        return self._entry is not None and self._history.verdict(row, self._element, True) is True

    def stopped(self, at: RunPlace, only_with: int | None) -> Start:
        begins = self._begins if len(self._begins) > self._element else [*self._begins, at]
        return Start(tuple(begins), at, only_with)

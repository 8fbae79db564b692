"""How a chain is searched for: its states, where it goes on after a failure, and what has to be kept for that."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from millstream.kernels.patterns.chain_layout import LANES_BACK, ChainLayout
from millstream.kernels.patterns.machine import behind
from millstream.plan.patterns.chains import Chain
from millstream.plan.patterns.search import Search
from millstream.plan.patterns.shift_tables import RunPlace, Shift, Shifts, Start

KINDS = ("failed", "checked", "filled", "late", "ended")
"""The ways in which an attempt may fail: the tables of `Shifts`."""


def naive(chain: Chain, whole_runs: bool = False) -> Shifts:
    """What nothing is known of: the search goes on at the row after the first, or behind the first run."""
    after_first: Shift = (Start((RunPlace(0, 1),), RunPlace(0, 1)),)
    after_run: Shift = (Start((RunPlace(1),), RunPlace(1)),) if whole_runs else after_first
    every = (after_run,) * len(chain.elements)
    return Shifts((after_first, *every[1:]), every, every, every, every, ender_begins=True, rescans=True)


class Plan:
    """A search for a chain, with the tables it goes by."""

    def __init__(self, search: Search, chain: Chain, shifts: Shifts) -> None:
        self.search, self.chain, self.shifts = search, chain, shifts
        self.layout = ChainLayout(search, chain, self.logged, self.runs, self.resumes)

    @cached_property
    def states(self) -> tuple[tuple[int, bool], ...]:
        """The element that an attempt stands in, and whether that has rows; the first state is that there is none."""
        states = []
        for i, element in enumerate(self.chain.elements):
            states.append((i, False))
            if element.most != 1:
                states.append((i, True))
        return tuple(states)

    def state(self, element: int, some: bool) -> int:
        return self.states.index((element, some))

    def shift(self, kind: str, element: int) -> Shift:
        """Where the search goes on after a failure."""
        found: Shift | None = getattr(self.shifts, kind)[element]
        return found if found is not None else naive(self.chain).failed[0] or ()

    @cached_property
    def _failures(self) -> tuple[tuple[str, int], ...]:
        """What may fail, and in which element."""
        found = []
        for i, element in enumerate(self.chain.elements):
            if i and element.least:
                found.append(("failed", i))
            if element.check is not None:
                found += [("checked", i)] if element.most != 1 or not element.least else []
                found += [("filled", i)] if element.most is not None else []
            if i or element.most != 1:
                found += [("late", i)] if self.search.within is not None else []
                found.append(("ended", i))
        return tuple(found)

    def _starts(self) -> Iterator[tuple[int, Start]]:
        """The attempts that the search may go on with, and the run that the row at hand is named by."""
        for kind, element in self._failures:
            for start in self.shift(kind, element):
                yield at_hand(kind, element), start

    @cached_property
    def logged(self) -> bool:
        """Whether rows may be looked at again."""
        return (
            self.search.skip.to != "past last"
            or behind(self.search) > LANES_BACK
            or any(oldest_run(start) < here for here, start in self._starts())
        )

    @property
    def resumes(self) -> bool:
        """Whether a match says by its labels where the search goes on."""
        return self.search.skip.to in ("first", "last")

    @cached_property
    def runs(self) -> frozenset[int]:
        """The runs whose first rows must be known."""
        if not self.logged:
            return frozenset()
        runs = {0} if self.search.skip.to != "past last" else set()
        for here, start in self._starts():
            runs |= {place.run for place in (*start.begins, start.at) if place.run < here}
            runs |= {oldest_run(start)} if oldest_run(start) < here else set()
            if start.run is not None:
                runs |= {run for run in (start.run, start.run + 1) if run < here}
        return frozenset(runs)

    @cached_property
    def oldest_runs(self) -> tuple[int | None, ...]:
        """For each element the oldest run whose rows may be looked at again when an attempt stands there."""
        if self.search.skip.to != "past last":
            return (0,) * len(self.chain.elements)
        oldest: list[int | None] = []
        for i in range(len(self.chain.elements)):
            runs = {
                oldest_run(start)
                for kind, element in self._failures
                if element >= i
                for start in self.shift(kind, element)
                if oldest_run(start) < at_hand(kind, element)
            }
            oldest.append(min(runs, default=None))
        return tuple(oldest)


def oldest_run(start: Start) -> int:
    """The run that has the first row of an attempt."""
    first = start.begins[0]
    return first.run - 1 if first.ahead < 0 else first.run


def at_hand(kind: str, element: int) -> int:
    """The run that the row at hand would begin when an attempt fails."""
    return element if kind == "failed" else element + 1

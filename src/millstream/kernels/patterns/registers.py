"""What is remembered of the rows taken so far, in numbered lanes, and the source that keeps it up to date.

The lanes are those of an array `{regs}` and its view as floats, `f{regs}`. Some mark rows, by positions in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from millstream.expressions.nodes import Column, Expr
from millstream.kernels.accumulators import Accumulator, Argument, Place, Sums, entered
from millstream.kernels.accumulators.places import is_code
from millstream.kernels.accumulators.sums import SPREADS
from millstream.kernels.patterns.machine import far_shifts
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import BESIDE, HALVES
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Reach, Search
from millstream.records import dataclass

Group = tuple[str, ...] | None
"""Some variables; None: all."""

Within = Callable[[Group], str]
"""Source of whether the row at hand is labelled with one of some variables."""

Numbered = Callable[[int], str]
"""Source of a number that is an argument of the loop."""

_INCREMENTAL = SPREADS | BESIDE | HALVES | {"count", "sum", "avg", "min", "max"}

MARKED_BACK = 8
"""How many of the last rows of a group are marked; what is further back is found by the labels of rows."""


def is_incremental(summary: AggregateCall[Expr]) -> bool:
    """Whether an aggregate can be kept in lanes as rows are taken."""
    if summary.program is not None or summary.distinct or summary.fn not in _INCREMENTAL:
        return False
    if not all(isinstance(arg, Column) and arg.name not in (CLASSIFIER, MATCH_NUMBER) for arg in summary.args):
        return False
    if summary.fn == "count":
        return True
    # Codes are in no order, and decimals are summed up to 37 digits.
    return not any(is_code(arg.type) or arg.type.name in ("NULL", "DECIMAL") for arg in summary.args)


def is_marked(reach: Reach) -> bool:
    """Whether the row that a reach goes by is marked as rows are taken."""
    return reach.first or reach.offset <= MARKED_BACK


@dataclass
class _Marks:
    """Which first rows of a group are marked, and how many last ones, with their lanes. `counted` is the lane of how
    many rows there are, up to the last one of the first that is marked."""

    first: set[int] = field(default_factory=set)
    last: int = 0
    counted: int | None = None
    lanes: dict[tuple[str, int], int] = field(default_factory=dict)

    def owned(self) -> tuple[int, ...]:
        return (*self.lanes.values(), *(() if self.counted is None else (self.counted,)))


class MatchRegisters:
    """The lanes for some reaches and summaries; lanes before `width` that have no name belong to others. With `merged`,
    records that know the same are equal."""

    def __init__(self, search: Search, names: Iterable[str], width: int = 0, merged: bool = False) -> None:
        self._merged = merged
        self._marks: dict[Group, _Marks] = {}
        self.summaries: list[AggregateCall[Expr]] = []
        self.starts: dict[str, int] = {}
        self._sums: dict[str, Accumulator] = {}
        self.marks: list[int] = []
        """the lanes that hold marks; -1 there is none"""
        self.owned: dict[str, tuple[int, ...]] = {}
        """the lanes that each value is computed from"""
        wanted = [search.named[name] for name in dict.fromkeys(names) if name in search.named]
        for value in wanted:
            if isinstance(value, Reach) and is_marked(value):
                marks = self._marks.setdefault(value.variables, _Marks())
                if value.first:
                    marks.first.add(value.offset)
                else:
                    marks.last = max(marks.last, value.offset + 1)
        for marks in self._marks.values():
            for place in [*(("first", k) for k in sorted(marks.first)), *(("last", k) for k in range(marks.last))]:
                marks.lanes[place] = width
                self.marks.append(width)
                width += 1
            if max(marks.first, default=0):
                marks.counted = width
                width += 1
        for value in wanted:
            if isinstance(value, AggregateCall):
                self.summaries.append(value)
                self.starts[value.name] = width
                self._sums[value.name] = accumulator_of(value, f"s{len(self._sums)}")
                count = len(self._sums[value.name].state.lanes)
                self.owned[value.name] = tuple(range(width, width + count))
                width += count
            else:
                self.owned[value.name] = self._marks[value.variables].owned() if is_marked(value) else ()
        self.width = width

    def update(self, within: Within, regs: str, column: Callable[[str], int], number: Numbered) -> Iterator[str]:
        """Source that takes in the row p; `column` tells where the arrays of a column are."""
        for group, marks in self._marks.items():
            yield from guarded(within(group), [*_noted(marks, regs, number)])
        for summary in self.summaries:
            accumulator = self._sums[summary.name]
            at = Place.numbered(regs, f"f{regs}", str(self.starts[summary.name]), accumulator.state)
            places = [column(arg.name) for arg in summary.args if isinstance(arg, Column)]
            values = [(f"cols[{place}][p]", "True") for place in places]
            known = " and ".join(f"cols[{place + 1}][p]" for place in places) or "True"
            lines = [*entered(accumulator.state, at, *values), *(_settled(accumulator, at) if self._merged else ())]
            yield from guarded(within(summary.variables), [*guarded(known, lines)])

    def mark(self, reach: Reach, regs: Callable[[int], str]) -> str:
        """Source of the position of the row that a reach goes by."""
        return regs(self._marks[reach.variables].lanes["first" if reach.first else "last", reach.offset])

    def summed(
        self, summary: AggregateCall[Expr], regs: Callable[[int], str], fregs: Callable[[int], str], out: str, ok: str
    ) -> Iterator[str]:
        """Source that assigns what a summary comes to, and, but for counts, whether that is not NULL."""
        accumulator, at = self._sums[summary.name], _lanes_at(self.starts[summary.name], self._sums[summary.name])
        place = Place(lambda lane, is_float: (fregs if is_float else regs)(at[lane]))
        yield from accumulator.result(place, out, ok, 'raise OverflowError("the result does not fit BIGINT")')


def accumulator_of(summary: AggregateCall[Expr], name: str) -> Accumulator:
    """The aggregate of a summary; variables that it needs begin with `name`."""
    names = (name, f"{name}_by")
    args = tuple(Argument(own, arg.type) for own, arg in zip(names, summary.args, strict=False))
    return Accumulator(summary.fn, args, summary.type)


def _lanes_at(start: int, accumulator: Accumulator) -> dict[str, int]:
    return {lane.name: start + i for i, lane in enumerate(accumulator.state.lanes)}


def guarded(condition: str, lines: list[str]) -> Iterator[str]:
    """Lines that run where a condition holds."""
    if condition == "False" or not lines:
        return
    if condition == "True":
        yield from lines
        return
    yield f"if {condition}:"
    yield from (f"    {line}" for line in lines)


def _noted(marks: _Marks, regs: str, number: Numbered) -> Iterator[str]:
    for k in sorted(marks.first):
        lane = marks.lanes["first", k]
        yield f"if {regs}[{lane}] < 0:" if k == 0 else f"if {regs}[{marks.counted}] == {number(k)}:"
        yield f"    {regs}[{lane}] = p"
    if marks.counted is not None:
        yield f"if {regs}[{marks.counted}] <= {number(max(marks.first))}:"
        yield f"    {regs}[{marks.counted}] += 1"
    for k in range(marks.last - 1, 0, -1):
        yield f"{regs}[{marks.lanes['last', k]}] = {regs}[{marks.lanes['last', k - 1]}]"
    if marks.last:
        yield f"{regs}[{marks.lanes['last', 0]}] = p"


def _settled(accumulator: Accumulator, at: Place) -> Iterator[str]:
    """Source that leaves one of several forms of the same knowledge: threads that know the same are one."""
    state = accumulator.state
    if accumulator.fn == "sum" or accumulator.fn in HALVES:
        yield f"{at['count']} = 1"
    if isinstance(state, Sums):
        for name in state.exact_sums:
            high, low = at.float(name), at.float(f"{name}_low")
            yield f"if {high} - {high} == 0.0:"
            yield f"    {high}, {low} = ordered({high}, {low})"
        if any(lane.name == "sum_low" and not lane.is_float for lane in state.lanes):
            yield f"{at['sum']} += {at['sum_low']} >> 32"
            yield f"{at['sum_low']} &= LOW_HALF"


def shifted(shift: int, search: Search) -> Iterator[str]:
    """Source that goes some rows of the partition on or back from q."""
    if shift:
        link = "next_" if shift > 0 else "prev"
        if abs(shift) > 1:
            link = f"far[{2 * far_shifts(search).index(abs(shift)) + (shift > 0)}]"
        yield "if q >= 0:"
        yield f"    q = {link}[q]"

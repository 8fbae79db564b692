"""What is remembered of the rows taken so far, in numbered lanes, and the source that keeps it up to date.

The lanes are those of an array `{regs}` and its view as floats, `f{regs}`. Some mark rows, by positions in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from millstream.kernels.patterns.machine import far_shifts
from millstream.plan.expr import Column
from millstream.plan.patterns import CLASSIFIER, MATCH_NUMBER, Reach, Search, Summary
from millstream.types import DOUBLE, SqlType

Group = tuple[str, ...] | None
"""Some variables; None: all."""

Within = Callable[[Group], str]
"""Source of whether the row at hand is labelled with one of some variables."""

Numbered = Callable[[int], str]
"""Source of a number that is an argument of the loop."""

_SPREADS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")
_INCREMENTAL = frozenset(("count", "sum", "avg", "min", "max", *_SPREADS))

MARKED_BACK = 8
"""How many of the last rows of a group are marked; what is further back is found by the labels of rows."""


def is_incremental(summary: Summary) -> bool:
    """Whether an aggregate can be kept in lanes as rows are taken."""
    if summary.program is not None or summary.distinct or summary.fn not in _INCREMENTAL or len(summary.args) > 1:
        return False
    if not summary.args:
        return summary.fn == "count"
    arg = summary.args[0]
    if not isinstance(arg, Column) or arg.name in (CLASSIFIER, MATCH_NUMBER):
        return False
    if summary.fn == "count":
        return True
    # Codes are in no order, and decimals are summed up to 37 digits.
    return not arg.type.is_coded and arg.type.name not in ("NULL", "DECIMAL")


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


class Registers:
    """The lanes for some reaches and summaries; lanes before `width` that have no name belong to others."""

    def __init__(self, search: Search, names: Iterable[str], width: int = 0) -> None:
        self._search = search
        self._marks: dict[Group, _Marks] = {}
        self.summaries: list[Summary] = []
        self.starts: dict[str, int] = {}
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
            if isinstance(value, Summary):
                self.summaries.append(value)
                self.starts[value.name] = width
                count = len(_lanes(value))
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
            lines = [*_added(summary, self.starts[summary.name], regs, column)]
            yield from guarded(within(summary.variables), lines)

    def mark(self, reach: Reach, regs: Callable[[int], str]) -> str:
        """Source of the position of the row that a reach goes by."""
        return regs(self._marks[reach.variables].lanes["first" if reach.first else "last", reach.offset])

    def summed(self, summary: Summary, regs: Callable[[int], str], fregs: Callable[[int], str]) -> tuple[str, str]:
        """Source of a summary, and of whether it is NULL."""
        at = self.starts[summary.name]
        count = regs(at)
        is_float = bool(summary.args) and summary.args[0].type == DOUBLE
        match summary.fn:
            case "count":
                return count, "False"
            case "sum":
                return (fregs if is_float else regs)(at + 1), f"({count} == 0)"
            case "avg":
                total = fregs(at + 1) if is_float else f"({regs(at + 1)} * 4294967296.0 + {regs(at + 2)})"
                return f"({total} / {count})", f"({count} == 0)"
            case "min" | "max":
                value = (fregs if is_float else regs)(at + 1)
                return f"({value} != 0)" if summary.type.name == "BOOLEAN" else value, f"({count} == 0)"
        lost = 1 if summary.fn.endswith("samp") else 0
        value = f"({fregs(at + 2)} / ({count} - {lost}))"
        return f"np.sqrt({value})" if summary.fn.startswith("stddev") else value, f"({count} <= {lost})"


def _lanes(summary: Summary) -> str:
    """The kinds of an aggregate's lanes: the count or whether there is a value, and what else it needs, integers or
    floats."""
    kind = "f" if summary.args and summary.args[0].type == DOUBLE else "i"
    if summary.fn in _SPREADS:
        return "iff"
    return {"count": "i", "avg": "if" if kind == "f" else "iii"}.get(summary.fn, "i" + kind)


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


def _added(summary: Summary, at: int, regs: str, column: Callable[[str], int]) -> Iterator[str]:
    if not summary.args:
        yield f"{regs}[{at}] += 1"
        return
    arg = summary.args[0]
    assert isinstance(arg, Column)
    place = column(arg.name)
    yield f"if cols[{place + 1}][p]:"
    for line in _counted(summary, at, f"cols[{place}][p]", arg.type, regs):
        yield f"    {line}"


def _counted(summary: Summary, at: int, x: str, type_: SqlType, regs: str) -> Iterator[str]:
    own = f"f{regs}" if type_ == DOUBLE else regs
    value = f"{own}[{at + 1}]"
    match summary.fn:
        case "sum":
            yield f"{value} = {f'{value} + {x}' if type_ == DOUBLE else f'k_add({value}, {x})'}"
        case "avg" if type_ == DOUBLE:
            yield f"{value} += {x}"
        case "avg":
            # In two halves, since the sum of a few large numbers leaves 64 bits.
            yield f"{value} += {x} >> 32"
            yield f"{regs}[{at + 2}] += {x} & 4294967295"
        case "min" | "max":
            pair = (x, value) if summary.fn == "min" else (value, x)
            less = f"k_less({pair[0]}, {pair[1]})" if type_ == DOUBLE else f"{pair[0]} < {pair[1]}"
            yield f"if {regs}[{at}] == 0 or {less}:"
            yield f"    {value} = {x}"
    if summary.fn in _SPREADS:
        yield f"away = {x} - f{regs}[{at + 1}]"
        yield f"f{regs}[{at + 1}] += away / ({regs}[{at}] + 1)"
        yield f"f{regs}[{at + 2}] += away * ({x} - f{regs}[{at + 1}])"
    # Threads that know the same are one: how many values there were must not keep them apart where it is never asked.
    yield f"{regs}[{at}] = 1" if summary.fn in ("sum", "min", "max") else f"{regs}[{at}] += 1"


def helpers_of(registers: Registers) -> set[str]:
    """The helpers that the source of registers calls."""
    names = set()
    for summary in registers.summaries:
        is_float = bool(summary.args) and summary.args[0].type == DOUBLE
        if summary.fn == "sum" and not is_float:
            names.add("k_add")
        if summary.fn in ("min", "max") and is_float:
            names.add("k_less")
    return names


def shifted(shift: int, search: Search) -> Iterator[str]:
    """Source that goes some rows of the partition on or back from q."""
    if shift:
        link = "next_" if shift > 0 else "prev"
        if abs(shift) > 1:
            link = f"far[{2 * far_shifts(search).index(abs(shift)) + (shift > 0)}]"
        yield "if q >= 0:"
        yield f"    q = {link}[q]"

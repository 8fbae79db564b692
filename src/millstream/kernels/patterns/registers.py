"""What is remembered of the rows taken so far, in numbered lanes, and the source that keeps it up to date.

Marks of rows are positions in the log for threads, and numbers of rows within the match where values are told. Either
way the lanes are those of an array `{regs}` and its view as floats, `f{regs}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from millstream.plan.expr import Column
from millstream.plan.patterns import CLASSIFIER, MATCH_NUMBER, Reach, Search, Summary
from millstream.types import DOUBLE, SqlType

Group = tuple[str, ...] | None
"""Some variables; None: all."""

Within = Callable[[Group], str]
"""Source of whether the row at hand is labelled with one of some variables."""

_SPREADS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")
_INCREMENTAL = frozenset(("count", "sum", "avg", "min", "max", "first_value", "last_value", *_SPREADS))


def is_incremental(summary: Summary) -> bool:
    """Whether an aggregate can be kept in lanes as rows are taken."""
    if summary.program is not None or summary.distinct or summary.fn not in _INCREMENTAL or len(summary.args) > 1:
        return False
    if not summary.args:
        return summary.fn == "count"
    arg = summary.args[0]
    if not isinstance(arg, Column) or arg.name in (CLASSIFIER, MATCH_NUMBER):
        return False
    if summary.fn in ("count", "first_value", "last_value"):
        return True
    # Codes are in no order, and decimals are summed up to 37 digits.
    return not arg.type.is_coded and arg.type.name not in ("NULL", "DECIMAL")


@dataclass
class _Places:
    """How many first and last rows of a group are marked, and their lanes."""

    first: int = 0
    last: int = 0
    lanes: dict[tuple[str, int], int] = field(default_factory=dict)


class Registers:
    """The lanes for some reaches and summaries; lanes before `width` that have no name belong to others."""

    def __init__(self, search: Search, names: Iterable[str], width: int = 0) -> None:
        self._search = search
        self._places: dict[Group, _Places] = {}
        self.summaries: list[Summary] = []
        self.starts: dict[str, int] = {}
        self.marks: list[int] = []
        """the lanes that hold marks; -1 there is none"""
        self.owned: dict[str, tuple[int, ...]] = {}
        """the lanes that each value is computed from"""
        wanted = [search.named[name] for name in dict.fromkeys(names) if name in search.named]
        for value in wanted:
            self._plan(value)
        for group, places in self._places.items():
            for side, count in (("first", places.first), ("last", places.last)):
                for k in range(count):
                    places.lanes[side, k] = width
                    self.marks.append(width)
                    width += 1
            self._places[group] = places
        for value in wanted:
            if isinstance(value, Summary) and value.fn not in ("first_value", "last_value"):
                self.summaries.append(value)
                self.starts[value.name] = width
                count = len(_lanes(value))
                self.owned[value.name] = tuple(range(width, width + count))
                width += count
            else:
                self.owned[value.name] = tuple(self._places[value.variables].lanes.values())
        self.width = width

    def _plan(self, value: Reach | Summary) -> None:
        if isinstance(value, Summary) and value.fn not in ("first_value", "last_value"):
            return
        places = self._places.setdefault(value.variables, _Places())
        first, offset = _edge(value)
        if first:
            places.first = max(places.first, offset + 1)
        else:
            places.last = max(places.last, offset + 1)

    def update(self, within: Within, mark: str, row: str, regs: str, column: Callable[[str], int]) -> Iterator[str]:
        """Source that takes in a row: `mark` is its mark, `row` its position in the log, `column` tells where the
        arrays of a column are."""
        for group, places in self._places.items():
            lines = [*_noted(places, mark, regs)]
            yield from _guarded(within(group), lines)
        for summary in self.summaries:
            at = self.starts[summary.name]
            lines = [*_added(summary, at, row, regs, column)]
            yield from _guarded(within(summary.variables), lines)

    def mark(self, value: Reach | Summary, regs: Callable[[int], str]) -> str:
        """Source of the mark of the row that a reach goes by."""
        first, offset = _edge(value)
        return regs(self._places[value.variables].lanes["first" if first else "last", offset])

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


def _edge(value: Reach | Summary) -> tuple[bool, int]:
    """Whether a value is of a first row, and how many further on or back."""
    if isinstance(value, Reach):
        return value.first, value.offset
    return value.fn == "first_value", 0


def _lanes(summary: Summary) -> str:
    """The kinds of an aggregate's lanes: the count or whether there is a value, and what else it needs, integers or
    floats."""
    kind = "f" if summary.args and summary.args[0].type == DOUBLE else "i"
    if summary.fn in _SPREADS:
        return "iff"
    return {"count": "i", "avg": "if" if kind == "f" else "iii"}.get(summary.fn, "i" + kind)


def _guarded(condition: str, lines: list[str]) -> Iterator[str]:
    if condition == "False" or not lines:
        return
    if condition == "True":
        yield from lines
        return
    yield f"if {condition}:"
    yield from (f"    {line}" for line in lines)


def _noted(places: _Places, mark: str, regs: str) -> Iterator[str]:
    for k in range(places.first):
        yield f"{'if' if k == 0 else 'elif'} {regs}[{places.lanes['first', k]}] < 0:"
        yield f"    {regs}[{places.lanes['first', k]}] = {mark}"
    for k in range(places.last - 1, 0, -1):
        yield f"{regs}[{places.lanes['last', k]}] = {regs}[{places.lanes['last', k - 1]}]"
    if places.last:
        yield f"{regs}[{places.lanes['last', 0]}] = {mark}"


def _added(summary: Summary, at: int, row: str, regs: str, column: Callable[[str], int]) -> Iterator[str]:
    if not summary.args:
        yield f"{regs}[{at}] += 1"
        return
    arg = summary.args[0]
    assert isinstance(arg, Column)
    place = column(arg.name)
    yield f"if cols[{place + 1}][{row}]:"
    for line in _counted(summary, at, f"cols[{place}][{row}]", arg.type, regs):
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


def shifted(shift: int) -> Iterator[str]:
    """Source that goes some rows of the partition on or back from q."""
    array = "next_" if shift > 0 else "prev"
    if abs(shift) <= 2:
        for _ in range(abs(shift)):
            yield "if q >= 0:"
            yield f"    q = {array}[q]"
        return
    yield f"for _ in range({abs(shift)}):"
    yield "    if q >= 0:"
    yield f"        q = {array}[q]"

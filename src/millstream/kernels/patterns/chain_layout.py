"""What the machine for chains remembers of each partition: values of rows that matter later, in lanes of a record.

Of the rows that an element takes, only what conditions and output read is kept: the value of a column at the
first or last of them, and running aggregates. A lane is 64 bits; whether a value is there and not NULL is a bit of the
lane `flags`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.kernels.accumulators import Accumulator, Argument
from millstream.kernels.patterns.machine import lead
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.chains import Chain, Element
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Reach, Search
from millstream.records import dataclass
from millstream.types import DOUBLE, SqlType

FLAGS_AT_MOST = 60
"""How many flags a record has room for."""
LANES_BACK = 8
"""How many values of rows one after the other are kept in lanes; what is further back is looked up in the log."""


@dataclass(frozen=True)
class Cell:
    """The value of a column some rows before the row at hand."""

    column: str
    back: int = 0


@dataclass(frozen=True)
class KeptCell:
    """A cell, as it was at the first or last row of some elements, `depth` of those further on or back."""

    elements: tuple[int, ...]
    first: bool
    depth: int
    cell: Cell


@dataclass(frozen=True)
class Tally:
    """An aggregate over the rows that some elements took."""

    elements: tuple[int, ...]
    columns: tuple[str, ...]
    accumulator: Accumulator


def is_counted(element: Element) -> bool:
    """Whether it matters how many rows an element has, beyond whether it has any."""
    return element.most is not None and element.most > 1


class ChainLayout:
    """Everything that a search for a chain of elements has to remember, and the lane of each.

    With `logged`, rows since the start of the attempt under way lie in the log, and so do the rows before it.
    """

    def __init__(self, search: Search, chain: Chain, logged: bool, runs: frozenset[int], resumes: bool) -> None:
        self.search, self.elements, self.logged = search, chain.elements, logged
        self._runs, self._resumes = runs, resumes

    @cached_property
    def types(self) -> dict[str, SqlType]:
        """The types of the input's columns that matter."""
        types = {reach.column: reach.type for reach in self.search.reaches}
        for summary in self.search.summaries:
            types |= {arg.name: arg.type for arg in summary.args if isinstance(arg, Column)}
        return types

    # -- what is read where ----------------------------------------------------------------------------------------

    def group(self, variables: tuple[str, ...] | None) -> tuple[int, ...]:
        """The elements that give rows one of some labels."""
        return tuple(i for i, one in enumerate(self.elements) if variables is None or one.variable in variables)

    def rows_before(self, element: int, group: tuple[int, ...] | None = None) -> int:
        """How many rows the elements before one have at least taken, or those of them that are in a group."""
        return sum(one.least for i, one in enumerate(self.elements[:element]) if group is None or i in group)

    def kept_for(self, reach: Reach, at: int | None) -> tuple[KeptCell, ...]:
        """What must be kept so that a reach can be read where an element is tested, or at no row (None); the
        last of it is what is read."""
        group = self.group(reach.variables)
        cell = Cell(reach.column, -reach.shift)
        if not group:
            return ()
        if reach.first:
            if at in group and self.is_fresh(group, at) and self.elements[at].most == 1:
                return ()
            return (KeptCell(group, True, reach.offset, cell),)
        deepest = reach.offset - (at in group)
        return tuple(KeptCell(group, False, depth, cell) for depth in range(deepest + 1))

    def is_fresh(self, group: tuple[int, ...], element: int) -> bool:
        """Whether no element before this one can have given a row to a group."""
        return not any(i in group for i in range(element))

    @cached_property
    def sites(self) -> tuple[tuple[str, int | None], ...]:
        """The names that are read, and at the test of which element (None: at none)."""
        read: list[tuple[str, int | None]] = []
        for i, element in enumerate(self.elements):
            if element.condition is not None:
                read += [(name, i) for name in sorted(columns_of(element.condition))]
            if element.check is not None:
                read += [(name, None) for name in sorted(columns_of(element.check))]
        read += [(name, None) for name in self.search.columns]
        return tuple(dict.fromkeys(read))

    @cached_property
    def kept(self) -> tuple[KeptCell, ...]:
        """What is kept of rows that elements took."""
        found: list[KeptCell] = []
        for name, at in self.sites:
            named = self.search.named.get(name)
            if isinstance(named, Reach):
                found += self.kept_for(named, at)
        return tuple(dict.fromkeys(found))

    @cached_property
    def tallies(self) -> tuple[Tally, ...]:
        named = (self.search.named.get(name) for name, _ in self.sites)
        return tuple(dict.fromkeys(self.tally(summary) for summary in named if isinstance(summary, AggregateCall)))

    def tally(self, summary: AggregateCall[Expr]) -> Tally:
        columns = [arg for arg in summary.args if isinstance(arg, Column)]
        arguments = (Argument("tallied" if arg.type == DOUBLE else "counted", arg.type) for arg in columns)
        accumulator = Accumulator(summary.fn, tuple(arguments), summary.type)
        return Tally(self.group(summary.variables), tuple(arg.name for arg in columns), accumulator)

    @cached_property
    def counted_groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of elements whose rows must be counted to know which is the first, or the one at an offset."""
        groups = [k.elements for k in self.kept if k.first and (k.depth > 0 or self._is_unsure(k.elements))]
        return tuple(dict.fromkeys(groups))

    def _is_unsure(self, group: tuple[int, ...]) -> bool:
        """Whether some element of a group may be the first to have a row or not."""
        return any(not self.is_fresh(group, i) and not self.rows_before(i, group) for i in group)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """What is read of the row at hand and of those before it."""
        found: list[Cell] = []
        for name, at in self.sites:
            named = self.search.named.get(name)
            if isinstance(named, Reach) and at is not None and at in self.group(named.variables):
                found.append(Cell(named.column, -named.shift))
        found += [kept.cell for kept in self.kept]
        found += [Cell(column) for tally in self.tallies for column in tally.columns]
        return tuple(dict.fromkeys(found))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of rows that are read."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells if cell.column != CLASSIFIER))

    @cached_property
    def ring(self) -> tuple[Cell, ...]:
        """The cells of earlier rows that the record keeps, nearest first."""
        if self.logged:
            return ()
        furthest = {column: max(c.back for c in self.cells if c.column == column) for column in self.columns}
        return tuple(Cell(column, back) for column in self.columns for back in range(1, furthest[column] + 1))

    @cached_property
    def backs(self) -> tuple[int, ...]:
        """How many rows before one others are that may be looked at."""
        return tuple(sorted({cell.back for cell in self.cells} - {0}))

    def place(self, back: int) -> str:
        """The name of the position of a row so many before the one at hand."""
        return f"p{self.backs.index(back) + 1}" if back else "p"

    @cached_property
    def lead(self) -> int:
        """How many rows before the first of a match may be looked at."""
        return lead(self.search)

    @property
    def is_numbered(self) -> bool:
        """Whether the numbers of matches are read."""
        return any(name == MATCH_NUMBER for name, _ in self.sites)

    @property
    def is_counting(self) -> bool:
        """Whether the rows of the element under way are counted."""
        return any(map(is_counted, self.elements))

    # -- lanes -----------------------------------------------------------------------------------------------------

    @cached_property
    def lanes(self) -> dict[str, int]:
        return {name: lane for lane, name in enumerate(self._lane_names())}

    def _lane_names(self) -> Iterator[str]:
        yield "state"
        if self.is_counting:
            yield "count"
        if self.is_numbered:
            yield "number"
        yield "last_seq"
        if self.search.within is not None:
            yield "deadline"
        yield from self.positions
        if self.flags:
            yield "flags"
        yield from (self.cell_lane(cell) for cell in self.ring)
        yield from (self.kept_lane(kept) for kept in self.kept)
        yield from (f"group{i}" for i in range(len(self.counted_groups)))
        yield from self.tally_lanes

    @cached_property
    def tally_lanes(self) -> dict[str, bool]:
        """The lanes of aggregates, and which hold floats."""
        return {
            f"tally{i}_{lane.name}": lane.is_float
            for i, tally in enumerate(self.tallies)
            for lane in tally.accumulator.state.lanes
        }

    @cached_property
    def width(self) -> int:
        """Lanes of a record: whole cache lines, so that threads with neighbouring records do not disturb each other."""
        return -(-len(self.lanes) // 8) * 8

    def cell_lane(self, cell: Cell) -> str:
        return f"c{self.columns.index(cell.column)}_{cell.back}"

    def kept_lane(self, kept: KeptCell) -> str:
        return f"kept{self.kept.index(kept)}"

    @cached_property
    def flags(self) -> dict[str, int]:
        """The bit of each lane that may be NULL."""
        names = [*map(self.cell_lane, self.ring), *map(self.kept_lane, self.kept)]
        return {name: bit for bit, name in enumerate(names)}

    @cached_property
    def ring_flags(self) -> int:
        """The flags that outlive an attempt."""
        return sum(1 << self.flags[self.cell_lane(cell)] for cell in self.ring)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The lanes that hold codes of text, if some are of text in rows: names of variables keep their codes."""
        of_rows = {self.cell_lane(cell): cell.column for cell in self.ring}
        of_rows |= {self.kept_lane(kept): kept.cell.column for kept in self.kept}
        coded = {lane: name for lane, name in of_rows.items() if name == CLASSIFIER or self.types[name].is_coded}
        return tuple(coded) if set(coded.values()) - {CLASSIFIER} else ()

    @cached_property
    def positions(self) -> tuple[str, ...]:
        """The lanes that hold positions in the log: where runs begin, and where the search goes on after the match."""
        return (*(f"begin{run}" for run in sorted(self._runs)), *(("resume",) if self._resumes else ()))

    def is_float(self, column: str) -> bool:
        return column != CLASSIFIER and self.types[column] == DOUBLE

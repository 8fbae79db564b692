"""The values of a match as source text: where a chain's loop reads them, and how it keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.expressions.kernel.forms import choose, not_, or_, zero
from millstream.expressions.nodes import Expr, columns_of
from millstream.kernels.accumulators import Place, entered
from millstream.kernels.patterns.chain_layout import Cell, ChainLayout, KeptCell, Tally
from millstream.kernels.patterns.conditions import Constants
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Reach
from millstream.types import BIGINT, BOOLEAN, SqlType

Pair = tuple[str, str]
"""The text of a value, and of whether it is NULL."""


class ChainValues:
    """Writes what reads and keeps values. Without `nulls`, no column is ever NULL, and flags that nothing asks for
    (`asked`) are not kept."""

    def __init__(self, layout: ChainLayout, nulls: bool, asked: frozenset[str]) -> None:
        self.layout, self.nulls, self._kept_flags = layout, nulls, asked
        self.asked: set[str] = set()
        self.helpers: set[str] = set()
        self.constants = Constants()

    # -- lanes -----------------------------------------------------------------------------------------------------

    def lane(self, name: str) -> str:
        """The text of a lane of the partition's record."""
        return f"{'floats' if self._is_float(name) else 'record'}[s + {name.upper()}]"

    def _is_float(self, name: str) -> bool:
        layout = self.layout
        if name.startswith("kept"):
            return layout.is_float(layout.kept[int(name[4:])].cell.column)
        if name.startswith("tally"):
            return layout.tally_lanes[name]
        if name.startswith("c") and name != "count":
            return layout.is_float(layout.columns[int(name[1:].partition("_")[0])])
        return False

    def keeps_flag(self, name: str) -> bool:
        return name in self.layout.flags and (self.nulls or name in self._kept_flags)

    def _flagged(self, name: str, certain: bool) -> str:
        """The text of whether a lane is NULL; `certain` tells that there was a row to take it from."""
        if certain and not self.nulls:
            return "False"
        self.asked.add(name)
        return f"((flags >> {self.layout.flags[name]}) & 1 == 0)"

    def _loaded(self, name: str, type_: SqlType) -> str:
        text = self.lane(name)
        return f"({text} != 0)" if type_.name == "BOOLEAN" else text

    # -- rows ------------------------------------------------------------------------------------------------------

    def cell(self, cell: Cell, element: int) -> Pair:
        """A value of the row that an element is tried on, or of one before it."""
        if cell.column == CLASSIFIER:
            return f"labels[{self.layout.search.variables.index(self.layout.elements[element].variable)}]", "False"
        column, back = self.layout.columns.index(cell.column), cell.back
        exists = self.layout.rows_before(element) >= back
        if back and not self.layout.logged:
            name = self.layout.cell_lane(cell)
            return self._loaded(name, self.layout.types[cell.column]), self._flagged(name, exists)
        at = self.layout.place(back)
        absent = "False" if exists else f"({at} < 0)"
        return f"col{column}[{at}]", or_(absent, f"(not ok{column}[{at}])" if self.nulls else "False")

    def reach(self, reach: Reach, element: int, some: bool) -> Pair:
        """A reach where an element is tried on a row; `some` tells that the element has a row already."""
        layout, group = self.layout, self.layout.group(reach.variables)
        kept = layout.kept_for(reach, element)
        if element not in group:
            return self.reach_after(reach, element)
        here = self.cell(Cell(reach.column, -reach.shift), element)
        if not kept:
            return here if reach.offset == 0 else (zero(_plain(reach.type)), "True")
        before = layout.rows_before(element, group) + some
        stored = self._stored(kept[-1], reach.type, before)
        if not reach.first:
            return stored
        if before > reach.offset:
            return stored
        if reach.offset == 0 and not some and layout.is_fresh(group, element):
            return here
        count = self._group_count(group)
        at_hand = f"({count} == {self._offset(reach.offset)})"
        return choose(at_hand, here[0], stored[0]), choose(at_hand, here[1], stored[1])

    def reach_after(self, reach: Reach, elements: int) -> Pair:
        """A reach when so many elements are complete, and no row is at hand."""
        kept = self.layout.kept_for(reach, None)
        if not kept or not any(element < elements for element in kept[-1].elements):
            return zero(_plain(reach.type)), "True"
        return self._stored(kept[-1], reach.type, self.layout.rows_before(elements, kept[-1].elements))

    def _stored(self, kept: KeptCell, type_: SqlType, rows: int) -> Pair:
        """What was kept, when at least so many rows of its elements have been taken."""
        name = self.layout.kept_lane(kept)
        exists = all(self.layout.rows_before(element) >= kept.cell.back for element in kept.elements)
        return self._loaded(name, type_), self._flagged(name, rows > kept.depth and exists)

    def _group_count(self, group: tuple[int, ...]) -> str:
        return self.lane(f"group{self.layout.counted_groups.index(group)}")

    def _offset(self, rows: int) -> str:
        return f"v_i{self.constants.number(('offset', rows), rows)}" if rows else "0"

    # -- expressions -----------------------------------------------------------------------------------------------

    def named(self, name: str, element: int, some: bool, at_row: bool) -> Pair:
        """A value by name: where an element is tried on a row, or, at no row, when all before it are complete."""
        if name == MATCH_NUMBER:
            return f"({self.lane('number')} + 1)", "False"
        if name == TIMED_OUT:
            return "False", "False"
        found = self.layout.search.named[name]
        if isinstance(found, AggregateCall):
            return self._sum(self.layout.tally(found))
        return self.reach(found, element, some) if at_row else self.reach_after(found, element)

    def condition(self, expr: Expr, element: int, some: bool, at_row: bool) -> tuple[list[str], str]:
        """Lines to be run first, and the text of whether a condition holds."""
        lines: list[str] = []
        if at_row:
            for tally in self._tallies_of(columns_of(expr), element):
                lines += self.tallied(tally, element)
        lines += self.summed(columns_of(expr), element if at_row else None)
        names = {}
        for i, name in enumerate(sorted(columns_of(expr))):
            value, null = self.named(name, element, some, at_row)
            # A variable of compiled source has one type throughout.
            names[name] = f"{self.layout.search.values[name].kernel}_{i}"
            lines += [f"v_{names[name]} = {value}", f"n_{names[name]} = {null}"]
        try:
            source = self.constants.compiled((element, at_row), expr, names)
        except NotCompilable as reason:
            raise NotCompilable(f"{self.layout.search.spelled(expr)}: {reason}") from None
        self.helpers |= source.helpers
        return lines, source.holds

    # -- keeping ---------------------------------------------------------------------------------------------------

    def begin(self) -> Iterator[str]:
        """A new attempt: nothing has been kept yet."""
        layout = self.layout
        if any(self.keeps_flag(layout.kept_lane(kept)) for kept in layout.kept):
            yield f"flags &= {layout.ring_flags}" if layout.ring_flags else "flags = 0"
        yield from (f"{self.lane(f'group{i}')} = 0" for i in range(len(layout.counted_groups)))
        for tally in layout.tallies:
            yield from tally.accumulator.state.begin(self._places(tally)[0])

    def take(self, element: int, some: bool, condition: Expr | None) -> Iterator[str]:
        """A element takes the row at hand; what its condition summed up is there already."""
        layout = self.layout
        done = [] if condition is None else self._tallies_of(columns_of(condition), element)
        for tally in layout.tallies:
            lanes, here = self._places(tally)
            if tally in done:
                yield from (f"{lanes[lane.name]} = {here[lane.name]}" for lane in tally.accumulator.state.lanes)
            elif element in tally.elements:
                yield from self._entered(tally, element, lanes)
        for kept in sorted(layout.kept, key=lambda kept: -kept.depth):
            if element in kept.elements:
                yield from self._keep(kept, element, some)
        for group in layout.counted_groups:
            if element in group:
                yield f"{self._group_count(group)} += 1"

    def _keep(self, kept: KeptCell, element: int, some: bool) -> Iterator[str]:
        layout, name = self.layout, self.layout.kept_lane(kept)
        if not kept.first:
            if kept.depth:
                before = layout.kept_lane(KeptCell(kept.elements, False, kept.depth - 1, kept.cell))
                yield f"{self.lane(name)} = {self.lane(before)}"
                if self.keeps_flag(name):
                    self.asked.add(before)
                    yield from self._set_flag(name, f"((flags >> {layout.flags[before]}) & 1)")
            else:
                yield from self._store(kept, name, element)
            return
        sure = layout.rows_before(element, kept.elements) + some
        if sure > kept.depth:
            return
        if kept.depth == 0 and not some and layout.is_fresh(kept.elements, element):
            yield from self._store(kept, name, element)
        else:
            yield f"if {self._group_count(kept.elements)} == {self._offset(kept.depth)}:"
            yield from (f"    {line}" for line in self._store(kept, name, element))

    def _store(self, kept: KeptCell, name: str, element: int) -> Iterator[str]:
        value, null = self.cell(kept.cell, element)
        yield f"{self.lane(name)} = {value}"
        if self.keeps_flag(name):
            yield from self._set_flag(name, "1" if null == "False" else f"int({not_(null)})")

    def _set_flag(self, name: str, bit: str) -> Iterator[str]:
        place = self.layout.flags[name]
        if bit == "1":
            yield f"flags |= {1 << place}"
        else:
            yield f"flags = (flags & {~(1 << place)}) | ({bit} << {place})"

    def remember(self) -> Iterator[str]:
        """The row at hand becomes the one before the next."""
        layout = self.layout
        for cell in reversed(layout.ring):
            name = layout.cell_lane(cell)
            column = layout.columns.index(cell.column)
            if cell.back == 1:
                yield f"{self.lane(name)} = col{column}[p]"
                if self.keeps_flag(name):
                    yield from self._set_flag(name, f"int(ok{column}[p])" if self.nulls else "1")
            else:
                before = layout.cell_lane(Cell(cell.column, cell.back - 1))
                yield f"{self.lane(name)} = {self.lane(before)}"
                if self.keeps_flag(name):
                    self.asked.add(before)
                    yield from self._set_flag(name, f"((flags >> {layout.flags[before]}) & 1)")

    # -- aggregates ------------------------------------------------------------------------------------------------

    def _tallies_of(self, names: Iterable[str], element: int | None = None) -> list[Tally]:
        """The aggregates among some values, or those of them over rows of an element."""
        named = (self.layout.search.named.get(name) for name in sorted(names))
        found = dict.fromkeys(self.layout.tally(summary) for summary in named if isinstance(summary, AggregateCall))
        return [tally for tally in found if element is None or element in tally.elements]

    def _entered(self, tally: Tally, element: int, at: Place) -> Iterator[str]:
        """The row at hand enters an aggregate."""
        cells = (self.cell(Cell(column), element) for column in tally.columns)
        return entered(tally.accumulator.state, at, *((value, not_(null)) for value, null in cells))

    def tallied(self, tally: Tally, element: int) -> list[str]:
        """The aggregate with the row at hand, in variables."""
        lanes, here = self._places(tally)
        copied = [f"{here[lane.name]} = {lanes[lane.name]}" for lane in tally.accumulator.state.lanes]
        return [*copied, *self._entered(tally, element, here)]

    def _places(self, tally: Tally) -> tuple[Place, Place]:
        """Where an aggregate is kept, and the variables of one that the row at hand has entered."""
        i = self.layout.tallies.index(tally)
        return Place(lambda lane, _: self.lane(f"tally{i}_{lane}")), Place.local(f"t{i}_")

    def summed(self, names: Iterable[str], element: int | None) -> Iterator[str]:
        """What aggregates come to, in variables; `element` tells that a row at hand has been tallied."""
        for tally in self._tallies_of(names):
            lanes, here = self._places(tally)
            i = self.layout.tallies.index(tally)
            at = here if element in tally.elements else lanes
            yield from tally.accumulator.result(at, f"sum{i}", f"known{i}", "meta[TROUBLE] = OVERFLOW")

    def _sum(self, tally: Tally) -> Pair:
        i = self.layout.tallies.index(tally)
        value = f"(sum{i} != 0)" if tally.accumulator.type == BOOLEAN else f"sum{i}"
        return value, "False" if tally.accumulator.fn == "count" else f"(not known{i})"


def _plain(type_: SqlType) -> SqlType:
    return BIGINT if type_.is_coded else type_

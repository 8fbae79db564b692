"""Where the rows of a program's tables lie: registers for tables that hold one row, cells for the others."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import conjuncts
from millstream.kernels.programs.access import bound_of_column, equality, indexed_column
from millstream.kernels.programs.order import is_updated, ordered_column
from millstream.plan.programs.facts import holds_one_row
from millstream.plan.programs.modes import Mode, Sliding
from millstream.plan.programs.nodes import WINDOW, Delete, LocalTable, Program, window_name
from millstream.records import dataclass
from millstream.schema import Field, Schema

SEEN = 0
"""The lane of a group's record that counts its tuples."""


@dataclass(frozen=True)
class Registers:
    """A table that always holds exactly one row once a group has begun: its values lie in the group's record, those
    that are NULL as bits of the lane `nulls`."""

    table: LocalTable
    nulls: int

    def lane(self, column: int) -> int:
        return self.nulls + 1 + column


@dataclass(frozen=True)
class Cells:
    """A table of any number of rows: each row is a cell of `width` lanes in a pool that all groups share.

    A list: a group's cells are chained, the record holds the number (from 1; 0 is none) of the first and of the last,
    and how many there are. A ring: the group has a region of the pool for a power of two of cells; the record holds
    where it begins, its size, and the first and the end of the cells in use, which are counted on and on. A window that
    holds the tuples of shorter ones, too, has the first cell of each of these in the record; they are cells at the
    same places, but for where they begin.

    The cells of a list may also be known in the order of a column: a ring of their numbers, of which the record holds
    the like, and `mixed`: whether that order may be another than the one in which they were inserted.
    """

    table: LocalTable
    number: int
    start: int
    """the first of its lanes in the record"""
    lanes: dict[str, int]
    is_ring: bool = False
    index: int | None = None
    """the column by whose value cells are also found, through chains that begin in a hash table"""
    bound: int | None = None
    """the indexed values differ, are less than this and more than its negative: the number of the cell is the value
    plus this, and nothing is chained; where there is no cell, the value that lies there is another"""
    alone: bool = False
    """whether there is only one group, so that no other shares its pool"""
    order: int | None = None
    """the column in whose order the cells are also known, those that are NULL there apart"""
    shorter: int = 0
    """how many shorter windows share the cells of a ring"""
    place: int = 0
    """which of the windows over the same cells it is, the longest first"""

    @property
    def first(self) -> str:
        """The variable of the first cell of a ring."""
        return f"first{self.number}" + (f"_{self.place}" if self.place else "")

    @property
    def locals(self) -> tuple[str, ...]:
        """The variables that hold its lanes of the record while a group is worked on."""
        names: tuple[str, ...] = ("base", "mask", "first", "end") if self.is_ring else ("head", "tail", "count")
        if self.order is not None:
            names += ("base", "room", "first", "end", "mixed")
        begins = (f"first{self.number}_{place}" for place in range(1, self.shorter + 1))
        return (*(f"{name}{self.number}" for name in names), *begins)

    @property
    def ordered_lane(self) -> int:
        """The lane of the column in whose order the cells are known."""
        assert self.order is not None
        return self.lane(self.order)

    @property
    def is_chained(self) -> bool:
        """Whether cells are found through a hash table."""
        return "chained" in self.lanes

    @property
    def width(self) -> int:
        return len(self.lanes) + len(self.table.schema)

    def lane(self, column: int) -> int:
        return len(self.lanes) + column


class ProgramLayout:
    """The registers and cells of a program that runs in a mode."""

    def __init__(self, program: Program, mode: Mode, keyed: bool) -> None:
        self.program = program
        self.mode = mode
        self.keyed = keyed
        self.registers: list[Registers] = []
        self.cells: list[Cells] = []
        lane, alone = SEEN + 1, not keyed
        for table in program.tables:
            if holds_one_row(program, table.name):
                self.registers.append(Registers(table, lane))
                lane += 1 + len(table.schema)
            else:
                index = indexed_column(program, table)
                bound = None if not alone or index is None else bound_of_column(program, table, index)
                names = ["next", "nulls"]
                if index is not None and bound is None:
                    names += ["chained"] if alone else ["chained", "owner"]
                order = ordered_column(program, mode, table, index)
                if order is not None and is_updated(program, table, order):
                    names.append("moved")
                sorts = order is not None and self.deletes_from(table.name)
                if sorts or (index is not None and self._deletes_by(table, index)):
                    names.append("previous")
                number, lanes = len(self.cells), _numbered(names)
                cells = Cells(table, number, lane, lanes, index=index, bound=bound, alone=alone, order=order)
                self.cells.append(cells)
                lane += 1 + len(cells.locals)
        if isinstance(mode, Sliding):
            ring = not mode.active and not self.deletes_from(WINDOW)
            names = ["nulls"] if ring else ["next", "nulls"]
            names += ["time"] if mode.unit == "range" else [] if ring else ["id"]
            names += ["id", "owner", "after", "before"] if mode.active else []
            number, lanes, shorter = len(self.cells), _numbered(names), len(mode.shorter)
            assert ring or not shorter
            cells = Cells(self._window_table(), number, lane, lanes, is_ring=ring, alone=alone, shorter=shorter)
            self.cells.append(cells)
            lane += 4 + shorter
        self.width = lane

    def _deletes_by(self, table: LocalTable, column: int) -> bool:
        """Whether a DELETE finds rows by this column: a cell must then know the one before it."""
        name = table.schema.fields[column].name
        return any(
            (found := equality(s.range.alias, part)) is not None and found[0] == name
            for s in self.program.statements
            if isinstance(s, Delete) and s.range.table == table.name and s.where is not None
            for part in conjuncts(s.where)
        )

    def _window_table(self) -> LocalTable:
        if self.program.window is not None:
            return self.program.window
        fields = (Field(f"w{i}", field.type) for i, field in enumerate(self.program.parameters))
        return LocalTable(WINDOW, Schema(tuple(fields)))

    @property
    def window(self) -> Cells | None:
        return self.cells[-1] if isinstance(self.mode, Sliding) else None

    @property
    def windows(self) -> list[Cells]:
        """The window, and the shorter ones over the same cells."""
        longest = self.window
        if longest is None:
            return []
        schema = longest.table.schema
        shorter = ((place, LocalTable(window_name(place), schema)) for place in range(1, longest.shorter + 1))
        return [longest, *(replace(longest, table=table, place=place) for place, table in shorter)]

    def registers_of(self, table: str) -> Registers | None:
        return next((registers for registers in self.registers if registers.table.name == table), None)

    def cells_of(self, table: str) -> Cells:
        return next(cells for cells in (*self.cells, *self.windows) if cells.table.name == table)

    def deletes_from(self, table: str) -> bool:
        return any(isinstance(s, Delete) and s.range.table == table for s in self.program.statements)


def _numbered(names: list[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}

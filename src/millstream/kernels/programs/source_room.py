"""How much room a tuple may need in the arrays of generated source, which stops where that is not there."""

from __future__ import annotations

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.kernels.programs.engine import Mode, Sliding
from millstream.kernels.programs.layout import Cells, ProgramLayout
from millstream.kernels.programs.nullness import Place
from millstream.kernels.source.writer import Writer
from millstream.plan.programs.nodes import AggregateValue, Insert, Program, Rows, Statement


class Room:
    """Writes the tests."""

    layout: ProgramLayout
    program: Program
    mode: Mode
    write: Writer
    exact: bool
    """whether there is one row for each tuple, so that all that is returned has its place"""
    known: frozenset[Place]
    """the columns that are never NULL"""

    def stop_if_full(self, *states: tuple[Statement, ...]) -> None:
        """Stop before a tuple for which some array may be too small. How much a tuple may need is known: the number of
        statements, and for those that range over tables the number of rows there."""
        tests = []
        for cells in self.layout.cells:
            n = cells.number
            if cells.is_ring:
                full = f"end{n} - first{n} > mask{n}"
                room = f"used{n} + 2 * (mask{n} + 3) * {cells.width} > len(c{n})"
                tests.append(full if cells.alone else f"{full} and {room}")
                continue
            if cells.order is not None:
                rows = f"count{n} + {self._needed(cells.table.name, states)}"
                # The ring doubles until all of them find room.
                tests.append(f"{rows} > room{n} and order{n}[0] + 4 * ({rows} + 4) > len(order{n})")
            index = None if cells.bound is None else cells.index
            if index is not None and (cells.table.name, cells.table.schema.fields[index].name) in self.known:
                # All its rows have a cell each.
                continue
            tests.append(f"(used{n} + {self._needed(cells.table.name, states)} + 2) * {cells.width} > len(c{n})")
            if cells.is_chained:
                tests.append(f"used{n} > len(heads{n})")
        pools = list(tests)
        if not self.exact:
            tests.append(f"returned + {self._needed(None, states)} > len(origin)")
        if tests:
            with self.write.block(f"if {' or '.join(f'({test})' for test in tests)}:"):
                short = " or ".join(f"({test})" for test in pools) or "False"
                self.write(f"trouble[1] = int({short})", "stopped = r", "break")

    def _needed(self, table: str | None, states: tuple[tuple[Statement, ...], ...]) -> str:
        """The source of the most rows that these states insert into a table, or return, for one tuple."""
        terms = ["0"]
        for state in states:
            times = self._expiries if any(state is expire for expire in self.program.expiries) else "1"
            for statement in state:
                if isinstance(statement, Insert) and statement.table == table:
                    terms += [f"{times} * {self._most(source)}" for source in statement.sources]
        return " + ".join(terms)

    @property
    def _expiries(self) -> str:
        """The source of how often EXPIRE may run before it is looked again whether there is room."""
        mode, cells = self.mode, self.layout.window
        if not isinstance(mode, Sliding) or mode.active or mode.unit == "rows" or cells is None:
            return "1"
        inserts = [s for expire in self.program.expiries for s in expire if isinstance(s, Insert)]
        if any(self._lists(source) for s in inserts for source in s.sources):
            raise NotCompilable("EXPIRE inserts from a query, and may run many times for one tuple")
        return self._size(cells)

    def _size(self, cells: Cells) -> str:
        """The source of how many rows a table has, the tuple that comes included."""
        n = cells.number
        return f"(end{n} - {cells.first} + 1)" if cells.is_ring else f"(count{n} + 1)"

    def _lists(self, rows: Rows) -> list[str]:
        """The tables of more than one row that a query ranges over."""
        return [range_.table for range_ in rows.ranges if self.layout.registers_of(range_.table) is None]

    def _most(self, rows: Rows) -> str:
        """The source of the most rows that a query may have."""
        sole = rows.columns[0] if len(rows.columns) == 1 else None
        nested = sole.program if isinstance(sole, AggregateValue) else None
        if rows.is_aggregation and nested is None:
            return "1"
        counts = []
        lists = self._lists(rows)
        if len(lists) > 1 and any(self._fixed(table) is None for table in lists):
            # How many rows there may be could be told only by their product, which would take all memory.
            raise NotCompilable(f"a join of {' and '.join(dict.fromkeys(lists))}, which grow")
        if len(lists) > 1:
            return " * ".join(str(self._fixed(table)) for table in lists)
        for range_ in rows.ranges:
            if range_.table in lists:
                cells = self.layout.cells_of(range_.table)
                # Earlier statements for the same tuple may have added rows.
                counts.append(f"({self._size(cells)} + {self._added(cells)})")
        times = " * ".join(counts) or "1"
        if nested is None:
            return times
        each = sum(isinstance(s, Insert) and s.table is None for s in (*nested.initialize, *nested.iterate))
        last = sum(isinstance(s, Insert) and s.table is None for s in nested.terminate)
        return f"({times} * {each} + {last})"

    def _fixed(self, table: str) -> int | None:
        """How many rows a table has at most, if only INITIALIZE inserts some."""
        inserts = [s for s in self.program.statements if isinstance(s, Insert) and s.table == table]
        windows = [cells.table.name for cells in self.layout.windows]
        only_first = all(s in self.program.initialize and s not in self.program.iterate for s in inserts)
        if table in windows or not only_first or any(source.ranges for s in inserts for source in s.sources):
            return None
        return sum(len(s.sources) for s in inserts)

    def _added(self, cells: Cells) -> str:
        """The source of the most rows that the statements of a tuple add to a table, loosely."""
        mine = [s for s in self.program.statements if isinstance(s, Insert) and s.table == cells.table.name]
        listed = f"{sum(len(s.sources) for s in mine)} * {self._expiries}"
        if not any(self._lists(source) for s in mine for source in s.sources):
            return listed
        # Whatever is copied from table to table: each such statement at most doubles all rows that there are.
        inserts = [s for s in self.program.statements if isinstance(s, Insert) and s.table is not None]
        copied = [source for s in inserts for source in s.sources if self._lists(source)]
        if any(len(self._lists(source)) > 1 or _calls_program(source) for source in copied):
            raise NotCompilable("a table is filled from a join or from another aggregate, and read for the same tuple")
        values = f"{sum(len(s.sources) for s in inserts)} * {self._expiries}"
        together = " + ".join([*map(self._size, self.layout.cells), values])
        return f"{2 ** len(copied)} * ({together})"


def _calls_program(rows: Rows) -> bool:
    return any(isinstance(column, AggregateValue) and column.program is not None for column in rows.columns)

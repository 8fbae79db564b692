"""A program compiled to closures: its statements, run on the tables of one group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millstream.kernels.programs.evaluate import Frame
from millstream.kernels.programs.python import loaded_object, saved_object
from millstream.kernels.programs.rows_queries import CODE, PARAMETERS, TABLES, Queries, forget
from millstream.plan.programs import WINDOW, Delete, Insert, LocalTable, Program, Statement, Update
from millstream.plan.python import Instance, Method, PythonCode

Row = list[Any]
Tables = list[list[Row]]
"""The rows of each table of a group; those of the window end with their time and number."""

_TOUCHED, _UNTOUCHED = 0, 100

Work = Callable[[Frame, list[Row]], bool]
"""Runs a statement; what it returns is added to the list. Whether it touched a row."""


class Code:
    """The compiled form of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        windows = program.windows
        if not windows and program.expire:
            # Nobody reads it, but EXPIRE needs the values of the tuples that leave.
            windows = (LocalTable(WINDOW, program.parameters),)
        self.tables = [*program.tables, *windows]
        self.window = len(program.tables) if windows else None
        """the number of the window's table, behind which the shorter windows have theirs"""
        self._queries = Queries(program, self.tables, _runner)
        compiled = {id(part): self._list(part) for part in _states(program)}
        self._initialize, self._iterate, self._terminate, *self._expiries = (compiled[id(p)] for p in _states(program))
        self._nulls = (None,) * len(program.parameters)
        self._objects = dict(self._tables_of_objects())

    def fresh_tables(self) -> Tables:
        return [[] for _ in self.tables]

    def to_save(self, table: int, values: list[Any]) -> list[Any]:
        """The values of a column as they are saved: objects of Python classes as bytes."""
        code = self._objects.get(table)
        return values if code is None else [saved_object(code, value) for value in values]

    def from_saved(self, table: int, values: list[Any]) -> list[Any]:
        """The inverse of `to_save`."""
        code = self._objects.get(table)
        return values if code is None else [loaded_object(code, value) for value in values]

    def frame(self) -> Frame:
        """What the other methods work in; one serves any number of groups in turn."""
        return [None] * self._queries.size

    def initialize(self, frame: Frame, tables: Tables, values: Any, returned: list[Row]) -> None:
        self._run(self._initialize, frame, tables, values, returned)

    def iterate(self, frame: Frame, tables: Tables, values: Any, returned: list[Row]) -> None:
        self._run(self._iterate, frame, tables, values, returned)

    def expire(self, frame: Frame, tables: Tables, returned: list[Row], place: int = 0) -> None:
        """EXPIRE for the oldest tuple of a window, and its removal."""
        assert self.window is not None
        window = self.window + place
        oldest = tables[window][0]
        self._run(self._expiries[place], frame, tables, oldest, returned)
        rows = tables[window]
        if rows and rows[0] is oldest:
            del rows[0]

    def terminate(self, frame: Frame, tables: Tables, returned: list[Row]) -> None:
        """TERMINATE; there is no tuple then, so parameters are NULL."""
        self._run(self._terminate, frame, tables, self._nulls, returned)

    def _run(
        self, work: list[tuple[Work, list[int]]], frame: Frame, tables: Tables, values: Any, returned: list[Row]
    ) -> None:
        frame[PARAMETERS], frame[TABLES], frame[CODE] = values, tables, _TOUCHED
        for run, remembered in work:
            forget(frame, remembered)
            frame[CODE] = _TOUCHED if run(frame, returned) else _UNTOUCHED

    def _list(self, statements: tuple[Statement, ...]) -> list[tuple[Work, list[int]]]:
        work = []
        for statement in statements:
            self._queries.remembered = []
            run = self._statement(statement)
            work.append((run, self._queries.remembered))
        return work

    def _statement(self, statement: Statement) -> Work:
        match statement:
            case Insert():
                return self._insert(statement)
            case Update():
                return self._update(statement)
            case Delete():
                return self._delete(statement)

    def _insert(self, statement: Insert) -> Work:
        sources = [self._queries.rows(source) for source in statement.sources]
        table = None if statement.table is None else self._number(statement.table)

        def run(frame: Frame, returned: list[Row]) -> bool:
            rows = [row for source in sources for row in source(frame)]
            (returned if table is None else frame[TABLES][table]).extend(rows)
            return bool(rows)

        return run

    def _update(self, statement: Update) -> Work:
        if isinstance(method := statement.assignments[0][1], Method):
            return self._change_object(method, statement)
        place, table = self._queries.place(statement.range)
        scan = self._queries.scan((statement.range,), statement.where)
        schema = self.tables[table].schema
        sets = [(schema.index(name), self._queries.expression(expr)) for name, expr in statement.assignments]

        def run(frame: Frame, returned: list[Row]) -> bool:
            changes = []
            for _ in scan(frame):
                changes.append((frame[place], [(column, value(frame)) for column, value in sets]))
            for row, values in changes:
                for column, value in values:
                    row[column] = value
            return bool(changes)

        return run

    def _change_object(self, method: Method, statement: Update) -> Work:
        call = self._queries.call(method, statement.range)

        def run(frame: Frame, returned: list[Row]) -> bool:
            call(frame)
            return True

        return run

    def _tables_of_objects(self) -> Iterator[tuple[int, PythonCode]]:
        for statement in self.program.initialize:
            if isinstance(statement, Insert) and statement.table is not None:
                first = statement.sources[0].columns[0]
                if isinstance(first, Instance):
                    yield self._number(statement.table), first.code

    def _delete(self, statement: Delete) -> Work:
        place, table = self._queries.place(statement.range)
        scan = self._queries.scan((statement.range,), statement.where)

        def run(frame: Frame, returned: list[Row]) -> bool:
            gone = {id(frame[place]) for _ in scan(frame)}
            if statement.others:
                gone.discard(id(frame[PARAMETERS]))
            if gone:
                frame[TABLES][table] = [row for row in frame[TABLES][table] if id(row) not in gone]
            return bool(gone)

        return run

    def _number(self, table: str) -> int:
        return next(i for i, local in enumerate(self.tables) if local.name == table)


def _states(program: Program) -> tuple[tuple[Statement, ...], ...]:
    return program.initialize, program.iterate, program.terminate, *program.expiries


def _runner(program: Program) -> Callable[[list[tuple[Any, ...]]], list[Row]]:
    """A program as an aggregate over rows: from the list of its arguments to the rows it returned."""
    code = Code(program)

    def run(rows: list[tuple[Any, ...]]) -> list[Row]:
        returned: list[Row] = []
        if rows:
            frame, tables = code.frame(), code.fresh_tables()
            code.initialize(frame, tables, rows[0], returned)
            for row in rows[1:]:
                code.iterate(frame, tables, row, returned)
            code.terminate(frame, tables, returned)
        return returned

    return run

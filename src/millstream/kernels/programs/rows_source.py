"""A program as Python source over objects: its statements, run on the tables of one group.

Tables are lists of rows, rows are lists of values. A query that stands for a value is a function inside that of its
state, called where the value is needed; it sees the rows around it as variables. One that refers to none of these is
asked once per statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from millstream.errors import DataError
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Column, Expr, conjuncts, walk
from millstream.expressions.object_values import float_key
from millstream.expressions.objects import Objects
from millstream.expressions.python_calls import PythonCode
from millstream.kernels.programs.python import caller, loaded_object, new_object, saved_object
from millstream.kernels.programs.rows_queries import finished, is_in, once, only_value
from millstream.kernels.programs.rows_summaries import finisher
from millstream.kernels.source.objects import Module
from millstream.plan.programs.nodes import (
    OLDEST,
    SQLCODE,
    WINDOW,
    AggregateValue,
    Delete,
    Exists,
    InQuery,
    Insert,
    LocalTable,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Statement,
    Update,
    aliases_of,
    column_names,
    expressions_of,
    oldest_of,
    queries_of,
)
from millstream.plan.programs.python import Instance, Method

Row = list[Any]
Tables = list[list[Row]]
"""The rows of each table of a group; those of the window end with their time and number."""

State = Callable[[Tables, Any, list[Row]], None]
"""Runs a state on the tables of a group, with the values of a tuple; what it returns is added to the list."""

_STATE = 1
"""How deep the function of a state lies."""


MOST_DEEP = 50
"""How deep an aggregate may call itself."""

Runner = Callable[[list[tuple[Any, ...]]], list[Row]]


class Code:
    """A program that runs."""

    def __init__(self, program: Program, itself: Runner | None = None) -> None:
        self.program = program
        windows = program.windows
        if not windows and program.expire:
            # Nobody reads it, but EXPIRE needs the values of the tuples that leave.
            windows = (LocalTable(WINDOW, program.parameters),)
        self.tables = [*program.tables, *windows]
        self.window = len(program.tables) if windows else None
        """the number of the window's table, behind which the shorter windows have theirs"""
        module = Module()
        states = {"initialize": program.initialize, "iterate": program.iterate, "terminate": program.terminate}
        states |= {f"expire{place}": state for place, state in enumerate(program.expiries)}
        for name, statements in states.items():
            _Source(program, self.tables, module, itself).state(name, statements)
        made = module.run()
        self.initialize: State = made["initialize"]
        self.iterate: State = made["iterate"]
        self._terminate: State = made["terminate"]
        self._expiries: list[State] = [made[f"expire{place}"] for place in range(len(program.expiries))]
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

    def expire(self, tables: Tables, returned: list[Row], place: int = 0) -> None:
        """EXPIRE for the oldest tuple of a window, and its removal."""
        assert self.window is not None
        rows = tables[self.window + place]
        oldest = rows[0]
        self._expiries[place](tables, oldest, returned)
        if rows and rows[0] is oldest:
            del rows[0]

    def terminate(self, tables: Tables, returned: list[Row]) -> None:
        """TERMINATE; there is no tuple then, so parameters are NULL."""
        self._terminate(tables, self._nulls, returned)

    def _tables_of_objects(self) -> Iterator[tuple[int, PythonCode]]:
        for statement in self.program.initialize:
            if isinstance(statement, Insert) and statement.table is not None:
                first = statement.sources[0].columns[0]
                if isinstance(first, Instance):
                    yield next(i for i, local in enumerate(self.tables) if local.name == statement.table), first.code


class _Source:
    """Writes the function of a state."""

    def __init__(self, program: Program, tables: list[LocalTable], module: Module, itself: Runner | None) -> None:
        self._program, self._module, self._itself = program, module, itself
        self._tables = {table.name: (f"table{i}", table.schema) for i, table in enumerate(tables)}
        self._rows: dict[str, tuple[str, str]] = {}
        """the variable of each range's row, and its table"""
        self._summaries: list[list[tuple[AggregateValue, str]]] = []
        """the aggregates of each query that is being written, and their variables"""
        self._returned: dict[tuple[Expr, str], str] = {}
        self._keeps_code = False
        self.value = Objects(module, self._column, self._other)

    def write(self, *lines: str) -> None:
        self._module.write(*lines)

    def state(self, name: str, statements: tuple[Statement, ...]) -> None:
        def body() -> None:
            names = set(column_names(expr for statement in statements for expr in expressions_of(statement)))
            for i, (variable, _) in enumerate(self._tables.values()):
                self.write(f"{variable} = tables[{i}]")
            for i, name in enumerate(self._program.parameters.names):
                if f":{name}" in names:
                    self.write(f"a{i} = given[{i}]")
            self._keeps_code = SQLCODE in names
            self._touched("True")
            for statement in statements:
                match statement:
                    case Insert():
                        self._insert(statement)
                    case Update():
                        self._update(statement)
                    case Delete():
                        self._delete(statement)

        self._module.define(f"def {name}(tables, given, returned):", body)

    # -- statements ------------------------------------------------------------------------------------------------

    def _insert(self, statement: Insert) -> None:
        new = self._module.fresh("new")
        self.write(f"{new} = []")
        for source in statement.sources:
            self._each_row(source, lambda row: self.write(f"{new}.append({row})"))
        target = "returned" if statement.table is None else self._tables[statement.table][0]
        self.write(f"{target} += {new}")
        self._touched(new)

    def _update(self, statement: Update) -> None:
        if isinstance(method := statement.assignments[0][1], Method):
            self._first_row(statement.range)
            self.write(self._call(method))
            self._touched("True")
            return
        changes, schema = self._module.fresh("changes"), self._tables[statement.range.table][1]
        self.write(f"{changes} = []")
        with self._scan((statement.range,), statement.where):
            values = [self.value(expr) for _, expr in statement.assignments]
            self.write(f"{changes}.append(({', '.join([self._row(statement.range), *values])}))")
        names = [f"new{i}" for i in range(len(statement.assignments))]
        with self._module.write.block(f"for row, {', '.join(names)} in {changes}:"):
            for value, (name, _) in zip(names, statement.assignments, strict=True):
                self.write(f"row[{schema.index(name)}] = {value}")
        self._touched(changes)

    def _delete(self, statement: Delete) -> None:
        gone, table = self._module.fresh("gone"), self._tables[statement.range.table][0]
        self.write(f"{gone} = set()")
        with self._scan((statement.range,), statement.where):
            self.write(f"{gone}.add(id({self._row(statement.range)}))")
        if statement.others:
            self.write(f"{gone}.discard(id(given))")
        with self._module.write.block(f"if {gone}:"):
            self.write(f"{table}[:] = [row for row in {table} if id(row) not in {gone}]")
        self._touched(gone)

    def _touched(self, some: str) -> None:
        """What the statement after this one is told."""
        if self._keeps_code:
            self.write(f"code = 0 if {some} else 100")

    # -- queries ---------------------------------------------------------------------------------------------------

    def _scan(self, ranges: tuple[Range, ...], where: Expr | None) -> ExitStack:
        """A block that runs for each combination of rows that satisfies a condition, each part of which is tested as
        early as it can be."""
        levels: list[list[Expr]] = [[] for _ in range(len(ranges) + 1)]
        level = 0
        for part in conjuncts(where) if where is not None else ():
            used = aliases_of(part)
            own = max((i + 1 for i, range_ in enumerate(ranges) if range_.alias in used), default=0)
            # A part that can fail is tested only where the whole condition would be, and after the parts before it.
            level = max(level, len(ranges) if _can_fail(part) else own)
            levels[level].append(part)
        stack = ExitStack()
        for range_, parts in zip((None, *ranges), levels, strict=True):
            if range_ is not None:
                table = self._tables[range_.table][0]
                stack.enter_context(self._module.write.block(f"for {self._row(range_)} in {table}:"))
            if parts:
                stack.enter_context(self._module.write.block(f"if {' and '.join(map(self.value, parts))}:"))
        return stack

    def _row(self, range_: Range) -> str:
        """The variable of the row of a range."""
        if range_.alias not in self._rows:
            self._rows[range_.alias] = (self._module.fresh("row"), range_.table)
        return self._rows[range_.alias][0]

    def _first_row(self, range_: Range) -> None:
        self.write(f"{self._row(range_)} = {self._tables[range_.table][0]}[0]")

    def _each_row(self, query: Rows, sink: Callable[[str], None]) -> None:
        """What `sink` writes, for each row of a query."""
        row = self._module.fresh("row")
        if (method := _only_method(query)) is not None:
            self._first_row(query.ranges[0])
            with self._module.write.block(f"for {row} in {self._call(method)}:"):
                sink(row)
            return
        each = self._each_group if query.is_aggregation else self._each_plain
        if not query.order and not query.distinct and query.limit is None:
            each(query, lambda _, values: sink(values))
            return
        found, finish = self._module.fresh("found"), self._module.constant(finished(query))
        self.write(f"{found} = []")
        each(query, lambda keys, values: self.write(f"{found}.append(([{', '.join(keys)}], {values}))"))
        with self._module.write.block(f"for {row} in {finish}({found}):"):
            sink(row)

    def _each_plain(self, query: Rows, sink: Callable[[list[str], str], None]) -> None:
        with self._scan(query.ranges, query.where):
            sink([self.value(order.key) for order in query.order], self._listed(query.columns))

    def _listed(self, columns: tuple[Expr, ...]) -> str:
        return f"[{', '.join(map(self.value, columns))}]"

    def _each_group(self, query: Rows, sink: Callable[[list[str], str], None]) -> None:
        groups, members = self._module.fresh("groups"), self._module.fresh("members")
        own = "".join(f"{self._row(range_)}, " for range_ in query.ranges)
        self._summaries.append([])
        columns, keys = self._listed(query.columns), [self.value(order.key) for order in query.order]
        having = None if query.having is None else self.value(query.having)
        summaries = self._summaries.pop()
        self.write(f"{groups} = {{}}")
        empty = ", ".join("[]" for _ in summaries)
        with self._scan(query.ranges, query.where):
            key = "".join(f"{self._key(expr)}, " for expr in query.group)
            key_name = self._module.fresh("key")
            self.write(f"{key_name} = ({key})", f"{members} = {groups}.get({key_name})")
            with self._module.write.block(f"if {members} is None:"):
                self.write(f"{members} = {groups}[{key_name}] = (({own}), {empty})")
            for place, (summary, _) in enumerate(summaries, 1):
                self.write(f"{members}[{place}].append(({''.join(f'{self.value(arg)}, ' for arg in summary.args)}))")
        if not query.group:
            nulls = "".join(f"[None] * {len(self._tables[range_.table][1])}, " for range_ in query.ranges)
            with self._module.write.block(f"if not {groups}:"):
                self.write(f"{groups}[()] = (({nulls}), {empty})")
        names = ", ".join(name for _, name in summaries)
        with self._module.write.block(f"for ({own}), {names} in {groups}.values():"):
            for summary, name in summaries:
                finish = self._module.constant(finisher(summary, self._runner))
                self.write(f"{name} = {finish}({name})")
            with self._module.write.when("True" if having is None else having):
                only = query.columns[0] if len(query.columns) == 1 else None
                if isinstance(only, AggregateValue) and only.program is not None:
                    # Such a query has the rows that the program returned, whatever their number.
                    row = self._module.fresh("row")
                    with self._module.write.block(f"for {row} in {summaries[0][1]}:"):
                        sink(keys, row)
                else:
                    sink(keys, columns)

    def _runner(self, program: Program) -> Runner:
        """An aggregate that a statement calls."""
        if not program.is_itself:
            return _runner(program)
        assert self._itself is not None
        return self._itself

    def _key(self, expr: Expr) -> str:
        """An expression by which rows are grouped: equal where values are."""
        text = self.value(expr)
        return f"{self._module.constant(float_key)}({text})" if expr.type.name == "DOUBLE" else text

    # -- values ----------------------------------------------------------------------------------------------------

    def _column(self, column: Column) -> str:
        name = column.name
        if name.startswith(":"):
            return f"a{self._program.parameters.index(name[1:])}"
        if name == SQLCODE:
            return "code"
        alias, _, field = name.partition(".")
        if name.startswith(OLDEST) and alias not in self._rows:
            # the names of the longest window's begin with what all begin with
            window = next(w for w in reversed(self._program.windows) if name.startswith(oldest_of(w.name)))
            table, place = self._tables[window.name][0], window.schema.index(name.removeprefix(oldest_of(window.name)))
            return f"({table}[0][{place}] if {table} else None)"
        row, table = self._rows[alias]
        return f"{row}[{self._tables[table][1].index(field)}]"

    def _other(self, expr: Expr) -> str:
        match expr:
            case AggregateValue():
                name = self._module.fresh("value")
                self._summaries[-1].append((expr, name))
                return f"({name}[-1][0] if {name} else None)" if expr.program is not None else name
            case Method():
                return self._result(expr)
            case Instance():
                return f"{self._module.constant(new_object)}({self._module.constant(expr.code)})"
            case Exists():
                return self._asked(expr, lambda: self._exists(expr.query))
            case ScalarQuery():
                return self._asked(expr, lambda: self._only_value(expr))
            case InQuery():
                among = self._asked(ScalarQuery(expr.arg.type, expr.query), lambda: self._values(expr.query))
                is_float = expr.arg.type.name == "DOUBLE"
                return f"{self._module.constant(is_in)}({self.value(expr.arg)}, {among}, {is_float})"
        raise TypeError(f"{type(expr).__name__} is not an expression of a program")

    def _asked(self, expr: Expr, body: Callable[[], None]) -> str:
        """What a query gives, written as the body of a function."""
        name = self._module.fresh("query")
        if aliases_of(expr) & self._rows.keys():
            self._module.define(f"def {name}():", body)
            return f"{name}()"
        memory = self._module.fresh("memory")
        self._module.note(f"{memory} = []", _STATE)
        self._module.define(f"def {name}():", body, _STATE)
        return f"{self._module.constant(once)}({memory}, {name})"

    def _exists(self, query: Rows) -> None:
        if query.is_aggregation or query.limit == 0:
            self._each_row(query, lambda _: self.write("return True"))
        else:
            with self._scan(query.ranges, query.where):
                self.write("return True")
        self.write("return False")

    def _only_value(self, expr: ScalarQuery) -> None:
        found = self._module.fresh("found")
        self.write(f"{found} = []")
        self._each_row(expr.query, lambda row: self.write(f"{found}.append({row})"))
        self.write(f"return {self._module.constant(only_value(expr))}({found})")

    def _values(self, query: Rows) -> None:
        found = self._module.fresh("found")
        key = self._module.constant(float_key) if query.columns[0].type.name == "DOUBLE" else ""
        self.write(f"{found} = set()")
        self._each_row(query, lambda row: self.write(f"{found}.add({key}({row}[0]))"))
        self.write(f"return {found}")

    def _call(self, method: Method) -> str:
        """The rows that a method returns."""
        window = self._program.window
        call = self._module.constant(caller(method, None if window is None else window.schema))
        args = ", ".join(map(self.value, method.args))
        rows = None if window is None else self._tables[window.name][0]
        return f"{call}({self.value(method.target)}, [{args}], {rows})"

    def _result(self, method: Method) -> str:
        """A column of the row that a method returns; the first column calls it, and the others follow."""
        key = (method.target, method.state)
        if method.column:
            return f"{self._returned[key]}[{method.column}]"
        name = self._returned[key] = self._module.fresh("result")
        return f"({name} := {self._call(method)}[0])[0]"


def _runner(program: Program) -> Runner:
    """A program as an aggregate over rows: from the list of its arguments to the rows it returned."""
    depth = 0

    def run(rows: list[tuple[Any, ...]]) -> list[Row]:
        nonlocal depth
        returned: list[Row] = []
        if not rows:
            return returned
        if depth >= MOST_DEEP:
            raise DataError(
                f"{program.name} calls itself more than {MOST_DEEP} times deep", hint="call it on fewer rows each time"
            )
        depth += 1
        try:
            tables = code.fresh_tables()
            code.initialize(tables, rows[0], returned)
            for row in rows[1:]:
                code.iterate(tables, row, returned)
            code.terminate(tables, returned)
        finally:
            depth -= 1
        return returned

    code = Code(program, run)
    return run


def _only_method(query: Rows) -> Method | None:
    """The method whose rows are those of the query."""
    # A table that no result looks at makes a factor that returns rows without columns.
    first = query.columns[0] if query.columns else None
    if not isinstance(first, Method):
        return None
    same = all(isinstance(column, Method) and column.target == first.target for column in query.columns)
    return first if same else None


def _can_fail(expr: Expr) -> bool:
    """Whether an expression or what it asks of subqueries may be an error."""
    parts = [expr]
    for query in queries_of(expr):
        parts += expressions_of(Insert(None, (query,)))
    return any(
        can_fail(part) or any(isinstance(inner, ScalarQuery | AggregateValue) for inner in walk(part)) for part in parts
    )

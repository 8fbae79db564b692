"""Queries of a program as closures: scans, grouping, order, and what subqueries give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millstream.errors import DataError
from millstream.functions import can_fail
from millstream.kernels.programs.evaluate import Closure, Expressions, Frame
from millstream.kernels.programs.python import caller, new_object
from millstream.kernels.programs.rows_summaries import finisher
from millstream.kernels.programs.rows_values import equality_key, order_key
from millstream.plan.expr import Column, Expr, columns_of, conjuncts, walk
from millstream.plan.programs import (
    OLDEST,
    SQLCODE,
    Exists,
    InQuery,
    Insert,
    LocalTable,
    Order,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Summary,
    expressions_of,
    oldest_of,
    queries_of,
)
from millstream.plan.python import Instance, Method
from millstream.types import SqlType

PARAMETERS, TABLES, CODE, FIRST_FREE = 0, 1, 2, 3
"""Places of a frame: the parameters' values, the list of tables, sqlcode; then ranges, summaries and remembered
subqueries."""

_UNKNOWN = object()

Scan = Callable[[Frame], Iterator[None]]
"""Sets the rows of ranges in a frame, one combination after the other."""

Run = Callable[[Frame], list[list[Any]]]
ProgramRunner = Callable[[Program], Callable[[list[tuple[Any, ...]]], list[list[Any]]]]


class Queries:
    """Compiles the queries and expressions of one program."""

    def __init__(self, program: Program, tables: list[LocalTable], nested: ProgramRunner) -> None:
        self._program = program
        self._tables = {table.name: i for i, table in enumerate(tables)}
        self._schemas = [table.schema for table in tables]
        self._nested = nested
        self._ranges: dict[str, tuple[int, int]] = {}
        self._aggregations: list[list[tuple[Summary, int]]] = []
        """the summaries of each query that is being compiled, and their places in the frame"""
        self._returned: dict[tuple[Expr, str], int] = {}
        self.size = FIRST_FREE
        self.remembered: list[int] = []
        """the places of subqueries that need to run only once per statement"""
        self.expression = Expressions(self._column, self._other)

    def place(self, range_: Range) -> tuple[int, int]:
        """Where a range has its row in the frame, and the number of its table."""
        if range_.alias not in self._ranges:
            self._ranges[range_.alias] = (self._free_place(), self._tables[range_.table])
        return self._ranges[range_.alias]

    def scan(self, ranges: tuple[Range, ...], where: Expr | None) -> Scan:
        """The combinations of rows that satisfy a predicate, each part of which is tested as early as it can be."""
        places = [self.place(range_) for range_ in ranges]
        levels: list[list[Closure]] = [[] for _ in range(len(ranges) + 1)]
        level = 0
        for part in conjuncts(where) if where is not None else ():
            used = _aliases(part)
            own = max((i + 1 for i, range_ in enumerate(ranges) if range_.alias in used), default=0)
            # A part that can fail is tested only where the whole predicate would be, and after the parts before it.
            level = max(level, len(ranges) if _can_fail(part) else own)
            levels[level].append(self.expression(part))
        scan = _leaf(levels[-1])
        for i in reversed(range(len(places))):
            inner = None if i == len(places) - 1 else scan
            scan = _level(*places[i], levels[i + 1], inner)
        return _guarded(levels[0], scan) if places and levels[0] else scan

    def rows(self, query: Rows) -> Run:
        """All rows of a query."""
        if (method := _only_method(query)) is not None:
            return self.call(method, query.ranges[0])
        collect = self._aggregated(query) if query.is_aggregation else self._plain(query)
        sort = _sorter(query.order)
        key = _row_key([column.type for column in query.columns]) if query.distinct else None

        def run(frame: Frame) -> list[list[Any]]:
            found = collect(frame)
            rows = [row for _, row in sort(found)] if sort is not None else [row for _, row in found]
            if key is not None:
                first: dict[Any, list[Any]] = {}
                for row in rows:
                    first.setdefault(key(row), row)
                rows = list(first.values())
            return rows if query.limit is None else rows[: query.limit]

        return run

    def call(self, method: Method, range_: Range | None = None) -> Run:
        """What calls a method, of the object in the only row of a range if it is given."""
        place, table = (0, 0) if range_ is None else self.place(range_)
        target, args = self.expression(method.target), [self.expression(arg) for arg in method.args]
        window = self._program.window
        inside = None if window is None else self._tables[window.name]
        call = caller(method, None if window is None else window.schema)

        def run(frame: Frame) -> list[list[Any]]:
            tables = frame[TABLES]
            if range_ is not None:
                frame[place] = tables[table][0]
            return call(target(frame), [arg(frame) for arg in args], None if inside is None else tables[inside])

        return run

    def _result(self, method: Method) -> Closure:
        """A column of the row that a method returns; the first column calls it, and the others follow."""
        key = (method.target, method.state)
        if method.column == 0:
            self._returned[key] = self._free_place()
        place, column = self._returned[key], method.column
        if column:
            return lambda frame: frame[place][column]
        call = self.call(method)

        def run(frame: Frame) -> Any:
            (frame[place],) = call(frame)
            return frame[place][0]

        return run

    def _plain(self, query: Rows) -> Callable[[Frame], list[tuple[list[Any], list[Any]]]]:
        scan = self.scan(query.ranges, query.where)
        columns = [self.expression(column) for column in query.columns]
        keys = [self.expression(order.key) for order in query.order]
        return lambda frame: [
            ([key(frame) for key in keys], [column(frame) for column in columns]) for _ in scan(frame)
        ]

    def _aggregated(self, query: Rows) -> Callable[[Frame], list[tuple[list[Any], list[Any]]]]:
        scan = self.scan(query.ranges, query.where)
        group = [self.expression(expr) for expr in query.group]
        group_key = _row_key([expr.type for expr in query.group])
        own = [self.place(range_)[0] for range_ in query.ranges]
        widths = [len(self._schemas[self.place(range_)[1]]) for range_ in query.ranges]
        self._aggregations.append([])
        columns = [self.expression(column) for column in query.columns]
        keys = [self.expression(order.key) for order in query.order]
        having = None if query.having is None else self.expression(query.having)
        summaries = self._aggregations.pop()
        arguments = [[self.expression(arg) for arg in summary.args] for summary, _ in summaries]
        finishers = [finisher(summary, self._nested) for summary, _ in summaries]
        only = query.columns[0] if len(query.columns) == 1 else None
        # Such a query has the rows that the program returned, whatever their number.
        returned = summaries[0][1] if isinstance(only, Summary) and only.program is not None else None

        def run(frame: Frame) -> list[tuple[list[Any], list[Any]]]:
            groups: dict[Any, tuple[list[Any], list[list[tuple[Any, ...]]]]] = {}
            for _ in scan(frame):
                key = group_key([expr(frame) for expr in group])
                members = groups.get(key)
                if members is None:
                    members = groups[key] = ([frame[place] for place in own], [[] for _ in summaries])
                for values, args in zip(members[1], arguments, strict=True):
                    values.append(tuple(arg(frame) for arg in args))
            if not groups and not group:
                groups[()] = ([[None] * width for width in widths], [[] for _ in summaries])
            found = []
            for first, collected in groups.values():
                for place, row in zip(own, first, strict=True):
                    frame[place] = row
                for (_, place), finish, values in zip(summaries, finishers, collected, strict=True):
                    frame[place] = finish(values)
                if having is not None and not having(frame):
                    continue
                order = [key(frame) for key in keys]
                rows = [[column(frame) for column in columns]] if returned is None else frame[returned]
                found += [(order, row) for row in rows]
            return found

        return run

    def _column(self, column: Column) -> Closure:
        name = column.name
        if name.startswith(":"):
            place = self._program.parameters.index(name[1:])
            return lambda frame: frame[PARAMETERS][place]
        if name == SQLCODE:
            return lambda frame: frame[CODE]
        alias, _, field = name.partition(".")
        if name.startswith(OLDEST) and alias not in self._ranges:
            # the names of the longest window's begin with what all begin with
            window = next(w for w in reversed(self._program.windows) if name.startswith(oldest_of(w.name)))
            table, place = self._tables[window.name], window.schema.index(name.removeprefix(oldest_of(window.name)))
            return lambda frame: rows[0][place] if (rows := frame[TABLES][table]) else None
        own, table = self._ranges[alias]
        place = self._schemas[table].index(field)
        return lambda frame: frame[own][place]

    def _other(self, expr: Expr) -> Closure:
        match expr:
            case Summary():
                place = self._free_place()
                self._aggregations[-1].append((expr, place))
                if expr.program is not None:
                    return lambda frame: rows[-1][0] if (rows := frame[place]) else None
                return lambda frame: frame[place]
            case Method():
                return self._result(expr)
            case Instance():
                return lambda frame: new_object(expr.code)
            case Exists():
                return self._once(expr.query, self._exists(expr.query))
            case ScalarQuery():
                return self._once(expr.query, _only_value(expr, self.rows(expr.query)))
            case InQuery():
                return self._in(expr)
        raise TypeError(f"{type(expr).__name__} is not an expression of a program")

    def _exists(self, query: Rows) -> Closure:
        if query.is_aggregation or query.limit == 0:
            rows = self.rows(query)
            return lambda frame: bool(rows(frame))
        scan = self.scan(query.ranges, query.where)

        def run(frame: Frame) -> bool:
            return any(True for _ in scan(frame))

        return run

    def _in(self, expr: InQuery) -> Closure:
        arg, rows = self.expression(expr.arg), self.rows(expr.query)
        key = equality_key(expr.arg.type)
        among = self._once(expr.query, lambda frame: {_keyed(key, row[0]) for row in rows(frame)})

        def run(frame: Frame) -> bool | None:
            value, values = arg(frame), among(frame)
            if not values:
                return False
            if value is None:
                return None
            return True if _keyed(key, value) in values else (None if None in values else False)

        return run

    def _once(self, query: Rows, closure: Closure) -> Closure:
        """The closure, run once per statement if the query refers to no row around it."""
        statement = Insert(None, (query,))
        used = {alias for expr in expressions_of(statement) for alias in _aliases(expr)}
        if used & (self._ranges.keys() - _own_aliases(query)):
            return closure
        place = self._free_place()
        self.remembered.append(place)

        def run(frame: Frame) -> Any:
            value = frame[place]
            if value is _UNKNOWN:
                value = frame[place] = closure(frame)
            return value

        return run

    def _free_place(self) -> int:
        self.size += 1
        return self.size - 1


def forget(frame: Frame, places: list[int]) -> None:
    """Let remembered subqueries run anew."""
    for place in places:
        frame[place] = _UNKNOWN


def _leaf(predicates: list[Closure]) -> Scan:
    def scan(frame: Frame) -> Iterator[None]:
        if all(predicate(frame) for predicate in predicates):
            yield

    return scan


def _level(place: int, table: int, predicates: list[Closure], inner: Scan | None) -> Scan:
    def innermost(frame: Frame) -> Iterator[None]:
        for row in frame[TABLES][table]:
            frame[place] = row
            if all(predicate(frame) for predicate in predicates):
                yield

    def scan(frame: Frame) -> Iterator[None]:
        assert inner is not None
        for _ in innermost(frame):
            yield from inner(frame)

    return innermost if inner is None else scan


def _guarded(predicates: list[Closure], scan: Scan) -> Scan:
    def guarded(frame: Frame) -> Iterator[None]:
        if all(predicate(frame) for predicate in predicates):
            yield from scan(frame)

    return guarded


def _only_value(expr: ScalarQuery, rows: Run) -> Closure:
    def run(frame: Frame) -> Any:
        found = rows(frame)
        if len(found) > 1:
            raise DataError(
                f"a subquery that stands for a value returned {len(found)} rows: {expr}",
                hint="let it return at most one, with an aggregate or LIMIT 1",
            )
        return found[0][0] if found else None

    return run


def _only_method(query: Rows) -> Method | None:
    """The method whose rows are those of the query."""
    # A table that no result looks at makes a factor that returns rows without columns.
    first = query.columns[0] if query.columns else None
    if not isinstance(first, Method):
        return None
    same = all(isinstance(column, Method) and column.target == first.target for column in query.columns)
    return first if same else None


def _keyed(key: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if key is None or value is None else key(value)


def _row_key(types: list[SqlType]) -> Callable[[list[Any]], Any]:
    keys = [equality_key(type_) for type_ in types]
    if not any(keys):
        return tuple
    return lambda row: tuple(_keyed(key, value) for key, value in zip(keys, row, strict=True))


def _sorter(
    orders: tuple[Order, ...],
) -> Callable[[list[tuple[list[Any], list[Any]]]], list[tuple[list[Any], list[Any]]]] | None:
    """A stable sort of rows by the keys beside them."""
    if not orders:
        return None
    keys = [order_key(order.key.type) for order in orders]

    def sort(found: list[tuple[list[Any], list[Any]]]) -> list[tuple[list[Any], list[Any]]]:
        for i in reversed(range(len(orders))):
            nulls = [entry for entry in found if entry[0][i] is None]
            others = [entry for entry in found if entry[0][i] is not None]
            others.sort(key=lambda entry: _keyed(keys[i], entry[0][i]), reverse=orders[i].descending)
            found = [*nulls, *others] if orders[i].nulls_first else [*others, *nulls]
        return found

    return sort


def _aliases(expr: Expr) -> set[str]:
    """What stands before the dot in the columns of an expression and of its subqueries."""
    names = set(columns_of(expr))
    for query in queries_of(expr):
        for part in expressions_of(Insert(None, (query,))):
            names |= columns_of(part)
    return {name.partition(".")[0] for name in names}


def _own_aliases(query: Rows) -> set[str]:
    own = {range_.alias for range_ in query.ranges}
    for expr in query.expressions():
        for inner in queries_of(expr):
            own |= _own_aliases(inner)
    return own


def _can_fail(expr: Expr) -> bool:
    """Whether an expression or what it asks of subqueries may be an error."""
    parts = [expr]
    for query in queries_of(expr):
        parts += expressions_of(Insert(None, (query,)))
    return any(
        can_fail(part) or any(isinstance(inner, ScalarQuery | Summary) for inner in walk(part)) for part in parts
    )

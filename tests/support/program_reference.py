"""Programs run by DuckDB, statement by statement on real tables: a second opinion on what SQL means, and slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from millstream.expressions.nodes import Column, Expr, Literal, transform
from millstream.expressions.object_values import to_values
from millstream.expressions.sql.text import quote_duckdb, to_duckdb_sql
from millstream.kernels.programs.engine import Closing, Mode, Running, Sliding, Tumbling
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
)
from millstream.types import BIGINT, DOUBLE, SqlType

Tuple = tuple[int, int, tuple[Any, ...]]
"""A group, a time and the arguments, as `expressions.nodes.Literal` holds values."""

Result = tuple[int, int | None, tuple[Any, ...]]
"""Where a returned row comes from, its time, and its values; see `engine.Returned`."""


def run_reference(program: Program, mode: Mode, tuples: Sequence[Tuple]) -> list[Result]:
    """All that a program returns for tuples in order of time; a tuple's id is its place.

    In an active window, all tuples expire at the end; groups that close do so at the end, in order of their first
    tuples, and the place there is their rows' origin.
    """
    database = _Database()
    match mode:
        case Running() | Closing():
            return _run_groups(database, program, mode, tuples)
        case Tumbling():
            return _tumble(database, program, mode, tuples)
        case Sliding():
            return _slide(database, program, mode, tuples)


def _run_groups(
    database: _Database, program: Program, mode: Running | Closing, tuples: Sequence[Tuple]
) -> list[Result]:
    groups: dict[int, _Group] = {}
    results: list[Result] = []
    for i, (key, time, values) in enumerate(tuples):
        is_first = key not in groups
        group = groups[key] if not is_first else groups.setdefault(key, _Group(database, program))
        rows = group.run(program.initialize if is_first else program.iterate, values)
        if isinstance(mode, Running) and mode.total:
            rows += group.run(program.terminate, None)
        results += [(i, time, row) for row in rows]
    if isinstance(mode, Closing):
        for place, group in enumerate(groups.values()):
            results += [(place, None, row) for row in group.run(program.terminate, None)]
    return results


def _tumble(database: _Database, program: Program, mode: Tumbling, tuples: Sequence[Tuple]) -> list[Result]:
    results: list[Result] = []
    members: dict[int, list[tuple[Any, ...]]] = {}
    for i, (key, time, values) in enumerate(tuples):
        slot = members.setdefault(key, [])
        slot.append(values)
        if len(slot) < mode.every:
            continue
        group, rows = _Group(database, program), []
        for place, old in enumerate(slot[mode.every - mode.size :]):
            rows = group.run(program.iterate if place else program.initialize, old)
        if program.terminate:
            rows = group.run(program.terminate, None)
        results += [(i, time, row) for row in rows]
        slot.clear()
    return results


def _slide(database: _Database, program: Program, mode: Sliding, tuples: Sequence[Tuple]) -> list[Result]:
    groups: dict[int, _Group] = {}
    waiting: list[tuple[int, int, int]] = []
    results: list[Result] = []

    def expire(leaving: list[tuple[int, int, int]]) -> list[tuple[int, int, tuple[Any, ...]]]:
        """Expire these, oldest first; what they return, with the place of the tuple and its time."""
        rows = []
        for key, time, i in leaving:
            waiting.remove((key, time, i))
            if groups[key].holds(i):
                groups[key].current = i
                rows += [(i, time, row) for row in groups[key].run(program.expire, tuples[i][2])]
                groups[key].remove(i)
        return rows

    def actively(before: float) -> list[Result]:
        expired = expire([entry for entry in waiting if entry[1] + mode.size < before])
        return [(-1 - i, time + mode.size, row) for i, time, row in expired]

    for i, (key, time, values) in enumerate(tuples):
        is_first = key not in groups
        group = groups[key] if not is_first else groups.setdefault(key, _Group(database, program))
        mine = [j for j, (other, _, _) in enumerate(tuples[: i + 1]) if other == key]
        rows: list[tuple[Any, ...]] = []
        if mode.active:
            results += actively(time)
        elif mode.unit == "rows":
            rows = [row for *_, row in expire([w for w in waiting if w[0] == key and w[2] not in mine[-mode.size :]])]
        else:
            rows = [row for *_, row in expire([w for w in waiting if w[0] == key and time - w[1] > mode.size])]
        group.enter(i, values)
        waiting.append((key, time, i))
        rows += group.run(program.initialize if is_first else program.iterate, values)
        if mode.every is None or len(mine) % mode.every == 0:
            results += [(i, time, row) for row in rows]
    return results + (actively(math.inf) if mode.active else [])


class _Database:
    """One DuckDB, and names for what is in it."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.create_function("exact_sum", _exact_sum, ["DOUBLE[]"], "DOUBLE", null_handling="special")
        self._names = count()

    def new_name(self) -> str:
        return f"t{next(self._names)}"

    def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def fetch(self, sql: str, types: Sequence[SqlType]) -> list[tuple[Any, ...]]:
        """The rows of a query, its columns taken for values of these types."""
        names = [f"c{i}" for i in range(len(types))]
        exported = [f"epoch_us({n}) AS {n}" if t.name == "INTERVAL" else n for n, t in zip(names, types, strict=True)]
        table = self._connection.sql(
            f"SELECT {', '.join(exported)} FROM ({sql}) AS q({', '.join(names)})"
        ).to_arrow_table()
        columns = [
            to_values(table.column(i).combine_chunks().cast(type_.arrow), type_) for i, type_ in enumerate(types)
        ]
        return list(zip(*columns, strict=True))


class _Group:
    """The tables of one group. Rows are numbered as they are inserted; those of the window by their tuples."""

    def __init__(self, database: _Database, program: Program) -> None:
        self._database = database
        self._program = program
        self._numbers = count()
        self._parts = count()
        window = program.window or LocalTable(WINDOW, program.parameters)
        self._tables = {table.name: (database.new_name(), table.schema) for table in (*program.tables, window)}
        self._sqlcode = 0
        self.current = -1
        self._values: tuple[Any, ...] | None = None
        for name, schema in self._tables.values():
            columns = [f"{quote_duckdb(field.name)} {field.type.duckdb}" for field in schema]
            database.execute(f'CREATE TABLE {name} ({", ".join(columns)}, "$row" BIGINT)')

    def enter(self, number: int, values: tuple[Any, ...]) -> None:
        """Put a tuple into the window."""
        self.current = number
        self._add(WINDOW, number, values)

    def holds(self, number: int) -> bool:
        return bool(
            self._database.fetch(f'SELECT "$row" FROM {self._tables[WINDOW][0]} WHERE "$row" = {number}', [BIGINT])
        )

    def remove(self, number: int) -> None:
        self._database.execute(f'DELETE FROM {self._tables[WINDOW][0]} WHERE "$row" = {number}')

    def run(self, statements: Sequence[Statement], values: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
        """Run statements with these parameters (None: NULLs); what they return."""
        returned: list[tuple[Any, ...]] = []
        self._values, self._sqlcode = values, 0
        for statement in statements:
            self._sqlcode = 0 if self._statement(statement, returned) else 100
        return returned

    def _statement(self, statement: Statement, returned: list[tuple[Any, ...]]) -> bool:
        match statement:
            case Insert():
                rows = [row for source in statement.sources for row in self._rows(source)]
                if statement.table is None:
                    returned += rows
                else:
                    for row in rows:
                        self._add(statement.table, next(self._numbers), row)
                return bool(rows)
            case Update():
                return self._update(statement)
            case Delete():
                number = Column(BIGINT, f"{statement.range.alias}.$row")
                gone = self._rows(Rows((number,), (statement.range,), statement.where))
                if statement.others:
                    gone = [row for row in gone if row != (self.current,)]
                for (row,) in gone:
                    self._database.execute(f'DELETE FROM {self._tables[statement.range.table][0]} WHERE "$row" = {row}')
                return bool(gone)

    def _update(self, statement: Update) -> bool:
        names = [name for name, _ in statement.assignments]
        exprs = [expr for _, expr in statement.assignments]
        number = Column(BIGINT, f"{statement.range.alias}.$row")
        changed = self._rows(Rows((number, *exprs), (statement.range,), statement.where))
        for row, *values in changed:
            sets = [
                f"{quote_duckdb(name)} = {to_duckdb_sql(Literal(expr.type, value))}"
                for name, expr, value in zip(names, exprs, values, strict=True)
            ]
            table = self._tables[statement.range.table][0]
            self._database.execute(f'UPDATE {table} SET {", ".join(sets)} WHERE "$row" = {row}')
        return bool(changed)

    def _add(self, table: str, number: int, values: Sequence[Any]) -> None:
        name, schema = self._tables[table]
        texts = [to_duckdb_sql(Literal(field.type, value)) for field, value in zip(schema, values, strict=True)]
        self._database.execute(f"INSERT INTO {name} VALUES ({', '.join(texts)}, {number})")

    def _rows(self, query: Rows) -> list[tuple[Any, ...]]:
        only = query.columns[0] if len(query.columns) == 1 else None
        if isinstance(only, AggregateValue) and only.program is not None and not query.group:
            return self._nested(only, query)
        types = [column.type for column in query.columns]
        if not query.distinct:
            return self._database.fetch(self._query(query), types)
        rows = self._database.fetch(self._query(replace(query, distinct=False, limit=None)), types)
        return self._first_of_equals(rows, types)[: query.limit]

    def _first_of_equals(self, rows: list[tuple[Any, ...]], types: list[SqlType]) -> list[tuple[Any, ...]]:
        """DISTINCT, which DuckDB does in no order."""
        if not rows:
            return rows
        texts = [", ".join(to_duckdb_sql(Literal(t, v)) for t, v in zip(types, row, strict=True)) for row in rows]
        numbered = ", ".join(f"({i}, {text})" for i, text in enumerate(texts))
        names = ", ".join(f"c{i}" for i in range(len(types)))
        chosen = f"SELECT min(i) FROM (VALUES {numbered}) AS v(i, {names}) GROUP BY {names} ORDER BY 1"
        return [rows[i] for (i,) in self._database.fetch(chosen, [BIGINT])]

    def _nested(self, summary: AggregateValue, query: Rows) -> list[tuple[Any, ...]]:
        """The rows that a program returns for the rows of a query."""
        program = summary.program
        assert program is not None and not summary.distinct
        arguments = self._rows(Rows(summary.args, query.ranges, query.where))
        group, rows = _Group(self._database, program), []
        for i, values in enumerate(arguments):
            rows += group.run(program.iterate if i else program.initialize, values)
        return rows + group.run(program.terminate, None) if arguments else rows

    def _query(self, query: Rows) -> str:
        """A query in DuckDB's SQL, its rows in order unless it is DISTINCT."""
        ranges = ", ".join(self._range(range_) for range_ in query.ranges) or '(SELECT 1) AS "nothing"'
        where = "" if query.where is None else f" WHERE {self._text(query.where, query)}"
        columns = [f"{self._text(column, query)} AS c{i}" for i, column in enumerate(query.columns)]
        # A constant would be the number of a column.
        order = [
            f"CASE WHEN TRUE THEN {self._text(order.key, query)} END {'DESC' if order.descending else 'ASC'} "
            f"NULLS {'FIRST' if order.nulls_first else 'LAST'}"
            for order in query.order
        ]
        group = [self._text(expr, query) for expr in query.group]
        tail = f" GROUP BY {', '.join(group)}" if group else ""
        tail += "" if query.having is None else f" HAVING {self._text(query.having, query)}"
        numbers = _numbers(query)
        if query.is_aggregation:
            numbers = f"min(({numbers}, 0))" if group else ""
        keys = [*order, *([numbers] if numbers else [])] if not query.distinct else []
        tail += f" ORDER BY {', '.join(keys)}" if keys else ""
        tail += "" if query.limit is None else f" LIMIT {query.limit}"
        return f"SELECT {'DISTINCT ' if query.distinct else ''}{', '.join(columns)} FROM {ranges}{where}{tail}"

    def _range(self, range_: Range) -> str:
        """A table under names that no other range has."""
        name, schema = self._tables[range_.table]
        columns = [
            f"{quote_duckdb(column)} AS {quote_duckdb(f'{range_.alias}.{column}')}"
            for column in (*schema.names, "$row")
        ]
        return f"(SELECT {', '.join(columns)} FROM {name}) AS {quote_duckdb(range_.alias)}"

    def _text(self, expr: Expr, query: Rows) -> str:
        """An expression in DuckDB's SQL; what is more than scalar is put in afterwards."""
        inserted: dict[str, str] = {}

        def change(part: Expr) -> Expr:
            match part:
                case Column():
                    return self._known(part)
                case Exists():
                    text = f"EXISTS ({self._query(part.query)})"
                case ScalarQuery():
                    text = f"({self._query(part.query)})"
                case InQuery():
                    text = f"({self._text(part.arg, query)} IN ({self._query(part.query)}))"
                case AggregateValue():
                    text = self._summary(part, query)
                case _:
                    return part
            name = f"$part{next(self._parts)}"
            inserted[quote_duckdb(name)] = text
            return Column(part.type, name)

        sql = to_duckdb_sql(transform(expr, change))
        # Later ones may contain earlier ones.
        for name, text in reversed(inserted.items()):
            sql = sql.replace(name, text)
        return sql

    def _known(self, column: Column) -> Expr:
        """Parameters, the oldest tuple and sqlcode are constants of a statement."""
        if column.name.startswith(":"):
            place = self._program.parameters.index(column.name[1:])
            return Literal(column.type, None if self._values is None else self._values[place])
        if column.name == SQLCODE:
            return Literal(column.type, self._sqlcode)
        if column.name.startswith(OLDEST):
            field = quote_duckdb(column.name.removeprefix(OLDEST))
            found = self._database.fetch(
                f'SELECT {field} FROM {self._tables[WINDOW][0]} ORDER BY "$row" LIMIT 1', [column.type]
            )
            return Literal(column.type, found[0][0] if found else None)
        return column

    def _summary(self, summary: AggregateValue, query: Rows) -> str:
        if summary.program is not None:
            assert not query.group, "a program in a query with groups"
            rows = self._nested(summary, query)
            return to_duckdb_sql(Literal(summary.type, rows[-1][0] if rows else None))
        if not summary.args:
            return "count(*)"
        arg = self._text(summary.args[0], query)
        numbers = _numbers(query)
        order = f" ORDER BY {numbers}" if numbers and not summary.distinct else ""
        if summary.fn in ("sum", "avg") and summary.args[0].type == DOUBLE and not summary.distinct:
            total = f"exact_sum(list({arg}))"
            return total if summary.fn == "sum" else f"({total} / nullif(count({arg}), 0))"
        return f"CAST({summary.fn}({'DISTINCT ' if summary.distinct else ''}{arg}{order}) AS {summary.type.duckdb})"


def _exact_sum(values: list[float | None] | None) -> float | None:
    """A sum that does not depend on the order of the values."""
    present = [value for value in values or [] if value is not None]
    if not all(map(math.isfinite, present)):
        return sum(present)
    return math.fsum(present) if present else None


def _numbers(query: Rows) -> str:
    """What a query's rows are in order of."""
    return ", ".join(quote_duckdb(f"{range_.alias}.$row") for range_ in query.ranges)

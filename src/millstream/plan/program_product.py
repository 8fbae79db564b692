"""Several programs as one, for a GROUP BY with several aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millstream.plan.expr import Column, Expr, transform, walk
from millstream.plan.programs import (
    SQLCODE,
    Delete,
    Exists,
    InQuery,
    Insert,
    LocalTable,
    Order,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Statement,
    Update,
    expressions_of,
    queries_of,
    sources_of,
)
from millstream.schema import Field, Schema


def product(programs: Sequence[Program]) -> Program:
    """One program that keeps the tables of all and returns one row with all their results. TERMINATE of each returns
    exactly one row, and nothing else returns any; none has a window."""
    if len(programs) == 1:
        return programs[0]
    renamed = [_renamed(program, f"_{i}") for i, program in enumerate(programs, 1)]
    columns: list[Expr] = []
    ranges: list[Range] = []
    terminate: list[Statement] = []
    for program in renamed:
        place = next(i for i, s in enumerate(program.terminate) if isinstance(s, Insert) and s.table is None)
        # the tables are dropped afterwards, so what follows has no effect
        terminate += program.terminate[:place]
        returned = program.terminate[place]
        assert isinstance(returned, Insert)
        (rows,) = returned.sources
        if rows.is_aggregation:
            columns += [ScalarQuery(column.type, replace(rows, columns=(column,))) for column in rows.columns]
        else:
            columns += rows.columns
            ranges += rows.ranges
    return Program(
        name=", ".join(program.name for program in programs),
        parameters=Schema(tuple(field for program in renamed for field in program.parameters)),
        result=Schema(tuple(field for program in renamed for field in program.result)),
        tables=tuple(table for program in renamed for table in program.tables),
        window=None,
        initialize=tuple(statement for program in renamed for statement in program.initialize),
        iterate=tuple(statement for program in renamed for statement in program.iterate),
        terminate=(*terminate, Insert(None, (Rows(tuple(columns), tuple(ranges)),))),
    )


def begins_with_sqlcode(program: Program) -> bool:
    """Whether what stands before the program's statements can be seen in it."""
    firsts = [state[0] for state in (program.initialize, program.iterate, program.terminate) if state]
    parts = (part for statement in firsts for expr in expressions_of(statement) for part in walk(expr))
    return any(isinstance(part, Column) and part.name == SQLCODE for part in parts)


def _renamed(program: Program, suffix: str) -> Program:
    """The program with other names for tables, parameters and results."""
    names = _Names(suffix, frozenset(_aliases(program)))
    return replace(
        program,
        parameters=names.schema(program.parameters),
        result=names.schema(program.result),
        tables=tuple(LocalTable(table.name + suffix, table.schema) for table in program.tables),
        initialize=tuple(map(names.statement, program.initialize)),
        iterate=tuple(map(names.statement, program.iterate)),
        terminate=tuple(map(names.statement, program.terminate)),
    )


def _aliases(program: Program) -> Iterator[str]:
    for statement in program.statements:
        if isinstance(statement, Update | Delete):
            yield statement.range.alias
        queries = [*sources_of(statement), *(query for expr in expressions_of(statement) for query in queries_of(expr))]
        yield from (range_.alias for query in queries for range_ in query.ranges)


class _Names:
    """Gives what statements name a suffix."""

    def __init__(self, suffix: str, aliases: frozenset[str]) -> None:
        self.suffix = suffix
        self.aliases = aliases

    def schema(self, schema: Schema) -> Schema:
        return Schema(tuple(Field(field.name + self.suffix, field.type) for field in schema))

    def statement(self, statement: Statement) -> Statement:
        match statement:
            case Insert(table=table, sources=sources):
                return Insert(None if table is None else table + self.suffix, tuple(map(self.rows, sources)))
            case Update(range=range_, assignments=assignments, where=where):
                changed = tuple((name, self.expr(value)) for name, value in assignments)
                return Update(self.range(range_), changed, self.optional(where))
            case Delete(range=range_, where=where):
                return Delete(self.range(range_), self.optional(where))

    def range(self, range_: Range) -> Range:
        return Range(range_.alias + self.suffix, range_.table + self.suffix)

    def rows(self, rows: Rows) -> Rows:
        return replace(
            rows,
            columns=tuple(map(self.expr, rows.columns)),
            ranges=tuple(map(self.range, rows.ranges)),
            where=self.optional(rows.where),
            group=tuple(map(self.expr, rows.group)),
            having=self.optional(rows.having),
            order=tuple(Order(self.expr(order.key), order.descending, order.nulls_first) for order in rows.order),
        )

    def optional(self, expr: Expr | None) -> Expr | None:
        return None if expr is None else self.expr(expr)

    def expr(self, expr: Expr) -> Expr:
        return transform(expr, self._part)

    def _part(self, part: Expr) -> Expr:
        match part:
            case Column(name=name) if name.startswith(":"):
                return replace(part, name=name + self.suffix)
            case Column(name=name) if name != SQLCODE:
                alias = max((a for a in self.aliases if name.startswith(f"{a}.")), key=len)
                return replace(part, name=f"{alias}{self.suffix}{name.removeprefix(alias)}")
            case Exists() | InQuery() | ScalarQuery():
                return replace(part, query=self.rows(part.query))
        return part

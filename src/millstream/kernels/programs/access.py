"""How the rows of a program's tables are found: which column is looked up, and whether its values are few enough for a
cell each."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal, conjuncts, walk
from millstream.plan.programs.nodes import (
    SQLCODE,
    Delete,
    InQuery,
    Insert,
    LocalTable,
    Program,
    Rows,
    Statement,
    Update,
    aliases_of,
    column_names,
    expressions_of,
    queries_of,
)
from millstream.types import BOOLEAN

_LARGEST_BOUND = 2**15
"""Values that are known to be less may have a cell each."""


def indexed_column(program: Program, table: LocalTable) -> int | None:
    """The column by which statements look rows of a table up, if there is one that never changes: compared with what
    comes from a tuple rather than with a constant."""
    wanted: dict[int, int] = {}
    for statement in program.statements:
        if isinstance(statement, Update) and statement.range.table == table.name:
            for name, _ in statement.assignments:
                wanted[table.schema.index(name)] = -(2**31)
        for alias, where in _filters(statement, table.name):
            for column, other in _equalities(alias, where, table):
                wanted[column] = wanted.get(column, 0) + (1 if isinstance(other, Literal) else 1000)
    best = max(wanted, key=lambda column: wanted[column], default=None)
    if best is None or wanted[best] < 1000 or table.schema.fields[best].type.kernel != "int64":
        return None
    return best


def _filters(statement: Statement, table: str) -> Iterator[tuple[str, Expr]]:
    """Each place where a statement ranges over a table: the alias, and a condition on it."""
    if isinstance(statement, Update | Delete) and statement.range.table == table and statement.where is not None:
        yield statement.range.alias, statement.where
    queries: list[Rows] = list(statement.sources) if isinstance(statement, Insert) else []
    for expr in expressions_of(statement):
        queries += queries_of(expr)
        for part in walk(expr):
            if isinstance(part, InQuery) and isinstance(part.query.columns[0], Column):
                for range_ in part.query.ranges:
                    if range_.table == table:
                        yield range_.alias, Call(BOOLEAN, "=", (part.query.columns[0], part.arg))
    for query in queries:
        for range_ in query.ranges:
            if range_.table == table and query.where is not None:
                yield range_.alias, query.where


def _equalities(alias: str, where: Expr, table: LocalTable) -> Iterator[tuple[int, Expr]]:
    for part in conjuncts(where):
        found = equality(alias, part)
        if found is not None and found[0] in table.schema:
            yield table.schema.index(found[0]), found[1]


def equality(alias: str, part: Expr) -> tuple[str, Expr] | None:
    """The column and the value of a condition `alias.column = value` whose value does not depend on that row."""
    if not (isinstance(part, Call) and part.fn == "="):
        return None
    for mine, other in (part.args, part.args[::-1]):
        if isinstance(mine, Column) and mine.name.startswith(f"{alias}.") and alias not in aliases_of(other):
            return mine.name.removeprefix(f"{alias}."), other
    return None


def bound_of(expr: Expr) -> int | None:
    """A number that the integer value of an expression is less than, and its negative more than, if there is a small
    one."""
    match expr:
        case Literal(value=int(value)):
            bound = abs(value) + 1
        case Call(fn="%", args=(_, Literal(value=int(divisor)))) if divisor and expr.type.is_integer:
            bound = abs(divisor)
        case Cast() if expr.arg.type.is_integer and expr.type.is_integer:
            return bound_of(expr.arg)
        case _:
            return None
    return bound if bound <= _LARGEST_BOUND else None


def bound_of_column(program: Program, table: LocalTable, column: int) -> int | None:
    """The like for all values of a column that are looked up, if no two rows may have the same."""
    bounds = []
    for state in (program.initialize, program.iterate, *program.expiries, program.terminate):
        for before, statement in zip((None, *state), state, strict=False):
            if isinstance(statement, Insert) and statement.table == table.name:
                if len(statement.sources) != 1 or not _is_new(statement.sources[0], before, table, column):
                    return None
                bounds.append(bound_of(statement.sources[0].columns[column]))
    return max((bound for bound in bounds if bound is not None), default=None) if None not in bounds else None


def _is_new(row: Rows, before: Statement | None, table: LocalTable, column: int) -> bool:
    """Whether a row is inserted only if the statement before, an UPDATE of those with its value, has found none."""
    if row.ranges or len(row.columns) != len(table.schema) or row.where is None:
        return False
    value, name = row.columns[column], table.schema.fields[column].name
    if not isinstance(before, Update) or before.range.table != table.name or before.where is None:
        return False
    found = equality(before.range.alias, before.where)
    same = found is not None and found[0] == name and str(found[1]) == str(value)
    fixed = all(part.startswith(":") for part in column_names([value])) and next(queries_of(value), None) is None
    return same and fixed and any(map(_none_touched, conjuncts(row.where)))


def _none_touched(part: Expr) -> bool:
    """Whether a condition says that the statement before has touched no row."""
    match part:
        case Call(fn=">" | "<>", args=(Column(name=name), Literal(value=0))):
            return name == SQLCODE
        case Call(fn="=", args=(Column(name=name), Literal(value=100))):
            return name == SQLCODE
    return False

"""Which columns of a program's tables are never NULL, so that compiled loops need not ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millstream.expressions.nodes import Call, Case, Cast, Column, Expr, Literal
from millstream.plan.programs.nodes import (
    OLDEST,
    SQLCODE,
    WINDOW,
    AggregateValue,
    Exists,
    Insert,
    Program,
    Rows,
    Update,
    expressions_of,
    queries_of,
    sources_of,
)

_STRICT = frozenset(
    {"+", "-", "*", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "neg", "in", "abs", "floor", "ceil", "round"}
)
"""Functions whose value is NULL only if an argument is."""

Place = tuple[str, str]
"""A table and a column of it."""


def never_null(program: Program, window_filled: bool) -> frozenset[Place]:
    """The columns that are never NULL as long as no argument is: all but those that some statement may set to NULL.
    `window_filled` tells that the window has an oldest tuple whenever it is asked for."""
    tables = [*program.tables, *program.windows]
    known = {(table.name, field.name) for table in tables for field in table.schema}
    aliases = {range_.alias: range_.table for query in _queries(program) for range_ in query.ranges}
    aliases |= {s.range.alias: s.range.table for s in program.statements if not isinstance(s, Insert)}

    def is_known(name: str) -> bool:
        if name.startswith(":") or name == SQLCODE:
            return True
        alias, _, column = name.partition(".")
        return window_filled if name.startswith(OLDEST) else (aliases.get(alias, ""), column) in known

    while True:
        nullable = {place for place, expr in _assignments(program) if place in known and may_be_null(expr, is_known)}
        if not nullable:
            return frozenset(known)
        known -= nullable


def _assignments(program: Program) -> Iterator[tuple[Place, Expr]]:
    for statement in program.statements:
        if isinstance(statement, Update):
            yield from (((statement.range.table, name), expr) for name, expr in statement.assignments)
        elif isinstance(statement, Insert) and statement.table not in (None, WINDOW):
            names = program.table(statement.table or "").schema.names
            for source in statement.sources:
                columns = source.columns
                if len(columns) < len(names):
                    # another program's results
                    columns = (*columns, *(Literal(columns[0].type, None) for _ in names[len(columns) :]))
                yield from (((statement.table or "", name), expr) for name, expr in zip(names, columns, strict=True))


def _queries(program: Program) -> Iterator[Rows]:
    for statement in program.statements:
        yield from sources_of(statement)
        for expr in expressions_of(statement):
            yield from queries_of(expr)


def may_be_null(expr: Expr, is_known: Callable[[str], bool]) -> bool:
    """Whether an expression may be NULL, given the columns that are known never to be."""
    match expr:
        case Column():
            return not is_known(expr.name)
        case Literal():
            return expr.value is None
        case Cast():
            return expr.safe or may_be_null(expr.arg, is_known)
        case Case():
            return any(may_be_null(part, is_known) for part in (*(then for _, then in expr.whens), expr.default))
        case Call(fn="is_null" | "is_distinct") | Exists():
            return False
        case Call(fn="coalesce"):
            return all(may_be_null(arg, is_known) for arg in expr.args)
        case Call(fn="/" | "//" | "%", args=(_, Literal(value=divisor))) if divisor:
            return may_be_null(expr.args[0], is_known)
        case Call():
            return expr.fn not in _STRICT or any(may_be_null(arg, is_known) for arg in expr.args)
        case AggregateValue():
            return expr.fn != "count" or expr.program is not None
    return True

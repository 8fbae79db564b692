"""The factors of a product: independent programs that were combined into one.

A loop for all aggregates of a GROUP BY takes the compiler longer than loops for some each: what it does grows faster
than the text. Factors bear names that tell only their order, so that aggregates that differ in their arguments alone
have the same text, which is compiled once. What has no loop does not keep the others from theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from millstream.expressions.nodes import Expr
from millstream.kernels.programs.compiled import why_not_compiled
from millstream.plan.programs.facts import holds_one_row, returns_once, tables_read
from millstream.plan.programs.modes import Closing, Mode
from millstream.plan.programs.nodes import (
    SQLCODE,
    Insert,
    LocalTable,
    Program,
    Rows,
    Statement,
    aliases_of,
    column_names,
    expressions_of,
    sources_of,
)
from millstream.plan.programs.product import Rewriter, named_ranges, sees_sqlcode
from millstream.plan.programs.python import code_in
from millstream.records import dataclass
from millstream.schema import Field, Schema

_REGISTERS = 4
"""How many tables of one row each a loop may have: more of them gain little, and take the compiler long."""


@dataclass(frozen=True)
class Factor:
    """Some tables of a program and what concerns them, as a program of its own."""

    program: Program
    args: tuple[int, ...]
    """which parameters of the whole are its own"""
    results: tuple[int, ...]
    """which columns of the whole are its own"""
    tables: tuple[str, ...]
    """what the whole calls its tables"""


def factors(program: Program, mode: Mode) -> tuple[Factor, ...]:
    """The factors of a program; the program itself if it has none."""
    whole = Factor(
        program,
        tuple(range(len(program.parameters))),
        tuple(range(len(program.result))),
        tuple(table.name for table in program.tables),
    )
    if not isinstance(mode, Closing) or code_in(program) is not None or not _returns_plainly(program):
        return (whole,)
    parts = [_factor(program, tables) for tables in _loops(program, mode)]
    return tuple(parts) if len(parts) > 1 else (whole,)


def _returns_plainly(program: Program) -> bool:
    """Whether only the end of a group returns something: one row that is no aggregation and does not see what the
    statement before it did."""
    if any(isinstance(s, Insert) and s.table is None for s in (*program.initialize, *program.iterate)):
        return False
    if not returns_once(program, program.terminate):
        return False
    returned = _return_of(program)
    return not sources_of(returned)[0].is_aggregation and not sees_sqlcode(returned)


def _return_of(program: Program) -> Insert:
    return next(s for s in program.terminate if isinstance(s, Insert) and s.table is None)


def _tied(program: Program) -> list[frozenset[str]]:
    """The tables that statements, or strings that both look at, tie together."""
    kinds = {table.name: frozenset([table.name]) for table in program.tables}

    def tie(names: Iterable[str]) -> None:
        together = frozenset().union(*(kinds[name] for name in names))
        kinds.update(dict.fromkeys(together, together))

    tables_of: dict[str, set[str]] = {}
    for state in (program.initialize, program.iterate, program.terminate):
        before: set[str] = set()
        for statement in state:
            if isinstance(statement, Insert) and statement.table is None:
                continue
            own = _tables(statement)
            if sees_sqlcode(statement):
                own |= before or set(kinds)
            tie(own)
            before = own
            for name in column_names(expressions_of(statement)):
                tables_of.setdefault(name, set()).update(own)
    (returned,) = sources_of(_return_of(program))
    for column in returned.columns:
        tie(_tables_of_column(returned, column))
    for field in program.parameters:
        if field.type.is_coded:
            # each string is told from the others only once
            tie(tables_of.get(f":{field.name}", ()))
    return list(dict.fromkeys(kinds.values()))


def _tables(statement: Statement) -> set[str]:
    return tables_read(statement) | ({statement.table or ""} if isinstance(statement, Insert) else set())


def _tables_of_column(rows: Rows, column: Expr) -> set[str]:
    """The tables that a column of what is returned looks at."""
    aliases = aliases_of(column)
    return {r.table for r in rows.ranges if r.alias in aliases} | tables_read(Insert(None, (Rows((column,)),)))


def _loops(program: Program, mode: Mode) -> Iterator[frozenset[str]]:
    """Which tables get a loop: those that hold many rows with what is tied to them, some of the others together."""
    nobody: frozenset[str] = frozenset()
    few, general = nobody, nobody
    for tables in _tied(program):
        if why_not_compiled(_factor(program, tables).program, mode) is not None:
            general |= tables
        elif not all(holds_one_row(program, table) for table in tables):
            yield tables
        else:
            if few and len(few | tables) > _REGISTERS:
                yield few
                few = nobody
            few |= tables
    yield from (tables for tables in (few, general) if tables)


def _factor(program: Program, tables: frozenset[str]) -> Factor:
    (rows,) = sources_of(_return_of(program))
    own_columns = [_tables_of_column(rows, column) for column in rows.columns]
    first = program.tables[0].name in tables
    # What looks at no table at all is told by the first factor.
    results = tuple(i for i, found in enumerate(own_columns) if (found <= tables if found else first))
    ranges = tuple(range_ for range_ in rows.ranges if range_.table in tables)
    returned = Insert(None, (Rows(tuple(rows.columns[i] for i in results), ranges),))

    def chosen(state: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            statement
            for statement in state
            if not (isinstance(statement, Insert) and statement.table is None) and _tables(statement) & tables
        )

    states = [chosen(program.initialize), chosen(program.iterate), (*chosen(program.terminate), returned)]
    named = set(column_names(expr for state in states for statement in state for expr in expressions_of(statement)))
    args = tuple(i for i, field in enumerate(program.parameters) if f":{field.name}" in named)
    own = tuple(table for table in program.tables if table.name in tables)
    part = replace(
        program,
        parameters=_some(program.parameters, args),
        result=_some(program.result, results),
        tables=own,
        initialize=states[0],
        iterate=states[1],
        terminate=states[2],
    )
    return Factor(_numbered(part), args, results, tuple(table.name for table in own))


def _some(schema: Schema, places: tuple[int, ...]) -> Schema:
    return Schema(tuple(schema.fields[i] for i in places))


def _numbered(program: Program) -> Program:
    """The program with numbers for the names of tables, aliases, parameters and results."""
    tables = {table.name: f"table{i}" for i, table in enumerate(program.tables)}
    parameters = {f":{field.name}": f":x{i}" for i, field in enumerate(program.parameters)}
    aliases: dict[str, str] = {}
    for alias, _ in named_ranges(program):
        aliases.setdefault(alias, f"row{len(aliases)}")

    def column(name: str) -> str:
        if name == SQLCODE:
            return name
        alias, dot, rest = name.partition(".")
        return parameters[name] if name in parameters else f"{aliases[alias]}{dot}{rest}"

    changed = Rewriter(column, tables.__getitem__, aliases.__getitem__).program(program)
    return replace(
        changed,
        parameters=_renamed(program.parameters, "x"),
        result=_renamed(program.result, "result"),
        tables=tuple(LocalTable(tables[table.name], table.schema) for table in program.tables),
    )


def _renamed(schema: Schema, prefix: str) -> Schema:
    return Schema(tuple(Field(f"{prefix}{i}", field.type) for i, field in enumerate(schema)))

"""Several programs as one, for a GROUP BY with several aggregates, and for several over windows of the same tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from millstream.expressions.nodes import Column, Expr, transform, walk
from millstream.plan.programs.nodes import (
    OLDEST,
    SQLCODE,
    WINDOW,
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
    oldest_of,
    queries_of,
    sources_of,
    window_name,
)
from millstream.plan.programs.python import code_in
from millstream.schema import Field, Schema


def product(programs: Sequence[Program]) -> Program:
    """One program that keeps the tables of all and returns one row with all their results. TERMINATE of each returns
    exactly one row, and nothing else returns any; none has a window."""
    if len(programs) == 1:
        return programs[0]
    renamed = [_renamed(program, f"_{i}") for i, program in enumerate(programs, 1)]
    # the tables are dropped after TERMINATE, so what follows a return has no effect
    ends = [program.terminate[: _place_of_return(program.terminate) + 1] for program in renamed]
    return replace(
        _together(programs, renamed),
        initialize=tuple(statement for program in renamed for statement in program.initialize),
        iterate=tuple(statement for program in renamed for statement in program.iterate),
        terminate=_returning_together(ends),
    )


def window_product(programs: Sequence[Program], sizes: Sequence[tuple[int, ...]] | None = None) -> Program:
    """Like `product` for programs that run over windows of the same tuples: INITIALIZE and ITERATE of each return
    exactly one row, which no later statement of the state changes, and nothing else returns any; none deletes from its
    windows. `sizes` are those of each program's windows; without them all have the same one."""
    sizes = [(0,)] * len(programs) if sizes is None else sizes
    lengths = sorted({size for own in sizes for size in own}, reverse=True)
    renamed: list[Program] = []
    expiries: list[tuple[Statement, ...]] = [()] * len(lengths)
    for i, (program, own) in enumerate(zip(programs, sizes, strict=True), 1):
        places = [lengths.index(size) for size in own]
        each = _renamed(_with_window(program), f"_{i}", places)
        renamed.append(each)
        for place, state in zip(places, each.expiries, strict=True):
            expiries[place] += state
    windows = [program.window.schema for program in renamed if program.window is not None]
    return replace(
        _together(programs, renamed),
        window=LocalTable(WINDOW, Schema(tuple(field for schema in windows for field in schema))),
        initialize=_returning_together([program.initialize for program in renamed]),
        iterate=_returning_together([program.iterate for program in renamed]),
        expire=expiries[0],
        shorter=tuple(expiries[1:]),
    )


def shared(program: Program, args: tuple[str, ...]) -> tuple[Program, tuple[str, ...]]:
    """The program with one parameter, and one column of the window, for arguments that are the same."""
    first = {
        (arg, field.type): i for i, (arg, field) in reversed([*enumerate(zip(args, program.parameters, strict=True))])
    }
    keeps = sorted(first.values())
    if len(keeps) == len(args):
        return program, args
    means = [first[arg, field.type] for arg, field in zip(args, program.parameters, strict=True)]
    parameters = program.parameters.fields
    names = {f":{field.name}": f":{parameters[i].name}" for field, i in zip(parameters, means, strict=True)}
    if program.window is not None:
        columns = program.window.schema.fields
        tables = [table.name for table in program.windows]
        aliases = [alias for alias, table in named_ranges(program) if table in tables]
        for prefix in (*map(oldest_of, tables), *(f"{alias}." for alias in aliases)):
            names |= {prefix + f.name: prefix + columns[i].name for f, i in zip(columns, means, strict=True)}
    rewrite = Rewriter(lambda name: names.get(name, name))
    changed = rewrite.program(program)
    window = changed.window and LocalTable(WINDOW, _some(changed.window.schema, keeps))
    return replace(changed, parameters=_some(program.parameters, keeps), window=window), tuple(args[i] for i in keeps)


def leaves_window(program: Program) -> bool:
    """Whether a program, or code in Python that it calls, never takes tuples out of its window."""
    deleted = {s.range.table for s in program.statements if isinstance(s, Delete)}
    return WINDOW not in deleted and code_in(program) is None


def begins_with_sqlcode(program: Program) -> bool:
    """Whether what stands before the program's statements can be seen in it."""
    firsts = [state[0] for state in (program.initialize, program.iterate, program.terminate) if state]
    return any(map(sees_sqlcode, firsts))


def sees_sqlcode(statement: Statement) -> bool:
    """Whether a statement looks at what the one before it did."""
    parts = (part for expr in expressions_of(statement) for part in walk(expr))
    return any(isinstance(part, Column) and part.name == SQLCODE for part in parts)


def _together(programs: Sequence[Program], renamed: Sequence[Program]) -> Program:
    return Program(
        name=", ".join(program.name for program in programs),
        parameters=Schema(tuple(field for program in renamed for field in program.parameters)),
        result=Schema(tuple(field for program in renamed for field in program.result)),
        tables=tuple(table for program in renamed for table in program.tables),
        window=None,
        initialize=(),
        iterate=(),
    )


def _returning_together(states: Sequence[tuple[Statement, ...]]) -> tuple[Statement, ...]:
    """The statements of states that return one row each, with one return of all their columns at the end."""
    columns: list[Expr] = []
    ranges: list[Range] = []
    statements: list[Statement] = []
    for state in states:
        place = _place_of_return(state)
        statements += [*state[:place], *state[place + 1 :]]
        (rows,) = sources_of(state[place])
        if rows.is_aggregation:
            # what stands beside a summary is the same for all rows, of which it would be a query by itself
            columns += [
                ScalarQuery(column.type, only) if (only := replace(rows, columns=(column,))).is_aggregation else column
                for column in rows.columns
            ]
        else:
            columns += rows.columns
            ranges += rows.ranges
    return (*statements, Insert(None, (Rows(tuple(columns), tuple(ranges)),)))


def _place_of_return(state: tuple[Statement, ...]) -> int:
    return next(i for i, s in enumerate(state) if isinstance(s, Insert) and s.table is None)


def _some(schema: Schema, places: Sequence[int]) -> Schema:
    return Schema(tuple(schema.fields[i] for i in places))


def _with_window(program: Program) -> Program:
    """The program with a table for its window, even if no statement names it."""
    if program.window is not None:
        return program
    fields = tuple(Field(f"w{i}", field.type) for i, field in enumerate(program.parameters))
    return replace(program, window=LocalTable(WINDOW, Schema(fields)))


def _renamed(program: Program, suffix: str, places: Sequence[int] = (0,)) -> Program:
    """The program with other names for tables, their aliases, parameters and results; the columns of the windows, too,
    which are those at `places` among all over the same tuples."""
    aliases = dict(named_ranges(program))
    windows = {table.name: window_name(place) for table, place in zip(program.windows, places, strict=False)}
    # what all begin with comes last
    prefixes = sorted(((oldest_of(old), oldest_of(new)) for old, new in windows.items()), reverse=True)

    def table(name: str) -> str:
        return windows.get(name, name + suffix)

    def column(name: str) -> str:
        if name == SQLCODE:
            return name
        if name.startswith(OLDEST):
            old, new = next(pair for pair in prefixes if name.startswith(pair[0]))
            return f"{new}{name.removeprefix(old)}{suffix}"
        if name.startswith(":"):
            return name + suffix
        alias = max((a for a in aliases if name.startswith(f"{a}.")), key=len)
        return f"{alias}{suffix}{name.removeprefix(alias)}" + (suffix if aliases[alias] in windows else "")

    changed = Rewriter(column, table, lambda alias: alias + suffix).program(program)
    window = program.window and LocalTable(WINDOW, _suffixed(program.window.schema, suffix))
    return replace(
        changed,
        parameters=_suffixed(program.parameters, suffix),
        result=_suffixed(program.result, suffix),
        tables=tuple(LocalTable(table(local.name), local.schema) for local in program.tables),
        window=window,
    )


def _suffixed(schema: Schema, suffix: str) -> Schema:
    return Schema(tuple(Field(field.name + suffix, field.type) for field in schema))


def named_ranges(program: Program) -> Iterator[tuple[str, str]]:
    """The aliases of a program, each with its table."""
    for statement in program.statements:
        if isinstance(statement, Update | Delete):
            yield statement.range.alias, statement.range.table
        queries = [*sources_of(statement), *(query for expr in expressions_of(statement) for query in queries_of(expr))]
        yield from ((range_.alias, range_.table) for query in queries for range_ in query.ranges)


def _same(name: str) -> str:
    return name


class Rewriter:
    """Gives what statements name other names."""

    def __init__(
        self, column: Callable[[str], str], table: Callable[[str], str] = _same, alias: Callable[[str], str] = _same
    ) -> None:
        self.column, self.table, self.alias = column, table, alias

    def program(self, program: Program) -> Program:
        """The program with other statements, and nothing else changed."""
        return replace(
            program,
            initialize=tuple(map(self.statement, program.initialize)),
            iterate=tuple(map(self.statement, program.iterate)),
            expire=tuple(map(self.statement, program.expire)),
            terminate=tuple(map(self.statement, program.terminate)),
            shorter=tuple(tuple(map(self.statement, state)) for state in program.shorter),
        )

    def statement(self, statement: Statement) -> Statement:
        match statement:
            case Insert(table=table, sources=sources):
                return Insert(None if table is None else self.table(table), tuple(map(self.rows, sources)))
            case Update(range=range_, assignments=assignments, where=where):
                changed = tuple((name, self.expr(value)) for name, value in assignments)
                return Update(self.range(range_), changed, self.optional(where))
            case Delete(range=range_, where=where):
                return replace(statement, range=self.range(range_), where=self.optional(where))

    def range(self, range_: Range) -> Range:
        return Range(self.alias(range_.alias), self.table(range_.table))

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
            case Column(name=name):
                return replace(part, name=self.column(name))
            case Exists() | InQuery() | ScalarQuery():
                return replace(part, query=self.rows(part.query))
        return part

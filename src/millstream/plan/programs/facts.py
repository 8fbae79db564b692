"""What can be told of a program by reading it: which of its tables hold one row, how many rows it returns."""

from __future__ import annotations

from millstream.plan.programs.modes import Mode, Running, Sliding, Tumbling
from millstream.plan.programs.nodes import (
    SQLCODE,
    AggregateValue,
    Delete,
    Insert,
    Program,
    Rows,
    Statement,
    Update,
    column_names,
    expressions_of,
    queries_of,
)


def uses_sqlcode(program: Program) -> bool:
    return any(SQLCODE in column_names(expressions_of(statement)) for statement in program.statements)


def holds_one_row(program: Program, table: str) -> bool:
    """Whether a table provably holds exactly one row whenever it is looked at: INITIALIZE inserts it without a
    condition before anything reads the table, and no other statement inserts or deletes."""
    inserts = [s for s in program.statements if isinstance(s, Insert) and s.table == table]
    if len(inserts) != 1 or any(isinstance(s, Delete) and s.range.table == table for s in program.statements):
        return False
    (insert,) = inserts
    if len(insert.sources) != 1 or insert.sources[0].ranges or insert.sources[0].where is not None:
        return False
    if insert.sources[0].limit is not None or insert not in program.initialize:
        return False
    before = program.initialize[: program.initialize.index(insert) + 1]
    return not any(table in tables_read(statement) for statement in before)


def tables_read(statement: Statement) -> set[str]:
    """The tables that a statement looks at."""
    found = {statement.range.table} if isinstance(statement, Update | Delete) else set()
    queries: list[Rows] = list(statement.sources) if isinstance(statement, Insert) else []
    queries += [query for expr in expressions_of(statement) for query in queries_of(expr)]
    return found | {range_.table for query in queries for range_ in query.ranges}


def returns_one_row(program: Program, mode: Mode) -> bool:
    """Whether every tuple provably returns exactly one row, while it is worked on."""
    if isinstance(mode, Running):
        states = [program.terminate] if mode.total else [program.initialize, program.iterate]
        silent = [program.initialize, program.iterate] if mode.total else []
    elif isinstance(mode, Sliding):
        if mode.every is not None or mode.active:
            return False
        states, silent = [program.initialize, program.iterate], [*program.expiries]
    else:
        assert not isinstance(mode, Tumbling) or mode.size > 0
        return False
    return all(returns_once(program, state) for state in states) and not any(map(_returns, silent))


def _returns(statements: tuple[Statement, ...]) -> list[Insert]:
    return [statement for statement in statements if isinstance(statement, Insert) and statement.table is None]


def returns_once(program: Program, statements: tuple[Statement, ...]) -> bool:
    """Whether the statements of a state provably return exactly one row."""
    returns = _returns(statements)
    if len(returns) != 1 or len(returns[0].sources) != 1:
        return False
    source = returns[0].sources[0]
    if source.is_aggregation:
        sole = source.columns[0]
        many = False
        if len(source.columns) == 1 and isinstance(sole, AggregateValue) and sole.program is not None:
            # Over the window there always is a row to aggregate: the one that came.
            windows = [table.name for table in program.windows]
            whole = len(source.ranges) == 1 and source.ranges[0].table in windows and source.where is None
            many = not (whole and returns_one_row(sole.program, Running(total=True)))
        return not source.group and source.having is None and source.limit is None and not many
    single = all(holds_one_row(program, range_.table) for range_ in source.ranges)
    return single and source.where is None and source.limit is None

"""Which column of a program's table its rows are also kept in the order of: one that statements compare with values, or
ask for the least or greatest of."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.expressions.nodes import Call, Cast, Column, Expr, conjuncts, walk
from millstream.kernels.programs.access import equality
from millstream.plan.programs.modes import Mode, Running
from millstream.plan.programs.nodes import (
    AggregateValue,
    Delete,
    Insert,
    LocalTable,
    Program,
    Rows,
    Statement,
    Update,
    aliases_of,
    expressions_of,
    queries_of,
)
from millstream.types import BIGINT, BOOLEAN, DOUBLE, SqlType

Bound = tuple[str, Expr]
"""A comparison (<, <=, >, >=) of a column with a value that does not depend on its row."""

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def ordered_column(program: Program, mode: Mode, table: LocalTable, index: int | None) -> int | None:
    """The column that statements want a table ordered by, if there is one; `index` is the column of its hash table.

    Only statements that run for every tuple count: to sort for one that runs when a group ends costs more than looking
    at all rows then. Whatever changes the column changes few rows at a time: those with a value of another one.
    """
    # Nothing in a program tells how many rows its tables will hold, so there is no threshold: what order costs where
    # there are few is less than what it saves where there are many. Measured, in ns per tuple, order and scan, with 10,
    # 100, 1,000 and 10,000 rows in the table: greatest of random values 184/77, 437/518, 2,479/4,469, 36,602/53,157 (a
    # new value pushes a quarter of the others aside); count of 5 % of them 143/76, 472/666, 3,197/7,261, …; deletion
    # from below of values that grow, and the least 76/49, 62/456, 163/4,793, ….
    states = [program.iterate, *program.expiries]
    if isinstance(mode, Running) and mode.total:
        states.append(program.terminate)
    wanted: dict[int, int] = {}
    for statement in (statement for state in states for statement in state):
        for alias, where, extremes in _uses(statement, table.name):
            parts = [] if where is None else list(conjuncts(where))
            if index is not None and _is_looked_up(alias, parts, table.schema.fields[index].name):
                continue
            for i, field in enumerate(table.schema):
                if any(bound_on(alias, field.name, part) is not None for part in parts) or field.name in extremes:
                    wanted[i] = wanted.get(i, 0) + 1
    chosen = [i for i in wanted if _is_sortable(table.schema.fields[i].type) and _changes_little(program, table, i)]
    return max(chosen, key=lambda i: (not is_updated(program, table, i), wanted[i]), default=None)


def _is_looked_up(alias: str, parts: list[Expr], name: str) -> bool:
    return any((found := equality(alias, part)) is not None and found[0] == name for part in parts)


def _is_sortable(type_: SqlType) -> bool:
    return type_ != BOOLEAN and not type_.is_coded and type_.name not in ("DECIMAL", "NULL")


def _updates(program: Program, table: LocalTable, column: int) -> Iterator[Update]:
    name = table.schema.fields[column].name
    for statement in program.statements:
        if (
            isinstance(statement, Update)
            and statement.range.table == table.name
            and name in dict(statement.assignments)
        ):
            yield statement


def is_updated(program: Program, table: LocalTable, column: int) -> bool:
    """Whether a statement changes a column."""
    return next(_updates(program, table, column), None) is not None


def _changes_little(program: Program, table: LocalTable, column: int) -> bool:
    name = table.schema.fields[column].name
    for update in _updates(program, table, column):
        parts = [] if update.where is None else list(conjuncts(update.where))
        found = [equality(update.range.alias, part) for part in parts]
        if not any(pair is not None and pair[0] != name for pair in found):
            return False
    return True


def _uses(statement: Statement, table: str) -> Iterator[tuple[str, Expr | None, set[str]]]:
    """Each place where a statement ranges over a table: the alias, its condition, and the columns of which it wants
    nothing but the least or greatest value."""
    if isinstance(statement, Update | Delete) and statement.range.table == table:
        yield statement.range.alias, statement.where, set()
    queries: list[Rows] = list(statement.sources) if isinstance(statement, Insert) else []
    queries += [query for expr in expressions_of(statement) for query in queries_of(expr)]
    for query in queries:
        for range_ in query.ranges:
            if range_.table == table:
                column = extreme_column(query)
                yield range_.alias, query.where, set() if column is None else {column}


def bound_on(alias: str, column: str, part: Expr) -> Bound | None:
    """The comparison and the value of a condition like `alias.column < value`."""
    if not (isinstance(part, Call) and part.fn in _MIRRORED):
        return None
    left, right = part.args
    for fn, mine, other in ((part.fn, left, right), (_MIRRORED[part.fn], right, left)):
        if isinstance(mine, Cast) and mine.arg.type.is_integer and mine.type == BIGINT:
            mine = mine.arg
        if isinstance(mine, Column) and mine.name == f"{alias}.{column}" and alias not in aliases_of(other):
            same = mine.type == other.type or (mine.type.is_integer and other.type.is_integer)
            return (fn, other) if same else None
    return None


def summaries_of(query: Rows) -> list[AggregateValue]:
    """The aggregates of a query."""
    outputs = [*query.columns, *([] if query.having is None else [query.having])]
    return [part for expr in outputs for part in walk(expr) if isinstance(part, AggregateValue)]


def extreme_column(query: Rows) -> str | None:
    """The column of a query's only table of which it wants nothing but the least or greatest value, of all rows or of
    those that lie between bounds."""
    summaries = summaries_of(query)
    if len(query.ranges) != 1 or not summaries or query.group or query.order or query.limit is not None:
        return None
    alias, (first, *_) = query.ranges[0].alias, summaries
    if any(summary.fn not in ("min", "max") or summary.program is not None for summary in summaries):
        return None
    if any(summary.args != first.args for summary in summaries) or not isinstance(first.args[0], Column):
        return None
    own, _, column = first.args[0].name.partition(".")
    parts = [] if query.where is None else conjuncts(query.where)
    within = all(alias not in aliases_of(part) or bound_on(alias, column, part) is not None for part in parts)
    return column if own == alias and within else None


def is_order_free(query: Rows) -> bool:
    """Whether the values of an aggregation do not depend on the order of the rows. Sums of DOUBLEs may, in their last
    digits; so does which of 0.0 and -0.0 is the least."""
    for summary in summaries_of(query):
        type_ = summary.args[0].type if summary.args else BIGINT
        free = summary.fn == "count" or (summary.fn in ("sum", "avg", "min", "max") and type_ != DOUBLE)
        if summary.program is not None or not free:
            return False
    return True

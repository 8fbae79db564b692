"""What a statement reads by name, and how its conditions are taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.tables.allowed import GIVE_TABLES, check_calls, function_name
from millstream.catalog import Entry, TableDef
from millstream.plan.nodes import Kind
from millstream.sql.event_nodes import EventExpression
from millstream.sql.nodes import SideStream
from millstream.sql.patterns import Matching, SequenceMatch
from millstream.sql.relations import Windowed


def is_made(table: exp.Table) -> bool:
    """Whether a function makes the rows of a table, as generate_series does."""
    return isinstance(table.this, exp.Func) and function_name(table.this) in GIVE_TABLES


def is_kept(table: exp.Table) -> bool:
    """Whether it is HISTORY(s): rows that are stored, at this moment."""
    return isinstance(table.this, SideStream) and table.this.kind == "HISTORY"


def tables_of(node: exp.Expr) -> list[exp.Table]:
    """What a statement reads or changes by name, its own WITH queries left out."""
    return [table for table in node.find_all(exp.Table) if table.name and not is_made(table) and not _is_local(table)]


def reads_only(node: exp.Expr, context: Context, kinds: tuple[type[Entry], ...] = (TableDef,)) -> bool:
    """Whether a query reads nothing but entries of these kinds, as they are at a moment."""
    tables = [table for table in node.find_all(exp.Table) if not is_made(table)]
    if any(not table.name or (isinstance(table.this, SideStream) and not is_kept(table)) for table in tables):
        return False
    if any(isinstance(part, Windowed) or part.args.get("stream_of") for part in node.find_all(Windowed, exp.Query)):
        return False
    if node.find(Matching, SequenceMatch, EventExpression) is not None:
        return False
    for table in [table for table in tables if not is_kept(table)]:
        known = context.local.get(table.name.lower())
        if known is not None and known.kind is not Kind.TABLE:
            return False
        if known is None and not _is_local(table) and not isinstance(context.catalog.find(table.name), kinds):
            return False
    return True


def require_known(node: exp.Expr, context: Context) -> None:
    """Refuse what a statement for the table store may not name: tables with a database before them, functions that give
    tables (they read files, settings, or statements from text), and functions that do more than to compute."""
    for table in node.find_all(exp.Table):
        if table.args.get("db") or table.args.get("catalog"):
            context.fail(
                f"no table {table.sql(dialect='duckdb')}",
                table,
                hint="use the table's name without a database",
            )
        called = table.this
        if isinstance(called, exp.Func) and function_name(called) not in GIVE_TABLES:
            context.refuse(f"{function_name(called)} is not allowed in FROM", table, hint="name a stored table")
    check_calls(node, context)


def from_alone(select: exp.Select, columns: list[exp.Expr]) -> exp.Select:
    """The FROM clause of a SELECT, with the queries that it names, and other columns."""
    alone = select.copy()
    for key in [key for key in alone.args if key not in ("with_", "from_", "joins")]:
        alone.set(key, None)
    alone.set("expressions", columns)
    return alone


def conjuncts_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition joined by AND."""
    inside = node
    while isinstance(inside, exp.Paren):
        inside = inside.this
    if isinstance(inside, exp.And):
        yield from conjuncts_of(inside.this)
        yield from conjuncts_of(inside.expression)
    else:
        yield node


def _is_local(table: exp.Table) -> bool:
    """Whether a name means a WITH query: one of a statement around it, listed before the one it stands in, or (WITH
    RECURSIVE) that one itself."""
    within: exp.Expr | None = None
    node: exp.Expr | None = table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            within = node
        with_ = node.args.get("with_")
        recursive = with_ is not None and bool(with_.args.get("recursive"))
        for cte in with_.expressions if with_ is not None else []:
            if cte is within and not recursive:
                break
            if cte.alias.lower() == table.name.lower():
                return True
            if cte is within:
                break
        node = node.parent
    return False

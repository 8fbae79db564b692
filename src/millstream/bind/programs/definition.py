"""CREATE AGGREGATE → a definition: what can be said about it before the types of its arguments are known."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.nested import bind_type
from millstream.bind.scope import did_you_mean
from millstream.catalog import AggregateDef
from millstream.plan.programs.nodes import WINDOW
from millstream.sql.nodes import CreateAggregate, LocalTableClause, Oldest
from millstream.types import SqlType

RETURN = "return"
STATES = ("initialize", "iterate", "expire", "terminate")

Declared = tuple[tuple[str, SqlType | None], ...]


def definition_of(node: CreateAggregate, context: Context) -> AggregateDef:
    """The definition that a statement makes, if its states and tables are in order.

    A body that speaks of the window makes it a window aggregate, whether or not the word WINDOW stands before it.
    """
    name = str(node.name)
    parameters = declared(node.parameters, context)
    window_table = _check_tables(node, context)
    if window_table is not None and len(window_table.columns) != len(parameters):
        context.fail(
            f"inwindow has {len(window_table.columns)} columns, the aggregate {len(parameters)} arguments",
            window_table,
            hint="inwindow holds the arguments: one column for each, in that order",
        )
    oldest = node.find(Oldest)
    if oldest is not None and window_table is None:
        context.fail("oldest() needs the window's table", oldest, hint=_inwindow_of(parameters))
    _check_states(node, context)
    _check_tables_used(node, context, parameters)
    is_window = node.window or window_table is not None or node.state("expire") is not None
    returns = declared(node.returns, context)
    return AggregateDef(name, parameters, returns, node, is_window, bool(node.args.get("algebraic")), context.sql)


def declared(columns: list[exp.ColumnDef], context: Context) -> Declared:
    """The names of columns or parameters with the types that are written there, None where there is none."""
    found: dict[str, SqlType | None] = {}
    for column in columns:
        if column.name.lower() in (name.lower() for name in found):
            context.fail(f"{column.name} is declared twice", column)
        kind = column.args.get("kind")
        found[column.name] = None if kind is None else bind_type(context, kind)
    return tuple(found.items())


def statements_of(node: CreateAggregate) -> list[exp.Expr]:
    """All statements of the body."""
    return [statement for state in STATES for statement in node.state(state) or []]


def target_of(statement: exp.Expr) -> exp.Table:
    """The table that a statement changes."""
    target = statement.this.this if isinstance(statement.this, exp.Schema) else statement.this
    assert isinstance(target, exp.Table)
    return target


def _check_tables(node: CreateAggregate, context: Context) -> LocalTableClause | None:
    """Look for names that are taken; the result is the declaration of the window's table."""
    seen: set[str] = set()
    window = None
    for table in node.tables:
        name = table.name.lower()
        if name == RETURN:
            context.fail("RETURN is the aggregate's result and cannot be declared as a table", table)
        if name in seen:
            context.fail(f"table {table.name} is declared twice", table)
        seen.add(name)
        if name == WINDOW:
            window = table
    return window


def _check_states(node: CreateAggregate, context: Context) -> None:
    for state, when in (("initialize", "the first tuple"), ("iterate", "every other tuple")):
        if node.state(state) is None:
            context.fail(
                f"aggregate {node.name} has no {state.upper()}",
                node.this,
                hint=f"{state.upper()}: {{ … }} says what to do at {when}; "
                "INITIALIZE: ITERATE: { … } is one body for both",
            )
    if not any(
        isinstance(statement, exp.Insert) and target_of(statement).name.lower() == RETURN
        for statement in statements_of(node)
    ):
        context.fail(
            f"aggregate {node.name} never returns a row",
            node.this,
            hint="add INSERT INTO RETURN … to one of its states",
        )


def _check_tables_used(node: CreateAggregate, context: Context, parameters: Declared) -> None:
    known = [table.name for table in node.tables]
    for statement in statements_of(node):
        if (with_ := statement.find(exp.With)) is not None:
            context.refuse(
                "WITH is not allowed inside an aggregate", with_, hint="keep the rows in a table of the body"
            )
        target = target_of(statement)
        for table in statement.find_all(exp.Table):
            name = table.name
            if table.args.get("db") is not None or table.alias_column_names:
                context.refuse("name a table of the body, optionally with AS alias", table)
            if name.lower() == RETURN:
                if table is not target or not isinstance(statement, exp.Insert):
                    context.refuse("RETURN can only be used in INSERT", table, hint="keep the rows in a table")
            elif name.lower() == WINDOW and table is target and not isinstance(statement, exp.Delete):
                context.refuse(
                    "statements cannot insert into inwindow",
                    table,
                    hint="statements may read it and delete from it",
                )
            elif name.lower() in (other.lower() for other in known) or not name:
                continue
            elif name.lower() == WINDOW:
                context.fail("the window's table is not declared", table, hint=_inwindow_of(parameters))
            elif context.catalog.find(name) is not None:
                context.refuse(
                    f"an aggregate cannot use {name} yet",
                    table,
                    detail="its statements see only the tables declared in its body",
                    hint="pass what it needs as arguments",
                )
            else:
                hint = did_you_mean(name, known) or f"declare it in the body: TABLE {name}(…)"
                context.fail(f"no table {name} in aggregate {node.name}", table, hint=hint)


def _inwindow_of(parameters: Declared) -> str:
    return f"declare it in the body: TABLE inwindow({', '.join(f'w_{name}' for name, _ in parameters)})"

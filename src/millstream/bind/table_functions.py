"""Functions that return tables: a call in FROM is replaced by the function's query."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.catalog import FunctionDef
from millstream.types import SqlType

MOST_DEEP = 20
"""How many functions may stand inside of each other."""
MOST_CALLS = 100
"""How many calls a statement may come to, those in functions included: functions that call others twice double them."""


def with_table_functions(node: exp.Expr, context: Context) -> exp.Expr:
    """The statement with queries for calls of functions that return tables."""
    if isinstance(node, exp.Create) and str(node.args.get("kind")).upper() == "FUNCTION":
        return node
    made = 0
    for depth in range(MOST_DEEP + 1):
        calls = [call for table in node.find_all(exp.Table) if (call := _call(table, context)) is not None]
        if not calls:
            break
        if depth == MOST_DEEP:
            context.fail("functions that return tables call each other endlessly", calls[0][0])
        made += len(calls)
        if made > MOST_CALLS:
            context.fail(
                f"more than {MOST_CALLS} calls of functions that return tables",
                calls[0][0],
                hint="name a part of it: CREATE STREAM part AS SELECT … FROM f(…)",
            )
        for table, function, arguments in calls:
            table.replace(_query(table, function, arguments, context))
    return node


def _call(table: exp.Table, context: Context) -> tuple[exp.Table, FunctionDef, list[exp.Expr]] | None:
    """A call in FROM, `f(…)` or `TABLE(f(…))`, of a function that returns a table."""
    call = table.this
    if isinstance(call, exp.Anonymous) and call.name.upper() == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if not isinstance(call, exp.Anonymous):
        return None
    function = context.catalog.function(call.name)
    return None if function is None or not function.is_table else (table, function, list(call.expressions))


def _query(table: exp.Table, function: FunctionDef, arguments: list[exp.Expr], context: Context) -> exp.Subquery:
    if len(arguments) != len(function.parameters):
        count = len(function.parameters)
        context.fail(f"{function.name} takes {count} argument{'s' * (count != 1)}, got {len(arguments)}", table)
    for argument in arguments:
        if (column := argument.find(exp.Column)) is not None:
            context.refuse(
                f"{function.name} takes constant arguments only",
                column,
                detail="its query cannot refer to other entries of FROM",
                hint="use UNNEST for rows that depend on a row",
            )
    query = filled(function, [argument.copy() for argument in arguments])
    for part in query.walk():
        # errors are the caller's: positions of another text mean nothing here
        if part._meta:
            part._meta = {key: value for key, value in part._meta.items() if key not in ("start", "end")}
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(function.name))
    return exp.Subquery(this=query, alias=alias.copy())


def filled(function: FunctionDef, arguments: list[exp.Expr]) -> exp.Expr:
    """The query of a function with these arguments for its parameters."""
    assert function.body is not None
    values = {
        name.lower(): _cast(argument, type_)
        for (name, type_), argument in zip(function.parameters, arguments, strict=True)
    }

    def change(part: exp.Expr) -> exp.Expr:
        is_parameter = isinstance(part, exp.Column) and not part.table and part.name.lower() in values
        return values[part.name.lower()].copy() if is_parameter else part

    return function.body.copy().transform(change)


def _cast(argument: exp.Expr, type_: SqlType) -> exp.Expr:
    return exp.Cast(this=argument, to=exp.DataType.build(str(type_), dialect="duckdb"))

"""UNNEST in FROM: the elements of an array beside the row that holds it."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.nested import bind_type
from millstream.bind.queries.outputs import alias_columns
from millstream.bind.scope import Item, Scope
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Literal
from millstream.plan import nodes as P
from millstream.plan.unnest import Unnest
from millstream.schema import Field, Schema
from millstream.sql.nodes import JsonTable
from millstream.types import JSON, VARCHAR


def is_unnest(node: exp.Expr) -> bool:
    """Whether an entry of FROM is UNNEST(…) or JSON_TABLE(…)."""
    if not isinstance(node, exp.Table):
        return False
    return isinstance(node.this, JsonTable) or (
        isinstance(node.this, exp.Anonymous) and node.this.name.upper() == "UNNEST"
    )


def _word(table: exp.Table) -> str:
    return "JSON_TABLE" if isinstance(table.this, JsonTable) else "UNNEST"


def split_unnests(joins: list[exp.Join], context: Context) -> tuple[list[exp.Join], list[exp.Join]]:
    """The joins of a FROM clause, and those with UNNEST behind them."""
    first = next((place for place, join in enumerate(joins) if is_unnest(join.this)), len(joins))
    for join in joins[first:]:
        if not is_unnest(join.this):
            context.refuse(
                f"{_word(joins[first].this)} comes last in FROM",
                join,
                hint="join first, or put UNNEST into a subquery: (SELECT … FROM s, UNNEST(tags) AS u(tag))",
            )
    return joins[:first], joins[first:]


def unnest(plan: P.Node, scope: Scope, joins: list[exp.Join], context: Context) -> tuple[P.Node, Scope]:
    """The rows, each once for every element of the arrays, and the names with those of the elements."""
    for join in joins:
        plan, scope = _unnested(plan, scope, join, context)
    return plan, scope


def _unnested(plan: P.Node, scope: Scope, join: exp.Join, context: Context) -> tuple[P.Node, Scope]:
    table = join.this
    _check_join(join, plan, context)
    if isinstance(table.this, JsonTable):
        return _json_rows(plan, scope, table, context)
    arguments = table.this.expressions
    if len(arguments) != 1:
        context.fail("UNNEST takes one array", table, hint="FROM s, UNNEST(tags) AS u(tag)")
    array = ExpressionBinder(context, scope).bind(arguments[0])
    is_map = array.type.is_map
    if is_map:
        array = functions.resolve("map_entries", (array,))
    if array.type.element is None:
        context.fail(
            f"UNNEST takes an array or a map, not {array.type}", arguments[0], hint="FROM s, UNNEST(tags) AS u(tag)"
        )
    alias = table.alias or "unnest"
    fields = [name for name, _ in array.type.element.fields]
    columns = alias_columns(table) or (tuple(fields) if is_map else (alias,))
    if len(columns) not in ({2} if is_map else {1, len(fields)} - {0}):
        wanted = "two columns" if is_map else "one column"
        hint = "AS u(k, v)" if is_map else "one name for the struct, or one for each field" if fields else "AS u(tag)"
        given = f"{len(columns)} name{'s' * (len(columns) > 1)}"
        context.fail(f"{given} for {wanted}", table.args["alias"], hint=hint)
    if any(item.alias.lower() == alias.lower() for item in scope.items):
        context.fail(f"{alias} appears twice in FROM", table, hint="give one of them an alias with AS")
    prefix = f"${len(scope.items)}.{alias}."
    if not isinstance(array, Column):
        plan = P.Project(plan, (*P.passthrough(plan.schema), (f"{prefix}$array", array)))
        array = Column(array.type, f"{prefix}$array")
    if len(columns) == 1:
        plan = Unnest(plan, array.name, prefix + columns[0])
    else:
        plan = _apart(Unnest(plan, array.name, f"{prefix}$element"), f"{prefix}$element", prefix, columns)
    item = Item(alias, Schema(tuple(Field(name, plan.schema[prefix + name].type) for name in columns)), prefix)
    return plan, replace(scope, items=(*scope.items, item))


def _json_rows(plan: P.Node, scope: Scope, table: exp.Table, context: Context) -> tuple[P.Node, Scope]:
    """A row for each element of an array in JSON, with columns taken from the element."""
    node, alias = table.this, table.alias or "json_table"
    if any(item.alias.lower() == alias.lower() for item in scope.items):
        context.fail(f"{alias} appears twice in FROM", table, hint="give one of them an alias with AS")
    prefix = f"${len(scope.items)}.{alias}."
    binder = ExpressionBinder(context, scope)
    with context.blaming(node):
        elements = functions.resolve("json_elements", (binder.bind(node.this), binder.bind(node.args["path"])))
    plan = P.Project(plan, (*P.passthrough(plan.schema), (f"{prefix}$array", elements)))
    plan = Unnest(plan, f"{prefix}$array", f"{prefix}$element")
    element = Column(JSON, f"{prefix}$element")
    fields: list[Field] = []
    columns = []
    for column in node.args["columns"]:
        if any(field.name.lower() == column.name.lower() for field in fields):
            context.fail(
                f"two columns are called {column.name}",
                column,
                hint="rename one, and say where it is: name2 JSON PATH '$.name'",
            )
        type_ = bind_type(context, column.args["kind"])
        given = column.args.get("path")
        path = Literal(VARCHAR, f'$."{column.name}"') if given is None else binder.bind(given)
        with context.blaming(column):
            value = functions.resolve("json_extract" if type_ == JSON else "json_value", (element, path))
            columns.append((prefix + column.name, functions.cast(value, type_, safe=True)))
        fields.append(Field(column.name, type_))
    hidden = (f"{prefix}$array", f"{prefix}$element")
    kept = (kept for kept in P.passthrough(plan.schema) if kept[0] not in hidden)
    with context.blaming(node):
        item = Item(alias, Schema(tuple(fields)), prefix)
    return P.Project(plan, (*kept, *columns)), replace(scope, items=(*scope.items, item))


def _apart(plan: P.Node, element: str, prefix: str, columns: tuple[str, ...]) -> P.Node:
    """The fields of a struct, instead of it, under names of their own."""
    struct = Column(plan.schema[element].type, element)
    fields = (functions.field(struct, name) for name, _ in struct.type.fields)
    kept = (kept for kept in P.passthrough(plan.schema) if kept[0] != element)
    return P.Project(plan, (*kept, *zip((prefix + name for name in columns), fields, strict=True)))


def _check_join(join: exp.Join, plan: P.Node, context: Context) -> None:
    on = join.args.get("on")
    is_true = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
    if join.args.get("side") or join.args.get("method") or join.args.get("using") or not is_true:
        context.refuse(
            f"{_word(join.this)} must follow a comma or CROSS JOIN",
            join,
            detail="its rows are the elements of the row before it, so there is nothing to compare",
            hint="FROM s CROSS JOIN UNNEST(tags) AS u(tag), with conditions in WHERE",
        )
    if plan.kind is not P.Kind.EVENTS:
        what = "a relation" if plan.kind is P.Kind.RELATION else "a stored table"
        hint = "use UNNEST before the window: (SELECT … FROM s, UNNEST(…) AS u(x)) WINDOW(…)"
        context.refuse(
            f"{_word(join.this)} needs a stream, not {what}", join, hint=hint if plan.kind is P.Kind.RELATION else None
        )

"""CREATE QUERIES: a query for each row of a stored table.

The table is one of those in FROM. Its columns become parameters of the query over the rest, so the queries are a set
of one shape, as `sql_many` starts them.
"""

from __future__ import annotations

import re

from sqlglot import exp

from millstream.bind.actions import StartSet
from millstream.bind.context import Context
from millstream.catalog import Entry, SinkDef, TableDef
from millstream.sql import to_sql
from millstream.sql.nodes import CreateQueries


def create_queries(node: CreateQueries, context: Context) -> StartSet:
    """The set of queries that a statement asks for."""
    query = node.args["query"].copy()
    if not isinstance(query, exp.Select) or query.args.get("from_") is None:
        context.fail("CREATE QUERIES takes a SELECT with the table of constants in its FROM", node.args["query"])
    place, table = _constants(query, context, node)
    key = _key_of(table, context, node)
    alias = (place.alias or place.name).lower()
    others = _columns_of_others(query, place, context)
    for star in query.find_all(exp.Star):
        if star.parent is query or (isinstance(star.parent, exp.Column) and star.parent.table.lower() == alias):
            context.refuse("* would include the constants", node, hint="name the columns that results have")
    for column in list(query.find_all(exp.Column)):
        own = table.schema.names if column.table.lower() == alias else ()
        if not column.table:
            own = tuple(name for name in table.schema.names if name.lower() not in others)
        found = next((name for name in own if name.lower() == column.name.lower()), None)
        if found is None and column.table.lower() == alias:
            context.fail(
                f"no column {column.name} in {table.name}", column, hint=f"available: {', '.join(table.schema.names)}"
            )
        if found is not None:
            _become_parameter(column, found, context)
    _leave_out(query, place, context, node)
    sink = None
    if node.args.get("sink") is not None:
        sink = context.catalog.get(node.args["sink"].name, SinkDef)
    return StartSet(str(node.name), to_sql(query), table.name, key, sink)


def _become_parameter(column: exp.Column, name: str, context: Context) -> None:
    if re.fullmatch(r"\w+", name) is None:
        context.refuse(f"column {name} cannot be a constant of queries", column, hint="give it a name of letters")
    parameter: exp.Expr = exp.Var(this=f"${name}")
    if isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        parameter = exp.Alias(this=parameter, alias=exp.to_identifier(column.name))
    column.replace(parameter)


def _constants(query: exp.Select, context: Context, node: CreateQueries) -> tuple[exp.Table, TableDef]:
    """The first stored table in FROM."""
    for source in (query.args["from_"], *(query.args.get("joins") or ())):
        if isinstance(source.this, exp.Table):
            entry = context.catalog.find(source.this.name)
            if isinstance(entry, TableDef):
                return source.this, entry
    return context.fail(
        "no stored table in FROM",
        node.args["query"],
        hint="CREATE QUERIES q AS SELECT … FROM constants, stream WHERE …",
    )


def _key_of(table: TableDef, context: Context, node: CreateQueries) -> str:
    """The column that tells the queries apart."""
    if len(table.primary_key) == 1:
        return table.primary_key[0]
    return context.refuse(
        f"table {table.name} has no PRIMARY KEY of one column",
        node,
        detail="the key identifies each query; results have it in the column query",
        hint=f"CREATE TABLE {table.name} (id … PRIMARY KEY, …)",
    )


def _columns_of_others(query: exp.Select, place: exp.Table, context: Context) -> set[str]:
    """The columns of all else that the query reads by name."""
    entries = (context.catalog.find(table.name) for table in query.find_all(exp.Table) if table is not place)
    return {name.lower() for entry in entries for name in _columns(entry)}


def _columns(entry: Entry | None) -> tuple[str, ...]:
    return tuple(getattr(getattr(entry, "schema", None), "names", ()))


def _leave_out(query: exp.Select, place: exp.Table, context: Context, node: CreateQueries) -> None:
    """Take the table out of FROM; what joined it is a condition of the query."""
    joins: list[exp.Join] = list(query.args.get("joins") or ())
    own = next((join for join in joins if join.this is place), None)
    if own is not None:
        if own.args.get("side") or own.args.get("using") or str(own.args.get("kind") or "").upper() in ("SEMI", "ANTI"):
            context.refuse(
                f"{place.name} must be joined by a condition in WHERE", node, hint="FROM constants, stream WHERE …"
            )
        joins.remove(own)
        condition = own.args.get("on")
    else:
        if not joins or joins[0].args.get("side") or joins[0].args.get("using"):
            context.refuse(
                "a set of queries must read a stream, not only its constants",
                node,
                hint="FROM constants, stream WHERE …",
            )
        first = joins.pop(0)
        condition = first.args.get("on")
        query.set("from_", exp.From(this=first.this))
    query.set("joins", joins or None)
    if condition is not None:
        query.where(condition, copy=False)

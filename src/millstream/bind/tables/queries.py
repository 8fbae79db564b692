"""Queries over stored tables alone inside a query over streams: the table store answers them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millstream import sealed_duckdb
from millstream.bind.context import Context
from millstream.bind.queries.joins import FromEntry
from millstream.bind.queries.outputs import Bound
from millstream.bind.reads import from_alone, is_made, reads_only, require_known, tables_of
from millstream.bind.scope import Scope
from millstream.bind.tables.aggregates import own_aggregates
from millstream.bind.tables.text import store_sql
from millstream.catalog import TableDef
from millstream.errors import BindError
from millstream.expressions.nodes import Column
from millstream.plan import nodes as P
from millstream.schema import Field, Schema, unique_names
from millstream.types import BIGINT, from_duckdb

_MORE = ("group", "distinct", "having", "qualify", "limit", "offset", "order", "joins", "windows", "laterals")
"""clauses of a SELECT that only the table store answers"""


def is_table_query(node: exp.Expr, context: Context) -> bool:
    """Whether a query reads stored tables alone, and does more than to filter and compute rows of one."""
    if context.domain is not None or not reads_only(node, context):
        return False
    if not isinstance(node, exp.Select):
        return True
    parts = [*node.expressions, *([node.args["where"]] if node.args.get("where") else [])]
    is_more = any(node.args.get(key) for key in _MORE) or node.args.get("from_") is None
    is_more = is_more or any(map(is_made, node.find_all(exp.Table)))
    return is_more or any(part.find(exp.Query, exp.AggFunc, exp.Window) is not None for part in parts)


def bind_table_query(node: exp.Expr, context: Context) -> Bound:
    """The answer of a query that reads stored tables alone."""
    require_known(node, context)
    for table in tables_of(node):
        entry = context.catalog.find(table.name)
        if table.name.lower() not in context.local and not isinstance(entry, TableDef):
            context.fail(f"no table {table.name}", table, hint=context.catalog.suggest(table.name))
    if own_aggregates(node, context) is not None:
        context.refuse(
            "an aggregate written in SQL or Python over a table next to a stream is not supported",
            node,
            hint="store its rows with CREATE TABLE … AS, and use that table",
        )
    written = _with_local(node, context)
    names = tuple(dict.fromkeys(_stored_names(written, context)))
    given, schema = _described(store_sql(written), names, node, context)
    listed = ", ".join(exp.to_identifier(field.name, quoted=True).sql(dialect="duckdb") for field in schema)
    sql = f"SELECT * FROM ({store_sql(written)}) AS q({listed})"
    context.uses.update(names)
    return Bound(P.TableQuery(sql, names, schema), given)


def join_tables(select: exp.Select, sources: list[FromEntry], context: Context) -> tuple[P.Node, Scope]:
    """The rows of a FROM clause of stored tables alone, under the names that joins of streams give to columns."""
    items = [source.item(source.prefix(place)) for place, source in enumerate(sources)]
    columns = [
        exp.alias_(exp.column(field.name, item.alias or None, quoted=True), item.prefix + field.name, quoted=True)
        for item in items
        for field in item.schema
    ]
    merged: dict[str, Column] = {}
    for source, item in zip(sources, items, strict=True):
        for shared in (source.join.args.get("using") or []) if source.join is not None else []:
            owner = next((other for other in items if shared.name in other.schema), item)
            side = str(source.join.args.get("side") or "").upper() if source.join is not None else ""
            merged[shared.name.lower()] = (item if side == "RIGHT" else owner).column(shared.name)
    return bind_table_query(from_alone(select, columns), context).plan, Scope(context, tuple(items), merged)


def _with_local(node: exp.Expr, context: Context) -> exp.Expr:
    """The query with those WITH queries of the statement around it that it reads."""
    needed: dict[str, exp.CTE] = {}

    def need(part: exp.Expr) -> None:
        for table in part.find_all(exp.Table):
            name = table.name.lower()
            if name in context.written and name not in needed and not _defines(part, name):
                need(context.written[name])
                needed[name] = context.written[name]

    need(node)
    if not needed:
        return node
    whole = node.copy()
    own = whole.args.get("with_")
    ctes = [*(cte.copy() for cte in needed.values()), *(own.expressions if own is not None else [])]
    whole.set("with_", exp.With(expressions=ctes, recursive=own is not None and own.args.get("recursive")))
    return whole


def _defines(node: exp.Expr, name: str) -> bool:
    return any(cte.alias.lower() == name for cte in node.find_all(exp.CTE))


def _stored_names(node: exp.Expr, context: Context) -> Iterable[str]:
    for table in tables_of(node):
        entry = context.catalog.find(table.name)
        if isinstance(entry, TableDef):
            yield entry.name


def _described(
    sql: str, tables: tuple[str, ...], node: exp.Expr, context: Context
) -> tuple[tuple[str, ...], Schema]:  # fmt: skip
    """The names that a query gives to its columns, and the columns under names that differ."""
    import duckdb

    with sealed_duckdb.connect() as store:
        for name in tables:
            columns = context.catalog.get(name, TableDef).schema
            listed = ", ".join(f"{_quoted(field.name)} {field.type.stored}" for field in columns)
            store.execute(f"CREATE TABLE {_quoted(name)} ({listed})")
        try:
            answer = store.sql(f"SELECT * FROM ({sql}) LIMIT 0")
            given, kinds, arrow = answer.columns, answer.types, answer.to_arrow_table().schema
        except duckdb.Error as error:
            message = str(error).splitlines()[0].removeprefix("Binder Error: ")
            context.fail(message, node)
    fields: list[Field] = []
    for name, kind, column in zip(unique_names(given), kinds, arrow, strict=True):
        # sums of whole numbers are BIGINT here
        type_ = BIGINT if str(kind) == "HUGEINT" else from_duckdb(str(kind), column.type)
        if type_ is None:
            raise BindError(f"column {column.name} has the type {kind}, which is not supported", hint="CAST it")
        fields.append(Field(name, type_))
    return tuple(given), Schema(tuple(fields))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""Statements → what the session is to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from sqlglot import exp

from millstream.bind.actions import (
    Action,
    AlterQuery,
    AlterStream,
    AlterWindow,
    BackUp,
    ChangeRows,
    ChangeSetting,
    Define,
    DescribeEntry,
    ExplainPlan,
    ForgetSet,
    KeepSet,
    OnTables,
    PauseQuery,
    Publish,
    PushRows,
    Remove,
    SetPlace,
    ShowList,
    StartQuery,
    StartSet,
    StopQuery,
    changes,
)
from millstream.bind.context import Context
from millstream.bind.delivery import delivered
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.history import (
    asked_history,
    bind_alter_query,
    bind_alter_stream,
    history_name,
    with_histories,
)
from millstream.bind.nested import bind_type
from millstream.bind.patterns.outside import check_stars
from millstream.bind.programs import define_aggregate
from millstream.bind.queries.outputs import Bound
from millstream.bind.queries.select import bind_named, bind_query
from millstream.bind.query_sets import create_queries
from millstream.bind.reads import reads_only, require_known, tables_of
from millstream.bind.streams import columns_of, create_stream, kept_text, options_given, require_stream
from millstream.bind.table_functions import filled, with_table_functions
from millstream.bind.tables.aggregates import in_store_terms, own_aggregates
from millstream.bind.tables.constraints import constraints_of
from millstream.bind.tables.text import store_sql
from millstream.bind.upserts import insert_into_sink, insert_into_table
from millstream.catalog import (
    AggregateDef,
    Catalog,
    DerivedDef,
    Entry,
    FunctionDef,
    SinkDef,
    StreamDef,
    TableDef,
    ViewDef,
    aggregate_use,
)
from millstream.errors import refusing_depth
from millstream.expressions.nodes import Column
from millstream.plan.nodes import Kind
from millstream.sql import history as H
from millstream.sql import to_sql
from millstream.sql.nodes import (
    Backup,
    CreateAggregate,
    CreateQueries,
    CreateSink,
    CreateStream,
    Explain,
    ResetOption,
    SetLocation,
    SetOption,
    Show,
    Stop,
)
from millstream.sql.relations import CreateView
from millstream.types import SqlType, common_type

__all__ = [
    "Action",
    "AlterQuery",
    "AlterStream",
    "AlterWindow",
    "BackUp",
    "ChangeRows",
    "ChangeSetting",
    "Define",
    "DescribeEntry",
    "ExplainPlan",
    "ForgetSet",
    "KeepSet",
    "OnTables",
    "PauseQuery",
    "Publish",
    "PushRows",
    "StartQuery",
    "StartSet",
    "Remove",
    "SetPlace",
    "ShowList",
    "StopQuery",
    "bind",
    "changes",
    "delivered",
]

STORED: tuple[type[Entry], ...] = (TableDef, ViewDef)
"""what has a content at this moment"""

DROPPABLE: dict[str, tuple[type[Entry], ...]] = {
    "STREAM": (StreamDef, DerivedDef),
    "VIEW": (ViewDef,),
    "TABLE": (TableDef,),
    "SINK": (SinkDef,),
    "FUNCTION": (FunctionDef,),
    "AGGREGATE": (AggregateDef,),
}


@refusing_depth()
def bind(node: exp.Expr, catalog: Catalog, sql: str, parameters: Mapping[str, SqlType] | None = None) -> Action:
    """What a statement asks for; every mistake in it is an error that underlines its place in `sql`. `parameters` are
    those that stay open, with their types."""
    context = Context(catalog, sql, parameters=parameters or {})
    node = with_table_functions(node, context)
    check_stars(node, context)
    match node:
        case CreateStream():
            return create_stream(node, context)
        case CreateView():
            return _create_view(node, context)
        case CreateSink():
            return _create_sink(node, context)
        case CreateQueries():
            return create_queries(node, context)
        case exp.Create() if str(node.args.get("kind")).upper() == "TABLE":
            return _create_table(node, context)
        case exp.Create() if str(node.args.get("kind")).upper() == "FUNCTION":
            return _create_function(node, context)
        case CreateAggregate():
            return _create_aggregate(node, context)
        case exp.Drop():
            return _drop(node, context)
        case exp.Insert():
            return _insert(node, context)
        case exp.Update() | exp.Delete():
            return _on_tables(node, context, is_query=False)
        case Explain():
            inner = _explained(node.this, catalog, sql, context)
            return ExplainPlan(inner, str(node.args.get("mode") or "").upper())
        case Show():
            return ShowList(node.kind.upper())
        case exp.Describe():
            return DescribeEntry(str(node.this.name))
        case Stop():
            return StopQuery(str(node.name), whole=True)
        case H.StreamAlteration():
            return bind_alter_stream(node, context)
        case H.QueryAlteration():
            return bind_alter_query(node, _altered(node, context))
        case H.Pause():
            return PauseQuery(str(node.name), bool(node.args.get("resume")))
        case Backup():
            return BackUp(node.this.name)
        case SetOption():
            return ChangeSetting(node.name.lower(), node.value)
        case SetLocation():
            directory = node.expression.name if node.args.get("expression") is not None else None
            return SetPlace(str(node.name), directory, bool(node.args.get("read_only")))
        case ResetOption():
            return ChangeSetting(node.name.lower())
        case exp.Select() | exp.SetOperation() | exp.Subquery():
            return bind_select_statement(node, context)
    return context.fail(f"{node.key.upper()} is not supported", node)


def bind_select_statement(node: exp.Expr, context: Context) -> StartQuery | Publish | OnTables:
    """A query over streams, or an ad-hoc query on stored tables and views."""
    if reads_only(node, context, STORED):
        return _on_tables(node, context, is_query=True)
    bound = _bind_stream(node, context)
    query = StartQuery(bound, frozenset(context.uses), history=asked_history(node, bound.plan, context))
    if not context.published:
        return query
    streams = tuple(Define(entry, uses=query.uses) for entry in context.published.values())
    return Publish(streams, query, node.args.get("publish") is not None)


def _bind_stream(node: exp.Expr, context: Context) -> Bound:
    bound = bind_query(node, context)
    require_stream(bound, node, context)
    return delivered(bound, context)


def _altered(node: H.QueryAlteration, context: Context) -> StartQuery | None:
    """The query that is to take the place of another."""
    query = node.args.get("query")
    if query is None:
        return None
    bound = bind_select_statement(query, context)
    if not isinstance(bound, StartQuery):
        context.fail("a query over streams is expected here", query)
    return bound


def _explained(node: exp.Expr, catalog: Catalog, sql: str, context: Context) -> StartQuery | AlterQuery | AlterWindow:
    action = bind(node, catalog, sql)
    match action:
        case StartQuery() | AlterQuery() | AlterWindow():
            return action
        case Publish(query=query):
            return query
        case Define(entry=DerivedDef() | ViewDef() | StreamDef() as entry, uses=uses) if entry.plan is not None:
            bound, is_view = delivered(Bound(entry.plan, entry.schema.names), context), isinstance(entry, ViewDef)
            return StartQuery(bound, uses, history=action.history, view=is_view)
    return context.fail("EXPLAIN takes a query over streams", node)


def _create_view(node: CreateView, context: Context) -> Define:
    text, names = to_sql(node), tuple(column.name for column in node.columns)
    bound = bind_named(node.query, context, node, names or None)
    if bound.plan.kind is not Kind.RELATION:
        if bound.plan.kind is Kind.TABLE:
            context.refuse(
                "a view of stored tables alone",
                node.query,
                detail="a view shows the content of windows over streams",
                hint="query the tables themselves, or store the rows: CREATE TABLE … AS",
            )
        context.refuse(
            "a view needs a relation",
            node.query,
            detail="over a stream it would only contain the rows of the current instant",
            hint="give its streams windows: FROM s WINDOW(RANGE 10 MINUTES), or use CREATE STREAM … AS",
        )
    text = kept_text(text, str(node.name), context)
    entry = ViewDef(str(node.name), bound.plan, bound.names, to_sql(node.query), text)
    replace, quiet = bool(node.args.get("or_replace")), bool(node.args.get("if_not_exists"))
    history = asked_history(node.query, bound.plan, context)
    return Define(entry, replace, quiet, frozenset(context.uses), history=history)


def _create_sink(node: CreateSink, context: Context) -> Define | StartQuery:
    sink = SinkDef(str(node.name), options_given(node, context))
    query = node.args.get("query")
    if query is None:
        return Define(sink, bool(node.args.get("or_replace")), bool(node.args.get("if_not_exists")))
    return insert_into_sink(query, sink, context)


def _create_table(node: exp.Create, context: Context) -> Define | OnTables:
    replace, quiet = bool(node.args.get("replace")), bool(node.args.get("exists"))
    if node.expression is not None:
        target = node.this
        if isinstance(target, exp.Schema):
            context.refuse(
                "a table has either declared columns or a query", target, hint="name and CAST columns in the query"
            )
        if not reads_only(node.expression, context, STORED):
            context.refuse(
                "a table cannot be made from a stream that never ends", node.expression, hint="use CREATE STREAM … AS"
            )
        action = _on_tables(node.expression, context, is_query=True)
        return dataclasses.replace(action, is_query=False, create=(target.name, replace))
    schema = node.this
    table = schema.this if isinstance(schema, exp.Schema) else schema
    elements = schema.expressions if isinstance(schema, exp.Schema) else []
    columns = columns_of([each for each in elements if isinstance(each, exp.ColumnDef)], context, node)
    entry = TableDef(table.name, columns, constraints_of(elements, columns, context))
    return Define(entry, replace, quiet, rows_from=options_given(node, context) or None)


def _create_function(node: exp.Create, context: Context) -> Define:
    signature = node.this
    parameters: list[tuple[str, SqlType]] = []
    for parameter in signature.expressions:
        kind = parameter.args.get("kind")
        if not isinstance(parameter, exp.ColumnDef) or kind is None:
            context.fail("a parameter needs a type", parameter, hint="CREATE FUNCTION f(x DOUBLE) AS x * 2")
        parameters.append((parameter.name, bind_type(context, kind)))
    body = node.expression
    if isinstance(body, exp.Return):
        body = body.this
    if body is None:
        context.fail("a function needs a body", node, hint="CREATE FUNCTION f(x DOUBLE) AS x * 2")
    name = signature.this.name if isinstance(signature.this, exp.Expr) else str(signature.this)
    returns = node.find(exp.ReturnsProperty)
    if returns is not None and isinstance(returns.this, exp.Var):
        function = FunctionDef(name, tuple(parameters), None, body, is_table=True)
        # bound once, so that mistakes are found now
        bind_select_statement(
            with_table_functions(filled(function, [exp.Null() for _ in parameters]), context), context
        )
        return Define(function, bool(node.args.get("replace")), uses=frozenset(context.uses))
    return_type = None if returns is None else bind_type(context, returns.this)
    arguments = {name.lower(): Column(type_, name) for name, type_ in parameters}
    bound = ExpressionBinder(context, None, None, dict(arguments)).bind(body)
    if return_type is not None and common_type(bound.type, return_type) is None:
        context.fail(f"the body is {bound.type}, the function returns {return_type}", body)
    return Define(FunctionDef(name, tuple(parameters), return_type, body), bool(node.args.get("replace")))


def _create_aggregate(node: CreateAggregate, context: Context) -> Define:
    definition = define_aggregate(node, context)
    uses = frozenset(context.uses - {aggregate_use(definition.name)})
    return Define(definition, bool(node.args.get("or_replace")), bool(node.args.get("if_not_exists")), uses)


def _drop(node: exp.Drop, context: Context) -> Remove | StopQuery:
    kind = str(node.args.get("kind") or "").upper()
    if len(node.args["tables"]) != 1:
        context.fail("DROP takes one name", node)
    name = node.args["tables"][0].name
    if kind in ("QUERY", "QUERIES"):
        return StopQuery(name, whole=True)
    if kind not in DROPPABLE:
        context.fail(
            f"DROP {kind} is not supported", node, hint="DROP STREAM, VIEW, TABLE, SINK, FUNCTION, AGGREGATE or QUERY"
        )
    if node.args.get("cascade") and (users := context.catalog.users_of(name)):
        context.refuse(
            f"{name} is used by {', '.join(users)}, and CASCADE does not drop those",
            node,
            hint="drop or stop them first",
        )
    return Remove(name, DROPPABLE[kind], bool(node.args.get("exists")))


def _insert(node: exp.Insert, context: Context) -> StartQuery | OnTables | PushRows:
    target = node.this.this if isinstance(node.this, exp.Schema) else node.this
    entry = context.catalog.find(target.name)
    match entry:
        case SinkDef():
            if not isinstance(node.expression, exp.Query):
                context.fail("a sink takes the rows of a query", node, hint=f"INSERT INTO {entry.name} SELECT …")
            context.uses.add(entry.name)
            return insert_into_sink(node.expression, entry, context)
        case TableDef():
            if isinstance(node.expression, exp.Query) and not reads_only(node.expression, context, STORED):
                return insert_into_table(node, entry, context)
            return _on_tables(node, context, is_query=False)
        case StreamDef():
            with context.blaming(target):
                return _push(node, entry.pushed(), context)
        case ViewDef():
            context.fail(f"{entry.name} is a view, and cannot be changed directly", target)
        case None:
            context.fail(f"no table or sink {target.name}", target, hint=context.catalog.suggest(target.name))
    return context.fail(
        f"{entry.name} is not a table, a stream or a sink",
        target,
        hint="insert into the stream that it is derived from" if isinstance(entry, DerivedDef) else None,
    )


def _push(node: exp.Insert, stream: StreamDef, context: Context) -> PushRows:
    """INSERT INTO a stream: the rows of VALUES or of a query over stored tables, converted to the stream's types."""
    fields = {field.name.lower(): field for field in stream.given}
    named = [column.name for column in node.this.expressions] if isinstance(node.this, exp.Schema) else list(fields)
    for name in named:
        if name.lower() not in fields:
            context.fail(
                f"no column {name} in {stream.name}", node.this, hint="available: " + ", ".join(stream.given.names)
            )
    if isinstance(node.expression, exp.Query) and not reads_only(node.expression, context, STORED):
        context.refuse(
            "rows of a stream cannot be inserted into another stream",
            node,
            hint="derive it instead: CREATE STREAM … AS SELECT …",
        )
    given = node.expression
    items = given.expressions[0].expressions if isinstance(given, exp.Values) else given.selects
    width = len(named) if any(item.is_star for item in items) else len(items)
    if width != len(named):
        context.fail(f"{len(named)} columns are expected, got {width} values", node)
    if twice := next((name for name in named if [each.lower() for each in named].count(name.lower()) > 1), None):
        context.fail(f"column {twice} is named twice", node.this)
    # errors of the store name these
    aliases = [exp.to_identifier(name, quoted=True) for name in named]
    types = [fields[name.lower()].type.duckdb for name in named]
    source = (
        exp.alias_(given.copy(), "given", table=aliases)
        if isinstance(given, exp.Values)
        else given.subquery("given", copy=True)
    )
    if not isinstance(given, exp.Values):
        source.args["alias"].set("columns", aliases)
    query = exp.select(
        *(
            exp.alias_(exp.cast(exp.column(alias.copy()), type_, dialect="duckdb"), name, quoted=True)
            for alias, name, type_ in zip(aliases, named, types, strict=True)
        )
    ).from_(source)
    return PushRows(stream.name, _on_tables(query, context, is_query=True))


def _on_tables(node: exp.Expr, context: Context, *, is_query: bool) -> OnTables:
    reads: set[str] = set()
    views: dict[str, None] = {}
    changed = None if is_query else _changed(node)
    node, histories = with_histories(node, context)
    require_known(node, context)
    for table in tables_of(node):
        if table.name in map(history_name, histories):
            continue
        entry = context.catalog.find(table.name)
        if isinstance(entry, ViewDef) and table is changed:
            context.fail(f"{entry.name} is a view, and cannot be changed directly", table)
        if isinstance(entry, ViewDef):
            views[entry.name] = None
        elif isinstance(entry, TableDef):
            reads.add(entry.name)
        else:
            context.fail(f"no table {table.name}", table, hint=context.catalog.suggest(table.name))
    node = in_store_terms(node, context)
    own = own_aggregates(node, context)
    sql = store_sql(node) if own is None else ""
    name = None if changed is None or not isinstance(changed, exp.Table) else changed.name
    return OnTables(
        sql,
        frozenset(reads),
        is_query,
        own=own,
        views=tuple(views),
        histories=histories,
        changed=name,
        effect=_effect(node),
    )


def _effect(node: exp.Expr) -> Literal["insert", "delete", "any"]:
    """Whether a statement does nothing but insert rows, or delete rows."""
    if isinstance(node, exp.Insert):
        return "any" if any(map(node.args.get, ("conflict", "alternative", "overwrite"))) else "insert"
    return "delete" if isinstance(node, exp.Delete) else "any"


def _changed(node: exp.Expr) -> exp.Expr:
    """The table that a statement changes."""
    target: exp.Expr = node.this
    return target.find(exp.Table) or target

"""Statements → what the session is to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, bind_type
from millstream.bind.programs import define_aggregate
from millstream.bind.scope import did_you_mean
from millstream.bind.select import Bound, bind_named, bind_query
from millstream.bind.table_aggregates import TableAggregates, own_aggregates
from millstream.catalog import (
    AggregateDef,
    Catalog,
    Clock,
    DerivedDef,
    Entry,
    FunctionDef,
    Options,
    SinkDef,
    StreamDef,
    TableDef,
    aggregate_use,
)
from millstream.plan.expr import Column
from millstream.plan.nodes import Kind
from millstream.schema import Field, Schema
from millstream.sql import duration_us, options_of
from millstream.sql.nodes import (
    CreateAggregate,
    CreateSink,
    CreateStream,
    Explain,
    ResetOption,
    SetOption,
    Show,
    SideStream,
    Stop,
)
from millstream.types import DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR, SqlType, common_type

CURRENT_TIME = "current_time"


@dataclass(frozen=True)
class Define:
    """Put an entry into the catalog; `uses` are the names it depends on."""

    entry: Entry
    replace: bool = False
    if_not_exists: bool = False
    uses: frozenset[str] = frozenset()
    rows_from: Options | None = None
    """a table's first rows: the options of a source that ends"""


@dataclass(frozen=True)
class Remove:
    name: str
    kinds: tuple[type[Entry], ...]
    if_exists: bool = False


@dataclass(frozen=True)
class Query:
    """Start a standing query; with `sink`, its rows go there."""

    bound: Bound
    uses: frozenset[str]
    sink: SinkDef | None = None


@dataclass(frozen=True)
class OnTables:
    """Run on the stored tables alone; `sql` is in the table store's dialect, `reads` are the tables it names."""

    sql: str
    reads: frozenset[str]
    is_query: bool
    create: tuple[str, bool] | None = None
    own: TableAggregates | None = None
    """instead of `sql`, a query that calls aggregates written in SQL or Python"""


@dataclass(frozen=True)
class ExplainPlan:
    of: Query
    mode: str


@dataclass(frozen=True)
class ShowList:
    kind: str


@dataclass(frozen=True)
class DescribeEntry:
    name: str


@dataclass(frozen=True)
class StopQuery:
    name: str


@dataclass(frozen=True)
class ChangeSetting:
    """SET, or RESET if `value` is None."""

    name: str
    value: object = field(default=None)


Action = Define | Remove | Query | OnTables | ExplainPlan | ShowList | DescribeEntry | StopQuery | ChangeSetting

DROPPABLE: dict[str, tuple[type[Entry], ...]] = {
    "STREAM": (StreamDef, DerivedDef),
    "TABLE": (TableDef,),
    "SINK": (SinkDef,),
    "FUNCTION": (FunctionDef,),
    "AGGREGATE": (AggregateDef,),
}


def bind(node: exp.Expr, catalog: Catalog, sql: str) -> Action:
    """What a statement asks for; every mistake in it is an error that underlines its place in `sql`."""
    context = Context(catalog, sql)
    match node:
        case CreateStream():
            return _create_stream(node, context)
        case CreateSink():
            return _create_sink(node, context)
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
            return StopQuery(str(node.name))
        case SetOption():
            return ChangeSetting(node.name.lower(), node.value)
        case ResetOption():
            return ChangeSetting(node.name.lower())
        case exp.Select() | exp.SetOperation() | exp.Subquery():
            return bind_select_statement(node, context)
    return context.fail(f"{node.key.upper()} is not supported", node)


def bind_select_statement(node: exp.Expr, context: Context) -> Query | OnTables:
    """A query over streams, or an ad-hoc query on stored tables."""
    if _only_tables(node, context):
        return _on_tables(node, context, is_query=True)
    return Query(_bind_stream(node, context), frozenset(context.uses))


def _bind_stream(node: exp.Expr, context: Context) -> Bound:
    bound = bind_query(node, context)
    _require_stream(bound, node, context)
    return bound


def _require_stream(bound: Bound, node: exp.Expr, context: Context) -> None:
    if bound.plan.kind is Kind.TABLE:
        context.refuse(
            "this query reads stored tables only, so it is not a stream",
            node,
            hint="ask for the rows at once with SELECT, or keep them with CREATE TABLE … AS",
        )


def _explained(node: exp.Expr, catalog: Catalog, sql: str, context: Context) -> Query:
    action = bind(node, catalog, sql)
    match action:
        case Query():
            return action
        case Define(entry=DerivedDef(plan=plan), uses=uses):
            return Query(Bound(plan, plan.schema.names), uses)
    return context.fail("EXPLAIN takes a query over streams", node)


def _create_stream(node: CreateStream, context: Context) -> Define:
    name = str(node.name)
    replace, quiet = bool(node.args.get("or_replace")), bool(node.args.get("if_not_exists"))
    query = node.args.get("query")
    if query is not None:
        listed = node.args.get("columns") or []
        bound = bind_named(query, context, node, tuple(column.name for column in listed) or None)
        _require_stream(bound, query, context)
        clocks = context.clocks_of(bound.plan)
        clock = Clock.LATENT if Clock.LATENT in clocks else Clock.EXTERNAL
        return Define(DerivedDef(name, bound.plan, clock), replace, quiet, frozenset(context.uses))
    schema = _columns(node.args.get("columns") or [], context, node)
    clock, time_column = _clock(node, schema, context)
    slack = _slack(node, clock, context)
    return Define(StreamDef(name, schema, clock, time_column, slack, _source(node, context)), replace, quiet)


def _columns(nodes: list[exp.ColumnDef], context: Context, at: exp.Expr) -> Schema:
    fields: list[Field] = []
    for column in nodes:
        if not isinstance(column, exp.ColumnDef):
            context.refuse(f"{column.sql()} is not a column", column)
        kind = column.args.get("kind")
        type_ = VARCHAR if kind is None else bind_type(context, kind)
        if any(column.name.lower() == other.name.lower() for other in fields):
            context.fail(f"two columns are called {column.name}", column)
        fields.append(Field(column.name, type_))
    if not fields:
        context.fail("a declaration needs columns", at)
    return Schema(tuple(fields))


def _clock(node: CreateStream, schema: Schema, context: Context) -> tuple[Clock, str | None]:
    order = node.args.get("order_by")
    if order is None:
        return Clock.LATENT, None
    name = order.name
    if name.lower() == CURRENT_TIME:
        if CURRENT_TIME not in schema:
            context.fail("ORDER BY current_time needs a column of that name", order, hint="add current_time TIMESTAMP")
        if schema[CURRENT_TIME].type not in (TIMESTAMP, TIMESTAMPTZ):
            context.fail("current_time is a TIMESTAMP", order)
        return Clock.INTERNAL, schema[CURRENT_TIME].name
    if name not in schema:
        context.fail(f"no column {name} to order by", order, hint=did_you_mean(name, list(schema.names)))
    type_ = schema[name].type
    if type_ not in (TIMESTAMP, TIMESTAMPTZ, DATE) and not type_.is_integer:
        context.fail(f"a stream cannot be ordered by {type_}", order, hint="use a TIMESTAMP, DATE or integer column")
    return Clock.EXTERNAL, schema[name].name


def _slack(node: CreateStream, clock: Clock, context: Context) -> int:
    slack = node.args.get("slack")
    if slack is None:
        return 0
    if clock is not Clock.EXTERNAL:
        context.fail("SLACK is for streams that are ordered by a column", slack, hint="add ORDER BY column")
    length = duration_us(slack)
    if length is None:
        context.fail("SLACK takes a constant length of time", slack, hint="SLACK 5 SECONDS")
    return length


def _source(node: CreateStream, context: Context) -> Options | None:
    options = _options(node, context)
    clause = node.args.get("source")
    if clause is None:
        return options or None
    from millstream.connectors.registry import parse_source_clause

    with context.blaming(clause):
        if isinstance(clause, exp.Literal):
            parsed = parse_source_clause(str(clause.this))
        else:
            arguments = [
                argument.this if isinstance(argument, exp.Literal) else argument.sql()
                for argument in clause.expressions
            ]
            parsed = parse_source_clause((clause.name, arguments))
    return {**parsed, **options}


def _options(node: exp.Expr, context: Context) -> dict[str, str | int | float | bool]:
    options = {name.lower(): value for name, value in options_of(node).items()}
    for name, value in options.items():
        if value is None:
            context.fail(f"option {name} is NULL", node, hint="leave it out for its default")
    return {name: value for name, value in options.items() if value is not None}


def _create_sink(node: CreateSink, context: Context) -> Define | Query:
    sink = SinkDef(str(node.name), _options(node, context))
    query = node.args.get("query")
    if query is None:
        return Define(sink, bool(node.args.get("or_replace")), bool(node.args.get("if_not_exists")))
    return Query(_bind_stream(query, context), frozenset(context.uses), sink)


def _create_table(node: exp.Create, context: Context) -> Define | OnTables:
    replace, quiet = bool(node.args.get("replace")), bool(node.args.get("exists"))
    if node.expression is not None:
        target = node.this
        if not _only_tables(node.expression, context):
            context.refuse(
                "a table cannot be made from a stream that never ends", node.expression, hint="use CREATE STREAM … AS"
            )
        action = _on_tables(node.expression, context, is_query=True)
        return OnTables(action.sql, action.reads, False, (target.name, replace), action.own)
    schema = node.this
    table = schema.this if isinstance(schema, exp.Schema) else schema
    columns = schema.expressions if isinstance(schema, exp.Schema) else []
    rows_from = _options(node, context) or None
    return Define(TableDef(table.name, _columns(columns, context, node)), replace, quiet, rows_from=rows_from)


def _create_function(node: exp.Create, context: Context) -> Define:
    signature = node.this
    parameters: list[tuple[str, SqlType]] = []
    for parameter in signature.expressions:
        kind = parameter.args.get("kind")
        if not isinstance(parameter, exp.ColumnDef) or kind is None:
            context.fail("a parameter needs a type", parameter, hint="CREATE FUNCTION f(x DOUBLE) AS x * 2")
        parameters.append((parameter.name, bind_type(context, kind)))
    returns = node.find(exp.ReturnsProperty)
    return_type = None if returns is None else bind_type(context, returns.this)
    body = node.expression
    if isinstance(body, exp.Return):
        body = body.this
    if body is None:
        context.fail("a function needs a body", node, hint="CREATE FUNCTION f(x DOUBLE) AS x * 2")
    arguments = {name.lower(): Column(type_, name) for name, type_ in parameters}
    bound = ExpressionBinder(context, None, None, dict(arguments)).bind(body)
    if return_type is not None and common_type(bound.type, return_type) is None:
        context.fail(f"the body is {bound.type}, the function returns {return_type}", body)
    name = signature.this.name if isinstance(signature.this, exp.Expr) else str(signature.this)
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
    if kind == "QUERY":
        return StopQuery(name)
    if kind not in DROPPABLE:
        context.fail(
            f"DROP {kind} is not supported", node, hint="DROP STREAM, TABLE, SINK, FUNCTION, AGGREGATE or QUERY"
        )
    if node.args.get("cascade"):
        context.refuse("CASCADE is not supported", node, hint="drop or stop the dependents first, one by one")
    return Remove(name, DROPPABLE[kind], bool(node.args.get("exists")))


def _insert(node: exp.Insert, context: Context) -> Query | OnTables:
    target = node.this.this if isinstance(node.this, exp.Schema) else node.this
    entry = context.catalog.find(target.name)
    match entry:
        case SinkDef():
            if not isinstance(node.expression, exp.Query):
                context.fail("a sink takes the rows of a query", node, hint=f"INSERT INTO {entry.name} SELECT …")
            bound = _bind_stream(node.expression, context)
            return Query(bound, frozenset({*context.uses, entry.name}), entry)
        case TableDef():
            if isinstance(node.expression, exp.Query) and not _only_tables(node.expression, context):
                context.refuse(
                    "a stream cannot be stored in a table yet", node, hint="CREATE SINK … and INSERT INTO the sink"
                )
            return _on_tables(node, context, is_query=False)
        case None:
            context.fail(f"no table or sink {target.name}", target, hint=context.catalog.suggest(target.name))
    return context.fail(
        f"{entry.name} is not a table or a sink", target, hint=f"rows reach a stream by db.push('{entry.name}', rows)"
    )


def _on_tables(node: exp.Expr, context: Context, *, is_query: bool) -> OnTables:
    reads: set[str] = set()
    for table in _tables(node):
        entry = context.catalog.find(table.name)
        if not isinstance(entry, TableDef):
            context.fail(f"no table {table.name}", table, hint=context.catalog.suggest(table.name))
        reads.add(entry.name)
    own = own_aggregates(node, context)
    return OnTables(node.sql(dialect="duckdb") if own is None else "", frozenset(reads), is_query, own=own)


def _only_tables(node: exp.Expr, context: Context) -> bool:
    functions = any(not table.name or isinstance(table.this, SideStream) for table in node.find_all(exp.Table))
    return not functions and all(isinstance(context.catalog.find(table.name), TableDef) for table in _tables(node))


def _tables(node: exp.Expr) -> list[exp.Table]:
    """What a statement reads or changes by name, its own WITH queries left out."""
    return [table for table in node.find_all(exp.Table) if table.name and not _is_local(table)]


def _is_local(table: exp.Table) -> bool:
    """Whether a name means a WITH query: one of a statement around it, listed before the one it stands in."""
    within: exp.Expr | None = None
    node: exp.Expr | None = table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            within = node
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else []:
            if cte is within:
                break
            if cte.alias.lower() == table.name.lower():
                return True
        node = node.parent
    return False

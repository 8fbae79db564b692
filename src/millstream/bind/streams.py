"""CREATE STREAM: columns, times, slack, where rows come from and how much of them is kept."""

from __future__ import annotations

import dataclasses

from sqlglot import exp

from millstream.bind.actions import Define
from millstream.bind.context import Context
from millstream.bind.history import retention_of
from millstream.bind.nested import bind_type
from millstream.bind.queries.outputs import Bound
from millstream.bind.queries.select import bind_named
from millstream.bind.scope import did_you_mean
from millstream.bind.tables.constraints import key_of, refuse_constraints
from millstream.catalog import CURRENT_TIME, Clock, DerivedDef, Options, StreamDef
from millstream.plan.nodes import Kind
from millstream.schema import Field, Schema
from millstream.sql import duration_us, options_of, to_sql
from millstream.sql import history as H
from millstream.sql.nodes import CreateStream
from millstream.types import DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR, SqlType


def require_stream(bound: Bound, node: exp.Expr, context: Context) -> None:
    if bound.plan.kind is Kind.TABLE:
        context.refuse(
            "this query reads stored tables only, so it is not a stream",
            node,
            hint="run it once with SELECT, or store its rows with CREATE TABLE … AS",
        )


def kept_text(text: str, name: str, context: Context) -> str:
    """The text of a definition, if it means the same when it is bound again: it may build on what had its name."""
    return "" if name.lower() in {used.lower() for used in context.uses} else text


def create_stream(node: CreateStream, context: Context) -> Define:
    name = str(node.name)
    replace, quiet = bool(node.args.get("or_replace")), bool(node.args.get("if_not_exists"))
    query = node.args.get("query")
    if query is not None:
        text = to_sql(node)
        listed = node.args.get("columns") or []
        bound = bind_named(query, context, node, tuple(column.name for column in listed) or None)
        require_stream(bound, query, context)
        if (asked := next(iter(query.find_all(H.WithHistory)), None)) is not None:
            context.refuse(
                "a derived stream cannot have WITH HISTORY", asked, hint="give WITH HISTORY to the queries that read it"
            )
        if isinstance(node.keep, H.Keep):
            return Define(_kept(name, bound, node.keep, context), replace, quiet, frozenset(context.uses))
        clocks = context.clocks_of(bound.plan)
        clock = Clock.LATENT if Clock.LATENT in clocks else Clock.EXTERNAL
        entry = DerivedDef(name, bound.plan, clock, kept_text(text, name, context))
        return Define(entry, replace, quiet, frozenset(context.uses))
    declared = node.args.get("columns") or []
    schema = columns_of(_timed(node, declared), context, node)
    refuse_constraints(declared, context)
    clock, time = _clock(node, schema, context)
    slack = 0 if node.slack is None else _slack(node.slack, clock, None if time is None else schema[time].type, context)
    since = None if node.since is None else _since(node.since, schema, time, context)
    until = None if node.valid is None else _until(node, schema, time, context)
    key = () if node.primary_key is None else key_of(node.primary_key, schema, context)
    untyped = tuple(column.name for column in declared if column.args.get("kind") is None and column.name != time)
    stream = StreamDef(name, schema, clock, time, slack, _source(node, context), since, until, key, untyped)
    if isinstance(node.keep, H.Keep):
        stream = dataclasses.replace(stream, keep=retention_of(node.keep, stream, context))
    return Define(stream, replace, quiet)


def _kept(name: str, bound: Bound, keep: H.Keep, context: Context) -> StreamDef:
    """A stream that passes on the rows of a query and keeps them, so they must tell their time."""
    if bound.plan.kind is not Kind.EVENTS or bound.plan.lasts:
        what = "a relation" if bound.plan.kind is Kind.RELATION else "events with a duration"
        hint = "turn it into events at points in time: ISTREAM(…), TUMBLE(…), or leave KEEP out"
        context.refuse(f"KEEP needs rows with one time, and this query returns {what}", keep, hint=hint)
    times = sorted(context.time_columns(bound.plan), key=bound.plan.schema.index)
    if not times:
        hint = "select the column that the stream is ordered by, or window_end"
        context.refuse("a derived stream with KEEP must select its time column", keep, hint=hint)
    entry = StreamDef(name, bound.plan.schema, Clock.EXTERNAL, times[0], plan=bound.plan)
    return dataclasses.replace(entry, keep=retention_of(keep, entry, context))


def _timed(node: CreateStream, columns: list[exp.ColumnDef]) -> list[exp.ColumnDef]:
    """The columns, with a type for those that tell time and have none."""
    order = node.args.get("order_by")
    times = {each.name.lower() for each in (order, node.since, *(node.valid or ())) if each is not None}
    timed = []
    for column in columns:
        if column.args.get("kind") is None and column.name.lower() in times:
            column = column.copy()
            column.set("kind", exp.DataType.build("TIMESTAMP"))
        timed.append(column)
    return timed


def _until(node: CreateStream, schema: Schema, time: str | None, context: Context) -> str:
    """The column that tells when rows cease to be valid."""
    assert node.valid is not None
    start, end = node.valid
    if node.since is not None:
        context.fail("a stream takes either SINCE or VALID FROM … TO, not both", node.since, hint="leave SINCE out")
    if time is None or start.name.lower() != time.lower():
        context.fail("a stream is ordered by the start of validity", start, hint=f"ORDER BY {start.name}")
    return _second_time(end, schema, time, "rows are valid from", context)


def _since(node: exp.Identifier, schema: Schema, time: str | None, context: Context) -> str:
    """The column that tells when events start."""
    if time is None:
        context.fail("SINCE is for streams that are ordered by a column", node, hint="ORDER BY ended SINCE began")
    return _second_time(node, schema, time, "events end at", context)


def _second_time(node: exp.Identifier, schema: Schema, time: str, what: str, context: Context) -> str:
    if node.name not in schema:
        context.fail(f"no column {node.name}", node, hint=did_you_mean(node.name, list(schema.names)))
    if schema[node.name].type != schema[time].type:
        context.fail(
            f"{node.name} is {schema[node.name].type}, and {what} {schema[time].type}",
            node,
            hint="declare both columns with the same type",
        )
    return schema[node.name].name


def _clock(node: CreateStream, schema: Schema, context: Context) -> tuple[Clock, str | None]:
    order = node.args.get("order_by") or (None if node.valid is None else node.valid[0])
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


def _slack(node: exp.Expr, clock: Clock, time: SqlType | None, context: Context) -> int:
    """How much out of order rows may be: a length of time, or a number where the stream is ordered by one."""
    if clock is not Clock.EXTERNAL or time is None:
        context.fail("SLACK is for streams that are ordered by a column", node, hint="add ORDER BY column")
    number = node.name if isinstance(node, exp.Literal) else None
    if time.is_integer:
        if number is None or not number.isdecimal():
            context.fail("the stream is ordered by a number, so SLACK takes a number", node, hint="SLACK 5")
        length: int | None = int(number)
    elif number is not None:
        context.fail("SLACK needs a unit of time", node, hint=f"SLACK {number} SECONDS")
    else:
        length = duration_us(node)
    if length is None:
        context.fail("SLACK takes a constant duration", node, hint="SLACK 5 SECONDS")
    if not 0 <= length < 2**62:
        context.fail("SLACK cannot be negative" if length < 0 else "this SLACK is too long", node)
    return length


def _source(node: CreateStream, context: Context) -> Options | None:
    options = options_given(node, context)
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


def columns_of(nodes: list[exp.ColumnDef], context: Context, at: exp.Expr) -> Schema:
    fields: list[Field] = []
    for column in nodes:
        kind = column.args.get("kind")
        type_ = VARCHAR if kind is None else bind_type(context, kind)
        if any(column.name.lower() == other.name.lower() for other in fields):
            context.fail(f"two columns are named {column.name}", column)
        fields.append(Field(column.name, type_))
    if not fields:
        context.fail("a declaration needs columns", at)
    return Schema(tuple(fields))


def options_given(node: exp.Expr, context: Context) -> dict[str, str | int | float | bool]:
    options = {name.lower(): value for name, value in options_of(node).items()}
    for name, value in options.items():
        if value is None:
            context.fail(f"option {name} is NULL", node, hint="leave it out for its default")
    return {name: value for name, value in options.items() if value is not None}

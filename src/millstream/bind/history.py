"""KEEP, WITH HISTORY, HISTORY(s), and the statements that change what runs."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.bind.actions import AlterQuery, AlterStream, AlterWindow
from millstream.bind.context import Context
from millstream.bind.reads import is_kept
from millstream.bind.scope import did_you_mean
from millstream.catalog import Clock, FromHistory, Retention, StreamDef
from millstream.plan.nodes import Node, Scan, walk
from millstream.schema import Schema
from millstream.sql import duration_us, to_sql
from millstream.sql import history as H
from millstream.types import DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR

if TYPE_CHECKING:
    from millstream.bind.actions import StartQuery

_LONGEST = 2**62


def retention_of(node: H.Keep, stream: StreamDef, context: Context) -> Retention:
    """How much of its past a stream keeps, and by which column."""
    key = node.args.get("key")
    amount = _amount_of(node, stream.clock, stream.is_by_number, context)
    return amount if key is None else replace(amount, key=_storage_key(key, stream.schema, context))


def _storage_key(node: exp.Expr, schema: Schema, context: Context) -> str:
    if node.name not in schema:
        context.fail(f"no column {node.name}", node, hint=did_you_mean(node.name, list(schema.names)))
    field = schema[node.name]
    if not (field.type.is_integer or field.type in (VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ)):
        context.fail(
            f"{field.name} is {field.type}, which cannot be a storage key",
            node,
            hint="KEEP … BY an integer, text or time",
        )
    return field.name


def _amount_of(node: H.Keep, clock: Clock, is_by_number: bool, context: Context) -> Retention:
    size = node.args.get("size")
    if node.kind == "ALL" or size is None:
        return Retention("all")
    number = None if isinstance(size, exp.Interval) else float(size.name)
    if node.kind == "TIME":
        if clock is Clock.LATENT:
            context.refuse(
                "KEEP by time needs a stream with times",
                size,
                hint="keep a number of rows, KEEP 1000000 ROWS, or declare the stream with ORDER BY",
            )
        if is_by_number is (number is None):
            what = "a number" if is_by_number else "a unit of time"
            context.fail(
                f"the stream is ordered by {'a number' if is_by_number else 'time'}, so KEEP needs {what}",
                size,
                hint="KEEP 100, KEEP 1000000 ROWS or KEEP ALL" if is_by_number else "KEEP 1 DAY, KEEP 10 GB, KEEP ALL",
            )
        number = duration_us(size) if number is None else number
        if number is None:
            context.fail(f"{to_sql(size)} has no fixed length", size, hint="use weeks, days or smaller units")
    assert number is not None
    amount = number * H.BYTES[node.args["unit"]] if node.kind == "BYTES" else number
    if not 0 < amount < _LONGEST or (node.kind != "BYTES" and amount != int(amount)):
        context.fail("KEEP takes a positive whole number", size)
    return Retention("time" if node.kind == "TIME" else "rows" if node.kind == "ROWS" else "bytes", int(amount))


def asked_history(node: exp.Expr, plan: Node, context: Context) -> FromHistory | None:
    """What a query asks for with WITH HISTORY or SINCE, anywhere in it."""
    found = next(iter(node.find_all(H.WithHistory)), None)
    if found is None:
        return None
    since = found.args.get("since")
    return FromHistory(None if since is None else _instant(since, plan, context))


def _instant(node: exp.Expr, plan: Node, context: Context) -> int:
    """A point in the time of the streams that a plan reads."""
    streams = [context.catalog.get(scan.stream, StreamDef) for scan in walk(plan) if isinstance(scan, Scan)]
    if any(stream.clock is Clock.LATENT for stream in streams):
        context.refuse("SINCE needs streams with times", node, hint="use WITH HISTORY, or declare them with ORDER BY")
    by_number = any(stream.is_by_number for stream in streams)
    is_text = isinstance(node, exp.Literal) and node.is_string
    if by_number is is_text:
        what, how = ("a number", "SINCE 100") if by_number else ("a time", "SINCE '2026-01-31 12:00:00'")
        context.fail(f"SINCE takes {what}, because the streams are ordered by one", node, hint=how)
    if not is_text:
        try:
            return int(to_sql(node))
        except ValueError:
            context.fail("SINCE takes a whole number", node, hint="SINCE 100")
    try:
        moment = dt.datetime.fromisoformat(node.name)
    except ValueError:
        context.fail(f"'{node.name}' is not a time", node, hint="write it like '2026-01-31 12:00:00'")
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def kept_stream(table: exp.Table, context: Context) -> StreamDef:
    """The stream whose kept rows are read."""
    entry = context.catalog.find(table.name)
    if not isinstance(entry, StreamDef):
        hint = context.catalog.suggest(table.name) if entry is None else "HISTORY exists for declared streams only"
        context.fail(f"{table.name} is not a declared stream", table, hint=hint)
    if entry.keep is None:
        context.fail(
            f"stream {entry.name} keeps no history",
            table,
            hint=f"ALTER STREAM {entry.name} KEEP 1 DAY keeps it from now on",
        )
    return entry


def history_name(stream: str) -> str:
    """The name under which the table store is lent the kept rows of a stream."""
    return f"history of {stream.lower()}"


def with_histories(node: exp.Expr, context: Context) -> tuple[exp.Expr, tuple[str, ...]]:
    """A statement that reads HISTORY(s) as the table store reads it, and the streams."""
    if not any(is_kept(table) for table in node.find_all(exp.Table)):
        return node, ()
    node = node.copy()
    streams: dict[str, None] = {}
    for table in [table for table in node.find_all(exp.Table) if is_kept(table)]:
        stream = kept_stream(table, context)
        streams[stream.name] = None
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(history_name(stream.name), quoted=True))
    return node, tuple(streams)


def bind_alter_stream(node: H.StreamAlteration, context: Context) -> AlterStream:
    entry = context.catalog.find(node.name)
    if not isinstance(entry, StreamDef):
        hint = (
            context.catalog.suggest(node.name)
            if entry is None
            else "only declared streams, and derived streams with KEEP, keep history"
        )
        context.fail(f"{node.name} is not a declared stream", node.this, hint=hint)
    keep = node.args.get("keep")
    wanted = None if keep is None else retention_of(keep, entry, context)
    return AlterStream(entry.name, wanted)


def bind_alter_query(node: H.QueryAlteration, query: StartQuery | None) -> AlterQuery | AlterWindow:
    if node.window is not None:
        item = node.args.get("item")
        return AlterWindow(str(node.name), None if item is None else str(item.name), node.window)
    assert query is not None
    return AlterQuery(str(node.name), query, to_sql(node.args["query"]))

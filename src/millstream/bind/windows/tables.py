"""TUMBLE, HOP, CUMULATE and SESSION in FROM, and which columns of a plan hold their windows."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.lengths import own_length
from millstream.bind.scope import did_you_mean
from millstream.catalog import Clock, StreamDef
from millstream.plan import nodes as P
from millstream.plan.lateness import AdmitLate
from millstream.plan.lengths import RowLength
from millstream.plan.window_tables import END, MOST_WINDOWS, START, Cumulating, Hopping, OwnWindows, Windows
from millstream.sql import duration_us
from millstream.sql.nodes import WindowTable
from millstream.types import BIGINT, DATE, TIMESTAMP, SqlType


def bind_window_table(node: WindowTable, rows: P.Node, alias: str, context: Context) -> P.Node:
    """The rows with the bounds of their windows."""
    if rows.kind is P.Kind.RELATION:
        context.refuse(
            f"{node.kind} needs events, not a relation",
            node.this,
            detail="its rows are valid for some time, not at a single instant",
            hint="turn it into events first: ISTREAM(…)",
        )
    if rows.kind is not P.Kind.EVENTS:
        context.refuse(
            f"{node.kind} needs a stream",
            node.this,
            detail="a table's rows have no time, so their windows never end",
            hint="declare a stream with ORDER BY column",
        )
    time = time_of(node, rows, alias, context)
    for name in (START, END):
        if name in rows.schema:
            context.fail(
                f"the rows of {node.kind} have a column {name} already",
                node.this,
                hint="give it another name in a subquery",
            )
    type_ = _bound_type(rows.schema[time].type)
    if node.args.get("lateness"):
        rows = with_late_rows(rows, span(node, "lateness", type_, context), node, context)
    if node.kind == "SESSION":
        keys = tuple(column_of(key, rows, alias, context) for key in node.partition)
        return P.Sessions(rows, keys, _length(node, "gap", type_, context), type_)
    if node.partition:
        context.fail(
            f"PARTITION BY has no meaning in {node.kind}",
            node.partition[0],
            detail="all rows have the same windows",
            hint="group by that column",
        )
    return P.AssignWindows(rows, _windows(node, type_, context), type_)


def with_late_rows(rows: P.Node, length: int, node: exp.Expr, context: Context) -> P.Node:
    """The rows, with those that were late for their stream by at most `length`."""
    below = rows
    while isinstance(below, P.Filter | P.Project):
        below = below.input
    entry = context.catalog.find(below.stream) if isinstance(below, P.Scan) and below.side == "main" else None
    if isinstance(entry, StreamDef) and (entry.clock is not Clock.EXTERNAL or entry.plan is not None):
        entry = None
    if not isinstance(entry, StreamDef) or entry.time_column is None:
        context.refuse(
            "LATENESS is for windows over a declared stream",
            node,
            detail="only a declared stream with times has late rows",
            hint="put the window directly over the stream, or declare the stream with SLACK",
        )
    late = P.Scan(entry.name, entry.side("late"), "late")
    admitted = AdmitLate(below, late, entry.time_column, length)
    return P.rebuild(rows, lambda part: admitted if part is below else part)


def time_of(node: WindowTable, rows: P.Node, alias: str, context: Context) -> str:
    name = column_of(node.time, rows, alias, context)
    times = context.time_columns(rows)
    if name not in times:
        hint = f"write {' or '.join(sorted(times))}" if times else "declare the stream with ORDER BY column"
        context.fail(
            f"{name} is not the time of {alias or 'these rows'}",
            node.time,
            detail="rows arrive in order of their stream's time, and windows close as it advances",
            hint=hint,
        )
    return name


def column_of(node: exp.Expr, rows: P.Node, alias: str, context: Context) -> str:
    assert isinstance(node, exp.Column)
    if node.name not in rows.schema or (node.table and node.table.lower() != alias.lower()):
        context.fail(f"no column {node.sql()}", node, hint=did_you_mean(node.name, list(rows.schema.names)))
    return rows.schema[node.name].name


def _bound_type(type_: SqlType) -> SqlType:
    """The type of window bounds: a window may end where a DATE or a short integer cannot."""
    return BIGINT if type_.is_integer else TIMESTAMP if type_ == DATE else type_


def _windows(node: WindowTable, type_: SqlType, context: Context) -> Windows:
    if not node.args.get("offset"):
        length = _length(node, "size", type_, context)
        step = _length(node, "slide", type_, context) if node.args.get("slide") else None
        if isinstance(length, RowLength) or isinstance(step, RowLength):
            return OwnWindows(length, step, node.kind == "CUMULATE")
    size = span(node, "size", type_, context)
    offset = span(node, "offset", type_, context) if node.args.get("offset") else 0
    if node.kind == "TUMBLE":
        return Hopping(size, size, offset)
    slide = span(node, "slide", type_, context)
    if node.kind == "CUMULATE" and size % slide:
        context.fail(
            "the step of CUMULATE does not fit into its size",
            node.args["slide"],
            detail="windows grow by one step at a time until they reach the size",
            hint="the size must be a multiple of the step",
        )
    windows = Cumulating(size, slide, offset) if node.kind == "CUMULATE" else Hopping(size, slide, offset)
    if windows.most > MOST_WINDOWS:
        context.refuse(
            f"{node.kind} puts each row into {windows.most} windows",
            node,
            detail=f"each row would be copied that often; at most {MOST_WINDOWS} are possible",
            hint="use a longer slide, or aggregate OVER (RANGE …)",
        )
    return windows


def _length(node: WindowTable, key: str, type_: SqlType, context: Context) -> RowLength | int:
    """A length, which each row may have of its own."""
    return own_length(node.args[key], context, counted=type_ == BIGINT) or span(node, key, type_, context)


def span(node: WindowTable, key: str, type_: SqlType, context: Context) -> int:
    given = node.args[key]
    number = _number(given)
    length = duration_us(given)
    if type_ == BIGINT and number is None:
        context.fail(
            f"the stream is ordered by a number, so the {key} of {node.kind} is a number",
            given,
            hint="leave the unit out",
        )
    if type_ != BIGINT and number is not None:
        context.fail(f"the {key} of {node.kind} needs a unit of time", given, hint=f"{number} SECONDS")
    if type_ != BIGINT and length is None:
        context.fail(f"{given.sql()} has no fixed length", given, hint="use weeks, days or smaller units")
    found = length if number is None else number
    assert found is not None
    if found >= 2**60:
        context.fail(f"the {key} of {node.kind} is too long", given)
    if key != "offset" and found <= 0:
        context.fail(f"the {key} of {node.kind} must be positive", given)
    # an offset by whole windows changes nothing
    return found if key != "offset" else found % span(node, "slide" if node.kind == "HOP" else "size", type_, context)


def _number(node: exp.Expr) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else None

"""GAP_FILL in FROM: rows, and between them one for each step that a key had no row at."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.windows.tables import column_of, span, time_of
from millstream.expressions import functions
from millstream.expressions.functions.arrays import MOST_PLACES
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import aggregates
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.unnest import Unnest
from millstream.plan.windows import Between, Frame
from millstream.sql.nodes import WindowTable
from millstream.types import BIGINT, DATE, DOUBLE, INTERVAL, TIMESTAMP, SqlType

_NUMBER, _ARRAY = "$gap.number", "$gap.places"


def bind_gaps(node: WindowTable, rows: P.Node, alias: str, context: Context) -> P.Node:
    """The rows, each behind those that fill the gap before it. A row of a gap has the keys, its time, and of other
    columns what LOCF and INTERPOLATE say."""
    if rows.kind is not P.Kind.EVENTS:
        context.refuse(
            "GAP_FILL needs a stream",
            node.this,
            detail="it fills gaps between rows that come one after the other",
            hint="FROM GAP_FILL(s PARTITION BY k, ts, 1 MINUTE, LOCF(v)), where s is a stream or groups of TUMBLE",
        )
    time = time_of(node, rows, alias, context)
    if rows.schema[time].type == DATE:
        columns = (
            (name, functions.cast(c, TIMESTAMP) if name == time else c) for name, c in P.passthrough(rows.schema)
        )
        rows = P.Project(rows, tuple(columns))
    type_ = rows.schema[time].type
    step = span(node, "step", BIGINT if type_.is_integer else type_, context)
    longest = min(MOST_PLACES * step, 2**62)
    if node.args.get("longest"):
        longest = span(node, "longest", BIGINT if type_.is_integer else type_, context)
        if longest > MOST_PLACES * step:
            context.fail(f"a gap of this length has more than {MOST_PLACES:,} steps", node.args["longest"])
    keys = tuple(dict.fromkeys(column_of(key, rows, alias, context) for key in node.partition))
    fills: dict[str, str] = {}
    for fill in node.args.get("fills") or ():
        name = column_of(fill.this, rows, alias, context)
        if name in (*keys, time, *fills):
            why = "a key" if name in keys else "the time" if name == time else "filled already"
            context.fail(f"{name} is {why}", fill, hint="name each other column once")
        _check_fill(name, fill, rows, context)
        fills[name] = fill.args["how"]
    return _filled(rows, keys, time, step, longest, fills)


def _check_fill(name: str, fill: exp.Expr, rows: P.Node, context: Context) -> None:
    how, type_ = fill.args["how"], rows.schema[name].type
    if how == "INTERPOLATE" and not type_.is_numeric:
        context.fail(f"INTERPOLATE takes a number, not {type_}", fill, hint=f"LOCF({name}) repeats the last value")
    if aggregates.result_type("lag", False, type_) is None:
        context.fail(f"{how} does not apply to {type_}", fill)


def _filled(rows: P.Node, keys: tuple[str, ...], time: str, step: int, longest: int, fills: dict[str, str]) -> P.Node:
    call = functions.resolve
    schema = rows.schema
    type_ = schema[time].type
    calls = [_before(time, "lag", Frame("rows", 1), type_)]
    for name, how in fills.items():
        # the last value that is known, and for a line, that of the row before
        frame = Frame("rows", Between(None, 1)) if how == "LOCF" else Frame("rows", 1)
        calls.append(_before(name, "last_known" if how == "LOCF" else "lag", frame, schema[name].type))
    plan: P.Node = P.Over(rows, keys, tuple(calls))
    before, now = Column(type_, f"$gap.{time}"), Column(type_, time)
    length = call("-", (_micros(now), _micros(before)))
    in_reach = call("and", (call(">", (length, Literal(BIGINT, 0))), call("<=", (length, Literal(BIGINT, longest)))))
    missing = call("//", (call("-", (length, Literal(BIGINT, 1))), Literal(BIGINT, step)))
    count = functions.case(((in_reach, missing),), Literal(BIGINT, 0))
    number, place = Column(BIGINT, _NUMBER), Column(BIGINT, f"{_ARRAY}.place")
    plan = P.Project(plan, (*P.passthrough(plan.schema), (_NUMBER, count)))
    plan = P.Project(plan, (*P.passthrough(plan.schema), (_ARRAY, call("$places", (number,)))))
    plan = Unnest(plan, _ARRAY, place.name)
    is_filled = call("<", (place, number))
    steps = call("+", (place, Literal(BIGINT, 1)))
    passed = call("*", (steps, Literal(BIGINT if type_.is_integer else INTERVAL, step)))

    def column(name: str, type_: SqlType) -> Expr:
        own = Column(type_, name)
        if name in keys:
            return own
        if name == time:
            point = functions.cast(call("+", (before, passed)), type_)
            return functions.case(((is_filled, point),), own)
        earlier = Column(type_, f"$gap.{name}")
        match fills.get(name):
            case None:
                return functions.case(((is_filled, Literal(type_, None)),), own)
            case "LOCF":
                return functions.case(((is_filled, earlier),), own)
        first, last = functions.cast(earlier, DOUBLE), functions.cast(own, DOUBLE)
        part = call(
            "/", (functions.cast(call("*", (steps, Literal(BIGINT, step))), DOUBLE), functions.cast(length, DOUBLE))
        )
        return functions.case(((is_filled, call("+", (first, call("*", (call("-", (last, first)), part))))),), last)

    return P.Project(plan, tuple((field.name, column(field.name, field.type)) for field in schema))


def _before(name: str, fn: str, frame: Frame, type_: SqlType) -> AggregateCall[str]:
    return AggregateCall.over(f"$gap.{name}", fn, name, frame, False, type_)


def _micros(time: Column) -> Expr:
    return functions.cast(time, BIGINT) if time.type.is_integer else functions.resolve("epoch_us", (time,))

"""Functions of times, dates and intervals: TIMESTAMPTZ in the session's zone, weeks from Monday; Sunday is day 0."""

from __future__ import annotations

from functools import cache

from millstream.errors import BindError, nearest
from millstream.expressions.functions import zones
from millstream.expressions.functions.casts import coerce
from millstream.expressions.functions.regex import java_time_format, time_codes
from millstream.expressions.functions.registry import Rule, always, constant, define, lookup, overloads
from millstream.expressions.functions.text import spark_text
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import BIGINT, DATE, DOUBLE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, SqlType

_MOMENTS = (TIMESTAMP, TIMESTAMPTZ)

# part: names, Spark's form
_PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "year": (("years", "y"), "year({0})"),
    "quarter": (("quarters",), "quarter({0})"),
    "month": (("months", "mon"), "month({0})"),
    "week": (("weeks", "weekofyear"), "weekofyear({0})"),
    "day": (("days", "dayofmonth"), "day({0})"),
    "dayofweek": (("dow", "weekday"), "(dayofweek({0}) - 1)"),
    "isodow": ((), "(weekday({0}) + 1)"),
    "dayofyear": (("doy",), "dayofyear({0})"),
    "hour": (("hours", "h"), "hour({0})"),
    "minute": (("minutes", "min"), "minute({0})"),
    "second": (("seconds", "s"), "second({0})"),
    "millisecond": (("milliseconds", "ms"), "floor(extract(SECOND FROM {0}) * 1000)"),
    "microsecond": (("microseconds", "us"), "floor(extract(SECOND FROM {0}) * 1000000)"),
}
_OF_A_DAY = ("hour", "minute", "second", "millisecond", "microsecond")
TRUNCATIONS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_OF_THE_CALENDAR = TRUNCATIONS[TRUNCATIONS.index("hour") :]
_UNIT_NAMES = {alias: name for name, (aliases, _) in _PARTS.items() for alias in (name, *aliases)}


def _part(name: str) -> Rule:
    options: list[tuple[tuple[SqlType, ...], SqlType]] = [((moment,), BIGINT) for moment in _MOMENTS]
    options.append(((TIME,), BIGINT) if name in _OF_A_DAY else ((DATE,), BIGINT))
    rule = overloads(name, *options)
    return lambda args: rule(tuple(map(zones.local, args)))


def _extract(args: tuple[Expr, ...]) -> Expr | None:
    if constant(args[0]) is None:
        raise BindError(
            "the part of a time comes first, as a constant", hint="date_part('hour', ts), extract(hour FROM ts)"
        )
    part = str(constant(args[0])).lower()
    function = lookup(_UNIT_NAMES.get(part, part))
    if function is None or function.name not in (*_PARTS, "epoch"):
        raise BindError(f"unknown part of a time {part}", hint="parts are " + ", ".join((*_PARTS, "epoch")))
    return function.rule(args[1:])


def _date_trunc(args: tuple[Expr, ...]) -> Expr | None:
    unit = str(constant(args[0])).lower()
    if constant(args[0]) is None:
        raise BindError("date_trunc takes the unit first, as a constant", hint="date_trunc('hour', ts)")
    unit = _UNIT_NAMES.get(unit, unit)
    if unit not in TRUNCATIONS:
        raise BindError(f"cannot truncate a time to {unit}", hint="units are " + ", ".join(TRUNCATIONS))
    moment = args[1] if args[1].type in _MOMENTS else coerce(args[1], TIMESTAMP)
    if moment is not None and moment.type == TIMESTAMPTZ and not zones.is_utc() and unit in _OF_THE_CALENDAR:
        return zones.truncated(unit, moment)
    return None if moment is None else Call(moment.type, "date_trunc", (Literal(VARCHAR, unit), moment))


def _since_epoch(name: str, result: SqlType) -> Rule:
    return overloads(name, *(((type_,), result) for type_ in (*_MOMENTS, INTERVAL)))


def _micros_spark(call: Call, args: tuple[str, ...]) -> str:
    match call.args[0].type.name:
        case "INTERVAL":
            return f"CAST(CAST({args[0]} AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"
        case "TIMESTAMP":
            return f"unix_micros(CAST({args[0]} AS TIMESTAMP))"
    return f"unix_micros({args[0]})"


def _strftime(args: tuple[Expr, ...]) -> Expr | None:
    format_ = constant(args[1])
    if not isinstance(format_, str):
        raise BindError("the format of strftime must be constant text")
    time_codes(format_)
    return overloads("strftime", *(((type_, VARCHAR), VARCHAR) for type_ in (*_MOMENTS, DATE)))(
        (zones.local(args[0]), args[1])
    )


def _span(micros: int) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        times = lookup("*")
        assert times is not None
        return times.rule((Literal(INTERVAL, micros), args[0])) if args[0].type.is_integer else None

    return rule


def _add_months(args: tuple[Expr, ...]) -> Expr | None:
    moment = args[0] if args[0].type in _MOMENTS else coerce(args[0], TIMESTAMP)
    months = coerce(args[1], BIGINT)
    if moment is None:
        raise BindError(f"months are added to times, not to {args[0].type}", hint="ts + INTERVAL '1 month'")
    if months is None:
        return None
    added = Call(zones.local(moment).type, "add_months", (zones.local(moment), months))
    return added if added.type == moment.type else zones.instant(added)


def _add_months_duckdb(call: Call, args: tuple[str, ...]) -> str:
    months = f"to_months(CAST({args[1]} AS INTEGER))"
    if call.type == TIMESTAMPTZ:
        return f"timezone('UTC', timezone('UTC', {args[0]}) + {months})"
    return f"({args[0]} + {months})"


def _timezone(args: tuple[Expr, ...]) -> Expr | None:
    zone, moment = args
    name = constant(zone)
    if not isinstance(name, str):
        raise BindError("the name of a time zone is constant text", hint="ts AT TIME ZONE 'Europe/Berlin'")
    known_zone(name)
    if moment.type == TIMESTAMPTZ:
        return Call(TIMESTAMP, "timezone", (zone, moment))
    local = coerce(moment, TIMESTAMP)
    if local is None:
        raise BindError(f"a time zone is for times, not for {moment.type}", hint="ts AT TIME ZONE 'Europe/Berlin'")
    return Call(TIMESTAMPTZ, "timezone", (zone, local))


def known_zone(name: str) -> str:
    """A name of a time zone; BindError if there is none of that name."""
    if name not in known_zones():
        close = nearest(name, known_zones())
        raise BindError(f"no time zone {name}", hint=f"did you mean {close[0]}?" if close else "as in 'Europe/Berlin'")
    return name


@cache
def known_zones() -> frozenset[str]:
    """The names of time zones."""
    from millstream import sealed_duckdb

    with sealed_duckdb.connect(threads=1) as store:
        return frozenset(name for (name,) in store.execute("SELECT name FROM pg_timezone_names()").fetchall())


def _timezone_spark(call: Call, args: tuple[str, ...]) -> str:
    """Spark takes a local time that occurs twice for the first of them; everyone else for the second."""
    zone, time = args
    if call.type == TIMESTAMP:
        return f"CAST(from_utc_timestamp({time}, {zone}) AS TIMESTAMP_NTZ)"
    local = f"unix_micros(CAST({time} AS TIMESTAMP))"

    def read(offset_at: str) -> str:
        """The instant, with the offset that the zone has a day before or after."""
        there = (
            f"unix_micros(from_utc_timestamp(timestamp_micros({local} {offset_at}), {zone})) - ({local} {offset_at})"
        )
        return f"timestamp_micros({local} - ({there}))"

    before, after = read("- 86400000000L"), read("+ 86400000000L")
    is_right = f"unix_micros(from_utc_timestamp({after}, {zone})) = {local}"
    return f"CASE WHEN {is_right} THEN {after} ELSE {before} END"


_KERNEL_PARTS = (
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
    "dayofweek",
    "isodow",
    "year",
    "month",
    "quarter",
    "day",
)
for _name, (_aliases, _spark) in _PARTS.items():
    define(f"{_name}(time)", _part(_name), duckdb=f"CAST({_name}({{0}}) AS BIGINT)", spark=f"CAST({_spark} AS BIGINT)",
           kernel=_name in _KERNEL_PARTS,
           aliases=tuple(alias for alias in _aliases if len(alias) > 3 or alias in ("dow", "doy")))  # fmt: skip
define("extract(part, time)", _extract, aliases=("date_part", "datepart"))
define("date_trunc(unit, time)", _date_trunc,
       spark=lambda call, args: f"CAST(date_trunc({', '.join(args)}) AS {call.type.spark})",
       kernel=True, aliases=("datetrunc",))  # fmt: skip
define("epoch(time)", _since_epoch("epoch", DOUBLE), duckdb="(epoch_us({0}) / 1e6)",
       spark=lambda call, args: f"({_micros_spark(call, args)} / 1e6D)", kernel=True)  # fmt: skip
define("epoch_ms(time)", _since_epoch("epoch_ms", BIGINT),
       duckdb="((epoch_us({0}) - (epoch_us({0}) % 1000 + 1000) % 1000) // 1000)",
       spark=lambda call, args: "(({0} - pmod({0}, 1000L)) div 1000L)".format(_micros_spark(call, args)),
       kernel=True)  # fmt: skip
define("epoch_us(time)", _since_epoch("epoch_us", BIGINT), spark=_micros_spark, kernel=True)
define("to_timestamp(seconds)", overloads("to_timestamp", ((DOUBLE,), TIMESTAMPTZ)), fails=always,
       spark="timestamp_micros(CAST(round({0} * 1e6D) AS BIGINT))", kernel=True)  # fmt: skip
define("make_timestamp(microseconds)", overloads("make_timestamp", ((BIGINT,), TIMESTAMP)),
       spark="CAST(timestamp_micros({0}) AS TIMESTAMP_NTZ)", kernel=True)  # fmt: skip
define("strftime(time, format)", _strftime,
       spark=lambda call, args:
       f"date_format({args[0]}, {spark_text(java_time_format(str(constant(call.args[1]))))})")  # fmt: skip
define("add_months(time, months)", _add_months, duckdb=_add_months_duckdb, fails=always,
       spark="({0} + make_ym_interval(0, CAST({1} AS INT)))")  # fmt: skip
define("timezone(zone, time)", _timezone, spark=_timezone_spark)
for _unit, _micros in (("microseconds", 1), ("milliseconds", 1_000), ("seconds", 1_000_000), ("minutes", 60_000_000),
                       ("hours", 3_600_000_000), ("days", 86_400_000_000), ("weeks", 604_800_000_000)):  # fmt: skip
    define(f"to_{_unit}(amount)", _span(_micros), kernel=True)

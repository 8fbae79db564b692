"""Functions of times in Arrow."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.arrow.conditional import Builder, Compile, simple
from millstream.expressions.arrow.node import Datum, Node, number, whole
from millstream.expressions.functions.regex import time_codes
from millstream.expressions.nodes import Call, Literal

_NAIVE = pa.timestamp("us")
_THOUSAND, _MILLION = whole(1000), number(1e6)


def _naive(datum: Datum) -> Datum:
    """A TIMESTAMPTZ without its zone: Arrow would look UTC up in a table for each value."""
    return datum.cast(_NAIVE) if pa.types.is_timestamp(datum.type) and datum.type.tz else datum


def _part(function: Callable[[Datum], Datum]) -> Builder:
    return simple(lambda x: function(_naive(x)))


def _of_second(*parts: Callable[[Datum], Datum]) -> Builder:
    """Seconds and their fraction as one number of smaller units, as DuckDB counts milliseconds."""

    def value(x: Datum) -> Datum:
        x = _naive(x)
        total = pc.second(x)
        for part in parts:
            total = pc.add(pc.multiply(total, _THOUSAND), part(x))
        return total

    return simple(value)


def _date_trunc(call: Call, compile_: Compile) -> Node | None:
    unit, type_ = call.args[0], call.type.arrow
    node = compile_(call.args[1])
    if node is None or not isinstance(unit, Literal):
        return None
    source, name = node, str(unit.value)
    if name == "microsecond":
        return source
    return lambda rows: pc.floor_temporal(_naive(source(rows)), unit=name).cast(type_)


def _micros(datum: Datum) -> Datum:
    return datum.cast(pa.int64())


def _millis(datum: Datum) -> Datum:
    micros = _micros(datum)
    # Division cuts towards zero; milliseconds before 1970 round down like all others.
    quotient = pc.divide(micros, _THOUSAND)
    below = pc.less(micros, pc.multiply(quotient, _THOUSAND))
    return pc.subtract(quotient, below.cast(pa.int64()))


def _to_timestamp(seconds: Datum) -> Datum:
    micros = pc.round(pc.multiply(seconds, _MILLION), 0, round_mode="half_towards_infinity").cast(pa.int64())
    return micros.cast(pa.timestamp("us", "UTC"))


def _strftime(call: Call, compile_: Compile) -> Node | None:
    node, format_ = compile_(call.args[0]), call.args[1]
    if node is None or not isinstance(format_, Literal) or "%f" in time_codes(str(format_.value)):
        return None
    source, text = node, str(format_.value)
    # Arrow writes fractions after the seconds of whatever has them.
    return lambda rows: pc.strftime(
        pc.floor_temporal(_naive(source(rows)).cast(_NAIVE), unit="second").cast(pa.timestamp("s")), format=text
    )


BUILDERS: dict[str, Builder] = {
    **{name: _part(getattr(pc, name)) for name in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "week": _part(pc.iso_week),
    "dayofyear": _part(pc.day_of_year),
    "dayofweek": _part(lambda x: pc.day_of_week(x, count_from_zero=True, week_start=7)),
    "isodow": _part(lambda x: pc.day_of_week(x, count_from_zero=False, week_start=1)),
    "millisecond": _of_second(pc.millisecond),
    "microsecond": _of_second(pc.millisecond, pc.microsecond),
    "date_trunc": _date_trunc,
    "epoch": simple(lambda x: pc.divide(_micros(x).cast(pa.float64(), safe=False), _MILLION)),
    "epoch_ms": simple(_millis),
    "epoch_us": simple(_micros),
    "to_timestamp": simple(_to_timestamp),
    "make_timestamp": simple(lambda x: x.cast(_NAIVE)),
    "strftime": _strftime,
}

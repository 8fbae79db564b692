"""Casts in Arrow, with the meaning that `millstream.expressions.functions.casts` gives them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import DataError
from millstream.expressions.arrow.node import Datum, InputRows, Node, as_array, constant, failing
from millstream.expressions.duckdb_batch import DuckBatch
from millstream.expressions.nodes import Cast, Column, Expr, told
from millstream.types import DOUBLE, VARCHAR, SqlType

Compile = Callable[[Expr], Node | None]
Convert = Callable[[Datum], Datum]

# Fractions of a second that are only zeros, or end in them, are not written.
_TRAILING_ZEROS = r"(?:(\.[0-9]*[1-9])0*|\.0*)$"


def build(expr: Cast, compile_: Compile) -> Node | None:
    """A node for a cast; None if Arrow has no such conversion."""
    source, target = expr.arg.type, expr.type
    node = compile_(expr.arg)
    if node is None:
        return None
    arg = node
    if source.base == target:
        return arg
    if target.domain:
        return None
    if source.is_text and target.name != "BLOB":
        return _from_text(expr, arg)
    convert = _conversion(source, target)
    if convert is None or (expr.safe and not _always_fits(source, target)):
        return None
    conversion = convert
    return failing(lambda rows: conversion(arg(rows)), expr)


def _conversion(source: SqlType, target: SqlType) -> Convert | None:
    type_ = target.arrow
    if source.is_nested:
        return None
    if target.is_text:
        return _to_text(source)
    if source.is_text:
        return lambda x: x.cast(type_)
    if target.name == "BOOLEAN" and source.name == "DECIMAL":
        zero = constant(Decimal(0), source)[0]
        return lambda x: pc.not_equal(x, zero)
    if target == DOUBLE and source.name == "DECIMAL":
        return lambda x: _decimal_as_double(x, source)
    if target == DOUBLE or target.name == "BOOLEAN":
        return lambda x: x.cast(type_, safe=False)
    if target.is_integer and source == DOUBLE:
        return lambda x: pc.round(x, 0, round_mode="half_to_even").cast(type_)
    if target.is_integer and source.name == "DECIMAL":
        return lambda x: round_decimal(x, source, 0).cast(type_)
    if target.name == "DECIMAL":
        return _to_decimal(source, target)
    if source.name in ("TIMESTAMP", "TIMESTAMPTZ") and target.name in ("DATE", "TIME"):
        # Without its zone, which is UTC, a time is read as it stands.
        return lambda x: x.cast(pa.timestamp("us")).cast(type_, safe=False)
    return lambda x: x.cast(type_)


def _decimal_as_double(x: Datum, type_: SqlType) -> Datum:
    """The nearest double. Arrow's own cast multiplies by 0.01, which is no such number, and is off in the last digit
    for one value in eight; dividing the digits by 100 is what DuckDB and Spark do."""
    digits = pa.decimal128(type_.precision, 0)
    if isinstance(x, pa.Scalar):
        return pa.scalar(None if x.as_py() is None else float(x.as_py()), pa.float64())
    whole = pa.Array.from_buffers(digits, len(x), x.buffers(), offset=x.offset)
    return pc.divide(whole.cast(pa.float64()), float(10**type_.scale))


def _to_decimal(source: SqlType, target: SqlType) -> Convert | None:
    type_ = target.arrow
    if source == DOUBLE:
        return None
    if source.is_integer:
        # An integer needs all its digits on the way, and the scale on top.
        if 19 + target.scale > 38:
            return None
        wide = pa.decimal128(19 + target.scale, target.scale)
        return lambda x: x.cast(wide).cast(type_)
    if target.scale < source.scale:
        scale = target.scale
        return lambda x: round_decimal(x, source, scale).cast(type_)
    return lambda x: x.cast(type_)


def round_decimal(x: Datum, type_: SqlType, digits: int) -> Datum:
    """A DECIMAL rounded, halves away from zero, with room for one more digit before the point."""
    wide = pa.decimal128(min(38, type_.precision + 1), type_.scale)
    return pc.round(x.cast(wide), digits, round_mode="half_towards_infinity")


def _to_text(source: SqlType) -> Convert | None:
    if source == DOUBLE or source.name in ("DECIMAL", "TIME"):
        return None
    text, zone, nothing = pa.string(), constant("+00", VARCHAR)[0], constant("", VARCHAR)[0]
    if source.name == "TIMESTAMP":
        return _time_to_text
    if source.name == "TIMESTAMPTZ":
        return lambda x: pc.binary_join_element_wise(_time_to_text(x.cast(pa.timestamp("us"))), zone, nothing)
    return lambda x: x.cast(text)


def _time_to_text(x: Datum) -> Datum:
    whole = pc.floor_temporal(x, unit="second")
    if whole.equals(x):
        return whole.cast(pa.timestamp("s")).cast(pa.string())
    return pc.replace_substring_regex(x.cast(pa.string()), _TRAILING_ZEROS, r"\1")


def _always_fits(source: SqlType, target: SqlType) -> bool:
    from millstream.expressions.functions.casts import cast_can_fail

    return not cast_can_fail(source, target)


def _from_text(expr: Cast, arg: Node) -> Node:
    """Arrow reads the usual forms; where it refuses some text, DuckDB reads all that we accept."""
    type_ = expr.type.arrow
    duck = DuckBatch([Cast(expr.type, Column(expr.arg.type, "x"), safe=True)])

    def node(rows: InputRows) -> Datum:
        text = arg(rows)
        if not _is_doubtful(text, expr.type):
            try:
                return text.cast(type_)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass
        one = isinstance(text, pa.Scalar)
        texts = as_array(text, 1 if one else len(text))
        (result,) = duck(pa.record_batch([texts], names=["x"]))
        if not expr.safe and result.null_count > texts.null_count:
            unread = texts.filter(pc.and_not(result.is_null(), texts.is_null()))[0]
            raise DataError(f"cannot evaluate {told(expr)}", detail=f"'{unread}' is not a valid {expr.type}")
        return result[0] if one else result

    return failing(node, expr)


def _is_doubtful(text: Datum, target: SqlType) -> bool:
    """Whether some text may be one that Arrow reads and we do not: hexadecimal numbers, hours without minutes."""
    if target.is_integer:
        doubtful = pc.match_substring(text, "x", ignore_case=True)
    elif target.is_temporal:
        doubtful = pc.equal(pc.binary_length(text), 13)
    else:
        return target.name == "BOOLEAN" or target.name == "DECIMAL"
    return bool(pc.any(doubtful).as_py())

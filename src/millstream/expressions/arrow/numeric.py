"""Arithmetic and functions of numbers in Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.arrow.casts import round_decimal
from millstream.expressions.arrow.conditional import Builder, Compile, simple
from millstream.expressions.arrow.node import Datum, Node, constant, number, whole
from millstream.expressions.functions.numeric import round_digits
from millstream.expressions.nodes import Call, Literal
from millstream.types import DOUBLE

# Scalars are made once: to convert a Python number at each call costs more than to compute with it.
_ONE, _MINUS_ONE, _ZERO = whole(1), whole(-1), number(0.0)
_AWAY = "half_towards_infinity"


def _arithmetic(checked: Callable[[Datum, Datum], Datum], plain: Callable[[Datum, Datum], Datum]) -> Builder:
    def build(call: Call, compile_: Compile) -> Node | None:
        if call.type == DOUBLE:
            return simple(plain)(call, compile_)
        if call.type.name == "DECIMAL":
            return _decimal(call, compile_, plain)
        if call.type.name == "DATE":
            return _days(call, compile_, checked)
        if call.args[0].type.name == call.args[1].type.name == "DATE":
            return simple(lambda x, y: checked(_as_days(x), _as_days(y)))(call, compile_)
        return simple(checked)(call, compile_)

    return build


def _decimal(call: Call, compile_: Compile, plain: Callable[[Datum, Datum], Datum]) -> Node | None:
    """Arrow wants its own number of digits for results; where those pass 38, DuckDB does it."""
    left, right = (arg.type for arg in call.args)
    digits = left.precision + right.precision + 1
    if call.fn != "*":
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    if digits > 38:
        return None
    type_ = call.type.arrow
    return simple(lambda x, y: pc.cast(plain(x, y), type_))(call, compile_)


def _as_days(datum: Datum) -> Datum:
    return datum.cast(pa.int32()).cast(pa.int64())


def _days(call: Call, compile_: Compile, checked: Callable[[Datum, Datum], Datum]) -> Node | None:
    """DATE ± a number of days."""
    return simple(lambda x, y: checked(x.cast(pa.int32()), y).cast(pa.date32()))(call, compile_)


def _nonzero(divide: Callable[[Datum, Datum], Datum]) -> Builder:
    """A division of which NULL comes where the divisor is zero."""

    def build(call: Call, compile_: Compile) -> Node | None:
        divisor = call.args[1]
        if isinstance(divisor, Literal) and divisor.value:
            return simple(divide)(call, compile_)
        nothing, zero = constant(None, divisor.type)[0], constant(0, divisor.type)[0]

        def safe(x: Datum, y: Datum) -> Datum:
            zeros = pc.equal(y, zero)
            return divide(x, pc.if_else(zeros, nothing, y) if pc.any(zeros).as_py() else y)

        return simple(safe)(call, compile_)

    return build


def _remainder(x: Datum, y: Datum) -> Datum:
    # The least BIGINT over -1 has no quotient, but its remainder is that of 1.
    y = pc.if_else(pc.equal(y, _MINUS_ONE), _ONE, y)
    return pc.subtract(x, pc.multiply(pc.divide(x, y), y))


def _fmod(x: Datum, y: Datum) -> Datum:
    if isinstance(x, pa.Scalar) and isinstance(y, pa.Scalar):
        return _fmod(pa.array([x.as_py()], pa.float64()), y)[0]
    # NaN stands for NULL while NumPy computes, and the mask puts NULL back.
    masks = [datum.is_null() for datum in (x, y) if not isinstance(datum, pa.Scalar) and datum.null_count]
    if any(isinstance(datum, pa.Scalar) and not datum.is_valid for datum in (x, y)):
        return pa.nulls(len(y if isinstance(x, pa.Scalar) else x), pa.float64())
    with np.errstate(invalid="ignore"):
        values = np.fmod(_floats(x), _floats(y))
    if not masks:
        return pa.array(values)
    mask = masks[0] if len(masks) == 1 else pc.or_(*masks)
    return pa.array(values, mask=mask.to_numpy(zero_copy_only=False))


def _floats(datum: Datum) -> Any:
    return datum.as_py() if isinstance(datum, pa.Scalar) else datum.to_numpy(zero_copy_only=False)


def _by_type(doubles: Builder, integers: Builder) -> Builder:
    def build(call: Call, compile_: Compile) -> Node | None:
        if call.type == DOUBLE:
            return doubles(call, compile_)
        return integers(call, compile_) if call.type.name != "DECIMAL" else None

    return build


def _not_decimal(builder: Builder) -> Builder:
    return lambda call, compile_: None if call.args[0].type.name == "DECIMAL" else builder(call, compile_)


def _round(call: Call, compile_: Compile) -> Node | None:
    node = compile_(call.args[0])
    digits, type_ = round_digits(call), call.type.arrow
    if node is None:
        return None
    source = node
    if call.type.name == "DECIMAL":
        given = call.args[0].type
        return lambda rows: round_decimal(source(rows), given, digits).cast(type_)
    if call.type != DOUBLE:
        return lambda rows: pc.round(source(rows), digits, round_mode=_AWAY)
    if digits == 0:
        return lambda rows: pc.round(source(rows), 0, round_mode=_AWAY)
    factor = number(float(10 ** abs(digits)))
    scale, unscale = (pc.multiply, pc.divide) if digits > 0 else (pc.divide, pc.multiply)

    def rounded(x: Datum) -> Datum:
        result = unscale(pc.round(scale(x, factor), 0, round_mode=_AWAY), factor)
        return pc.if_else(pc.is_finite(result), result, x)

    return lambda rows: rounded(source(rows))


def _sign(x: Datum) -> Datum:
    sign = pc.sign(x)
    if pa.types.is_floating(sign.type):
        sign = pc.if_else(pc.is_nan(sign), _ZERO, sign)
    return sign.cast(pa.int8())


def _interval_abs(call: Call, compile_: Compile) -> Node | None:
    if call.type.name == "INTERVAL":
        return simple(lambda x: pc.abs_checked(x.cast(pa.int64())).cast(pa.duration("us")))(call, compile_)
    return simple(pc.abs if call.type == DOUBLE or call.type.name == "DECIMAL" else pc.abs_checked)(call, compile_)


def _negate(call: Call, compile_: Compile) -> Node | None:
    if call.type.name == "INTERVAL":
        return simple(lambda x: pc.negate_checked(x.cast(pa.int64())).cast(pa.duration("us")))(call, compile_)
    return simple(pc.negate if call.type == DOUBLE or call.type.name == "DECIMAL" else pc.negate_checked)(
        call, compile_
    )


BUILDERS: dict[str, Builder] = {
    "+": _arithmetic(pc.add_checked, pc.add),
    "-": _arithmetic(pc.subtract_checked, pc.subtract),
    "*": _arithmetic(pc.multiply_checked, pc.multiply),
    "/": _nonzero(pc.divide),
    "//": _by_type(_nonzero(lambda x, y: pc.trunc(pc.divide(x, y))), _nonzero(pc.divide_checked)),
    "%": _by_type(_nonzero(_fmod), _nonzero(_remainder)),
    "neg": _negate,
    "abs": _interval_abs,
    "ceil": _not_decimal(simple(pc.ceil)),
    "floor": _not_decimal(simple(pc.floor)),
    "trunc": _not_decimal(simple(pc.trunc)),
    "round": _round,
    "sign": _not_decimal(simple(_sign)),
    "sqrt": simple(pc.sqrt),
    "exp": simple(pc.exp),
    "ln": simple(pc.ln),
    "log10": simple(pc.log10),
    "log2": simple(pc.log2),
    "power": simple(pc.power),
    "isnan": simple(pc.is_nan),
    "isinf": simple(pc.is_inf),
    "isfinite": simple(pc.is_finite),
}

"""Functions of numbers; DOUBLE functions are IEEE everywhere: ln(0) is -inf, sqrt(-1) is NaN."""

from __future__ import annotations

import math

from millstream.errors import BindError
from millstream.expressions.functions.casts import cast
from millstream.expressions.functions.registry import Rule, constant, define, overloads, spark_trunc
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import BOOLEAN, DECIMAL, DOUBLE, INTERVAL, NULL, TINYINT

_NAN, _INF = "double('NaN')", "double('Infinity')"


def _abs(args: tuple[Expr, ...]) -> Expr | None:
    (arg,) = args
    if arg.type == NULL:
        return Literal(DOUBLE, None)
    return Call(arg.type, "abs", args) if arg.type.is_numeric or arg.type == INTERVAL else None


def _rounding(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        (arg,) = args
        if arg.type.is_integer or (arg.type.name == "DECIMAL" and arg.type.scale == 0):
            return arg
        if arg.type.name == "DECIMAL":
            return Call(DECIMAL(arg.type.precision, 0), name, args)
        return overloads(name, ((DOUBLE,), DOUBLE))(args)

    return rule


def _round(args: tuple[Expr, ...]) -> Expr | None:
    arg = args[0]
    digits = constant(args[1]) if len(args) > 1 else 0
    if not isinstance(digits, int) or isinstance(digits, bool):
        raise BindError("the digits of round must be a constant integer")
    if abs(digits) > 300:
        raise BindError(f"round to {digits} digits", hint="digits are -300 to 300")
    if arg.type == NULL:
        return Literal(DOUBLE, None)
    scale = arg.type.scale if arg.type.name == "DECIMAL" else 0
    places = Literal(TINYINT, digits) if -128 <= digits < 128 else args[1]
    if arg.type == DOUBLE:
        return Call(DOUBLE, "round", (arg, places))
    if not arg.type.is_numeric:
        return None
    if digits >= scale:
        return arg
    type_ = DECIMAL(arg.type.precision, max(0, digits)) if arg.type.name == "DECIMAL" else arg.type
    return Call(type_, "round", (arg, places))


def round_digits(call: Call) -> int:
    """The digits after the point that a call of round keeps."""
    digits = constant(call.args[1])
    assert isinstance(digits, int)
    return digits


def _round_duckdb(call: Call, args: tuple[str, ...]) -> str:
    return f"CAST(round({args[0]}, {round_digits(call)}) AS {call.type.duckdb})"


def _round_spark(call: Call, args: tuple[str, ...]) -> str:
    digits = round_digits(call)
    if call.type != DOUBLE:
        return f"CAST(round({args[0]}, {digits}) AS {call.type.spark})"
    # Spark rounds the decimal text of a DOUBLE; this rounds its binary value, as everyone else does.
    scaled, unscaled = ("*", "/") if digits >= 0 else ("/", "*")
    factor = f"1e{abs(digits)}D"
    if digits == 0:
        return f"CASE WHEN abs({args[0]}) < 9007199254740992D THEN round({args[0]}) ELSE {args[0]} END"
    inner = f"({args[0]} {scaled} {factor})"
    return (
        f"CASE WHEN abs({inner}) < 9007199254740992D THEN round({inner}) {unscaled} {factor} "
        f"WHEN {inner} = {_INF} OR {inner} = -{_INF} THEN {args[0]} ELSE {inner} {unscaled} {factor} END"
    )


def _sign(args: tuple[Expr, ...]) -> Expr | None:
    (arg,) = args
    if arg.type == NULL:
        return Literal(TINYINT, None)
    return Call(TINYINT, "sign", args) if arg.type.is_numeric else None


def _sign_spark(call: Call, args: tuple[str, ...]) -> str:
    nan = f"WHEN {args[0]} = {_NAN} THEN 0 " if call.args[0].type == DOUBLE else ""
    return (
        f"CAST(CASE {nan}WHEN {args[0]} > 0 THEN 1 WHEN {args[0]} < 0 THEN -1 WHEN {args[0]} = 0 THEN 0 END AS TINYINT)"
    )


def _of_double(name: str) -> Rule:
    return overloads(name, ((DOUBLE,), DOUBLE))


def _logarithm(name: str) -> str:
    return f"CASE WHEN {{0}} = 0D THEN -{_INF} WHEN {{0}} < 0D THEN {_NAN} ELSE {name}({{0}}) END"


def _whole(name: str) -> str:
    return f"CASE WHEN abs({{0}}) < 9007199254740992D THEN CAST({name}({{0}}) AS DOUBLE) ELSE {{0}} END"


def _declared(call: Call, text: str) -> str:
    return text if call.type == DOUBLE else f"CAST({text} AS {call.type})"


def _power(args: tuple[Expr, ...]) -> Expr | None:
    if not all(arg.type.is_numeric or arg.type == NULL for arg in args):
        return None
    return Call(DOUBLE, "power", tuple(cast(arg, DOUBLE) for arg in args))


define("abs(x)", _abs, fails=lambda call: call.type != DOUBLE and call.type.name != "DECIMAL", kernel=True,
       duckdb=lambda call, args: f"to_microseconds(abs(epoch_us({args[0]})))" if call.type == INTERVAL else
       f"abs({args[0]})",
       spark="abs({0})")  # fmt: skip
for _name, _aliases in (("ceil", ("ceiling",)), ("floor", ())):
    define(f"{_name}(x)", _rounding(_name), aliases=_aliases, kernel=True,
           duckdb=lambda call, args: _declared(call, f"{call.fn}({args[0]})"),
           spark=lambda call, args: _whole(call.fn).format(*args) if call.type == DOUBLE else
           _declared(call, f"{call.fn}({args[0]})"))  # fmt: skip
define("trunc(x)", _rounding("trunc"), kernel=True,
       duckdb=lambda call, args: _declared(call, f"trunc({args[0]})"),
       spark=lambda call, args: spark_trunc(args[0]) if call.type == DOUBLE else
       f"CAST(CASE WHEN {args[0]} < 0 THEN ceil({args[0]}) ELSE floor({args[0]}) END AS {call.type})")  # fmt: skip
define("round(x [, digits])", _round, duckdb=_round_duckdb, spark=_round_spark,
       fails=lambda call: call.type.is_integer, kernel=True)  # fmt: skip
define("sign(x)", _sign, spark=_sign_spark, duckdb="CAST(sign({0}) AS TINYINT)", kernel=True)
define("sqrt(x)", _of_double("sqrt"), kernel=True)
define("exp(x)", _of_double("exp"), kernel=True)
define("ln(x)", _of_double("ln"), spark=_logarithm("ln"), kernel=True)
define("log10(x)", _of_double("log10"), spark=_logarithm("log10"), kernel=True, aliases=("log",))
define("log2(x)", _of_double("log2"), spark=_logarithm("log2"), kernel=True)
define("power(x, y)", _power, aliases=("pow",), kernel=True,
       # C says 1 to the power of anything is 1, also of NaN; Java does not.
       spark=f"CASE WHEN ({{0}} = 1D AND {{1}} IS NOT NULL) OR ({{0}} = -1D AND abs({{1}}) = {_INF}) THEN 1D "
       "ELSE power({0}, {1}) END")  # fmt: skip
define("isnan(x)", overloads("isnan", ((DOUBLE,), BOOLEAN)), spark=f"({{0}} = {_NAN})", kernel=True)
define("isinf(x)", overloads("isinf", ((DOUBLE,), BOOLEAN)), spark=f"(abs({{0}}) = {_INF})", kernel=True)
define("isfinite(x)", overloads("isfinite", ((DOUBLE,), BOOLEAN)), spark=f"(abs({{0}}) < {_INF})", kernel=True)
define("pi()", lambda args: Literal(DOUBLE, math.pi), kernel=True)

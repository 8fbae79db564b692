"""Operators: comparison, logic and arithmetic.

What arithmetic does, on every host:

- `+ - *` and negation of integers give BIGINT, of which an overflow is an error, never a wrap;
- `/` gives DOUBLE; `//` divides and drops the fraction (BIGINT for integers); `%` has the sign of the dividend;
- dividing by zero gives NULL, for every type;
- DECIMAL follows DuckDB: sums have one digit more, products the digits of both, at most 18 while both factors have at
  most 18 (a result that does not fit is an error); `/` and `//` of DECIMAL are of DOUBLE;
- DOUBLE is IEEE, but NaN equals NaN and is greater than all other numbers;
- TIMESTAMP ± INTERVAL, TIMESTAMP − TIMESTAMP → INTERVAL, DATE ± days, DATE − DATE → days, DATE ± INTERVAL → TIMESTAMP,
  INTERVAL ± INTERVAL, INTERVAL * integer.

AND and OR decide from left to right: where the left side has decided, the right side cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from millstream.errors import BindError
from millstream.expressions.functions.casts import cast, coerce
from millstream.expressions.functions.literals import fits
from millstream.expressions.functions.registry import Rule, comparable, define, never, spark_trunc, unify
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULL,
    TIMESTAMP,
    VARCHAR,
    SqlType,
    integer_bounds,
)

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_INSTANTS = ("TIMESTAMP", "TIMESTAMPTZ")


def _comparison(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        both = comparable(args, ordered=name not in ("=", "<>", "is_distinct"))
        if both is None:
            return None
        if both[0].type == NULL:
            both = tuple(cast(arg, INTEGER) for arg in both)
        return Call(BOOLEAN, name, both)

    return rule


def _logic(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        converted = tuple(coerce(arg, BOOLEAN) for arg in args)
        for arg, part in zip(args, converted, strict=True):
            if part is None:
                raise BindError(
                    f"{name.upper()} needs a condition, not {arg.type}",
                    hint="compare it, as in x <> 0, or cast it to BOOLEAN",
                )
        return Call(BOOLEAN, name, tuple(part for part in converted if part is not None))

    return rule


def _in(args: tuple[Expr, ...]) -> Expr | None:
    same = comparable(args, ordered=False)
    return None if same is None else Call(BOOLEAN, "in", same)


def _numbers(args: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """The operands of arithmetic as BIGINT, DOUBLE or DECIMALs; None if some are not numbers."""
    if not all(arg.type.is_numeric or arg.type == NULL for arg in args):
        return None
    if any(arg.type == DOUBLE for arg in args):
        return tuple(cast(arg, DOUBLE) for arg in args)
    if any(arg.type.name == "DECIMAL" for arg in args):
        return tuple(cast(arg, _as_decimal(arg.type)) for arg in args)
    return tuple(cast(arg, BIGINT) for arg in args)


def _as_decimal(type_: SqlType) -> SqlType:
    bounds = integer_bounds(type_.base)
    return type_.base if type_.name == "DECIMAL" else DECIMAL(18 if bounds is None else len(str(bounds[1])), 0)


def _decimal_result(name: str, left: SqlType, right: SqlType) -> SqlType:
    if name == "*":
        digits, scale = left.precision + right.precision, left.scale + right.scale
        if max(left.precision, right.precision) <= 18 and scale < 18:
            digits = min(digits, 18)
    else:
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    # Past 38 digits Spark gives up digits after the point, beyond the sixth, to make room before it; DuckDB does not.
    if digits > 38 and scale > 6:
        raise BindError(
            f"{left} {name} {right} needs {digits} digits, and a DECIMAL has at most 38",
            hint="cast an operand to a narrower DECIMAL, or to DOUBLE",
        )
    return DECIMAL(min(38, digits), scale)


def _arithmetic(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        numbers = _numbers(args)
        if numbers is None:
            return _with_times(name, args)
        left, right = numbers
        if left.type.name == "DECIMAL":
            return Call(_decimal_result(name, left.type, right.type), name, numbers)
        return Call(left.type, name, numbers)

    return rule


def _with_times(name: str, args: tuple[Expr, ...]) -> Expr | None:
    left, right = _constants_as_times(args)
    kinds = (left.type.name, right.type.name)
    if kinds == ("INTERVAL", "INTERVAL") and name in "+-":
        return Call(INTERVAL, name, (left, right))
    if name == "*" and "INTERVAL" in kinds:
        span, factor = (left, right) if kinds[0] == "INTERVAL" else (right, left)
        return Call(INTERVAL, "*", (span, cast(factor, BIGINT))) if factor.type.is_integer else None
    if name == "+" and (kinds[0] == "INTERVAL" or (left.type.is_integer and kinds[1] == "DATE")):
        return _with_times("+", (right, left)) if right.type.is_temporal else None
    if kinds[1] == "INTERVAL" and kinds[0] in ("DATE", *_INSTANTS) and name in "+-":
        moment = cast(left, TIMESTAMP) if left.type == DATE else left
        return Call(moment.type, name, (moment, right))
    if kinds[0] == "DATE" and right.type.is_integer and name in "+-":
        return Call(DATE, name, (left, cast(right, INTEGER)))
    if name == "-" and left.type.is_temporal and right.type.is_temporal:
        if kinds == ("DATE", "DATE"):
            return Call(BIGINT, "-", (left, right))
        both = unify((left, right))
        return None if both is None or both[0].type.name == "TIME" else Call(INTERVAL, "-", both)
    return None


def _constants_as_times(args: tuple[Expr, ...]) -> tuple[Expr, Expr]:
    """`ts - '2024-01-01'` subtracts a time; a NULL beside a time is an INTERVAL."""
    left, right = args
    if left.type.is_temporal and right.type.is_text:
        right = coerce(right, TIMESTAMP if left.type == DATE else left.type) or right
    elif right.type.is_temporal and left.type.is_text:
        left = coerce(left, TIMESTAMP if right.type == DATE else right.type) or left
    left, right = (coerce(arg, INTERVAL) or arg if arg.type == NULL else arg for arg in (left, right))
    return left, right


def _divide(args: tuple[Expr, ...]) -> Expr | None:
    if _numbers(args) is None:
        return None
    return Call(DOUBLE, "/", tuple(cast(arg, DOUBLE) for arg in args))


def _whole_divide(args: tuple[Expr, ...]) -> Expr | None:
    numbers = _numbers(args)
    if numbers is None:
        return None
    type_ = BIGINT if numbers[0].type == BIGINT else DOUBLE
    return Call(type_, "//", tuple(cast(arg, type_) for arg in args))


def _modulo(args: tuple[Expr, ...]) -> Expr | None:
    numbers = _numbers(args)
    if numbers is None:
        return None
    same = unify(numbers)
    return None if same is None else Call(same[0].type, "%", same)


def _negate(args: tuple[Expr, ...]) -> Expr | None:
    (arg,) = args
    if isinstance(arg, Literal) and isinstance(arg.value, int | float | Decimal) and arg.type != BOOLEAN:
        value = -arg.value
        if arg.type.name == "DECIMAL" and arg.type.scale == 0 and fits(int(value), BIGINT):
            # 9223372036854775808 is no BIGINT, and its negative is: the least one.
            return Literal(BIGINT, int(value))
        if not arg.type.is_temporal and (not arg.type.is_integer or fits(int(value), arg.type)):
            return Literal(arg.type, value)
    numbers = _numbers(args)
    if numbers is not None:
        return Call(numbers[0].type, "neg", numbers)
    return Call(INTERVAL, "neg", args) if arg.type == INTERVAL else None


def _concat(args: tuple[Expr, ...]) -> Expr | None:
    return Call(VARCHAR, "||", tuple(cast(arg, VARCHAR) for arg in args))


def _is_null(args: tuple[Expr, ...]) -> Expr:
    return Call(BOOLEAN, "is_null", args)


def _overflows(call: Call) -> bool:
    return call.type != DOUBLE


def _binary(symbol: str, on: dict[str, str] | None = None) -> Callable[[Call, tuple[str, ...]], str]:
    """`(a symbol b)`, or another form by the types of the result and the operands, as in 'INTERVAL+INTERVAL'."""

    def spelling(call: Call, args: tuple[str, ...]) -> str:
        kinds = [arg.type.name for arg in call.args]
        form = (on or {}).get(
            f"{kinds[0]}{symbol}{kinds[1]}", (on or {}).get(call.type.name, f"({{0}} {symbol} {{1}})")
        )
        return form.format(*args)

    return spelling


def _decimal_cast(spelling: Callable[[Call, tuple[str, ...]], str]) -> Callable[[Call, tuple[str, ...]], str]:
    """The engines choose digits of their own for DECIMAL results; the declared type decides."""

    def spelled(call: Call, args: tuple[str, ...]) -> str:
        text = spelling(call, args)
        return f"CAST({text} AS {call.type})" if call.type.name == "DECIMAL" else text

    return spelled


# DuckDB's own arithmetic of TIMESTAMPTZ goes through calendars and milliseconds; microseconds are exact.
_SPANS = "to_microseconds(epoch_us({0}) %s epoch_us({1}))"
_ADD = {"INTERVAL+INTERVAL": _SPANS % "+", "TIMESTAMPTZ": "make_timestamptz(epoch_us({0}) + epoch_us({1}))"}
_SUBTRACT = {
    "INTERVAL-INTERVAL": _SPANS % "-",
    "TIMESTAMPTZ-TIMESTAMPTZ": _SPANS % "-",
    "TIMESTAMPTZ": "make_timestamptz(epoch_us({0}) - epoch_us({1}))",
    "DATE-DATE": "CAST({0} - {1} AS BIGINT)",
}
_MULTIPLY = {"INTERVAL": "to_microseconds(epoch_us({0}) * {1})"}
_SPARK_ADD = {"DATE": "date_add({0}, {1})"}
_SPARK_SUBTRACT = {"DATE": "date_sub({0}, {1})", "DATE-DATE": "CAST(datediff({0}, {1}) AS BIGINT)"}

for _symbol in _COMPARISONS:
    define("(a, b)", _comparison(_symbol), name=_symbol, duckdb=_binary(_symbol), kernel=True)
define("(a, b)", _comparison("is_distinct"), name="is_distinct", duckdb="({0} IS DISTINCT FROM {1})",
       spark="(NOT ({0} <=> {1}))", kernel=True)  # fmt: skip
define("(a, b)", _logic("and"), name="and", duckdb="({0} AND {1})", kernel=True)
define("(a, b)", _logic("or"), name="or", duckdb="({0} OR {1})", kernel=True)
define("(a)", _logic("not"), name="not", duckdb="(NOT {0})", kernel=True)
define("(a)", _is_null, name="is_null", duckdb="({0} IS NULL)", kernel=True)
define(
    "(a, b [, ...])", _in, name="in", duckdb=lambda call, args: f"({args[0]} IN ({', '.join(args[1:])}))", kernel=True
)
define("(a, b)", _arithmetic("+"), name="+", duckdb=_decimal_cast(_binary("+", _ADD)),
       spark=_decimal_cast(_binary("+", _SPARK_ADD)), fails=_overflows, kernel=True)  # fmt: skip
define("(a, b)", _arithmetic("-"), name="-", duckdb=_decimal_cast(_binary("-", _SUBTRACT)),
       spark=_decimal_cast(_binary("-", _SPARK_SUBTRACT)), fails=_overflows, kernel=True)  # fmt: skip
define("(a, b)", _arithmetic("*"), name="*", duckdb=_decimal_cast(_binary("*", _MULTIPLY)),
       spark=_decimal_cast(_binary("*")), fails=_overflows, kernel=True)  # fmt: skip
define("(a, b)", _divide, name="/", duckdb="({0} / nullif({1}, 0e0))", spark="({0} / nullif({1}, 0D))", kernel=True)
define("(a, b)", _whole_divide, name="//",
       duckdb=_binary("//", {"BIGINT": "({0} // nullif({1}, 0))", "DOUBLE": "trunc({0} / nullif({1}, 0e0))"}),
       spark=_binary("//", {"BIGINT": "({0} div nullif({1}, 0L))", "DOUBLE": spark_trunc("({0} / nullif({1}, 0D))")}),
       fails=_overflows, kernel=True)  # fmt: skip
define("(a, b)", _modulo, name="%",
       duckdb=_decimal_cast(_binary("%", {
           # DuckDB reports an overflow for the least BIGINT % -1, which is 0.
           "BIGINT": "({0} % CASE {1} WHEN 0 THEN NULL WHEN -1 THEN 1 ELSE {1} END)",
           "DOUBLE": "({0} % nullif({1}, 0e0))", "DECIMAL": "({0} % nullif({1}, 0))"})),
       spark=_decimal_cast(_binary("%", {
           "BIGINT": "({0} % nullif({1}, 0L))", "DOUBLE": "({0} % nullif({1}, 0D))",
           "DECIMAL": "({0} % nullif({1}, 0))"})), fails=never, kernel=True)  # fmt: skip
define("(a)", _negate, name="neg",
       duckdb=lambda call, args: f"to_microseconds(-epoch_us({args[0]}))" if call.type == INTERVAL else
       f"CAST(-{args[0]} AS {call.type.duckdb})",
       spark="(-{0})", fails=_overflows, kernel=True)  # fmt: skip
define("(a, b)", _concat, name="||", duckdb="({0} || {1})")

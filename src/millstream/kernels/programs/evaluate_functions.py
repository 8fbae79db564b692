"""Functions, operators and casts of the row engine that are plain Python, for values that are not NULL."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from millstream.functions.literals import decimal_value
from millstream.plan.expr import Call, Cast, Literal
from millstream.types import DOUBLE, SqlType

Function = Callable[..., Any]

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "DATE": 32}
_EXACT = Context(prec=100)


def _failing(function: Function) -> Function:
    """A function that may raise OverflowError or ValueError for some values."""
    function.may_fail = True  # type: ignore[attr-defined]
    return function


def identity(value: Any) -> Any:
    return value


def strict_function(expr: Call) -> Function | None:
    """The function of a call of which NULL gives NULL; None if there is no such here."""
    maker = _MAKERS.get(expr.fn)
    return None if maker is None else maker(expr)


def cast_function(expr: Cast) -> Function | None:
    """What a cast does; `identity` where the value stays as it is, None if it is not done here."""
    source, target = expr.arg.type, expr.type
    if source == target:
        return identity
    if source.is_integer and target.is_integer:
        low, high = bounds(target)
        if bounds(source)[1] <= high:
            return identity
        if expr.safe:
            return lambda value: value if low <= value <= high else None
        return _failing(lambda value: _within(value, low, high, target))
    if source.is_integer and target == DOUBLE:
        return float
    if source.is_integer and target.is_text:
        return str
    if {source.name, target.name} == {"TIMESTAMP", "TIMESTAMPTZ"}:
        return identity
    if source.is_integer and target.name == "DECIMAL" and not expr.safe:
        return _failing(lambda value: _fitting(Decimal(value), target))
    return None


def bounds(type_: SqlType) -> tuple[int, int]:
    """The least and the greatest value of a type whose values are integers."""
    edge: int = 2 ** (_BITS.get(type_.name, 64) - 1)
    return -edge, edge - 1


def _within(value: int, low: int, high: int, type_: SqlType) -> int:
    if low <= value <= high:
        return value
    raise OverflowError(f"{value} does not fit {type_}")


def _fitting(value: Decimal, type_: SqlType) -> Decimal:
    try:
        return decimal_value(value, type_)
    except ValueError:
        raise OverflowError(f"{value} does not fit {type_}") from None


def _comparison(symbol: str) -> Callable[[Call], Function]:
    plain, of_floats = _COMPARISONS[symbol]
    return lambda expr: of_floats if expr.args[0].type == DOUBLE else plain


def _equal(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _less(a: float, b: float) -> bool:
    # NaN is greater than every other number.
    return a < b or (b != b and a == a)


_COMPARISONS: dict[str, tuple[Function, Function]] = {
    "=": (operator.eq, _equal),
    "<>": (operator.ne, lambda a, b: not _equal(a, b)),
    "<": (operator.lt, _less),
    "<=": (operator.le, lambda a, b: not _less(b, a)),
    ">": (operator.gt, lambda a, b: _less(b, a)),
    ">=": (operator.ge, lambda a, b: not _less(a, b)),
}


def _arithmetic(plain: Function, of_decimals: Function) -> Callable[[Call], Function]:
    def make(expr: Call) -> Function:
        type_ = expr.type
        if type_ == DOUBLE:
            return plain
        if type_.name == "DECIMAL":
            return _failing(lambda a, b: _fitting(of_decimals(a, b), type_))
        low, high = bounds(type_)
        return _failing(lambda a, b: _within(plain(a, b), low, high, type_))

    return make


def _divide(expr: Call) -> Function:
    return lambda a, b: None if b == 0 else a / b


def _whole_divide(expr: Call) -> Function:
    if expr.type == DOUBLE:
        return _float_whole_divide
    low, high = bounds(expr.type)

    def run(a: int, b: int) -> int | None:
        if b == 0:
            return None
        # Towards zero, where Python's goes down.
        quotient = abs(a) // abs(b)
        return _within(quotient if (a < 0) == (b < 0) else -quotient, low, high, expr.type)

    return _failing(run)


def _float_whole_divide(a: float, b: float) -> float | None:
    if b == 0:
        return None
    quotient = a / b
    return float(math.trunc(quotient)) if math.isfinite(quotient) else quotient


def _modulo(expr: Call) -> Function | None:
    if expr.type == DOUBLE:
        return _float_modulo
    if expr.type.name == "DECIMAL":
        return None
    return lambda a, b: None if b == 0 else (abs(a) % abs(b)) * (-1 if a < 0 else 1)


def _float_modulo(a: float, b: float) -> float | None:
    if b == 0:
        return None
    return math.nan if math.isinf(a) else math.fmod(a, b)


def _negate(expr: Call) -> Function:
    if expr.type == DOUBLE:
        return operator.neg
    if expr.type.name == "DECIMAL":
        # Decimal's own negation rounds to 28 digits.
        return Decimal.copy_negate
    low, high = bounds(expr.type)
    return _failing(lambda a: _within(-a, low, high, expr.type))


def _absolute(expr: Call) -> Function:
    if expr.type == DOUBLE:
        return abs
    if expr.type.name == "DECIMAL":
        return Decimal.copy_abs
    low, high = bounds(expr.type)
    return _failing(lambda a: _within(abs(a), low, high, expr.type))


def _like(expr: Call) -> Function | None:
    pattern = expr.args[1]
    if len(expr.args) != 2 or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return None
    signs = {"%": ".*", "_": "."}
    matches = re.compile("".join(signs.get(sign) or re.escape(sign) for sign in pattern.value), re.DOTALL).fullmatch
    return lambda text, _: matches(text) is not None


def _substring(expr: Call) -> Function | None:
    numbers = [arg.value for arg in expr.args[1:] if isinstance(arg, Literal)]
    if len(numbers) != len(expr.args) - 1 or not all(isinstance(n, int) for n in numbers) or numbers[0] < 1:  # type: ignore[operator]
        return None
    start = int(numbers[0]) - 1  # type: ignore[call-overload]
    if len(numbers) == 1:
        return lambda text, _: text[start:]
    end = start + int(numbers[1])  # type: ignore[call-overload]
    return (lambda text, _, __: text[start:end]) if end >= start else None


def _always(function: Function) -> Callable[[Call], Function]:
    return lambda expr: function


_MAKERS: dict[str, Callable[[Call], Function | None]] = {
    **{symbol: _comparison(symbol) for symbol in _COMPARISONS},
    "not": _always(operator.not_),
    "+": _arithmetic(operator.add, _EXACT.add),
    "-": _arithmetic(operator.sub, _EXACT.subtract),
    "*": _arithmetic(operator.mul, _EXACT.multiply),
    "/": _divide,
    "//": _whole_divide,
    "%": _modulo,
    "neg": _negate,
    "abs": _absolute,
    "||": _always(operator.add),
    "like": _like,
    "length": _always(len),
    "substring": _substring,
    "contains": _always(lambda text, part: part in text),
    "starts_with": _always(str.startswith),
    "ends_with": _always(str.endswith),
}

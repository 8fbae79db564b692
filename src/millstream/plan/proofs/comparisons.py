"""Conditions as formulas that are true or false: where a condition is TRUE, in terms of bounds and NULLs."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from millstream.expressions.nodes import Call, Cast, Expr, Literal, transform
from millstream.plan.proofs.orders import (
    ZERO,
    ComparedValue,
    Constant,
    Inequality,
    Node,
    Number,
    double_constant,
    is_exact,
)
from millstream.records import dataclass
from millstream.types import DECIMAL, DOUBLE, SqlType


@dataclass(frozen=True, slots=True)
class And:
    """All of these; nothing to ask if there are none."""

    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, slots=True)
class Or:
    """One of these; impossible if there are none."""

    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, slots=True)
class Nullness:
    """That a term is NULL, or that it is not."""

    term: Expr
    is_null: bool


Formula = And | Or | Nullness | Inequality

_FLIPPED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_STRICT = frozenset({"+", "-", "*", "neg"})
_STRICT_WITH_NULLS = frozenset({"/", "//", "%"})


def truth(condition: Expr) -> Formula:
    """Where a condition is TRUE."""
    return _outcome(canonical(condition), True)


def negated(formula: Formula) -> Formula:
    """Where a formula is not true."""
    match formula:
        case And(parts):
            return Or(tuple(map(negated, parts)))
        case Or(parts):
            return And(tuple(map(negated, parts)))
        case Nullness(term, is_null):
            return Nullness(term, not is_null)
        case Inequality():
            return formula.opposite


def canonical(expr: Expr) -> Expr:
    """The expression without casts that change no value, and with the operands of + and * in one order."""

    def settle(part: Expr) -> Expr:
        match part:
            case Cast(safe=False) if _keeps_value(part.arg.type, part.type):
                return part.arg
            case Call(fn="+" | "*"):
                return part.with_children(tuple(sorted(part.args, key=repr)))
        return part

    return transform(expr, settle)


def _keeps_value(source: SqlType, target: SqlType) -> bool:
    """Whether a cast gives an equal number, or an error."""
    if not (source.is_integer or source.name == "DECIMAL"):
        return False
    return (
        target.is_integer
        if source.is_integer and target.is_integer
        else (target.name == "DECIMAL" and target.scale >= source.scale)
    )


def _outcome(condition: Expr, wanted: bool) -> Formula:
    """Where a condition is TRUE, or where it is FALSE."""
    match condition:
        case Literal(value=value):
            return And() if value is wanted else Or()
        case Call(fn="and" | "or" as fn, args=args):
            parts = tuple(_outcome(arg, wanted) for arg in args)
            return And(parts) if (fn == "and") == wanted else Or(parts)
        case Call(fn="not", args=(arg,)):
            return _outcome(arg, not wanted)
        case Call(fn="is_null", args=(arg,)):
            return null(arg) if wanted else negated(null(arg))
        case Call(fn="in", args=(arg, *options)):
            same = tuple(_compared("=" if wanted else "<>", arg, option) for option in options)
            return Or(same) if wanted else And(same)
        case Call(fn="is_distinct", args=(one, two)):
            equal = Or((And((null(one), null(two))), _compared("=", one, two)))
            return negated(equal) if wanted else equal
        case Call(fn=fn, args=(one, two)) if fn in _FLIPPED:
            return _compared(fn if wanted else _FLIPPED[fn], one, two)
    bound = Inequality(ZERO, ComparedValue(condition), -1) if wanted else Inequality(ComparedValue(condition), ZERO)
    return And((negated(null(condition)), bound))


def null(term: Expr) -> Formula:
    """Where a term is NULL."""
    match term:
        case Literal(value=value):
            return And() if value is None else Or()
        case Call(fn=fn, args=args) if fn in _STRICT or fn in _FLIPPED:
            return Or(tuple(map(null, args)))
        case Call(fn=fn, args=args) if fn in _STRICT_WITH_NULLS:
            return Or((Nullness(term, True), *map(null, args)))
        case Cast(arg=arg, safe=safe):
            return Or((Nullness(term, True), null(arg))) if safe else null(arg)
    return Nullness(term, True)


def _compared(fn: str, one: Expr, two: Expr) -> Formula:
    both = And((negated(null(one)), negated(null(two))))
    if any(isinstance(side, Literal) and side.value is None for side in (one, two)):
        return Or()
    low_high = _bounds(one, two)
    if isinstance(low_high, int):
        holds = {"=": low_high == 0, "<>": low_high != 0, "<": low_high < 0, "<=": low_high <= 0}
        holds |= {">": low_high > 0, ">=": low_high >= 0}
        return both if holds[fn] else Or()
    below, above = low_high
    match fn:
        case "<=":
            return And((both, below))
        case ">=":
            return And((both, above))
        case "<":
            return And((both, above.opposite))
        case ">":
            return And((both, below.opposite))
        case "=":
            return And((both, below, above))
    return And((both, Or((below.opposite, above.opposite))))


def _bounds(one: Expr, two: Expr) -> tuple[Inequality, Inequality] | int:
    """The bounds one <= two and one >= two, or how constants compare."""
    if is_exact(one.type) and is_exact(two.type):
        return _exact_bounds(one, two)
    left, right = _ordered(one), _ordered(two)
    if isinstance(left, Constant) and isinstance(right, Constant):
        return (left.key > right.key) - (left.key < right.key)
    return Inequality(left, right), Inequality(right, left)


def _exact_bounds(one: Expr, two: Expr) -> tuple[Inequality, Inequality] | int:
    factors: dict[Expr, Number] = {}
    rest = _collect(one, 1, factors) + _collect(two, -1, factors)
    terms = sorted(((term, factor) for term, factor in factors.items() if factor), key=lambda pair: repr(pair[0]))
    if not terms:
        return (rest > 0) - (rest < 0)
    # factor * first + others + rest <= 0, divided by that factor
    (first, factor), *others = terms
    scale = 1 / Fraction(factor)
    room = _plain(-rest * scale)
    right: ComparedValue = ZERO
    left = ComparedValue(first)
    if len(others) == 1:
        right = ComparedValue(others[0][0], _plain(-others[0][1] * scale))
    elif others:
        left = ComparedValue(_sum_of(terms, scale))
    below, above = Inequality(left, right, room), Inequality(right, left, -room)
    return (below, above) if factor > 0 else (above, below)


def _plain(number: Number) -> Number:
    return int(number) if Fraction(number).denominator == 1 else number


def _sum_of(terms: list[tuple[Expr, Number]], scale: Fraction) -> Expr:
    """A name for a sum of several terms."""
    parts = tuple(Call(term.type, f"times {factor * scale}", (term,)) for term, factor in terms)
    # of a type that is not whole, whatever its terms are
    return Call(DECIMAL(), "sum", parts)


def _collect(expr: Expr, factor: Number, into: dict[Expr, Number]) -> Number:
    """Add the terms of an exact sum, times a factor; gives its constant part."""
    match expr:
        case Literal(value=bool(value)):
            return factor * int(value)
        case Literal(value=int() | Decimal() as value):
            return factor * Fraction(value)
        case Call(fn="+", args=(one, two)) if is_exact(one.type) and is_exact(two.type):
            return _collect(one, factor, into) + _collect(two, factor, into)
        case Call(fn="-", args=(one, two)) if is_exact(one.type) and is_exact(two.type):
            return _collect(one, factor, into) + _collect(two, -factor, into)
        case Call(fn="neg", args=(one,)):
            return _collect(one, -factor, into)
        case Call(fn="*", args=args):
            for scale, other in (args, args[::-1]):
                if isinstance(scale, Literal) and isinstance(scale.value, int | Decimal) and is_exact(other.type):
                    return _collect(other, factor * Fraction(scale.value), into)
    into[expr] = into.get(expr, 0) + factor
    return 0


def _ordered(expr: Expr) -> Node:
    """A value of a type that is only ordered."""
    if isinstance(expr, Literal):
        return (
            double_constant(expr.value)
            if isinstance(expr.value, float)
            else Constant(expr.type.name, (False, expr.value))
        )
    if expr.type != DOUBLE:
        return ComparedValue(expr)
    base, factor, addend = _affine(expr)
    return ComparedValue(base, factor, addend)


def _affine(expr: Expr) -> tuple[Expr, float, float]:
    """A DOUBLE as base, factor and addend, computed in this order with the same rounding."""
    match expr:
        case Call(fn="+", args=(one, two)):
            for base, constant in ((one, _finite(two)), (two, _finite(one))):
                if constant is not None:
                    inner, factor = _product(base)
                    return inner, factor, constant
        case Call(fn="-", args=(one, two)):
            if (constant := _finite(two)) is not None:
                inner, factor = _product(one)
                return inner, factor, -constant
            if (constant := _finite(one)) is not None:
                inner, factor = _product(two)
                return inner, -factor, constant
    base, factor = _product(expr)
    return base, factor, 0.0


def _product(expr: Expr) -> tuple[Expr, float]:
    match expr:
        case Call(fn="neg", args=(one,)):
            base, factor = _product(one)
            return base, -factor
        case Call(fn="*", args=(one, two)):
            for base, constant in ((one, _finite(two)), (two, _finite(one))):
                if constant:
                    return base, constant
    return expr, 1.0


def _finite(expr: Expr) -> float | None:
    """The value of a DOUBLE constant, if it is a finite number."""
    value = expr.value if isinstance(expr, Literal) else None
    return value + 0.0 if isinstance(value, float) and math.isfinite(value) else None

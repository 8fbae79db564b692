"""Values that are compared with each other: whether a set of bounds between them can hold.

A bound says `left <= right + room`, or `<` if strict. Values of exact types (integers, DECIMAL, times, intervals,
booleans as 0 and 1) are rational numbers, and constants are room from `ZERO`. DOUBLE, text and the rest are only
ordered: room is 0, and constants are values of their own. DOUBLE is in one order: NaN equals NaN and is the greatest.

A value may be a multiple of another one. With the sign of that known, multiples are ordered by their factors; for
DOUBLE, `factor * x + addend` is rounded, and rounding keeps the order but not its strictness. So does the cast of an
exact number to DOUBLE.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from millstream.expressions.nodes import Cast, Expr
from millstream.records import dataclass
from millstream.types import BOOLEAN, DOUBLE, SqlType

Number = int | Fraction
Limit = tuple[Number, int]
"""Room, and -1 if the bound is strict: the lesser limit is the tighter one."""


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A compared value: `factor * base + addend`, where only DOUBLE has addends; ZERO has no base."""

    base: Expr | None = None
    factor: Any = 1
    addend: float = 0.0

    @property
    def is_whole(self) -> bool:
        return self.base is None or (is_whole(self.base.type) and Fraction(self.factor).denominator == 1)

    @property
    def is_truth(self) -> bool:
        return self.base is not None and self.base.type == BOOLEAN and self.factor == 1


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a type that is only ordered."""

    type: str
    key: tuple[bool, Any]

    @property
    def number(self) -> float:
        return math.nan if self.key[0] else float(self.key[1])


def is_exact(type_: SqlType) -> bool:
    """Whether values of a type are numbers that arithmetic does not round."""
    return type_.is_integer or type_.is_temporal or type_.name in ("DECIMAL", "INTERVAL", "BOOLEAN")


def is_whole(type_: SqlType) -> bool:
    return is_exact(type_) and type_.name != "DECIMAL"


def _rounds_once(type_: SqlType) -> bool:
    """Whether the DOUBLE nearest to a value is what every engine makes of it."""
    return type_.is_integer or (type_.name == "DECIMAL" and type_.precision <= 15)


Node = ComparedValue | Constant
ZERO = ComparedValue()


@dataclass(frozen=True, slots=True)
class Inequality:
    """left <= right + room, or < if strict."""

    left: Node
    right: Node
    room: Number = 0
    strict: bool = False

    @property
    def opposite(self) -> Inequality:
        return Inequality(self.right, self.left, -self.room, not self.strict)

    @property
    def limit(self) -> Limit:
        whole = all(isinstance(node, ComparedValue) and node.is_whole for node in (self.left, self.right))
        if not whole:
            return (self.room, -1 if self.strict else 0)
        floor = math.floor(self.room)
        return (floor - 1 if self.strict and floor == self.room else floor, 0)


def double_constant(value: float) -> Constant:
    """A DOUBLE constant; there is one zero and one NaN."""
    return Constant("DOUBLE", (True, 0.0) if math.isnan(value) else (False, value + 0.0))


NOUGHT = double_constant(0.0)


_ROUNDS = 4
"""How often consequences are drawn from consequences."""


class _Contradiction(Exception):
    pass


def consistent(bounds: Iterable[Inequality]) -> bool:
    """Whether bounds may hold together; false only if they cannot."""
    known = set(bounds)
    try:
        for _ in range(_ROUNDS):
            closure = _Closure(known)
            more = closure.derived() - known
            if not more:
                break
            known |= more
        else:
            _Closure(known)
    except _Contradiction:
        return False
    return True


def split_bases(bounds: Iterable[Inequality]) -> list[tuple[Inequality, Inequality]]:
    """For each base of several multiples: that it is negative, and that it is not; one of both is so."""
    families: dict[tuple[Expr, bool], set[Any]] = {}
    for bound in bounds:
        for node in (bound.left, bound.right):
            if isinstance(node, ComparedValue) and node.base is not None:
                families.setdefault((node.base, isinstance(node.factor, float)), set()).add(node.factor)
    result = []
    for (base, is_double), factors in sorted(families.items(), key=str):
        if len(factors) > 1:
            one = ComparedValue(base, 1.0 if is_double else 1)
            negative = Inequality(one, NOUGHT if is_double else ZERO, 0, True)
            result.append((negative, negative.opposite))
    return result


class _Closure:
    """The tightest bounds between all values, by shortest paths."""

    def __init__(self, bounds: set[Inequality]) -> None:
        self._limits: dict[Node, dict[Node, Limit]] = {}
        for bound in bounds:
            self._add(bound)
        self._order_constants()
        for node in list(self._limits):
            if isinstance(node, ComparedValue) and node.is_truth:
                self._add(Inequality(ZERO, node))
                self._add(Inequality(node, ZERO, 1))
        self._close()

    def _add(self, bound: Inequality) -> None:
        row = self._limits.setdefault(bound.left, {})
        self._limits.setdefault(bound.right, {})
        if bound.right not in row or bound.limit < row[bound.right]:
            row[bound.right] = bound.limit

    def _order_constants(self) -> None:
        if any(isinstance(node, ComparedValue) and isinstance(node.factor, float) for node in self._limits):
            self._limits.setdefault(NOUGHT, {})
        constants = [node for node in self._limits if isinstance(node, Constant)]
        for kind in {constant.type for constant in constants}:
            ordered = sorted((one for one in constants if one.type == kind), key=lambda one: one.key)
            for low, high in pairwise(ordered):
                self._add(Inequality(low, high, 0, True))

    def _close(self) -> None:
        limits = self._limits
        for middle, onward in list(limits.items()):
            for row in limits.values():
                first = row.get(middle)
                if first is None:
                    continue
                for end, second in list(onward.items()):
                    through = (first[0] + second[0], first[1] | second[1])
                    if end not in row or through < row[end]:
                        row[end] = through
        if any(row.get(node, (0, 0)) < (0, 0) for node, row in limits.items()):
            raise _Contradiction

    def derived(self) -> set[Inequality]:
        """What follows for multiples."""
        result: set[Inequality] = set()
        families: dict[Expr, list[ComparedValue]] = {}
        for node in self._limits:
            if isinstance(node, ComparedValue) and node.base is not None:
                families.setdefault(node.base, []).append(node)
        for base, family in families.items():
            if any(value.factor != 1 or value.addend for value in family):
                if isinstance(family[0].factor, float):
                    result |= self._of_doubles(ComparedValue(base, 1.0), family)
                else:
                    result |= self._of_exacts(base, family)
        return result | self._of_casts()

    def _within(self, left: Node, right: Node) -> Limit | None:
        return self._limits.get(left, {}).get(right)

    def _of_exacts(self, base: Expr, family: list[ComparedValue]) -> set[Inequality]:
        result: set[Inequality] = set()
        one = ComparedValue(base)
        values = sorted({*family, one}, key=lambda value: Fraction(value.factor))
        high, low = self._within(one, ZERO), self._within(ZERO, one)
        for value in family:
            for source, target, factor in ((one, value, value.factor), (value, one, 1 / Fraction(value.factor))):
                if source != target:
                    result |= self._scaled(source, target, factor)
        for less, more in pairwise(values):
            if low is not None and low <= (0, 0):
                result.add(Inequality(less, more, 0, low < (0, 0) and less.factor != more.factor))
            if high is not None and high <= (0, 0):
                result.add(Inequality(more, less, 0, high < (0, 0) and less.factor != more.factor))
        return result

    def _scaled(self, source: ComparedValue, target: ComparedValue, factor: Number) -> set[Inequality]:
        """The bounds of a value by constants, for another value that is `factor` times that."""
        result = set()
        for limit, is_upper in ((self._within(source, ZERO), True), (self._within(ZERO, source), False)):
            if limit is not None:
                room, strict = limit[0] * (factor if factor > 0 else -factor), limit[1] < 0
                ends = (target, ZERO) if is_upper == (factor > 0) else (ZERO, target)
                result.add(Inequality(*ends, room, strict))
        return result

    def _of_casts(self) -> set[Inequality]:
        """What follows for exact numbers from their roundings to DOUBLE, and the other way round."""
        casts = [
            (ComparedValue(node.base.arg), node)
            for node in self._limits
            if isinstance(node, ComparedValue)
            and isinstance(node.base, Cast)
            and node.factor == 1.0
            and not node.addend
            if node.base.type == DOUBLE
            and ComparedValue(node.base.arg) in self._limits
            and _rounds_once(node.base.arg.type)
        ]
        result: set[Inequality] = set()
        for exact, rounded in casts:
            high, low = self._within(exact, ZERO), self._within(ZERO, exact)
            if high is not None:
                result.add(Inequality(rounded, double_constant(float(high[0]))))
            if low is not None:
                result.add(Inequality(double_constant(float(-low[0])), rounded))
            for other, other_rounded in casts:
                if other != exact and (limit := self._within(exact, other)) is not None and limit <= (0, 0):
                    result.add(Inequality(rounded, other_rounded))
                if other != exact and self._within(rounded, other_rounded) == (0, -1):
                    result.add(Inequality(exact, other, 0, True))
            for constant in self._doubles():
                if self._within(rounded, constant) == (0, -1):
                    result.add(Inequality(exact, ZERO, Fraction(constant.number), True))
                if self._within(constant, rounded) == (0, -1):
                    result.add(Inequality(ZERO, exact, -Fraction(constant.number), True))
        return result

    def _doubles(self) -> list[Constant]:
        """The DOUBLE constants that are finite numbers."""
        found = [node for node in self._limits if isinstance(node, Constant) and node.type == "DOUBLE"]
        return [constant for constant in found if math.isfinite(constant.number)]

    def _of_doubles(self, one: ComparedValue, family: list[ComparedValue]) -> set[Inequality]:
        result: set[Inequality] = set()
        low, high = self._within(NOUGHT, one), self._within(one, NOUGHT)
        for value in family:
            if value.factor > 0 and value != one:
                result |= self._rounded(one, value)
                if value.addend == 0 and self._within(NOUGHT, value) == (0, -1):
                    result.add(Inequality(NOUGHT, one, 0, True))
                if value.addend == 0 and self._within(value, NOUGHT) == (0, -1):
                    result.add(Inequality(one, NOUGHT, 0, True))
            for other in family:
                if value == other or value.addend > other.addend:
                    continue
                if (
                    value.factor == other.factor
                    or (low is not None and value.factor < other.factor)
                    or (high is not None and value.factor > other.factor)
                ):
                    result.add(Inequality(value, other))
        return result

    def _rounded(self, one: ComparedValue, value: ComparedValue) -> set[Inequality]:
        """The constants that bound a DOUBLE, for a positive multiple of it; NaN stays NaN."""
        result = set()
        for constant in self._doubles():
            image = double_constant(value.factor * constant.number + value.addend)
            if self._within(constant, one) is not None:
                result.add(Inequality(image, value))
            if self._within(one, constant) is not None:
                result.add(Inequality(value, image))
        return result

"""How far apart in time the rows of a join are, as its conditions say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal
from millstream.records import dataclass
from millstream.types import BIGINT, SqlType

Linear = tuple[dict[str, int], int]
"""How often each column is added, and a constant."""


@dataclass(frozen=True)
class TimeBound:
    """The time of `later` minus the time of `earlier` is at most `most`; they are numbers of streams."""

    later: int
    earlier: int
    most: int


def time_bounds(part: Expr, times: Mapping[str, int]) -> list[TimeBound]:
    """What a condition says of the times of two streams; `times` are time columns with the number of their stream."""
    if not (isinstance(part, Call) and part.fn in ("=", "<", "<=", ">", ">=")):
        return []
    sides = [linear(arg) for arg in part.args]
    if sides[0] is None or sides[1] is None:
        return []
    counts, constant = _plus(sides[0], sides[1], -1)
    positive = [times.get(name) for name, count in counts.items() if count == 1]
    negative = [times.get(name) for name, count in counts.items() if count == -1]
    if len(counts) != 2 or len(positive) != 1 or len(negative) != 1:
        return []
    one, two = positive[0], negative[0]
    if one is None or two is None or one == two:
        return []
    # one - two + constant <op> 0, in units of which nothing is smaller
    strict = 1 if part.fn in ("<", ">") else 0
    found = []
    if part.fn in ("=", "<", "<="):
        found.append(TimeBound(one, two, -constant - strict))
    if part.fn in ("=", ">", ">="):
        found.append(TimeBound(two, one, constant - strict))
    return found


def linear(expr: Expr) -> Linear | None:
    """A sum of columns and constants in units of time, if the expression is one."""
    match expr:
        case Column(name=name):
            return {name: 1}, 0
        case Literal(value=int() as value, type=type_) if type_.is_integer or type_.name == "INTERVAL":
            return {}, value
        case Cast(arg=arg, type=type_) if _keeps_value(arg.type, type_):
            return linear(arg)
        case Call(fn="neg", args=(arg,)):
            inner = linear(arg)
            return None if inner is None else _plus(({}, 0), inner, -1)
        case Call(fn="+" | "-" as fn, args=(first, second)):
            if expr.type.is_integer and not (first.type.is_integer and second.type.is_integer):
                # between dates it would count days
                return None
            if not expr.type.is_integer and (first.type.is_integer or second.type.is_integer):
                return None
            one, two = linear(first), linear(second)
            return None if one is None or two is None else _plus(one, two, 1 if fn == "+" else -1)
    return None


def closest(bounds: Iterable[TimeBound], streams: int) -> dict[tuple[int, int], int]:
    """For pairs (later, earlier) of streams the least bound that follows from all of them."""
    least: dict[tuple[int, int], int] = {(i, i): 0 for i in range(streams)}
    for bound in bounds:
        pair = (bound.later, bound.earlier)
        least[pair] = min(bound.most, least.get(pair, bound.most))
    for via in range(streams):
        for later in range(streams):
            for earlier in range(streams):
                one, two = least.get((later, via)), least.get((via, earlier))
                if one is not None and two is not None:
                    least[later, earlier] = min(one + two, least.get((later, earlier), one + two))
    return least


def _plus(one: Linear, two: Linear, sign: int) -> Linear:
    counts = {name: one[0].get(name, 0) + sign * two[0].get(name, 0) for name in (*one[0], *two[0])}
    return {name: count for name, count in counts.items() if count}, one[1] + sign * two[1]


def _keeps_value(source: SqlType, target: SqlType) -> bool:
    """Whether a conversion leaves the time that a value stands for as it is."""
    if source.is_integer:
        return target in (BIGINT, source)
    return source.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ") and target.name in ("TIMESTAMP", "TIMESTAMPTZ")

"""A join condition taken apart: what a hash finds, what an order finds, what several lookups find, and what is left to
test."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from itertools import product
from math import prod

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Call, Expr, columns_of, conjuncts
from millstream.kernels.keys.words import is_wide
from millstream.records import dataclass
from millstream.types import SqlType

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MOST_ALTERNATIVES = 16
"""lookups that a condition with OR becomes; where there are more, it is left to test"""
MOST_RANGES = 8
"""values of a stream's row that are compared in order; further ones are left to test"""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A value of the stream's row that lies within bounds: `above` and `below` are values of the table's row with
    whether the bound itself counts."""

    value: Expr
    above: tuple[tuple[Expr, bool], ...]
    below: tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """`pairs` are equalities (stream side, table side), `rest` is what neither they nor `ranges` decide, and `given`
    what rows of the stream must meet to match any. With `any_of`, rows match by one of these instead of by the first
    two."""

    pairs: tuple[tuple[Expr, Expr], ...]
    ranges: tuple[ValueRange, ...]
    rest: tuple[Expr, ...]
    given: tuple[Expr, ...] = ()
    any_of: tuple[MatchCondition, ...] = ()

    @property
    def finds(self) -> bool:
        """Whether rows that match are found without looking at all."""
        return bool(self.pairs or self.ranges or self.any_of)


def split_condition(
    pairs: tuple[tuple[Expr, Expr], ...], residual: Expr | None, stream: Set[str], table: Set[str]
) -> MatchCondition:
    """The parts of a join condition over the columns of a stream and of a table.

    OR, IN and NOT become alternatives, which are looked up one by one, unless an equality leaves few rows to test.
    """
    parts: list[Expr] = []
    ways: list[tuple[Expr, ...]] = [()]
    for part in () if residual is None else conjuncts(residual):
        choices = [(part,)] if can_fail(part) else alternatives(part)
        fits = not pairs and len(ways) * len(choices) <= MOST_ALTERNATIVES
        if len(choices) == 1:
            parts += choices[0]
        elif not fits or not all(_decides(each, stream, table) for each in choices):
            parts.append(part)
        else:
            ways = [(*way, *choice) for way in ways for choice in choices]
    if len(ways) == 1:
        return _split(pairs, tuple(parts), stream, table)
    any_of = tuple(_alternative((*parts, *way), stream, table) for way in ways)
    has_rest = any(each.rest for each in any_of)
    return MatchCondition((), (), (residual,) if has_rest and residual is not None else (), any_of=any_of)


def alternatives(part: Expr) -> list[tuple[Expr, ...]]:
    """A condition as conditions of which one must hold, each of them several that hold together; NULL is as false. If
    they were too many, it is one as it is."""
    return _alternatives(part, True)


def _alternatives(part: Expr, wanted: bool) -> list[tuple[Expr, ...]]:
    whole: list[tuple[Expr, ...]] = [(part if wanted else Call(part.type, "not", (part,)),)]
    match part:
        case Call(fn="not", args=(inner,)):
            return _alternatives(inner, not wanted)
        case Call(fn="and" | "or" as fn, args=args):
            each = [_alternatives(arg, wanted) for arg in args]
            is_choice = (fn == "or") == wanted
            if (sum if is_choice else prod)(map(len, each)) > MOST_ALTERNATIVES:
                return whole
            if is_choice:
                return [choice for choices in each for choice in choices]
            return [tuple(part for choice in way for part in choice) for way in product(*each)]
        case Call(fn="in", args=(value, *items)) if wanted and len(items) <= MOST_ALTERNATIVES:
            return [(replace(part, fn="=", args=(value, item)),) for item in items]
        case Call(fn=fn) if not wanted and fn in _NEGATED:
            return [(replace(part, fn=_NEGATED[fn]),)]
    return whole


def _decides(parts: tuple[Expr, ...], stream: Set[str], table: Set[str]) -> bool:
    """Whether something of an alternative can be looked up, or the stream's row alone tells all of it."""
    if all(columns_of(part) <= stream for part in parts):
        return True
    return any(_comparison(part, stream, table) or _equality(part, stream, table) for part in parts)


def _alternative(parts: tuple[Expr, ...], stream: Set[str], table: Set[str]) -> MatchCondition:
    """One of several alternatives."""
    given = tuple(part for part in parts if columns_of(part) <= stream)
    pairs = {part: pair for part in parts if (pair := _equality(part, stream, table)) is not None}
    rest = tuple(part for part in parts if part not in given and part not in pairs)
    return replace(_split(tuple(pairs.values()), rest, stream, table), given=given)


def _equality(part: Expr, stream: Set[str], table: Set[str]) -> tuple[Expr, Expr] | None:
    """What of the stream's row equals what of the table's, if `part` says that."""
    if not (isinstance(part, Call) and part.fn == "=" and part.args[0].type == part.args[1].type):
        return None
    for mine, theirs in (part.args, part.args[::-1]):
        if columns_of(mine) and columns_of(mine) <= stream and columns_of(theirs) and columns_of(theirs) <= table:
            return mine, theirs
    return None


def _split(
    pairs: tuple[tuple[Expr, Expr], ...], parts: tuple[Expr, ...], stream: Set[str], table: Set[str]
) -> MatchCondition:
    """The parts of conditions that hold together."""
    bounds: dict[Expr, tuple[list[tuple[Expr, bool]], list[tuple[Expr, bool]]]] = {}
    rest: list[Expr] = []
    for part in parts:
        comparison = _comparison(part, stream, table)
        if comparison is None or (comparison[0] not in bounds and len(bounds) == MOST_RANGES):
            rest.append(part)
            continue
        value, op, bound = comparison
        above, below = bounds.setdefault(value, ([], []))
        (above if op in (">", ">=") else below).append((bound, op in (">=", "<=")))
    ranges = tuple(ValueRange(value, tuple(above), tuple(below)) for value, (above, below) in bounds.items())
    # a value that is bounded on both sides leaves fewer rows than one that is bounded on one
    both_first = sorted(ranges, key=lambda each: not (each.above and each.below))
    return MatchCondition(pairs, tuple(both_first), tuple(rest))


def _comparison(part: Expr, stream: Set[str], table: Set[str]) -> tuple[Expr, str, Expr] | None:
    """A comparison of a value of the stream's row with one of the table's, if `part` is one that words can decide."""
    if not (isinstance(part, Call) and part.fn in _FLIPPED and _is_ordered(part.args[0].type)):
        return None
    left, right = part.args
    if left.type != right.type:
        return None
    op = part.fn
    if columns_of(left) <= table and columns_of(right) <= stream:
        left, right, op = right, left, _FLIPPED[op]
    if not (columns_of(left) and columns_of(left) <= stream and columns_of(right) and columns_of(right) <= table):
        return None
    return left, op, right


def _is_ordered(type_: SqlType) -> bool:
    """Whether the words of such values are in their order, once those of DOUBLEs are turned."""
    if type_.name == "DECIMAL":
        return not is_wide(type_)
    return type_.is_integer or type_.is_temporal or type_.name in ("DOUBLE", "INTERVAL")

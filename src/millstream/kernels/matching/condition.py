"""A join condition taken apart: what a hash finds, what an order finds, and what is left to test."""

from __future__ import annotations

from collections.abc import Set

from millstream.expressions.nodes import Call, Expr, columns_of, conjuncts
from millstream.kernels.keys.words import is_wide
from millstream.records import dataclass
from millstream.types import SqlType

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
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
    """`pairs` are equalities (stream side, table side), `rest` is what neither they nor `ranges` decide."""

    pairs: tuple[tuple[Expr, Expr], ...]
    ranges: tuple[ValueRange, ...]
    rest: tuple[Expr, ...]


def split_condition(
    pairs: tuple[tuple[Expr, Expr], ...], residual: Expr | None, stream: Set[str], table: Set[str]
) -> MatchCondition:
    """The parts of a join condition over the columns of a stream and of a table."""
    bounds: dict[Expr, tuple[list[tuple[Expr, bool]], list[tuple[Expr, bool]]]] = {}
    rest: list[Expr] = []
    for part in () if residual is None else conjuncts(residual):
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

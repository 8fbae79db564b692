"""Join conditions taken apart: which equalities can be hashed, what is left to test."""

from __future__ import annotations

from itertools import count, islice

from millstream.expressions.nodes import Call, Expr, columns_of, conjunction, conjuncts
from millstream.schema import Schema

Pairs = tuple[tuple[Expr, Expr], ...]


def split_condition(condition: Expr | None, left: Schema, right: Schema) -> tuple[Pairs, Expr | None]:
    """The equalities between one side and the other, and the rest of the condition."""
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in conjuncts(condition) if condition is not None else ():
        pair = equality(part, left, right)
        if pair is None:
            rest.append(part)
        else:
            pairs.append(pair)
    return tuple(pairs), conjunction(tuple(rest)) if rest else None


def equality(part: Expr, left: Schema, right: Schema) -> tuple[Expr, Expr] | None:
    """`a = b` with one side reading only `left` and the other only `right`, in that order; else None."""
    if not (isinstance(part, Call) and part.fn == "="):
        return None
    one, two = part.args
    for mine, theirs in ((one, two), (two, one)):
        reads_left, reads_right = columns_of(mine), columns_of(theirs)
        if reads_left and reads_right and reads_left <= set(left.names) and reads_right <= set(right.names):
            return mine, theirs
    return None


def key_names(pairs: Pairs, left: Schema, right: Schema) -> tuple[str, ...]:
    """Names for what must be equal, as columns that both sides get; neither has one of that name yet."""
    names = (f"$k{number}" for number in count(1))
    return tuple(islice((name for name in names if name not in left and name not in right), len(pairs)))

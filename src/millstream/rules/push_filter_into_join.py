"""A filter over a join of relations moves into it."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Expr, columns_of, conjunction, conjuncts, may_fail
from millstream.plan.joins import equality
from millstream.plan.nodes import Filter, Node
from millstream.plan.relations import Join

KEEPS_LEFT = ("inner", "left", "semi", "anti")
"""joins in which what becomes of a row of the left side, matched or not, has all its columns"""

KEEPS_RIGHT = ("inner", "right")


def push_filter_into_join(node: Node) -> Node:
    """Move conditions on one side to that side; of an inner join also equalities between both, which make it a hash
    join, and whatever else reads both.

    Not to a side whose rows may be replaced by NULLs: there the condition is about the NULLs as well.
    """
    match node:
        case Filter(input=Join() as join, predicate=predicate):
            moved = _move(conjuncts(predicate), join)
            return node if moved is None else moved
    return node


def _move(parts: tuple[Expr, ...], join: Join) -> Node | None:
    left, right = set(join.left.schema.names), set(join.right.schema.names)
    to_left: list[Expr] = []
    to_right: list[Expr] = []
    pairs: list[tuple[Expr, Expr]] = []
    between: list[Expr] = []
    staying: list[Expr] = []
    for part in parts:
        reads = columns_of(part)
        pair = equality(part, join.left.schema, join.right.schema) if join.how == "inner" else None
        # what can fail stays behind the join, which may leave the row out
        if pair is not None and not may_fail(part):
            pairs.append(pair)
        elif can_fail(part):
            staying.append(part)
        elif reads <= left and join.how in KEEPS_LEFT:
            to_left.append(part)
        elif reads <= right and join.how in KEEPS_RIGHT:
            to_right.append(part)
        elif join.how == "inner":
            between.append(part)
        else:
            staying.append(part)
    if len(staying) == len(parts):
        return None
    known = () if join.residual is None else conjuncts(join.residual)
    moved = replace(
        join,
        left=_filter(join.left, to_left),
        right=_filter(join.right, to_right),
        pairs=join.pairs + tuple(pairs),
        residual=conjunction((*known, *between)) if known or between else None,
    )
    return _filter(moved, staying)


def _filter(node: Node, parts: list[Expr]) -> Node:
    return Filter(node, conjunction(tuple(parts))) if parts else node

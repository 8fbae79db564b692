"""A join's condition is taken apart: what one side decides is decided there, equalities become its hash key."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Expr, columns_of, conjunction, conjuncts, may_fail
from millstream.plan.joins import equality
from millstream.plan.nodes import Filter, Node
from millstream.plan.relations import Join

DROPS_LEFT = ("inner", "right", "semi")
"""joins that give nothing for a row of the left side that matches nothing"""

DROPS_RIGHT = ("inner", "left", "semi", "anti")


def split_join_condition(node: Node) -> Node:
    """Filter a side by the conditions that read it alone, where its rows without a match are not in the result."""
    match node:
        case Join(residual=Expr() as condition) as join:
            left, right = set(join.left.schema.names), set(join.right.schema.names)
            to_left: list[Expr] = []
            to_right: list[Expr] = []
            pairs: list[tuple[Expr, Expr]] = []
            rest: list[Expr] = []
            for part in conjuncts(condition):
                reads = columns_of(part)
                pair = equality(part, join.left.schema, join.right.schema)
                if pair is not None and not may_fail(part):
                    pairs.append(pair)
                elif reads and reads <= left and join.how in DROPS_LEFT and not can_fail(part):
                    to_left.append(part)
                elif reads and reads <= right and join.how in DROPS_RIGHT and not can_fail(part):
                    to_right.append(part)
                else:
                    rest.append(part)
            if to_left or to_right or pairs:
                return replace(
                    join,
                    left=_filter(join.left, to_left),
                    right=_filter(join.right, to_right),
                    pairs=join.pairs + tuple(pairs),
                    residual=conjunction(tuple(rest)) if rest else None,
                )
    return node


def _filter(node: Node, parts: list[Expr]) -> Node:
    return Filter(node, conjunction(tuple(parts))) if parts else node

"""EXCEPT of EXCEPT takes all that is excluded at once."""

from __future__ import annotations

from millstream.plan.nodes import Node, Union
from millstream.plan.relations import SetOperation


def merge_excepts(node: Node) -> Node:
    """(A − B) − C is A − (B ∪ C), as bags and as sets: rows of A are held once."""
    match node:
        case SetOperation(left=SetOperation(left=left, right=first, op="except", all=inner), right=second) if (
            node.op == "except" and node.all == inner
        ):
            parts = (part.branches if isinstance(part, Union) else (part,) for part in (first, second))
            return SetOperation(left, Union(tuple(branch for part in parts for branch in part)), "except", inner)
    return node

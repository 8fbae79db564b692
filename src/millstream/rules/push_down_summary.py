"""Groups over a join that only looks something up for each group are made before the join."""

from __future__ import annotations

from millstream.expressions.nodes import Column, Expr
from millstream.plan.annotations import unique_key
from millstream.plan.nodes import Node, Project
from millstream.plan.relations import Join, Summarize


def push_down_summary(node: Node) -> Node:
    """Summarize one side of a join whose other side has at most one match, if the groups tell which match it is.

    Then every row of a group has the same match, and the join meets one row of each group instead of all.
    """
    match node:
        case Summarize(input=Join(pairs=pairs, residual=None, how="inner") as join) if pairs:
            for side in ("left", "right"):
                if (pushed := _pushed(node, join, side)) is not None:
                    return pushed
    return node


def _pushed(groups: Summarize, join: Join, side: str) -> Node | None:
    """The groups made of this side of the join; None if that is not the same."""
    mine, other = (join.left, join.right) if side == "left" else (join.right, join.left)
    pairs = join.pairs if side == "left" else tuple((right, left) for left, right in join.pairs)
    matched = {theirs.name: own.name for own, theirs in pairs if isinstance(own, Column) and isinstance(theirs, Column)}
    unique = unique_key(other)
    if len(matched) < len(pairs) or unique is None or not unique <= matched.keys():
        return None
    if any(arg not in mine.schema for call in groups.calls for arg in call.args):
        return None
    keys = {matched.get(key, key) for key in groups.keys}
    if not set(matched.values()) <= keys:
        return None
    below = Summarize(mine, tuple(name for name in mine.schema.names if name in keys), groups.calls)
    if set(below.schema.names) & set(other.schema.names):
        return None
    inputs = (below, other) if side == "left" else (other, below)
    columns: tuple[tuple[str, Expr], ...] = tuple(
        (field.name, Column(field.type, field.name)) for field in groups.schema
    )
    return Project(join.with_inputs(inputs), columns)

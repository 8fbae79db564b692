"""Duplicates are removed before a join, where that costs less than after it."""

from __future__ import annotations

from millstream.expressions.nodes import Column, columns_of
from millstream.plan.annotations import unique_key
from millstream.plan.costs.plans import estimate
from millstream.plan.costs.statistics import Statistics
from millstream.plan.node import read_by, some
from millstream.plan.nodes import Distinct, Node, Project, passthrough
from millstream.plan.relations import Join

BETTER = 0.9
"""plans are changed for those that cost less than this part of them: estimates are rough"""


def push_down_distinct(node: Node, known: Statistics) -> Node:
    """Let each side of an inner join give a row once, and a semi join's left side: the pairs of rows that differ are
    the different pairs. Columns that nobody reads are left out first; if some are, pairs may still be equal."""
    match node:
        case Distinct(input=Join(how="inner" | "semi") as join):
            changed = _once(join, join.schema.names)
        case Distinct(input=Project(input=Join(how="inner" | "semi") as join, columns=columns) as project):
            read = {name for _, expr in columns for name in columns_of(expr)}
            below = _once(join, tuple(name for name in join.schema.names if name in read))
            changed = Project(below, columns)
            kept = {expr.name for _, expr in project.columns if isinstance(expr, Column)}
            if not kept >= set(below.schema.names):
                changed = Distinct(changed)
        case _:
            return node
    if estimate(changed, known).total_cpu >= BETTER * estimate(node, known).total_cpu:
        return node
    return changed


def _once(join: Join, read: tuple[str, ...]) -> Node:
    """The join of sides that have no row twice, as far as these columns and its condition go."""
    wanted = {*read, *read_by(join.pairs, join.residual)}
    left = _distinct(join.left, wanted)
    right = join.right if join.how == "semi" else _distinct(join.right, wanted)
    return join.with_inputs((left, right))


def _distinct(side: Node, wanted: set[str]) -> Node:
    kept = some(side.schema, wanted)
    narrow = side if kept == side.schema else Project(side, passthrough(kept))
    return narrow if unique_key(narrow) is not None else Distinct(narrow)

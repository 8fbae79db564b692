"""DISTINCT is removed where there are no duplicates, or where they make no difference."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.annotations import unique_key
from millstream.plan.nodes import Distinct, Filter, Node, Project, Union
from millstream.plan.relations import SetOperation, Summarize

INSENSITIVE = frozenset(("min", "max"))
"""aggregates that are the same of a bag and of its set"""


def eliminate_distinct(node: Node) -> Node:
    """Drop DISTINCT over rows that differ anyway, and below what does not count copies: another DISTINCT, EXCEPT and
    INTERSECT without ALL, and groups of which only MIN, MAX and aggregates over DISTINCT values are asked."""
    match node:
        case Distinct(input=below) if unique_key(below) is not None:
            return below
        case Distinct(input=below):
            return Distinct(_uncounted(below))
        case SetOperation(left=left, right=right, all=False):
            return replace(node, left=_uncounted(left), right=_uncounted(right))
        case Summarize(input=below, calls=calls) if all(c.distinct or c.fn in INSENSITIVE for c in calls):
            if not any(call.program for call in calls):
                return replace(node, input=_uncounted(below))
    return node


def _uncounted(node: Node) -> Node:
    """The same rows, in any number of copies of each."""
    match node:
        case Distinct(input=below):
            return _uncounted(below)
        case Filter(input=below) | Project(input=below):
            return replace(node, input=_uncounted(below))
        case Union(branches=branches):
            return Union(tuple(_uncounted(branch) for branch in branches))
    return node

"""A filter that is always true is removed."""

from millstream.expressions.nodes import Literal, conjunction, conjuncts
from millstream.plan.nodes import Filter, Node


def eliminate_filter(node: Node) -> Node:
    """Drop conjuncts that are the constant TRUE, and the filter with them if none is left."""
    match node:
        case Filter(input=below, predicate=predicate):
            parts = tuple(
                part for part in conjuncts(predicate) if not (isinstance(part, Literal) and part.value is True)
            )
            if not parts:
                return below
            if len(parts) < len(conjuncts(predicate)):
                return Filter(below, conjunction(parts))
    return node

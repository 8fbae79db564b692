"""Two filters in a row become one."""

from millstream.expressions.nodes import conjunction, conjuncts, may_fail
from millstream.plan.nodes import Filter, Node


def merge_filters(node: Node) -> Node:
    """Join the conditions of adjacent filters, unless the upper one relies on the lower to keep it from failing."""
    match node:
        case Filter(input=Filter(input=below, predicate=lower), predicate=upper) if not may_fail(upper):
            return Filter(below, conjunction((*conjuncts(lower), *conjuncts(upper))))
    return node

"""Two projections in a row become one."""

from collections import Counter

from millstream.expressions.nodes import Column, Literal, substitute, walk
from millstream.plan.nodes import Node, Project


def merge_projects(node: Node) -> Node:
    """Put the inner projection's expressions into the outer one, unless something would then be computed twice."""
    match node:
        case Project(input=Project(input=below, columns=inner), columns=outer):
            known = dict(inner)
            uses = Counter(part.name for _, expr in outer for part in walk(expr) if isinstance(part, Column))
            if any(uses[name] > 1 and not isinstance(expr, Column | Literal) for name, expr in inner):
                return node
            return Project(below, tuple((name, substitute(expr, known)) for name, expr in outer))
    return node

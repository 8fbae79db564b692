"""A projection moves into the branches of a union."""

from dataclasses import replace

from millstream.plan.nodes import Node, Project, Union


def push_down_project(node: Node) -> Node:
    """Compute before the merge, so that only the columns that are needed are copied into order."""
    match node:
        case Project(input=Union(branches=branches)):
            return Union(tuple(replace(node, input=branch) for branch in branches))
    return node

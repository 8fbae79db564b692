"""A projection that changes nothing is removed."""

from millstream.plan.nodes import Node, Project, passthrough


def eliminate_project(node: Node) -> Node:
    """Drop a projection that passes every column of its input on, under its own name and in the same order."""
    match node:
        case Project(input=below, columns=columns) if columns == passthrough(below.schema):
            return below
    return node

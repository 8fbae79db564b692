"""Columns that nothing reads are not produced."""

from __future__ import annotations

from collections.abc import Set

from millstream.plan.node import some
from millstream.plan.nodes import Node, Project, Union, passthrough
from millstream.schema import Schema


def prune_columns(plan: Node) -> Node:
    """Ask every operator only for the columns that those above it read, down to the scans."""
    return _all(plan)


def _prune(node: Node, wanted: Set[str]) -> Node:
    """The node with at least the columns `wanted`, in the order they had."""
    if isinstance(node, Union):
        target = some(node.schema, wanted)
        return node.with_inputs(tuple(_exactly(_prune(branch, set(target.names)), target) for branch in node.branches))
    less = node.narrowed(wanted)
    if any(less is below for below in node.inputs):
        if less.lasts == node.lasts:
            return _prune(less, wanted)
        # what sees events at their ends makes points of them, also if nobody reads its own columns
        less = node
    if less.compares_rows:
        return less.with_inputs(tuple(map(_all, less.inputs)))
    asked = less.reads | wanted if less.passes_columns else less.reads
    return less.with_inputs(tuple(_prune(below, asked & set(below.schema.names)) for below in less.inputs))


def _all(node: Node) -> Node:
    """The node with the columns it has, while those below it may have fewer."""
    return _exactly(_prune(node, set(node.schema.names)), node.schema)


def _exactly(node: Node, schema: Schema) -> Node:
    return node if node.schema == schema else Project(node, passthrough(schema))

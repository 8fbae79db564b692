"""Columns that nobody reads are not produced."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.expr import columns_of
from millstream.plan.nodes import (
    Aggregate,
    AssignWindows,
    Distinct,
    Filter,
    Group,
    JoinTable,
    Node,
    Over,
    Project,
    Scan,
    Sessions,
    TableScan,
    Union,
    Yield,
    passthrough,
)
from millstream.plan.window_tables import END, START
from millstream.schema import Schema


def prune_columns(plan: Node) -> Node:
    """Ask every operator only for the columns that those above it read, down to the scans."""
    return _exactly(_prune(plan, set(plan.schema.names)), plan.schema)


def _prune(node: Node, wanted: set[str]) -> Node:
    """The node with at least the columns `wanted`, in the order they had."""
    match node:
        case Scan() | TableScan():
            return replace(node, columns=_subset(node.schema, wanted))
        case Project(input=below, columns=columns):
            kept = tuple(column for column in columns if column[0] in wanted) or columns[:1]
            needs = set().union(*(columns_of(expr) for _, expr in kept))
            return Project(_prune(below, needs), kept)
        case Filter(input=below, predicate=predicate):
            return Filter(_prune(below, wanted | columns_of(predicate)), predicate)
        case Over(input=below, keys=keys, calls=calls):
            live = tuple(call for call in calls if call.name in wanted)
            if not live:
                return _prune(below, wanted)
            own = {call.name for call in calls}
            args = {call.arg for call in live if call.arg is not None}
            return replace(node, input=_prune(below, (wanted - own) | set(keys) | args), calls=live)
        case JoinTable(input=stream, table=table, pairs=pairs, residual=residual):
            needs = set(wanted)
            for mine, theirs in pairs:
                needs |= columns_of(mine) | columns_of(theirs)
            if residual is not None:
                needs |= columns_of(residual)
            left = _prune(stream, needs & set(stream.schema.names))
            right = _prune(table, needs & set(table.schema.names))
            return replace(node, input=left, table=right)
        case Union(branches=branches):
            target = _subset(node.schema, wanted)
            return Union(tuple(_exactly(_prune(branch, set(target.names)), target) for branch in branches))
        case AssignWindows(input=below):
            return replace(node, input=_prune(below, wanted - {START, END}))
        case Sessions(input=below, keys=keys):
            return replace(node, input=_prune(below, (wanted - {START, END}) | set(keys)))
        case Aggregate(input=below, keys=keys, args=args, results=results):
            return replace(node, input=_prune(below, (wanted - set(results)) | {*keys, *args}))
        case Yield(input=below, keys=keys):
            return replace(node, input=_prune(below, wanted | set(keys)))
        case Group(input=below, keys=keys, args=args):
            return replace(node, input=_prune(below, {*keys, *args}))
        case Distinct(input=below):
            # all columns decide what is a duplicate
            return Distinct(_exactly(_prune(below, set(below.schema.names)), below.schema))
    return node


def _exactly(node: Node, schema: Schema) -> Node:
    return node if node.schema == schema else Project(node, passthrough(schema))


def _subset(schema: Schema, wanted: set[str]) -> Schema:
    kept = tuple(field for field in schema if field.name in wanted)
    return Schema(kept or schema.fields[:1])

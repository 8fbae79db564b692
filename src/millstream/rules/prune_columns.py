"""Columns that nobody reads are not produced."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.event_joins import AsofJoin, AtWindowEnd, Starts
from millstream.plan.expr import Expr, columns_of
from millstream.plan.joins import Pairs
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
    TableQuery,
    TableScan,
    Union,
    Yield,
    passthrough,
)
from millstream.plan.patterns import Match
from millstream.plan.relations import (
    Coarsen,
    Join,
    RangeWindow,
    SetOperation,
    Summarize,
    ToEvents,
    Validity,
    Window,
)
from millstream.plan.ties import Ties
from millstream.plan.window_tables import END, START
from millstream.schema import Schema


def prune_columns(plan: Node) -> Node:
    """Ask every operator only for the columns that those above it read, down to the scans."""
    return _exactly(_prune(plan, set(plan.schema.names)), plan.schema)


def _prune(node: Node, wanted: set[str]) -> Node:
    """The node with at least the columns `wanted`, in the order they had."""
    match node:
        case Scan() | TableScan() | TableQuery():
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
            needs = wanted | _read_by(pairs, residual)
            return node.with_inputs((_some(stream, needs), _some(table, needs)))
        case Union(branches=branches):
            target = _subset(node.schema, wanted)
            return Union(tuple(_exactly(_prune(branch, set(target.names)), target) for branch in branches))
        case AssignWindows(input=below):
            return replace(node, input=_prune(below, wanted - {START, END}))
        case Sessions(input=below, keys=keys):
            return replace(node, input=_prune(below, (wanted - {START, END}) | set(keys)))
        case Aggregate(input=below, keys=keys, args=args, results=results):
            return replace(node, input=_prune(below, (wanted - set(results)) | {*keys, *args}))
        case Match(input=below, search=search):
            search = search.telling(wanted)
            own = set() if search.given.rows == "one" else wanted & set(below.schema.names)
            return replace(node, input=_prune(below, own | search.read), search=search)
        case Ties(input=below, keys=keys, by=orders):
            return replace(node, input=_prune(below, wanted | {*keys, *(order.column for order in orders)}))
        case Yield(input=below, keys=keys):
            return replace(node, input=_prune(below, wanted | set(keys)))
        case Group(input=below, keys=keys, args=args):
            return replace(node, input=_prune(below, {*keys, *args}))
        case Window(input=below, window=window):
            by = () if isinstance(window, RangeWindow) else window.by
            return replace(node, input=_prune(below, wanted.union(by)))
        case AtWindowEnd(input=below, end=end):
            return replace(node, input=_prune(below, wanted | {end}))
        case Starts(input=below):
            return replace(node, input=_prune(below, wanted.union(node.read)))
        case AsofJoin(left=first, right=second, pairs=pairs):
            needs = wanted | _read_by(pairs, None)
            return node.with_inputs((_some(first, needs), _some(second, needs)))
        case Coarsen(input=below) | ToEvents(input=below, how="rstream"):
            return replace(node, input=_prune(below, wanted))
        case Join(left=first, right=second, pairs=pairs, residual=residual):
            needs = wanted | _read_by(pairs, residual)
            return node.with_inputs((_some(first, needs), _some(second, needs)))
        case Summarize(input=below, keys=keys, calls=calls):
            asked = tuple(call for call in calls if wanted & set(call.names)) or (() if keys else calls[:1])
            return replace(node, input=_prune(below, {*keys, *(a for c in asked for a in c.args)}), calls=asked)
        case Distinct() | SetOperation() | ToEvents() | Validity():
            # all columns decide which rows are equal
            return node.with_inputs(tuple(_all(below) for below in node.inputs))
    return node


def _some(node: Node, wanted: set[str]) -> Node:
    """One side of a join, with those of the columns that are its own."""
    return _prune(node, wanted & set(node.schema.names))


def _all(node: Node) -> Node:
    """The node with the columns it has, while those below it may have fewer."""
    return _exactly(_prune(node, set(node.schema.names)), node.schema)


def _read_by(pairs: Pairs, residual: Expr | None) -> set[str]:
    """The columns that the conditions of a join read."""
    found = set() if residual is None else set(columns_of(residual))
    return found.union(*(columns_of(side) for pair in pairs for side in pair))


def _exactly(node: Node, schema: Schema) -> Node:
    return node if node.schema == schema else Project(node, passthrough(schema))


def _subset(schema: Schema, wanted: set[str]) -> Schema:
    kept = tuple(field for field in schema if field.name in wanted)
    return Schema(kept or schema.fields[:1])

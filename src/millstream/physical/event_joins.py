"""Physical plans of joins whose result is events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as OneOf

from millstream.expressions.nodes import Expr
from millstream.kernels.asof import AsofSpec
from millstream.kernels.relations.starts import StartsStage
from millstream.physical.nodes import Apply, Compute, Physical, Staged
from millstream.physical.relations import RelationPlanner
from millstream.plan import nodes as P
from millstream.plan.event_joins import AsofJoin, Starts
from millstream.plan.joins import key_names
from millstream.schema import Field, Schema


def plan_starts(node: Starts, below: Callable[[P.Node], Physical]) -> Physical:
    """The events that a relation's rows began with; `below` plans what is no relation."""
    # Only intervals tell which rows began together with which end.
    child = RelationPlanner("intervals", below).plan(node.input)
    return Staged(node.schema, child, StartsStage(node.schema, node.lasting))


def plan_asof(node: AsofJoin, below: Callable[[P.Node], Physical]) -> Physical:
    """Each event with the nearest of another stream."""
    by = key_names(node.pairs, node.left.schema, node.right.schema)
    left = _keyed(below(node.left), tuple(zip(by, (mine for mine, _ in node.pairs), strict=True)))
    right = _keyed(below(node.right), tuple(zip(by, (theirs for _, theirs in node.pairs), strict=True)))
    columns: tuple[tuple[OneOf["left", "right"], str], ...] = tuple(
        ("left" if name in node.left.schema else "right", name) for name in node.schema.names
    )
    spec = AsofSpec(left.schema, right.schema, by, columns, node.op, node.outer)
    return Apply(node.schema, (left, right), spec)


def _keyed(side: Physical, keys: tuple[tuple[str, Expr], ...]) -> Physical:
    """One side with the values that must be equal as columns, which both sides call the same."""
    if not keys:
        return side
    schema = Schema((*side.schema.fields, *(Field(name, expr.type) for name, expr in keys)))
    return Compute(schema, side, None, (*P.passthrough(side.schema), *keys))

"""A join by nothing but a band, `a.v BETWEEN b.v - 5 AND b.v + 5`, becomes a hash join: both sides meet in buckets."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import case, cast, resolve
from millstream.expressions.nodes import Column, Expr, Literal, columns_of, conjuncts
from millstream.plan.nodes import Filter, Node, Project, Union, passthrough
from millstream.plan.proofs.time_bounds import time_bounds
from millstream.plan.relations import Join
from millstream.types import BIGINT

_BUCKET = "$bucket"
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_LEFT, _RIGHT = 0, 1


def bucket_bands(node: Node) -> Node:
    """Give each row of the left side the bucket of its value, and each of the right side, as one or two rows, those of
    the band that it matches. Buckets are in the order of values and twice as wide as a band, so that each pair of a
    band meets once; the condition itself is still tested."""
    match node:
        case Join(residual=Expr() as condition, pairs=(), how="inner" | "left" | "semi" | "anti") as join:
            found = _band(condition, join)
            if found is None or _BUCKET in join.both:
                return node
            mine, other, below, above = found
            width = max(1, 2 * (below + above))
            first, last = (_bucket(_moved(other, by), width) for by in (-below, above))
            copies = (
                Project(join.right, (*passthrough(join.right.schema), (_BUCKET, first))),
                Project(
                    Filter(join.right, resolve("<>", (first, last))),
                    (*passthrough(join.right.schema), (_BUCKET, last)),
                ),
            )
            made = replace(join, right=Union(copies), pairs=((_bucket(mine, width), Column(BIGINT, _BUCKET)),))
            return made if made.schema == join.schema else Project(made, passthrough(join.schema))
    return node


def _band(condition: Expr, join: Join) -> tuple[Expr, Expr, int, int] | None:
    """A whole number of the left side and one of the right side, how far the first may be below the second, and how far
    above it."""
    most: dict[tuple[str, str], dict[int, int]] = {}
    for part in conjuncts(condition):
        read = columns_of(part)
        mine = [name for name in read if name in join.left.schema and join.left.schema[name].type.is_integer]
        other = [name for name in read if name in join.right.schema and join.right.schema[name].type.is_integer]
        if len(read) != 2 or len(mine) != 1 or len(other) != 1:
            continue
        for bound in time_bounds(part, {mine[0]: _LEFT, other[0]: _RIGHT}):
            bounds = most.setdefault((mine[0], other[0]), {})
            bounds[bound.later] = min(bound.most, bounds.get(bound.later, bound.most))
    for (left, right), bounds in most.items():
        if len(bounds) == 2 and 0 <= bounds[_LEFT] + bounds[_RIGHT] < 2**61:
            sides = (join.left.schema, left), (join.right.schema, right)
            one, two = (cast(Column(schema[name].type, name), BIGINT) for schema, name in sides)
            return one, two, bounds[_RIGHT], bounds[_LEFT]
    return None


def _moved(value: Expr, by: int) -> Expr:
    """A number and a constant, or the end of all numbers beyond it."""
    if by == 0:
        return value
    end, far = (_LEAST, "<") if by < 0 else (_GREATEST, ">")
    beyond = resolve(far, (value, Literal(BIGINT, end - by)))
    return case(((beyond, Literal(BIGINT, end)),), resolve("+", (value, Literal(BIGINT, by))))


def _bucket(value: Expr, width: int) -> Expr:
    return resolve("//", (value, Literal(BIGINT, width)))

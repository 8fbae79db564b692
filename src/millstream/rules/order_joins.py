"""Inner joins are done in the order that costs least."""

from __future__ import annotations

import math
from collections.abc import Iterator

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Call, Expr, columns_of, conjunction, conjuncts
from millstream.plan.annotations import ends_in_order
from millstream.plan.costs.flows import RelationFlow, joined
from millstream.plan.costs.operators import join_cpu
from millstream.plan.costs.plans import estimate
from millstream.plan.costs.selectivity import LEAST, part_selectivity
from millstream.plan.costs.statistics import Statistics
from millstream.plan.joins import split_condition
from millstream.plan.nodes import Node, Project, passthrough
from millstream.plan.relations import Join
from millstream.records import dataclass
from millstream.types import BOOLEAN

MOST = 8
"""relations whose orders are all looked at; with more, they are joined as written"""

BETTER = 0.99
"""an order is changed for one that costs less than this part of it, so that plans settle"""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition between relations, which are bits of a number: those it reads, the part of rows for which it is
    true, and, if it is an equality, those that each of its sides reads."""

    expr: Expr
    reads: int
    selectivity: float
    sides: tuple[int, int] | None

    def meets(self, left: int, right: int) -> bool:
        """Whether it is to be asked where these are joined."""
        return not self.reads & ~(left | right) and bool(self.reads & ~left) and bool(self.reads & ~right)

    def hashes(self, left: int, right: int) -> bool:
        """Whether it compares one side of that join with the other."""
        return self.sides is not None and any(
            not mine & ~left and not theirs & ~right for mine, theirs in (self.sides, self.sides[::-1])
        )


@dataclass(frozen=True, slots=True)
class Way:
    """A way to join the relations `members`: first the two parts, if they are several."""

    members: int
    flow: RelationFlow
    in_order: bool
    cpu: float = 0.0
    parts: tuple[Way, Way] | None = None
    connected: bool = True


def order_joins(node: Node, known: Statistics) -> Node:
    """Try all trees of the inner joins below by dynamic programming; without statistics the written order stays."""
    if not (known and isinstance(node, Join) and node.how == "inner"):
        return node
    leaves = tuple(_leaves(node))
    parts = tuple(_conditions(node))
    if not 2 < len(leaves) <= MOST or any(can_fail(part) for part in parts):
        return node
    conditions = [_condition(part, leaves, known) for part in parts]
    if any(condition.reads.bit_count() < 2 for condition in conditions):
        return node
    ways = [Way(1 << i, estimate(leaf, known).flow, ends_in_order(leaf)) for i, leaf in enumerate(leaves)]
    best = _best(ways, conditions)
    if best.cpu >= BETTER * _as_written(node, iter(ways), conditions).cpu:
        return node
    plan = _plan(best, leaves, conditions)
    return plan if plan.schema == node.schema else Project(plan, passthrough(node.schema))


def _best(ways: list[Way], conditions: list[Condition]) -> Way:
    """Of every set of relations the cheapest way, from the small sets to the large."""
    found = {way.members: way for way in ways}
    for members in sorted(range(1, 1 << len(ways)), key=int.bit_count):
        if members.bit_count() > 1:
            tried = [_join(found[some], found[others], conditions) for some, others in _halves(members)]
            # a product of relations that nothing connects, only if there is no other way
            found[members] = min([way for way in tried if way.connected] or tried, key=lambda way: way.cpu)
    return found[(1 << len(ways)) - 1]


def _halves(members: int) -> Iterator[tuple[int, int]]:
    """All ways to part a set in two; the first part has its first member."""
    rest = members & (members - 1)
    some = rest
    while some:
        yield members ^ some, some
        some = (some - 1) & rest


def _join(left: Way, right: Way, conditions: list[Condition]) -> Way:
    here = [condition for condition in conditions if condition.meets(left.members, right.members)]
    matching = max(math.prod(condition.selectivity for condition in here), LEAST)
    hashed = math.prod(c.selectivity for c in here if c.hashes(left.members, right.members))
    in_order = (left.in_order, right.in_order)
    cpu = join_cpu(left.flow, right.flow, matching, 1 / max(hashed, LEAST), in_order)
    flow = joined(left.flow, right.flow, matching)
    return Way(
        left.members | right.members, flow, False, left.cpu + right.cpu + cpu, (left, right), connected=bool(here)
    )


def _as_written(node: Node, ways: Iterator[Way], conditions: list[Condition]) -> Way:
    if isinstance(node, Join) and node.how == "inner":
        left = _as_written(node.left, ways, conditions)
        return _join(left, _as_written(node.right, ways, conditions), conditions)
    return next(ways)


def _plan(way: Way, leaves: tuple[Node, ...], conditions: list[Condition]) -> Node:
    if way.parts is None:
        return leaves[way.members.bit_length() - 1]
    left, right = (_plan(part, leaves, conditions) for part in way.parts)
    here = tuple(c.expr for c in conditions if c.meets(way.parts[0].members, way.parts[1].members))
    pairs, residual = split_condition(conjunction(here) if here else None, left.schema, right.schema)
    return Join(left, right, pairs, residual)


def _leaves(node: Node) -> Iterator[Node]:
    """The relations that a tree of inner joins joins, from left to right."""
    if isinstance(node, Join) and node.how == "inner":
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    else:
        yield node


def _conditions(node: Node) -> Iterator[Expr]:
    if isinstance(node, Join) and node.how == "inner":
        yield from _conditions(node.left)
        yield from _conditions(node.right)
        yield from (Call(BOOLEAN, "=", pair) for pair in node.pairs)
        if node.residual is not None:
            yield from conjuncts(node.residual)


def _condition(part: Expr, leaves: tuple[Node, ...], known: Statistics) -> Condition:
    sides = None
    if isinstance(part, Call) and part.fn == "=":
        sides = (_read(part.args[0], leaves), _read(part.args[1], leaves))
    return Condition(part, _read(part, leaves), part_selectivity(part, leaves, known), sides)


def _read(expr: Expr, leaves: tuple[Node, ...]) -> int:
    reads = columns_of(expr)
    return sum(1 << i for i, leaf in enumerate(leaves) if not reads.isdisjoint(leaf.schema.names))

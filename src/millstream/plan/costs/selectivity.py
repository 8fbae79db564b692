"""The selectivity of conditions, and the number of distinct values of columns: measured or assumed."""

from __future__ import annotations

import math

from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal, conjuncts
from millstream.plan.costs.statistics import Statistics
from millstream.plan.nodes import Distinct, Filter, JoinTable, Node, Project, Scan, Union
from millstream.plan.relations import Arrange, Coarsen, Join, SetOperation, Summarize, Window

EQUAL = 0.1
"""the part of rows or pairs for which an equality is true, of columns about which nothing is known"""

COMPARED = 1 / 3
"""the same of any other comparison or condition"""

LEAST = 1e-6
"""no condition is taken to be always false"""


def part_selectivity(part: Expr, inputs: tuple[Node, ...], known: Statistics) -> float:
    """The part of the rows, or of the combinations of rows of several inputs, for which a condition is true."""
    measured = known.selectivities.get(str(part))
    if measured is not None:
        return measured
    match part:
        case Literal(value=value):
            return 1.0 if value is True else 0.0
        case Call(fn="=", args=(one, two)):
            return _equal(one, two, inputs, known)
        case Call(fn="<>", args=(one, two)):
            return 1 - _equal(one, two, inputs, known)
        case Call(fn="not", args=(arg,)):
            return 1 - part_selectivity(arg, inputs, known)
        case Call(fn="and", args=args):
            return math.prod(part_selectivity(arg, inputs, known) for arg in args)
        case Call(fn="or", args=args):
            return 1 - math.prod(1 - part_selectivity(arg, inputs, known) for arg in args)
        case Call(fn="in", args=args):
            return min(sum(_equal(args[0], arg, inputs, known) for arg in args[1:]), 1.0)
        case Call(fn="is_null"):
            return EQUAL
    return COMPARED


def selectivity(condition: Expr, node: Node, known: Statistics) -> float:
    """The part of the rows of `node` for which a condition is true; its parts are taken as independent."""
    return max(math.prod(part_selectivity(part, (node,), known) for part in conjuncts(condition)), LEAST)


def join_selectivity(join: Join | JoinTable, known: Statistics) -> float:
    """The part of the pairs of rows that match."""
    rest = conjuncts(join.residual) if join.residual is not None else ()
    return max(math.prod(part_selectivity(part, join.inputs, known) for part in rest) / buckets(join, known), LEAST)


def buckets(join: Join | JoinTable, known: Statistics) -> float:
    """Into how many parts the equalities of a join divide its rows; 1 if it has none."""
    return 1 / max(math.prod(_equal(one, two, join.inputs, known) for one, two in join.pairs), LEAST)


def groups(keys: tuple[str, ...], node: Node, known: Statistics) -> float:
    """How many different values these columns of `node` have together."""
    return math.prod(distinct_values(node, key, known) or 1 / EQUAL for key in keys)


def distinct_values(node: Node, name: str, known: Statistics) -> float | None:
    """How many different values a column has, if that was measured where it comes from."""
    match node:
        case Scan(stream=stream):
            found = known.streams.get(stream.lower())
            return None if found is None else found.distinct.get(name)
        case Project(input=below, columns=columns):
            expr = dict(columns)[name]
            while isinstance(expr, Cast):
                expr = expr.arg
            return distinct_values(below, expr.name, known) if isinstance(expr, Column) else None
        case Union(branches=branches):
            values = [distinct_values(branch, name, known) for branch in branches]
            return max((value for value in values if value is not None), default=None)
        case (
            Filter()
            | Distinct()
            | Window()
            | Coarsen()
            | Join()
            | JoinTable()
            | SetOperation()
            | Summarize()
            | Arrange()
        ):
            for below in node.inputs:
                if name in below.schema:
                    return distinct_values(below, name, known)
    return None


def _equal(one: Expr, two: Expr, inputs: tuple[Node, ...], known: Statistics) -> float:
    """Of the two sides of an equality, the one with more values decides."""
    counts = [_values(side, inputs, known) for side in (one, two)]
    measured = [count for count in counts if count is not None]
    return 1 / max(measured) if measured else EQUAL


def _values(side: Expr, inputs: tuple[Node, ...], known: Statistics) -> float | None:
    while isinstance(side, Cast):
        side = side.arg
    if isinstance(side, Column):
        for node in inputs:
            if side.name in node.schema:
                return distinct_values(node, side.name, known)
    return None

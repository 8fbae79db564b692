"""A filter moves below the operators that do not change what it tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Expr, columns_of, conjunction, conjuncts, may_fail, substitute
from millstream.plan.joins import equality
from millstream.plan.nodes import Filter, JoinTable, Node, Project


def push_down_filter(node: Node) -> Node:
    """Move a filter, or those of its conjuncts that may move, below its input.

    Through a projection by replacing columns with what they stand for; into every branch of a union; into the side of a
    table join that it reads (equalities between both sides become hash pairs); below OVER, SESSION, GROUP BY and row
    patterns if it reads only the columns that tell partitions apart, since whole partitions then come or go; below
    windows if it does not read their bounds.

    Through what a relation goes through: windows of time, which hold a row whatever other rows there are (windows of
    rows would reach further back, but for whole partitions); both sides of EXCEPT and INTERSECT; ISTREAM and the like.
    Into the left side of an ASOF join.
    """
    match node:
        case Filter(input=Project() as below, predicate=predicate):
            moved = substitute(predicate, dict(below.columns))
            return node if may_fail(moved) else replace(below, input=Filter(below.input, moved))
        case Filter(input=JoinTable() as below):
            return _into_join(node, below)
        case Filter(input=below) if below.sieves:
            return _below(node, below)
    return node


def _below(node: Filter, below: Node) -> Node:
    """Move the conjuncts that read only columns by which rows may be left out before."""
    moving, staying = _part(
        node.predicate, lambda part: columns_of(part) <= below.sieves and (below.gives_its_rows or not can_fail(part))
    )
    if not moving:
        return node
    read = columns_of(conjunction(tuple(moving)))
    inputs = (_filter(each, moving) if read <= set(each.schema.names) else each for each in below.inputs)
    return _filter(below.with_inputs(tuple(inputs)), staying)


def _into_join(node: Filter, join: JoinTable) -> Node:
    stream, table = set(join.input.schema.names), set(join.table.schema.names)
    # what can fail stays behind the conditions before it, and behind the join, which may leave the row out
    to_stream, rest = _part(node.predicate, lambda part: columns_of(part) <= stream and not can_fail(part))
    to_table: list[Expr] = []
    pairs: list[tuple[Expr, Expr]] = []
    staying: list[Expr] = []
    for part in rest:
        # below an outer join a condition on the table would turn rows without a match into rows with NULLs
        is_inner = join.how == "inner"
        pair = equality(part, join.input.schema, join.table.schema) if is_inner else None
        if pair is not None:
            pairs.append(pair)
        elif is_inner and columns_of(part) <= table and not can_fail(part):
            to_table.append(part)
        else:
            staying.append(part)
    if not (to_stream or to_table or pairs):
        return node
    moved = replace(
        join,
        input=_filter(join.input, to_stream),
        table=_filter(join.table, to_table),
        pairs=join.pairs + tuple(pairs),
    )
    return _filter(moved, staying)


def _part(predicate: Expr, moves: Callable[[Expr], bool]) -> tuple[list[Expr], list[Expr]]:
    parts = conjuncts(predicate)
    return [part for part in parts if moves(part)], [part for part in parts if not moves(part)]


def _filter(node: Node, parts: list[Expr]) -> Node:
    return Filter(node, conjunction(tuple(parts))) if parts else node

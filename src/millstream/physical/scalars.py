"""Combines filters and projections: one step for each run of them."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import Expr, columns_of, conjunction, conjuncts
from millstream.physical.nodes import Compute, Physical, TableJoin
from millstream.schema import Schema


def filtered(child: Physical, predicate: Expr) -> Physical:
    """The rows for which a condition holds."""
    if isinstance(child, Compute) and child.columns is None and child.predicate is not None:
        return replace(child, predicate=conjunction((*conjuncts(child.predicate), *conjuncts(predicate))))
    return Compute(child.schema, child, predicate, None, spans=child.spans, lasts=child.lasts)


def projected(child: Physical, schema: Schema, columns: tuple[tuple[str, Expr], ...]) -> Physical:
    """New columns of each row."""
    if isinstance(child, Compute) and child.columns is None:
        return Compute(schema, child.input, child.predicate, columns, spans=child.spans, lasts=child.lasts)
    if isinstance(child, TableJoin):
        child = child.keeping(frozenset().union(*(columns_of(expr) for _, expr in columns)))
    return Compute(schema, child, None, columns, spans=child.spans, lasts=child.lasts)

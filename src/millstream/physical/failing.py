"""`on_error = 'row'`: operators that may fail on a row go on without it, and what they leave out is a plan as well."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail, resolve
from millstream.expressions.nodes import (
    Call,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
)  # fmt: skip
from millstream.kernels.compute import ComputeStage
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.streams.failing import LenientStage
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, Physical, Staged, StoredTable, TableJoin, walk
from millstream.plan.failed import FAILED_SCHEMA

_PASSING = "$passing"


def without_failing_rows(node: Physical) -> Physical:
    """The plan with filters and projections that leave out the rows they cannot compute."""
    match node:
        case Compute(input=below):
            below = without_failing_rows(below)
            if not any(map(can_fail, node.expressions)):
                return replace(node, input=below)
            stage = LenientStage(ComputeStage(below.schema, node.predicate, node.columns))
            return Staged(node.schema, below, stage, spans=node.spans, lasts=node.lasts)
        case Staged(input=below) | TableJoin(input=below):
            return replace(node, input=without_failing_rows(below))
        case Apply(over=over, spec=JoinSpec(residual=Expr() as residual) as spec):
            sure, doubtful = _divided(residual)
            if doubtful:
                residual = conjunction((*sure, resolve(_PASSING, (conjunction(doubtful),))))
            return replace(node, over=tuple(map(without_failing_rows, over)), spec=replace(spec, residual=residual))
        case Apply(over=over):
            return replace(node, over=tuple(map(without_failing_rows, over)))
    return node


def failed_rows(plan: Physical) -> Physical | None:
    """The rows that such a plan leaves out; None if it computes nothing that could fail."""
    found: dict[Physical, None] = {}
    for node in walk(plan):
        if (
            isinstance(node, Staged)
            and isinstance(node.stage, LenientStage)
            and not isinstance(node.input, StoredTable)
        ):
            found[Staged(FAILED_SCHEMA, node.input, replace(node.stage, failed=True))] = None
        if isinstance(node, Apply) and isinstance(node.spec, JoinSpec) and node.spec.residual is not None:
            found |= dict.fromkeys(_failing_pairs(node, node.spec, node.spec.residual))
    if len(found) < 2:
        return next(iter(found), None)
    return Apply(FAILED_SCHEMA, tuple(found), MergeSpec(FAILED_SCHEMA, len(found)))


def _divided(condition: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The parts of a condition that cannot fail, and those that can."""
    parts = conjuncts(condition)
    return tuple(part for part in parts if not can_fail(part)), tuple(part for part in parts if can_fail(part))


def _failing_pairs(node: Apply, spec: JoinSpec, condition: Expr) -> list[Physical]:
    """The pairs of rows that a join could not compute its condition of: an inner join by what is sure, tested again."""
    parts = conjuncts(condition)
    tried = next((part.args[0] for part in parts if isinstance(part, Call) and part.fn == _PASSING), None)
    if tried is None:
        return []
    sure = tuple(part for part in parts if not (isinstance(part, Call) and part.fn == _PASSING))
    read = sorted(columns_of(tried)) or list(spec.left.names[:1])
    pairs = replace(
        spec,
        how="inner",
        residual=conjunction(sure) if sure else None,
        columns=tuple(("left" if name in spec.left else "right", name) for name in read),
    )
    joined = Apply(pairs.output, node.over, pairs, spans=node.spans)
    stage = LenientStage(ComputeStage(pairs.output, tried, None), failed=True)
    return [Staged(FAILED_SCHEMA, joined, stage)]

"""`on_error = 'row'`: operators that may fail on a row go on without it, and what they leave out is a plan as well."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail
from millstream.kernels.compute import ComputeStage
from millstream.kernels.streams.failing import LenientStage
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, Physical, Staged, StoredTable, TableJoin, walk
from millstream.plan.failed import FAILED_SCHEMA


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
    if len(found) < 2:
        return next(iter(found), None)
    return Apply(FAILED_SCHEMA, tuple(found), MergeSpec(FAILED_SCHEMA, len(found)))

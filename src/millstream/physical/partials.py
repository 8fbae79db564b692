"""Which exchanges carry partials: rows that are aggregated before they are sent."""

from __future__ import annotations

from dataclasses import replace

from millstream.kernels.contract import partials_of
from millstream.kernels.relations.stages import CoarsenStage, RangeStage
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, NativeGroups, Partial, Physical, Staged, TableJoin

MOST_LEFT = 0.5
"""Partials travel if they are at most so many of their rows; otherwise the rows do. Hosts measure that as they run."""


def with_partials(node: Physical) -> Physical:
    """The plan with rows put together below every kernel that can merge what was: its aggregates depend neither on the
    order of rows nor on how they are divided, and its rows come from one place each."""
    match node:
        case Apply(over=over, spec=spec):
            below = [with_partials(child) for child in over]
            put_together = (
                child if own is None else Partial(child.schema, child, own)
                for child, own in zip(below, partials_of(spec), strict=True)
            )
            return replace(node, over=tuple(put_together))
        case Compute() | Staged() | TableJoin() | NativeGroups():
            return replace(node, input=with_partials(node.input))
    return node


def with_records(node: Physical) -> Physical:
    """The plan with groups of relations that keep records where partials may come to them: their rows begin and end
    together, as those of a window with SLIDE do, or of a coarser time. What a group keeps of a row is then wider, so
    others keep rows as they are. It says what state is, so a checkpoint goes on with what it began with."""
    match node:
        case Apply(over=over, spec=spec):
            if isinstance(spec, SummarySpec) and spec.merges and _bounds_meet(over[0]):
                spec = replace(spec, put_together=True)
            return replace(node, over=tuple(map(with_records, over)), spec=spec)
        case Compute() | Staged() | TableJoin() | NativeGroups():
            return replace(node, input=with_records(node.input))
    return node


def _bounds_meet(node: Physical) -> bool:
    """Whether rows of a relation begin and end at multiples of some time, so that many do so together."""
    match node:
        case Staged(stage=RangeStage(window=window)):
            return window.slide > 1
        case Staged(stage=CoarsenStage()):
            return True
        case Compute(input=below) | TableJoin(input=below):
            return _bounds_meet(below)
        case Apply(over=over, spec=MergeSpec()):
            return all(map(_bounds_meet, over))
    return False

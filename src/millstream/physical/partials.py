"""Which exchanges carry partials: rows that are aggregated before they are sent."""

from __future__ import annotations

from dataclasses import replace

from millstream.kernels.contract import partials_of
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

"""What a job does once for several queries."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.hosts.contract import Shared
from millstream.hosts.filter_groups import BY_SHAPE, LEAST_MEMBERS, FilterShape, shape_of
from millstream.kernels.compute import ComputeStage
from millstream.physical.nodes import Compute, Physical, Source, walk


def shared_filters(plans: Mapping[str, Physical]) -> list[Shared]:
    """The filters of one shape over the same columns of a stream, with the queries that have them."""
    found: dict[tuple[Source, FilterShape], dict[str, None]] = {}
    for name, plan in plans.items():
        for node in walk(plan):
            if isinstance(node, Compute) and isinstance(node.input, Source):
                shape = shape_of(ComputeStage(node.input.schema, node.predicate, node.columns))
                if shape is not None:
                    found.setdefault((node.input, shape[0]), {})[name] = None
    return [Shared(str(shape), tuple(n), BY_SHAPE) for (_, shape), n in found.items() if len(n) >= LEAST_MEMBERS]

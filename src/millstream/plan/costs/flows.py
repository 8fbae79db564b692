"""Average properties of a relation that costs depend on, and how operators change them.

A relation is three numbers: `distance` between the starts of rows that follow each other (1 / distance is its rate),
`length` of the rows' validity, and `granule`, of which all starts and ends are multiples. All are in units of time.
Times are taken as continuous, values as independent of them, and granules of several inputs as equal.
"""

from __future__ import annotations

import math
from dataclasses import replace

from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class RelationFlow:
    """The average distance of rows, their average length, and the granule of their bounds."""

    distance: float
    length: float = 1.0
    granule: float = 1.0

    @property
    def rate(self) -> float:
        """Rows per unit of time."""
        return 1 / self.distance

    @property
    def valid(self) -> float:
        """Rows that are valid at an instant."""
        return self.length / self.distance


def filtered(flow: RelationFlow, selectivity: float) -> RelationFlow:
    """Rows are kept with this probability."""
    return replace(flow, distance=flow.distance / selectivity)


def united(*flows: RelationFlow) -> RelationFlow:
    rate = sum(flow.rate for flow in flows)
    return RelationFlow(1 / rate, sum(flow.valid for flow in flows) / rate, max(flow.granule for flow in flows))


def joined(left: RelationFlow, right: RelationFlow, selectivity: float = 1.0) -> RelationFlow:
    """Pairs of rows valid at the same time, of which this part matches; 1 is the product."""
    together = left.length + right.length
    return RelationFlow(
        left.distance * right.distance / (together * selectivity),
        left.length * right.length / together,
        max(left.granule, right.granule),
    )


def distinct(flow: RelationFlow, values: float) -> RelationFlow:
    """Each of `values` different rows at most once at a time: with many copies, each is shown until the next."""
    return replace(flow, length=min(values * flow.distance, flow.length))


def boundaries(flow: RelationFlow, per_length: float) -> float:
    """The share of the granules within one length that so many starts and ends, falling anywhere, hit at least once."""
    step = flow.granule / flow.length
    return 1.0 if step >= 1 else -math.expm1(per_length * math.log1p(-step))


def summarized(flow: RelationFlow, regular: bool = False) -> RelationFlow:
    """One row at a time: a new one wherever a row starts or ends.

    With `regular`, rows come and last at constant distances, the one a multiple of the other, so that ends fall on
    starts.
    """
    if flow.distance >= flow.length:
        return flow
    if regular:
        return replace(flow, length=flow.distance)
    each = flow.granule / boundaries(flow, 2 * flow.valid)
    return replace(flow, distance=each, length=each)


def grouped(flow: RelationFlow, groups: float) -> RelationFlow:
    """One row at a time for each of `groups`, each of which gets its share of the rows."""
    if groups * flow.distance >= flow.length:
        return flow
    one = summarized(replace(flow, distance=groups * flow.distance))
    return replace(one, distance=one.length / groups)


def split(flow: RelationFlow, longest: float) -> RelationFlow:
    """Rows cut into pieces of this length."""
    if longest >= flow.length:
        return flow
    return replace(flow, distance=flow.distance * longest / flow.length, length=longest)


def coarsened(flow: RelationFlow, granule: float) -> RelationFlow:
    """Bounds moved to multiples of `granule`; rows between two of them are gone."""
    if granule == flow.granule:
        return flow
    if flow.length >= granule:
        return replace(flow, granule=granule)
    return RelationFlow(granule / flow.length * flow.distance, granule, granule)


def range_window(flow: RelationFlow, size: float) -> RelationFlow:
    return replace(flow, length=size)


def rows_window(flow: RelationFlow, rows: float, partitions: float = 1.0) -> RelationFlow:
    """Each row until `rows` others of its partition have come."""
    return replace(flow, length=partitions * rows * flow.distance)


def uncovered(left: RelationFlow, right: RelationFlow, matching: float) -> RelationFlow:
    """Rows of the left side while fewer rows than copies of them match on the right: what EXCEPT and anti joins give.

    The model names no formula for it. Ours: at an instant `matching` · rows valid on the right match a given row on
    average, so (Poisson) a row is uncovered for exp(-that) of its time; it is cut where a match begins.
    """
    bare = math.exp(-matching * right.valid)
    pieces = 1 + matching * right.rate * left.length * bare
    return replace(left, distance=left.distance / pieces, length=max(left.length * bare / pieces, left.granule))

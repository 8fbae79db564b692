"""Finding all cells of many rings at once, outside the compiled loop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import Ints
from millstream.kernels.over.layout import NamedFrame, OverLayout
from millstream.kernels.over.loops import FIRST_CAPACITY
from millstream.records import dataclass

Records = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RingPositions:
    """Positions in rings: the record each belongs to, the position, and where its cell begins."""

    owner: Ints
    position: Ints
    cell: Ints


def low_positions(layout: OverLayout, records: Records) -> Ints:
    """The oldest position that each ring still holds."""
    lanes = layout.slot_lanes
    tail = records[:, lanes["tail"]]
    low = tail
    for frame in layout.logged:
        if frame.is_range and not frame.is_later:
            low = np.minimum(low, records[:, lanes[f"{frame.name}_{'head' if frame.is_bounded else 'end'}"]])
        else:
            low = np.minimum(low, np.maximum(0, tail - _reach(layout, frame, records)))
    return low


def _reach(layout: OverLayout, frame: NamedFrame, records: Records) -> Ints | int:
    """How many rows behind the last one lies the oldest that a frame of rows needs."""
    if frame.is_own:
        return records[:, layout.slot_lanes[f"{frame.name}_width"]] + 1
    return frame.preceding + 1 if frame.is_bounded else frame.frame.end


def row_runs(layout: OverLayout, records: Records) -> RingPositions:
    """The rows in the rings of these records."""
    return _runs(layout, records, low_positions(layout, records), records[:, layout.slot_lanes["tail"]])


def queue_runs(layout: OverLayout, records: Records, queue: int) -> RingPositions:
    """The entries of one of their queues."""
    name = layout.queues[queue].name
    head, tail = (records[:, layout.slot_lanes[f"{name}_queue_{end}"]] for end in ("head", "tail"))
    return _runs(layout, records, head, tail)


def _runs(layout: OverLayout, records: Records, start: Ints, stop: Ints) -> RingPositions:
    lanes = layout.slot_lanes
    counts = stop - start
    owner = np.repeat(np.arange(len(records)), counts)
    ends = np.cumsum(counts)
    position = np.arange(len(owner)) + np.repeat(start - (ends - counts), counts)
    base, capacity = (records[owner, lanes[name]] for name in ("base", "capacity"))
    return RingPositions(owner, position, base + (position & (capacity - 1)) * len(layout.cell_lanes))


def place_rings(layout: OverLayout, records: Records, counts: Ints) -> int:
    """Give every record with rows a ring, one after the other; returns the lanes they take together."""
    capacity = np.where(counts > 0, FIRST_CAPACITY, 0)
    while np.any(capacity < counts):
        capacity = np.where(capacity < counts, 2 * capacity, capacity)
    ends = np.cumsum(capacity * len(layout.cell_lanes))
    records[:, layout.slot_lanes["base"]] = ends - capacity * len(layout.cell_lanes)
    records[:, layout.slot_lanes["capacity"]] = capacity
    return int(ends[-1]) if len(ends) else 0

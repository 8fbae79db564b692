"""Messages of several partitions in the order of their timestamps: one order, however the fetches came in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np

from millstream.connectors.contract import Offset
from millstream.records import dataclass

Ints = np.ndarray[Any, np.dtype[np.int64]]
_NONE = np.empty(0, np.int64)
EARLIEST = -(1 << 62)


@dataclass
class Partition:
    """What was received of a partition and not yet handed on."""

    number: int
    next: int
    """The offset after what was received."""
    to: int | None = None
    """Where a bounded reading ends."""
    at_end: bool = False
    paused: bool = False
    values: list[bytes | None] = field(default_factory=list)
    offsets: Ints = field(default_factory=lambda: _NONE)
    keys: Ints = field(default_factory=lambda: _NONE)
    """The greatest timestamp up to each message: a partition is never reordered within itself."""

    @property
    def done(self) -> bool:
        return self.at_end if self.to is None else self.next >= self.to

    @property
    def position(self) -> int:
        """The offset of the first message that was not handed on."""
        return int(self.offsets[0]) if len(self.offsets) else self.next

    def add(self, values: list[bytes | None], offsets: Ints, times: Ints, floor: int) -> None:
        if self.to is not None and len(offsets) and offsets[-1] >= self.to:
            count = int(np.searchsorted(offsets, self.to))
            self.next = max(self.next, self.to)
            values, offsets, times = values[:count], offsets[:count], times[:count]
        if len(offsets) == 0:
            return
        floor = max(floor, int(self.keys[-1])) if len(self.keys) else floor
        self.values += values
        self.offsets = np.concatenate([self.offsets, offsets])
        self.keys = np.concatenate([self.keys, np.maximum.accumulate(np.maximum(times, floor))])
        self.next = max(self.next, int(offsets[-1]) + 1)
        self.at_end = False

    def split(self, count: int) -> tuple[list[bytes | None], Ints, Ints]:
        """Hand the first `count` messages on."""
        taken = self.values[:count], self.offsets[:count], self.keys[:count]
        self.values, self.offsets, self.keys = self.values[count:], self.offsets[count:], self.keys[count:]
        return taken


@dataclass(frozen=True)
class Run:
    """Messages in order, with where they came from and the offset after them."""

    values: list[bytes | None]
    partitions: Ints
    offsets: Ints
    offset: Offset


class Merge:
    """The partitions being read, and the greatest timestamp handed on."""

    def __init__(self, offset: Offset, ends: dict[int, int] | None) -> None:
        starts = {int(name): int(place) for name, place in offset["partitions"].items()}
        self.partitions = {p: Partition(p, starts[p], None if ends is None else ends.get(p, 0)) for p in sorted(starts)}
        self._ends = ends
        self._time = int(offset.get("time", EARLIEST))
        self._reached = dict(starts)

    @property
    def time(self) -> int:
        return self._time

    @property
    def done(self) -> bool:
        """Whether everything up to the ends was handed on."""
        return all(part.done and not part.values for part in self.partitions.values())

    def begin(self, number: int) -> None:
        """A partition that was added to the topic, from its first message on."""
        self.partitions[number] = Partition(number, 0)
        self._reached[number] = 0

    def offset(self) -> Offset:
        """Just after what was handed on."""
        offset: Offset = {"partitions": {str(p): self._reached[p] for p in sorted(self._reached)}}
        if self._time > EARLIEST:
            offset["time"] = self._time
        if self._ends is not None:
            offset["end"] = {str(p): end for p, end in sorted(self._ends.items())}
        return offset

    def ready(self, limit: int) -> Iterator[Run]:
        """What can be handed on: messages that nothing still to come precedes."""
        parts = [self.partitions[p] for p in sorted(self.partitions)]
        open_ = [part for part in parts if not part.done]
        if len(parts) > 1 and any(not part.values for part in open_):
            return
        # the next message of an open partition is not before its last one, so the least of these bounds the order
        bound = min(((int(part.keys[-1]), part.number) for part in open_ if part.values), default=None)
        taken = []
        for part in parts:
            count = len(part.values)
            if bound is not None and len(parts) > 1:
                side = "right" if part.number <= bound[1] else "left"
                count = int(np.searchsorted(part.keys, bound[0], side=side))  # type: ignore[call-overload]
            taken.append((part.number, *part.split(count)))
        values = [value for _, some, _, _ in taken for value in some]
        numbers = np.repeat([number for number, *_ in taken], [len(some) for _, some, _, _ in taken]).astype(np.int64)
        offsets = np.concatenate([some for *_, some, _ in taken])
        if len(parts) > 1:
            keys = np.concatenate([some for *_, some in taken])
            order = np.argsort(keys, kind="stable")
            values = list(map(values.__getitem__, order.tolist()))
            numbers, offsets, keys = numbers[order], offsets[order], keys[order]
        for start in range(0, len(values), limit):
            piece = slice(start, start + limit)
            if len(parts) > 1:
                self._time = int(keys[piece][-1])
            last = start + limit >= len(values)
            self._note(numbers[piece], offsets[piece])
            if last:
                self._settle()
            yield Run(values[piece], numbers[piece], offsets[piece], self.offset())
        if not values:
            self._settle()

    def _note(self, numbers: Ints, offsets: Ints) -> None:
        for number in np.unique(numbers).tolist():
            self._reached[number] = int(offsets[numbers == number][-1]) + 1

    def _settle(self) -> None:
        """Also the places without messages that were passed: marks of transactions, compacted ones."""
        for number, part in self.partitions.items():
            self._reached[number] = max(self._reached[number], part.position)

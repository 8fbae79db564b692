"""The order in which events of a large batch are taken: those of one key behind each other, so that what is known of it
stays in the cache. Instances of different keys do not meet, so results are the same; they are put back in order."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import FOREVER, Ints
from millstream.kernels.events import loops
from millstream.kernels.events.instances import Instances
from millstream.kernels.jit import as_input, compile_kernel, source_of

_SOURCE = source_of(loops)
_together = compile_kernel(_SOURCE, "together")
_gather = compile_kernel(_SOURCE, "gather")
_put_back = compile_kernel(_SOURCE, "put_back")

_BYTES = 1 << 20
"""instances that fit into the cache of a processor, beside the events"""
_GROUPS = 1 << 14
"""as many as can be counted in the cache: with fewer codes than that, each is a group of its own"""
_EVENTS = 1 << 14
"""as many repay that all are moved"""

Array = npt.NDArray[Any]


class _Space(threading.local):
    """Arrays that large batches are moved to, one for each column. New ones would cost as much as moving does: memory
    that a process has not had yet is cleared by the system."""

    def __init__(self) -> None:
        self.arrays: list[npt.NDArray[np.int64]] = []

    def array(self, number: int, like: Array) -> Array:
        while len(self.arrays) <= number:
            self.arrays.append(np.empty(0, dtype=np.int64))
        if len(self.arrays[number]) < len(like):
            self.arrays[number] = np.empty(len(like), dtype=np.int64)
        return self.arrays[number].view(like.dtype)[: len(like)]


_space = _Space()


class EventOrder:
    """The order of events, and the runs in which a loop takes them: where each ends, and up to which time all events
    are there."""

    def __init__(self, runs: list[tuple[int, int]], order: Array | None = None) -> None:
        self.runs = runs
        self._order = order
        self._moved: dict[int, Array] = {}

    def __call__(self, values: Array) -> Array:
        """The values of events in their order."""
        if self._order is None or (values.dtype == np.bool_ and values.all()):
            return values
        # one array may be both times of events
        place = values.__array_interface__["data"][0]
        if place not in self._moved:
            moved = _space.array(len(self._moved), values)
            _gather(len(values), values, self._order, moved)
            self._moved[place] = as_input(moved)
        return self._moved[place]

    def back(self, found: Ints) -> Ints:
        """Results in order of their events."""
        if self._order is None:
            return found
        out = np.empty_like(found)
        _put_back(len(found), found, self._order, np.zeros(len(self._order) + 1, dtype=np.int32), out)
        return out


def in_turns(ends: Ints, codes: Ints | None, state: Instances, upto: int) -> EventOrder:
    """Put events together by their codes if there are many instances. Events of an instant that began before, or that
    is not over, are not moved: they may meet events of other batches."""
    whole = [(len(ends), upto)]
    if codes is None or state.live * state.rows.shape[1] * 8 < _BYTES or len(ends) < _EVENTS:
        return EventOrder(whole)
    epoch, most = int(state.meta[loops.EPOCH]), state.codes.size
    first, stop = int(np.searchsorted(ends, epoch, side="right")), int(np.searchsorted(ends, upto))
    if first >= stop:
        return EventOrder(whole)
    bits = (most // _GROUPS).bit_length()
    order = np.arange(len(ends), dtype=np.int32)
    _together(len(ends), codes, first, stop, bits, np.zeros((most >> bits) + 2, dtype=np.int32), order)
    return EventOrder([(first, FOREVER), (stop, FOREVER), *whole], order)

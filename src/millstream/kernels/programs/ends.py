"""When groups end, and which of them end soon, so that not all are looked at whenever time advances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import BEGIN, Ints

_NEVER = 2**63 - 1
_FEW = 4_096
"""so many groups may be looked at each time"""
_SOON = 16
"""one of so many groups ends soon"""


class GroupEnds:
    """The ends of groups by slot. Those that end before `_horizon` are in `_soon`, in any order; the others are looked
    for among all groups once time has come there. Nothing ends before `_due`."""

    def __init__(self, of: Ints | None = None) -> None:
        self.of: Ints = np.zeros(0, dtype=np.int64) if of is None else of
        self._soon: list[Ints] = []
        self._horizon = self._due = BEGIN

    def enter(self, slots: Ints) -> None:
        """Groups come, whose ends are known."""
        ends = self.of[slots]
        near = ends < self._horizon
        if near.any():
            self._soon.append(slots[near])
            self._due = min(self._due, int(ends.min()))

    def over(self, upto: int, live: Callable[[], npt.NDArray[np.int32]]) -> Ints:
        """The groups that end by then, of all that are there; each is told once."""
        if upto < self._due:
            return np.zeros(0, dtype=np.int64)
        every: Ints | None = live().astype(np.int64) if upto >= self._horizon else None
        soon = np.concatenate(self._soon) if every is None else every
        ends = self.of[soon]
        done, soon, ends = soon[ends <= upto], soon[ends > upto], ends[ends > upto]
        if every is not None:
            self._horizon = _NEVER
        if len(soon) > _FEW and (every is not None or _SOON * len(soon) > 4 * len(self.of)):
            self._horizon = int(np.partition(ends, len(ends) // _SOON)[len(ends) // _SOON])
            soon, ends = soon[ends < self._horizon], ends[ends < self._horizon]
        self._soon, self._due = [soon], min(int(ends.min(initial=_NEVER)), self._horizon)
        return done


def order_by(*keys: Ints) -> npt.NDArray[np.intp]:
    """The order by several keys, of which no two rows have the same: by one word, if they all fit into one."""
    word, values = np.zeros(len(keys[0]), dtype=np.int64), 1
    for key in keys:
        low = int(key.min())
        spread = int(key.max()) - low + 1
        values *= spread
        if values >= _NEVER:
            return np.lexsort(keys[::-1])
        word = word * spread + (key - low)
    return np.argsort(word)

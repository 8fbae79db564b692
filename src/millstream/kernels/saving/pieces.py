"""Which saved piece holds which key, and what has to be saved next."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import Ints

KEYS_PER_PIECE = 1_024
_SPARE_PIECES = 8

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]


class Pieces:
    """The division of a state's keys, by slot, into pieces numbered from 1.

    A piece is written once. Keys that are touched or released leave it; once it has none left, or there are many
    pieces with few, it is given up and its number free for another. There are at most about twice as many pieces as
    full ones would be, and each save moves few keys that were not touched.
    """

    def __init__(self) -> None:
        self._touched: Bools = np.zeros(0, dtype=np.bool_)
        self._home: Numbers = np.zeros(0, dtype=np.int32)
        self._place: Numbers = np.zeros(0, dtype=np.int32)
        # By piece number: which of its keys are still its own, how many, and when it was written, 0 if there is none.
        self._live: Bools = np.zeros((1, KEYS_PER_PIECE), dtype=np.bool_)
        self._count: Ints = np.zeros(1, dtype=np.int64)
        self._serial: Ints = np.zeros(1, dtype=np.int64)
        self._last_serial = 0

    @staticmethod
    def of(labels: Ints, live: Bools) -> Pieces:
        """The division of a state that was built from these pieces, its slots in their order."""
        pieces = Pieces()
        pieces._hold_pieces(int(labels[:, 0].max(initial=0)) + 1)
        if len(labels):
            pieces._live[labels[:, 0]] = live
            pieces._count[labels[:, 0]] = np.count_nonzero(live, axis=1)
        pieces._serial[labels[:, 0]] = labels[:, 1]
        pieces._last_serial = int(labels[:, 1].max(initial=0))
        index, place = np.nonzero(live)
        pieces._home = labels[index, 0].astype(np.int32)
        pieces._place = place.astype(np.int32)
        pieces._touched = np.zeros(len(place), dtype=np.bool_)
        return pieces

    def touch(self, slots: npt.NDArray[Any], size: int) -> None:
        """Note that the keys of these slots changed; `size` is one more than the highest slot there is."""
        if size > len(self._touched):
            more = max(size, 2 * len(self._touched)) - len(self._touched)
            self._touched, self._home, self._place = (
                np.concatenate([array, np.zeros(more, dtype=array.dtype)])
                for array in (self._touched, self._home, self._place)
            )
        self._touched[slots] = True

    def release(self, slots: npt.NDArray[Any]) -> None:
        """Note that the keys of these slots are gone."""
        self._leave(slots)
        self._touched[slots] = False

    def arrange(self, origin: Ints) -> None:
        """Give slots anew: slot i is the key that had slot origin[i], or a new one if that is -1; others are gone."""
        known = origin >= 0
        before = origin[known]
        gone = np.ones(len(self._home), dtype=np.bool_)
        gone[before] = False
        self._leave(np.flatnonzero(gone))
        home, place = np.zeros((2, len(origin)), dtype=np.int32)
        home[known], place[known] = self._home[before], self._place[before]
        touched = ~known
        touched[known] = self._touched[before]
        self._home, self._place, self._touched = home, place, touched

    def regroup(self) -> tuple[list[int], list[tuple[int, Ints]]]:
        """Move the touched keys to new pieces, and those of the emptiest pieces with them if there are too many: the
        pieces that are gone, and the new ones with the slots in them."""
        moved = np.flatnonzero(self._touched)
        self._leave(moved)
        used = np.flatnonzero(self._serial)
        used = used[np.argsort(self._count[used], kind="stable")]
        given_up = used[: _too_many(len(moved), self._count[used])]
        if len(moved) == 0 and len(given_up) == 0:
            return [], []
        others = np.zeros(0, dtype=np.int64)
        if self._count[given_up].any():
            leaves = np.zeros(len(self._serial), dtype=np.bool_)
            leaves[given_up] = True
            others = np.flatnonzero(leaves[self._home])
            self._leave(others)
        self._serial[given_up] = 0
        slots = np.concatenate([moved, others])
        groups = [slots[start : start + KEYS_PER_PIECE] for start in range(0, len(slots), KEYS_PER_PIECE)]
        made = [(self._new_piece(group), group) for group in groups]
        numbers = {number for number, _ in made}
        self._touched[moved] = False
        return [number for number in given_up.tolist() if number not in numbers], made

    def label(self, number: int) -> Ints:
        """What tells a piece from others, and from those that had its number before."""
        return np.array([number, self._serial[number]])

    def index(self) -> tuple[Ints, npt.NDArray[np.uint8]]:
        """The labels of all pieces with the places of keys that are still theirs: from one to another, or, for those
        that have -1 in place of the first, in bits that follow."""
        used = np.flatnonzero(self._serial)
        live = self._live[used]
        first = live.argmax(axis=1)
        stop = KEYS_PER_PIECE - live[:, ::-1].argmax(axis=1)
        holes = self._count[used] != stop - first
        first[holes] = -1
        return np.stack([used, self._serial[used], first, stop], axis=1), np.packbits(live[holes], axis=1)

    @staticmethod
    def live_of(index: Ints, bits: npt.NDArray[np.uint8]) -> Bools:
        """Which keys of each piece are still theirs, by what `index` gave."""
        first, stop = index[:, 2:3], index[:, 3:4]
        live: Bools = (np.arange(KEYS_PER_PIECE) >= first) & (np.arange(KEYS_PER_PIECE) < stop)
        rows = bits.reshape(-1, -(-KEYS_PER_PIECE // 8))
        live[first[:, 0] < 0] = np.unpackbits(rows, axis=1, count=KEYS_PER_PIECE)
        return live

    def _leave(self, slots: npt.NDArray[Any]) -> None:
        homes = self._home[slots]
        self._live[homes, self._place[slots]] = False
        self._count -= np.bincount(homes, minlength=len(self._count))
        self._home[slots] = 0

    def _new_piece(self, slots: Ints) -> int:
        free = np.flatnonzero(self._serial[1:] == 0)
        number = int(free[0]) + 1 if len(free) else len(self._serial)
        self._hold_pieces(number + 1)
        self._last_serial += 1
        self._serial[number] = self._last_serial
        self._live[number] = np.arange(KEYS_PER_PIECE) < len(slots)
        self._count[number] = len(slots)
        self._home[slots] = number
        self._place[slots] = np.arange(len(slots))
        return number

    def _hold_pieces(self, count: int) -> None:
        more = max(count, 2 * len(self._serial)) - len(self._serial)
        if count > len(self._serial):
            self._serial, self._count = (
                np.concatenate([array, np.zeros(more, dtype=np.int64)]) for array in (self._serial, self._count)
            )
            self._live = np.concatenate([self._live, np.zeros((more, KEYS_PER_PIECE), dtype=np.bool_)])


def _too_many(moved: int, counts: Ints) -> int:
    """How many of the emptiest pieces to give up, when this many keys move and pieces have these counts, increasing."""
    written = moved + np.cumsum(np.concatenate([[0], counts]))
    left = np.arange(len(counts), -1, -1) + -(-written // KEYS_PER_PIECE)
    enough = 2 * -(-written[-1] // KEYS_PER_PIECE) + _SPARE_PIECES
    empty = int(np.searchsorted(counts, 1))
    return max(empty, int(np.argmax(left <= enough)))

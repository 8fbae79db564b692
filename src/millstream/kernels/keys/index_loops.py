"""Kernel source: building a hash index anew, and taking slots out of one."""

from __future__ import annotations

from typing import Any


def fill_index(slots: Any, hash_of: Any, index_hash: Any, index_slot: Any) -> None:
    """Enter slots into an empty index."""
    mask = len(index_slot) - 1
    for i in range(len(slots)):
        slot = slots[i]
        at = hash_of[slot] & mask
        while index_slot[at] >= 0:
            at = (at + 1) & mask
        index_hash[at] = hash_of[slot]
        index_slot[at] = slot


def leave_index(slots: Any, hash_of: Any, index_hash: Any, index_slot: Any) -> None:
    """Take slots out. What was entered behind one moves up, so that no gap comes before the place of any."""
    mask = len(index_slot) - 1
    for i in range(len(slots)):
        slot = slots[i]
        gap = hash_of[slot] & mask
        while index_slot[gap] != slot:
            gap = (gap + 1) & mask
        at = (gap + 1) & mask
        while index_slot[at] >= 0:
            if (at - (index_hash[at] & mask)) & mask >= (at - gap) & mask:
                index_hash[gap] = index_hash[at]
                index_slot[gap] = index_slot[at]
                gap = at
            at = (at + 1) & mask
        index_slot[gap] = -1

"""Kernel source: building a hash index anew."""

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

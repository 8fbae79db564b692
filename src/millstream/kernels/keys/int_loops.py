"""Kernel source: slots of integer keys.

The hash is a bijection of the key, so equal hashes are equal keys and the index alone decides.
"""

from __future__ import annotations

from typing import Any

from millstream.kernels.jit.primitives import place

COUNT, NULL_SLOT, FREE, USED = 0, 1, 2, 3
MULTIPLIER = -7046029254386353131
LOW_HALF = 0xFFFFFFFF


def find_ints(
    keys: Any, valid: Any, nulls: bool, index_hash: Any, index_slot: Any, meta: Any, slots: Any, start: int, stop: int
) -> int:
    """The slots of known keys, -1 for others; returns how many are unknown."""
    mask = len(index_slot) - 1
    unknown = 0
    for i in range(start, stop):
        if nulls and not valid[place(i)]:
            slot = meta[NULL_SLOT]
        else:
            hashed = keys[place(i)]
            hashed = (hashed ^ ((hashed >> 32) & LOW_HALF)) * MULTIPLIER
            hashed ^= (hashed >> 32) & LOW_HALF
            at = hashed & mask
            slot = index_slot[place(at)]
            while slot >= 0 and index_hash[place(at)] != hashed:
                at = (at + 1) & mask
                slot = index_slot[place(at)]
        slots[place(i)] = slot
        if slot < 0:
            unknown += 1
    return unknown


def add_ints(
    keys: Any,
    valid: Any,
    nulls: bool,
    index_hash: Any,
    index_slot: Any,
    meta: Any,
    slots: Any,
    start: int,
    key_of: Any,
    hash_of: Any,
    kind_of: Any,
    free: Any,
) -> int:
    """Slots for the rows that `find_ints` left at -1; returns the row at which room ran out, or the end."""
    mask = len(index_slot) - 1
    for i in range(start, len(slots)):
        if slots[i] >= 0:
            continue
        is_null = nulls and not valid[i]
        key = keys[i]
        hashed = (key ^ ((key >> 32) & LOW_HALF)) * MULTIPLIER
        hashed ^= (hashed >> 32) & LOW_HALF
        at = hashed & mask
        if is_null:
            slot = meta[NULL_SLOT]
        else:
            slot = index_slot[at]
            while slot >= 0 and index_hash[at] != hashed:
                at = (at + 1) & mask
                slot = index_slot[at]
        if slot < 0:
            if 2 * meta[USED] >= len(index_slot) or (meta[FREE] == 0 and meta[COUNT] == len(key_of)):
                return i
            if meta[FREE] > 0:
                meta[FREE] -= 1
                slot = free[meta[FREE]]
            else:
                slot = meta[COUNT]
                meta[COUNT] += 1
            meta[USED] += 1
            key_of[slot] = key
            hash_of[slot] = hashed
            if is_null:
                kind_of[slot] = 2
                meta[NULL_SLOT] = slot
            else:
                kind_of[slot] = 1
                index_hash[at] = hashed
                index_slot[at] = slot
        slots[i] = slot
    return len(slots)

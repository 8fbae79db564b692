"""Kernel source: slots of keys that are rows of several words."""

from __future__ import annotations

from typing import Any

import numpy as np

COUNT, NULL_SLOT, FREE, USED = 0, 1, 2, 3
MULTIPLIER = -7046029254386353131
LOW_HALF = 0xFFFFFFFF


def hash_words(words: Any, row: int) -> Any:
    """A hash of one row."""
    hashed = np.int64(0)
    for j in range(words.shape[1]):
        hashed ^= words[row, j]
        hashed ^= (hashed >> 32) & LOW_HALF
        hashed *= MULTIPLIER
        hashed ^= (hashed >> 32) & LOW_HALF
    return hashed


def same_words(left: Any, left_row: int, right: Any, right_row: int) -> bool:
    """Whether two rows are equal."""
    same = True
    for j in range(left.shape[1]):
        same &= left[left_row, j] == right[right_row, j]
    return same


def find_rows(
    words: Any, index_hash: Any, index_slot: Any, meta: Any, slots: Any, start: int, stop: int, words_of: Any
) -> int:
    """The slots of known rows, -1 for others; returns how many are unknown."""
    mask = len(index_slot) - 1
    unknown = 0
    for i in range(start, stop):
        hashed = hash_words(words, i)
        at = hashed & mask
        slot = index_slot[at]
        while slot >= 0 and not (index_hash[at] == hashed and same_words(words, i, words_of, slot)):
            at = (at + 1) & mask
            slot = index_slot[at]
        slots[i] = slot
        if slot < 0:
            unknown += 1
    return unknown


def add_rows(
    words: Any,
    index_hash: Any,
    index_slot: Any,
    meta: Any,
    slots: Any,
    start: int,
    words_of: Any,
    hash_of: Any,
    kind_of: Any,
    free: Any,
) -> int:
    """Slots for the rows that `find_rows` left at -1; returns the row at which room ran out, or the end."""
    mask = len(index_slot) - 1
    for i in range(start, len(slots)):
        if slots[i] >= 0:
            continue
        hashed = hash_words(words, i)
        at = hashed & mask
        slot = index_slot[at]
        while slot >= 0 and not (index_hash[at] == hashed and same_words(words, i, words_of, slot)):
            at = (at + 1) & mask
            slot = index_slot[at]
        if slot < 0:
            if 2 * meta[USED] >= len(index_slot) or (meta[FREE] == 0 and meta[COUNT] == len(hash_of)):
                return i
            if meta[FREE] > 0:
                meta[FREE] -= 1
                slot = free[meta[FREE]]
            else:
                slot = meta[COUNT]
                meta[COUNT] += 1
            meta[USED] += 1
            hash_of[slot] = hashed
            kind_of[slot] = 1
            for j in range(words.shape[1]):
                words_of[slot, j] = words[i, j]
            index_hash[at] = hashed
            index_slot[at] = slot
        slots[i] = slot
    return len(slots)

"""Kernel source: slots of byte strings, whose bytes lie one after the other in an arena."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.kernels.jit.primitives import load_word, turned

COUNT, NULL_SLOT, FREE, USED, ARENA = 0, 1, 2, 3, 4
MULTIPLIER = -7046029254386353131
LOW_HALF = 0xFFFFFFFF


def mix(word: Any) -> Any:
    """A bijection of words after which every bit shows in the low half."""
    word ^= (word >> 32) & LOW_HALF
    word *= MULTIPLIER
    return word ^ ((word >> 32) & LOW_HALF)


def hash_bytes(data: Any, start: Any, length: Any) -> Any:
    """A hash of bytes that is the same on every machine, and for no two strings of one length up to eight."""
    hashed = np.int64(length) * MULTIPLIER
    at = np.int64(start)
    end = at + length
    while at + 8 < end:
        hashed = mix(hashed ^ load_word(data, at))
        at += 8
    # What is left is the last eight bytes, some of them seen before, or all there is, the last byte lowest.
    last = np.int64(0)
    if length >= 8:
        last = load_word(data, end - 8)
    elif end >= 8:
        last = turned(load_word(data, end - 8)) & ((np.int64(1) << (8 * np.int64(length))) - 1)
    else:
        while at < end:
            last = (last << 8) | data[at]
            at += 1
    return mix(hashed ^ last)


def same_bytes(left: Any, left_start: Any, right: Any, right_start: Any, length: Any) -> bool:
    """Whether two byte strings of one length and one hash are equal."""
    if length <= 8:
        return True
    at = 0
    while at + 8 <= length:
        if load_word(left, left_start + at) != load_word(right, right_start + at):
            return False
        at += 8
    return load_word(left, left_start + length - 8) == load_word(right, right_start + length - 8)  # type: ignore[no-any-return]


def hash_column(offsets: Any, data: Any, hashes: Any) -> None:
    """The hash of every row."""
    for i in range(len(hashes)):
        hashes[i] = hash_bytes(data, offsets[i], offsets[i + 1] - offsets[i])


def find_bytes(
    offsets: Any,
    data: Any,
    valid: Any,
    nulls: bool,
    index_hash: Any,
    index_slot: Any,
    meta: Any,
    slots: Any,
    start: int,
    stop: int,
    start_of: Any,
    length_of: Any,
    arena: Any,
) -> int:
    """The slots of known strings, -1 for others; returns how many are unknown."""
    mask = len(index_slot) - 1
    unknown = 0
    for i in range(start, stop):
        if nulls and not valid[i]:
            slot = meta[NULL_SLOT]
        else:
            begin = offsets[i]
            length = offsets[i + 1] - begin
            hashed = hash_bytes(data, begin, length)
            at = hashed & mask
            slot = index_slot[at]
            while slot >= 0 and not (
                index_hash[at] == hashed
                and length_of[slot] == length
                and same_bytes(data, begin, arena, start_of[slot], length)
            ):
                at = (at + 1) & mask
                slot = index_slot[at]
        slots[i] = slot
        if slot < 0:
            unknown += 1
    return unknown


def add_bytes(
    offsets: Any,
    data: Any,
    valid: Any,
    nulls: bool,
    index_hash: Any,
    index_slot: Any,
    meta: Any,
    slots: Any,
    start: int,
    start_of: Any,
    length_of: Any,
    arena: Any,
    hash_of: Any,
    kind_of: Any,
    free: Any,
) -> int:
    """Slots for the rows that `find_bytes` left at -1; returns the row at which room ran out, or the end."""
    mask = len(index_slot) - 1
    for i in range(start, len(slots)):
        if slots[i] >= 0:
            continue
        is_null = nulls and not valid[i]
        begin = np.int64(offsets[i])
        length = np.int64(0) if is_null else np.int64(offsets[i + 1]) - begin
        hashed = hash_bytes(data, begin, length)
        at = hashed & mask
        if is_null:
            slot = meta[NULL_SLOT]
        else:
            slot = index_slot[at]
            while slot >= 0 and not (
                index_hash[at] == hashed
                and length_of[slot] == length
                and same_bytes(data, begin, arena, start_of[slot], length)
            ):
                at = (at + 1) & mask
                slot = index_slot[at]
        if slot < 0:
            if 2 * meta[USED] >= len(index_slot) or (meta[FREE] == 0 and meta[COUNT] == len(start_of)):
                return i
            if meta[ARENA] + length > len(arena):
                return i
            if meta[FREE] > 0:
                meta[FREE] -= 1
                slot = free[meta[FREE]]
            else:
                slot = meta[COUNT]
                meta[COUNT] += 1
            meta[USED] += 1
            place = meta[ARENA]
            start_of[slot] = place
            length_of[slot] = length
            hash_of[slot] = hashed
            for j in range(length):
                arena[place + j] = data[begin + j]
            meta[ARENA] = place + length
            if is_null:
                kind_of[slot] = 2
                meta[NULL_SLOT] = slot
            else:
                kind_of[slot] = 1
                index_hash[at] = hashed
                index_slot[at] = slot
        slots[i] = slot
    return len(slots)

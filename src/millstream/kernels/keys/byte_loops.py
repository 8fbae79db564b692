"""Kernel source: keys that are byte strings, whose bytes lie one after the other in an arena."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.kernels.jit.primitives import load_word, turned

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

"""Kernel source that does not depend on the query, and constants that all OVER loops share."""

from __future__ import annotations

from typing import Any

NULL_FLOAT = 0x7FF8_6D69_6C6C_0001
"""The bits that stand for NULL among floats: a NaN that no computation gives."""

NULL_INT = -0x8000_0000_0000_0000
"""What stands for NULL among integers of a type that does not reach so far."""

FIRST_CAPACITY = 4
"""Cells of the smallest ring."""


def deal(slots: Any, shards: int, shift: int, me: int, width: int, rows: Any, at: Any) -> int:
    """The rows of one shard, and where the records of their slots begin."""
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        rows[count] = i
        at[count] = (slot >> shift) * width
        if slot & (shards - 1) == me:
            count += 1
    return count

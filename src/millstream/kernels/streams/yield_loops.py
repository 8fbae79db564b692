"""Kernel source: counting the rows of each key."""

from __future__ import annotations

from typing import Any


def mark_every(slots: Any, counts: Any, every: Any, kept: Any) -> None:
    """Mark each `every`-th row of a key, counting on from `counts`."""
    for r in range(len(slots)):
        slot = slots[r]
        counts[slot] += 1
        if counts[slot] == every:
            counts[slot] = 0
            kept[r] = True
        else:
            kept[r] = False

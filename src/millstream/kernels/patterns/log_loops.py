"""Loops over the rows that a search may still look at; kernel source, see `jit`."""

from __future__ import annotations

from typing import Any


def link(slot: Any, since: int, stop: int, last: Any, next_: Any, prev: Any) -> None:
    """Chain new rows to those of their partitions."""
    for i in range(since, stop):
        s = slot[i]
        before = last[s]
        prev[i] = before
        next_[i] = -1
        if before >= 0:
            next_[before] = i
        last[s] = i

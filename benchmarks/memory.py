"""The memory of a process while rows come for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

TELL = 10_000_000


class MemoryWatch:
    """Prints the memory of this process every so many rows, and in the end by how much it grew."""

    def __init__(self, rows: int) -> None:
        self._every = max(1, min(TELL, rows // 5))
        self._began, self._told, self._first = time.perf_counter(), 0, 0.0

    def passed(self, rows: int) -> None:
        """Note that so many rows have passed in all."""
        if rows // self._every <= self._told:
            return
        self._told = rows // self._every
        size = resident()
        self._first = self._first or size
        rate = rows / (time.perf_counter() - self._began) / 1e6
        print(f"  {rows / 1e6:8.1f} M rows   {size:8,.0f} MB   {rate:6.2f} M rows/s", flush=True)

    def ended(self) -> None:
        print(f"  since {self._every / 1e6:.1f} M rows: {resident() - self._first:+,.0f} MB   (wanted: flat)")


def resident() -> float:
    """The memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

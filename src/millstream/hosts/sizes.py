"""About how many bytes a state holds, without saving it."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

_SAMPLE = 64
"""Of a long collection so many members are measured, and the others taken to be alike."""


def size_of(state: Any) -> int:
    """The arrays, columns and objects that can be reached from a state; each counts once."""
    return _Measure().of(state, 0)


class _Measure:
    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of(self, value: Any, depth: int) -> int:
        if value is None or isinstance(value, bool | int | float | type) or id(value) in self._seen or depth > 12:
            return 0
        self._seen.add(id(value))
        if isinstance(value, np.ndarray):
            return int(value.nbytes)
        if isinstance(value, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table | pa.Buffer):
            return int(value.size if isinstance(value, pa.Buffer) else value.nbytes)
        if isinstance(value, str | bytes | bytearray):
            return len(value) + 48
        if isinstance(value, dict):
            return self._several(value.values(), len(value), depth) + self._several(value, len(value), depth)
        if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ == "deque":
            return self._several(value, len(value), depth)
        if type(value).__module__.startswith("millstream") or depth == 0:
            own = getattr(value, "__dict__", {})
            slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
            parts = [*own.values(), *(getattr(value, name, None) for name in slots if name != "__dict__")]
            return sum(self.of(part, depth + 1) for part in parts)
        return 0

    def _several(self, values: Any, count: int, depth: int) -> int:
        sample = list(islice(values, _SAMPLE))
        if not sample:
            return sys.getsizeof(values)
        measured = sum(self.of(part, depth + 1) for part in sample)
        return 8 * count + measured * count // len(sample)

"""What it costs to fill a new query from kept rows: all of them pushed through it, or those pulled that still count."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.plan.costs.plans import DISTANCE, estimate
from millstream.plan.costs.statistics import Statistics
from millstream.plan.nodes import Node, Scan, walk
from millstream.records import dataclass

MEMORY, FILE, SORTED = 1.0, 25.0, 200.0
"""Nanoseconds of processor time to bring a kept row: from memory, from a Parquet file, and to put one back in order of
time that a storage key has moved"""


@dataclass(frozen=True)
class RowsToRead:
    """Rows of a stream that one way reads: whole segments, as the store lists them."""

    rows: int
    in_files: bool = False
    by_key: bool = False

    @property
    def reading(self) -> float:
        return self.rows * (MEMORY + self.in_files * FILE + (self.in_files and self.by_key) * SORTED)


def row_cost(plan: Node, known: Statistics) -> float:
    """Nanoseconds that the operators of a plan need for one row of its streams."""
    streams = [known.streams.get(node.stream.lower()) for node in walk(plan) if isinstance(node, Scan)]
    rate = sum(1 / (DISTANCE if found is None else found.distance) for found in streams)
    return estimate(plan, known).total_cpu / rate if rate else 0.0


def filling(plan: Node, known: Statistics, read: Iterable[RowsToRead]) -> float:
    """Nanoseconds to fill a plan from these rows."""
    kept = list(read)
    return sum(rows.reading for rows in kept) + sum(rows.rows for rows in kept) * row_cost(plan, known)


def told(nanoseconds: float) -> str:
    """A length of processor time, for people.

    >>> told(1234), told(56_700_000), told(8_900_000_000)
    ('1.2 µs', '57 ms', '8.9 s')
    """
    size, unit = next((known for known in ((1e9, "s"), (1e6, "ms")) if nanoseconds >= known[0]), (1e3, "µs"))
    return f"{nanoseconds / size:.{0 if nanoseconds >= 10 * size else 1}f} {unit}"

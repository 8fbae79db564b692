"""The first rows of groups at every instant: groups keep their rows in order, so that a change reads no others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import chain, islice

import pyarrow as pa

from millstream.expressions.nested_codes import sort_bytes
from millstream.kernels.relations.summary import SummarySpec
from millstream.plan.ties import SortKey
from millstream.records import dataclass
from millstream.types import SqlType

_MOST = 512
"""rows in a run; one with twice as many is divided"""

Place = tuple[bytes, int]
"""what a row is sorted by, and its number: rows that are equal in everything come in the order of their numbers"""


class OrderedRows:
    """Rows in order, in runs of bounded length: a row comes or goes by two binary searches."""

    __slots__ = ("_lasts", "_runs")

    def __init__(self) -> None:
        self._runs: list[list[Place]] = []
        self._lasts: list[Place] = []

    def add(self, place: Place) -> None:
        if not self._runs:
            self._runs, self._lasts = [[place]], [place]
            return
        i = min(bisect_left(self._lasts, place), len(self._runs) - 1)
        run = self._runs[i]
        insort(run, place)
        self._lasts[i] = run[-1]
        if len(run) > 2 * _MOST:
            self._runs[i : i + 1] = [run[:_MOST], run[_MOST:]]
            self._lasts.insert(i, run[_MOST - 1])

    def remove(self, place: Place) -> None:
        i = bisect_left(self._lasts, place)
        run = self._runs[i]
        del run[bisect_left(run, place)]
        if run:
            self._lasts[i] = run[-1]
        else:
            del self._runs[i], self._lasts[i]

    def numbers(self, skip: int, count: int) -> list[int]:
        """The numbers of some of the first rows."""
        return [number for _, number in islice(chain.from_iterable(self._runs), skip, skip + count)]


@dataclass(frozen=True)
class TopRows:
    """Which rows of each group there are at an instant: `count` in order, behind the first `skip`."""

    by: tuple[tuple[int, SqlType, SortKey], ...]
    """the columns that rows are sorted by"""
    given: tuple[int, ...]
    """the columns that the result has"""
    skip: int
    count: int

    @staticmethod
    def of(spec: SummarySpec) -> TopRows | None:
        """What a summary gives if it only cuts its groups; None if it computes something of them."""
        arrangement = spec.calls[0].arrangement if len(spec.calls) == 1 else None
        if arrangement is None or arrangement.calls or arrangement.count is None:
            return None
        args = spec.calls[0].args
        keys = (*arrangement.order, *(SortKey(name) for name in arrangement.ties if name in args))
        by = tuple((spec.input.index(key.column), spec.input[key.column].type, key) for key in keys)
        given = tuple(spec.input.index(arg) for arg in args[: len(spec.calls[0].names)])
        return TopRows(by, given, arrangement.skip, arrangement.count)

    def keys(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        """What to sort rows by."""
        if not self.by:
            return [b""] * rows.num_rows
        parts = [(rows.column(index), type_, key.down, key.nulls_first) for index, type_, key in self.by]
        return sort_bytes(parts).to_pylist()  # type: ignore[no-any-return]

"""How many rows each of many queries has read and emitted, counted as they pass, for up to millions of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.matching import tally_loops
from millstream.session.constants import put

_count_rows = compile_kernel(source_of(tally_loops), "count_rows")
_admit_rows = compile_kernel(source_of(tally_loops), "admit_rows")


_NO_END = np.iinfo(np.int64).max


class Outboxes:
    """The outboxes of the queries of a set, by the numbers of queries. A query of which `most` rows wait to be fetched
    loses those that come then, or stops with `stops`, while the others go on."""

    def __init__(self, most: Callable[[], int], stops: Callable[[], bool]) -> None:
        self._most = most
        self._stops = stops
        self._turn = 1
        self._closed = False
        self._until: Any = np.empty(0, dtype=np.int64)
        """the place in the results up to which rows are of each query"""
        self._emitted: Any = np.empty(0, dtype=np.int64)
        nothing = np.empty(0, dtype=np.int64)
        self._turns, self._waiting, self._over = nothing, nothing, nothing
        """only while there is a limit"""

    def open(self, numbers: Ints) -> None:
        """Queries come."""
        self._until = put(self._until, numbers, _NO_END)
        self._emitted = put(self._emitted, numbers, 0)

    def close(self, numbers: Ints, place: Any) -> None:
        """Queries go: rows of theirs from a place in the results on are for nobody."""
        self._until[numbers] = place
        self._closed = True

    def make_room(self, numbered: int) -> None:
        """So many queries have been there; those that were not opened again are gone."""
        if numbered > len(self._until):
            last = np.array([numbered - 1])
            self._until, self._emitted = put(self._until, last, 0), put(self._emitted, last, 0)
        self._closed = self._closed or bool((self._until[:numbered] != _NO_END).any())

    def admit_from(self, rows: pa.Table, first: int) -> Iterator[pa.RecordBatch]:
        """The rows that are taken of those at a place in the results of a program and after it."""
        last, ends = first + rows.num_rows, np.empty(0, dtype=np.int64)
        if self._closed and rows.num_rows:
            ends = np.unique(self._until[_flat(rows.column(0).combine_chunks()).to_numpy()])
        for start, end in pairwise([first, *ends[(first < ends) & (ends < last)].tolist(), last]):
            for batch in rows.slice(start - first, end - start).to_batches():
                yield self.admit(batch, start)

    def admit(self, rows: pa.RecordBatch, place: int = 0) -> pa.RecordBatch:
        """The rows that are taken of those that came, which begin with the number of their query, or the numbers of
        their queries: those of queries that are there at this place, and have room for them."""
        numbers, most = _flat(rows.column(0)).to_numpy(), self._most()
        if not most and not self._closed:
            _count_rows(len(numbers), 0, len(numbers), numbers, self._emitted)
            return rows
        if most and len(self._turns) < len(self._until):
            own = (self._turns, self._waiting, self._over)
            more = np.zeros(len(self._until) - len(self._turns), dtype=np.int64)
            self._turns, self._waiting, self._over = (np.concatenate([array, more]) for array in own)
        kept = np.empty(len(numbers), dtype=np.int64)
        made = _admit_rows(
            len(numbers), 0, len(numbers), numbers, self._until, place, self._emitted, self._turns, self._waiting,
            self._turn, most, self._over, kept,
        )  # fmt: skip
        return rows if made == len(numbers) else _only(rows, kept[:made])

    def fetched(self) -> Ints:
        """All rows that waited were fetched. The queries that stop, as they had too many."""
        self._turn += 1
        if not len(self._over) or not self._stops():
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self._over > 0) & (self._until[: len(self._over)] == _NO_END))

    def emitted(self, numbers: Ints) -> Ints:
        """How many rows of each were taken."""
        return np.asarray(self._emitted[numbers])

    def lost(self, numbers: Ints) -> Ints:
        """How many rows of each were too many."""
        if not len(self._over):
            return np.zeros(len(numbers), dtype=np.int64)
        known = numbers < len(self._over)
        return np.where(known, self._over[np.where(known, numbers, 0)], 0)


def merged(rows: pa.Table) -> pa.Table:
    """Rows that begin with the keys of their queries as an array, whether they came so or with one key each."""
    if pa.types.is_list(rows.schema.field(0).type):
        return rows
    keys = rows.column(0).combine_chunks()
    lists = pa.ListArray.from_arrays(pa.array(np.arange(len(keys) + 1), pa.int32()), keys)
    return rows.set_column(0, rows.schema.names[0], lists)


def _flat(numbers: pa.Array) -> pa.Array:
    """The numbers of queries, of which a row has one or several."""
    return numbers.flatten() if pa.types.is_list(numbers.type) else numbers


def _only(rows: pa.RecordBatch, kept: Ints) -> pa.RecordBatch:
    """Rows for fewer queries: for those at some places among the numbers of all. Numbers and keys come first."""
    if not pa.types.is_list(rows.column(0).type):
        return rows.take(pa.array(kept))
    sizes = pc.list_value_length(rows.column(0)).to_numpy()
    left = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[kept], minlength=len(sizes))
    offsets = pa.array(np.append(0, np.cumsum(left)), pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, column.flatten().take(pa.array(kept))) for column in rows.columns[:2]]
    made = pa.RecordBatch.from_arrays([*lists, *rows.columns[2:]], names=rows.schema.names).cast(rows.schema)
    return made.filter(pa.array(left > 0))


def rows_in(numbers: Ints, cohorts: Any, met: Sequence[Ints | None], otherwise: Ints) -> Ints:
    """How many rows each query took in, by what was counted for its cohort, or if nothing was, what it gave out."""
    found = otherwise.copy()
    for place, counts in enumerate(met):
        if counts is not None:
            mine = np.flatnonzero(cohorts == place)
            padded = np.append(counts, 0)
            found[mine] = padded[np.minimum(numbers[mine], len(counts))]
    return found


def counters(came: Ints, went: Ints, lost: Ints, total: int) -> tuple[Ints, dict[str, Any]]:
    """What is shown of queries, and in which order: those with most rows first."""
    order = np.argsort(-went, kind="stable")
    shown = {"rows_in": came, "rows_out": went, "dropped": lost, "share": (came + went) / max(total, 1)}
    return order, {name: values[order] for name, values in shown.items()}

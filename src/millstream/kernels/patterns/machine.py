"""What searches for a row pattern in coded rows: the contract between the kernel and its machines.

Both machines look at rows as follows, so that they give the same rows at the same times.

- A row of a partition is *tried* once as many further rows of the partition are there as the search looks ahead (see
  `ahead`), or the partition has ended.
- When a row comes whose time is behind the deadline of the attempt under way, and all rows before it have been tried,
  the deadline passes first; so it does without a row when time (`upto`) has come so far. From then on the attempt takes
  no more rows; what waits for the end of the partition still may find it.
- The time of what is found is that of the newest event in its partition: the newest row's time, or the deadline's
  (`first.time + within + 1`) if that is later, or `END` when the partition has ended. Its number is that of the
  partition's newest row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.nodes import columns_of
from millstream.kernels.batch import FOREVER, Ints
from millstream.kernels.patterns.log import Bools, RowLog
from millstream.plan.patterns.expressions import Check, least_rows, rows_before
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Reach, Search
from millstream.records import dataclass

Array = npt.NDArray[Any]

END = FOREVER - 1
"""The time of what only the end of the input decides."""


@dataclass(frozen=True)
class Found:
    """Output rows: of a partition in order, partitions in any.

    `row` is the position in the log of an input row that comes out with it, -1 where there is none. For each of the
    search's `columns` there are values as in the log (text as codes) with their validity, or an Arrow column.
    """

    slot: Ints
    time: Ints
    seq: Ints
    row: Ints
    columns: list[tuple[Array, Bools] | pa.Array]

    def __len__(self) -> int:
        return len(self.slot)

    def in_order(self) -> Found:
        """The same in order of time and arrival."""
        time, seq = self.time, self.seq
        if np.all((time[1:] > time[:-1]) | ((time[1:] == time[:-1]) & (seq[1:] >= seq[:-1]))):
            return self
        order = np.lexsort((seq, time))
        columns: list[tuple[Array, Bools] | pa.Array] = [
            (column[0][order], column[1][order]) if isinstance(column, tuple) else column.take(pa.array(order))
            for column in self.columns
        ]
        return Found(self.slot[order], time[order], seq[order], self.row[order], columns)


@dataclass(frozen=True)
class Positions:
    """Where the rows of slots are in a log: `first` is the first of each slot in `position`."""

    first: Ints
    position: Ints

    def of(self, slots: Ints, places: Ints) -> Ints:
        """The positions of rows by their places among those of their slots; -1 stays."""
        # A position that nothing looks at any more may be of a row that is gone, and its place anything.
        known = (places >= 0) & (self.first[slots] + places < len(self.position))
        found = np.full(places.shape, -1, dtype=np.int64)
        found[known] = self.position[(self.first[slots] + places)[known]]
        return found


class Machine(Protocol):
    """Runs one search over the partitions of a log."""

    @property
    def needs_rows(self) -> bool:
        """Whether rows are looked at after the call of `advance` that they came with; if not, they are not linked."""
        ...

    def open(self) -> Any:
        """A state in which no row has been seen."""
        ...

    def advance(self, state: Any, log: RowLog, since: int, upto: int) -> Found:
        """Try the rows from position `since` on, which are new, and what waited for them. No later row has a time below
        `upto`; FOREVER: all partitions have ended."""
        ...

    def floors(self, state: Any, log: RowLog) -> Ints:
        """For each slot of the log the oldest position that is still needed; `len(log)` if none is."""
        ...

    def moved(self, state: Any, new: Ints) -> None:
        """Positions in the log have changed: `new` tells the new one of each, -1 where it is gone (below its floor)."""
        ...

    def due(self, state: Any) -> int:
        """The earliest deadline: `advance` has something to do when `upto` is above it; FOREVER if there is none."""
        ...

    def idle(self, state: Any, log: RowLog) -> Bools:
        """For each slot of the log whether nothing is remembered that a partition without rows would not have."""
        ...

    def forget(self, state: Any, slots: Ints) -> None:
        """These slots will be used for other partitions."""
        ...

    def export(self, state: Any, slots: Ints, place: Ints) -> dict[str, pa.Array]:
        """What is known of these slots, a row for each; positions p are written as place[p]."""
        ...

    def load(self, columns: Mapping[str, pa.Array], positions: Positions) -> Any:
        """A state with these slots, numbered from 0."""
        ...

    def describe(self) -> str:
        """What it does, in a few words for EXPLAIN."""
        ...


def needed_columns(search: Search) -> tuple[str, ...]:
    """The columns of the input that a machine reads, in the order they are asked for, whatever their names."""
    reached = [reach.column for reach in search.reaches]
    args = [name for summary in search.summaries for arg in summary.args for name in sorted(columns_of(arg))]
    return tuple(name for name in dict.fromkeys([*reached, *args]) if name not in (CLASSIFIER, MATCH_NUMBER))


def ahead(search: Search) -> int:
    """How many rows behind a row must be there before it is tried."""
    return max((0, *(reach.shift for reach in search.reaches)))


def behind(search: Search) -> int:
    """How many rows before a row, or before the first of a match, may be looked at."""
    return max((0, *(-reach.shift for reach in search.reaches)))


def far_shifts(search: Search) -> tuple[int, ...]:
    """How far apart rows are that are looked at from one another, beyond neighbours."""
    return tuple(sorted({abs(reach.shift) for reach in search.reaches} - {0, 1}))


def floors(log: RowLog, first: Ints, search: Search, under_way: Bools | None = None) -> Ints:
    """For each slot the oldest position that is needed: `first` is that of an attempt (-1: none), and rows before it,
    or before the next row, may be looked at; how many there are depends on whether an attempt is `under_way`."""
    back = behind(search)
    if back:
        before_next = np.full(len(first), lead(search))
        if under_way is not None:
            before_next[under_way] = back
        is_waiting = first < 0
        # The next row will look back from behind the last one.
        first = np.where(is_waiting & (before_next > 0), log.last, first)
        first = np.where(is_waiting & (before_next <= 1), first, log.rows_before(first, back))
    return np.where(first < 0, len(log), first)


def lead(search: Search) -> int:
    """How many rows before the first of a match may be looked at: a partition without an attempt needs no others."""
    conditions = dict(search.conditions)
    places: dict[str, int] = {}
    read: list[tuple[frozenset[str], int]] = []
    for part, before in rows_before(search.pattern):
        if isinstance(part, Check):
            read.append((columns_of(part.condition), max(before - 1, 0)))
            continue
        places[part.name] = min(before, places.get(part.name, before))
        if part.name in conditions:
            read.append((columns_of(conditions[part.name]), before))
    # All that is told of a match is told of its last row, unless its other rows come out.
    last = max(least_rows(search.pattern) - 1, 0) if search.given.rows == "one" and not search.timeouts else 0
    read.append((frozenset(search.columns), last))
    reached = ((search.named[name], at) for names, at in read for name in names if name in search.named)
    back = (-one.shift - _first_place(one, at, places) for one, at in reached if isinstance(one, Reach))
    return max((0, *back))


def _first_place(reach: Reach, at: int, places: Mapping[str, int]) -> int:
    """Where in a match the row that a reach goes by is at the earliest, seen from its row `at` or a later one."""
    if reach.variables is not None:
        first = min((places[name] for name in reach.variables if name in places), default=0)
        return first + reach.offset if reach.first else first
    return reach.offset if reach.first else max(at - reach.offset, 0)


def no_row_to_skip_to(search: Search) -> DataError:
    """What is wrong with a match that does not have the row at which the search would go on."""
    return DataError(
        f"AFTER MATCH SKIP {search.skip} goes to a row that the match does not have",
        hint="skip to a variable that every match has",
    )


def skip_to_first_row(search: Search) -> DataError:
    """What is wrong with a match at whose first row the search would go on."""
    return DataError(
        f"AFTER MATCH SKIP {search.skip} goes to the first row of the match",
        detail="the search would find the same match again",
    )


def nothing_found(search: Search) -> Found:
    """No output rows."""
    none = np.empty(0, dtype=np.int64)
    columns: list[tuple[Array, Bools] | pa.Array] = [
        (np.empty(0, dtype=search.values[name].kernel), np.empty(0, dtype=np.bool_)) for name in search.columns
    ]
    return Found(none, none, none, none, columns)

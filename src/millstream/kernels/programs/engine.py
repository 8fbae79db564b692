"""What runs a program for all groups of a kernel: the contract between the kernel and its two engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.plan.programs.modes import Closing, Mode, Running, Sliding, Tumbling
from millstream.records import dataclass

__all__ = ["Closing", "Engine", "Groups", "Mode", "Returned", "Running", "Sliding", "TableRows", "Tumbling"]


@dataclass(frozen=True)
class Returned:
    """The rows that a program returned, in order.

    `origin` (None: exactly one row for each tuple, in order) tells which tuple was worked on: its place in the batch;
    for what an active EXPIRE returns, -1 - the id of the expiring tuple, and for `close`, the place in the list of
    slots. `time` is their time: that of the tuple that came, or the time of the expiry; None for `close`.
    """

    origin: Ints | None
    time: Ints | None
    columns: list[pa.Array]


@dataclass(frozen=True)
class TableRows:
    """Rows of one table of many groups, in order within each group: `owner` is the place of the group. The rows of
    `inwindow` end with the columns `$time` and `$id` (BIGINT), which the window needs; in a ROWS window `$id` is which
    tuple of its group it was, counted from 1, otherwise the tuple's id."""

    owner: Ints
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Groups:
    """Groups in a form that either engine reads: how many tuples each has seen (for Tumbling, in its slot; -1 means no
    group), and the rows of each local table, `inwindow` included, by name."""

    seen: Ints
    tables: dict[str, TableRows]


class Engine(Protocol):
    """Runs a program over tuples of many groups. A group's slot is a small number that a caller may use again after
    `close`."""

    numbers_tuples: bool
    """whether it needs the ids of tuples, even if no window is active"""

    def open(self) -> Any:
        """A state without groups."""
        ...

    def arrive(self, state: Any, slots: npt.NDArray[np.int32], time: Ints, ids: Ints, args: Sequence[pa.Array],
               upto: int) -> Returned:  # fmt: skip
        """Work on tuples in order of time: `args` are the program's arguments, `ids` number the tuples for an active
        window. No later tuple has a time below `upto`; an active window runs what expires before that."""
        ...

    def close(self, state: Any, slots: Ints) -> Returned:
        """TERMINATE these groups, in that order, and drop them."""
        ...

    def export(self, state: Any, slots: Ints) -> Groups:
        """These groups, in that order."""
        ...

    def load(self, groups: Groups) -> Any:
        """A state with these groups in the slots 0, 1, … The inverse of `export`."""
        ...

    def rows_held(self, state: Any) -> int:
        """How many rows all tables hold."""
        ...

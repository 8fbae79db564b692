"""What each of many queries has taken in and given out: counted as it happens, for a million queries as for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.matching import tally_loops
from millstream.session.constants import put

_admit_rows = compile_kernel(source_of(tally_loops), "admit_rows")


class Outboxes:
    """The outboxes of the queries of a set, by the numbers of queries. A query of which `most` rows wait to be fetched
    loses those that come then, or stops with `stops`, while the others go on."""

    def __init__(self, most: Callable[[], int], stops: Callable[[], bool]) -> None:
        self._most = most
        self._stops = stops
        self._turn = 1
        self._live: Any = np.empty(0, dtype=np.bool_)
        self._emitted: Any = np.empty(0, dtype=np.int64)
        nothing = np.empty(0, dtype=np.int64)
        self._turns, self._waiting, self._over = nothing, nothing, nothing
        """only while there is a limit"""

    def open(self, numbers: Ints) -> None:
        """Queries come."""
        self._live = put(self._live, numbers, True)
        self._emitted = put(self._emitted, numbers, 0)

    def close(self, numbers: Ints) -> None:
        """Queries go: rows of theirs that come later are for nobody."""
        self._live[numbers] = False

    def admit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are taken of those that came, which begin with the number of their query: those of queries that
        are there, and have room for them."""
        numbers, most = rows.column(0).to_numpy(), self._most()
        if most and len(self._turns) < len(self._live):
            own = (self._turns, self._waiting, self._over)
            more = np.zeros(len(self._live) - len(self._turns), dtype=np.int64)
            self._turns, self._waiting, self._over = (np.concatenate([array, more]) for array in own)
        kept = np.empty(len(numbers), dtype=np.int64)
        made = _admit_rows(
            len(numbers), 0, len(numbers), numbers, self._live, self._emitted, self._turns, self._waiting, self._turn,
            most, self._over, kept,
        )  # fmt: skip
        return rows if made == len(numbers) else rows.take(pa.array(kept[:made]))

    def fetched(self) -> Ints:
        """All rows that waited were fetched. The queries that stop, as they had too many."""
        self._turn += 1
        if not len(self._over) or not self._stops():
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self._over > 0) & self._live[: len(self._over)])

    def is_open(self, numbers: Ints) -> Any:
        """Whether each of these is a query that is there."""
        return self._live[numbers]

    def emitted(self, numbers: Ints) -> Ints:
        """How many rows of each were taken."""
        return np.asarray(self._emitted[numbers])

    def lost(self, numbers: Ints) -> Ints:
        """How many rows of each were too many."""
        if not len(self._over):
            return np.zeros(len(numbers), dtype=np.int64)
        known = numbers < len(self._over)
        return np.where(known, self._over[np.where(known, numbers, 0)], 0)


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

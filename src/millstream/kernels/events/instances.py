"""The state of an automaton: its instances, and the events that wait for those of other streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.events import loops
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import ByteTable, KeyTable
from millstream.kernels.saving.content import Ledger
from millstream.kernels.streams.runs import Runs
from millstream.records import dataclass
from millstream.types import VARCHAR, SqlType

_SOURCE = source_of(loops)
commit = compile_kernel(_SOURCE, "commit")
link = compile_kernel(_SOURCE, "link")
_sweep = compile_kernel(_SOURCE, "sweep")
_FEW = 1_024


@dataclass
class Codes:
    """Numbers of values: of texts, and of other values by their types."""

    texts: ByteTable = field(default_factory=lambda: ByteTable(VARCHAR))
    tables: dict[SqlType, KeyTable] = field(default_factory=dict)

    def table(self, type_: SqlType) -> KeyTable:
        if type_ not in self.tables:
            self.tables[type_] = KeyTable([type_])
        return self.tables[type_]

    def of_texts(self, texts: Sequence[str]) -> Ints:
        return self.texts.slots(pa.array(texts, pa.string()), add=True).astype(np.int64)

    @property
    def size(self) -> int:
        return max(1, self.texts.size, *(table.size for table in self.tables.values()))


class Instances:
    """Rows of words in lists by state and code; see `loops`."""

    def __init__(self, states: int, width: int, ports: int) -> None:
        self.rows: Ints = np.zeros((8, width), dtype=np.int64)
        self.rows[:, loops.STATE] = -1
        self.lists: npt.NDArray[np.int64] = _no_lists(states, 8)
        self.marked: Ints = np.zeros(8, dtype=np.int64)
        self.meta: Ints = np.zeros(loops.SIZE, dtype=np.int64)
        self.meta[loops.FREE] = -1
        self.meta[loops.EPOCH] = BEGIN
        self.codes = Codes()
        self.waiting = [Runs() for _ in range(ports)]
        self.upto = [BEGIN] * ports
        self.swept = 0
        self.kept_codes = 0
        self.ledger = Ledger()

    @property
    def live(self) -> int:
        return int(self.meta[loops.LIVE])

    def hold(self, codes: int) -> None:
        """Let there be lists for so many codes."""
        if codes > self.lists.shape[1]:
            more = _no_lists(self.lists.shape[0], max(codes, 2 * self.lists.shape[1]))
            more[:, : self.lists.shape[1]] = self.lists
            self.lists = more

    def make_room(self, rows: int, marks: int) -> None:
        wanted = self.live + rows
        if wanted > len(self.rows):
            more = np.zeros((max(wanted, 2 * len(self.rows)), self.rows.shape[1]), dtype=np.int64)
            more[: len(self.rows)] = self.rows
            more[len(self.rows) :, loops.STATE] = -1
            self.rows = more
        wanted = int(self.meta[loops.MARKED]) + marks
        if wanted > len(self.marked):
            self.marked = np.resize(self.marked, max(wanted, 2 * len(self.marked)))

    def commit(self, upto: int) -> None:
        """End the instant, if time has passed it."""
        if self.meta[loops.MARKED] and upto > self.meta[loops.EPOCH]:
            commit(int(self.meta[loops.MARKED]), self.rows, self.lists, self.meta, self.marked)

    def sweep(self, bounds: Ints, now: int) -> None:
        """Forget what has lasted too long, now and then: whenever twice as many are there as after the last time."""
        if self.live > 2 * self.swept + _FEW and now > BEGIN and bounds.max(initial=-1) >= 0:
            _sweep(int(self.meta[loops.USED]), self.rows, self.lists, self.meta, bounds, now)
            self.swept = self.live


def _no_lists(states: int, codes: int) -> npt.NDArray[np.int64]:
    lists = np.full((states, codes, 3), -1, dtype=np.int64)
    lists[:, :, 2] = 0
    return lists

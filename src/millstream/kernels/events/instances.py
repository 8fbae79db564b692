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
_LINE = 64
"""bytes of a line of the cache"""


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

    def __init__(self, code_words: Sequence[int], width: int, ports: int) -> None:
        self.code_words: Ints = np.array(code_words, dtype=np.int64)
        """for each state the word of the code by which its instances are found; negative: all are looked at"""
        self.rows: Ints = _no_rows(8, width)
        self.numbers: Ints = np.zeros(8, dtype=np.int64)
        """of instances, in the order in which they came"""
        self.lists: npt.NDArray[np.int64] = _no_lists(len(code_words), 8)
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
    def halves(self) -> npt.NDArray[np.int32]:
        return self.rows.view(np.int32)

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
            more = _no_rows(max(wanted, 2 * len(self.rows)), self.rows.shape[1])
            more[: len(self.rows)] = self.rows
            self.rows, self.numbers = more, np.resize(self.numbers, len(more))
        wanted = int(self.meta[loops.MARKED]) + marks
        if wanted > len(self.marked):
            self.marked = np.resize(self.marked, max(wanted, 2 * len(self.marked)))

    def commit(self, upto: int) -> None:
        """End the instant, if time has passed it."""
        if self.meta[loops.MARKED] and upto > self.meta[loops.EPOCH]:
            arrays = (self.rows, self.halves, self.code_words, self.lists, self.meta, self.marked)
            commit(int(self.meta[loops.MARKED]), *arrays)

    def sweep(self, bounds: Ints, now: int) -> None:
        """Forget what has lasted too long, now and then: whenever twice as many are there as after the last time."""
        if self.live > 2 * self.swept + _FEW and now > BEGIN and bounds.max(initial=-1) >= 0:
            arrays = (self.rows, self.halves, self.code_words, self.lists, self.meta)
            _sweep(int(self.meta[loops.USED]), *arrays, bounds, now)
            self.swept = self.live


def _no_rows(count: int, width: int) -> Ints:
    """Free rows, the first at the beginning of a line of the cache."""
    space = np.zeros(count * width + _LINE // 8, dtype=np.int64)
    first = -space.ctypes.data % _LINE // 8
    rows: Ints = space[first : first + count * width].reshape(count, width)
    rows.view(np.int32)[:, loops.STATE] = -1
    return rows


def _no_lists(states: int, codes: int) -> npt.NDArray[np.int64]:
    lists = np.full((states, codes, 3), -1, dtype=np.int64)
    lists[:, :, 2] = 0
    return lists

"""The state of an OVER operator while it runs: keys, and per shard the records and rings of compiled loops."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt

from millstream.kernels.accumulators import loops
from millstream.kernels.accumulators.columns import code_table
from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import ByteTable, KeyTable
from millstream.kernels.over.codegen import USED
from millstream.kernels.over.layout import OverLayout
from millstream.kernels.saving.content import Ledger
from millstream.records import dataclass

_refill = compile_kernel(source_of(loops), "refill")

# Unsigned, so that the compiler need not expect indices that count from the end.
Places = npt.NDArray[np.uint32]

SIZE_CLASSES = 48
_FIRST_TABLE = 16


class Shard:
    """The keys of one thread: slot g of the key table is record g // shards of shard g % shards."""

    def __init__(self, layout: OverLayout) -> None:
        self.width = len(layout.slot_lanes)
        self.cell = len(layout.cell_lanes)
        self.slots: Ints = np.zeros(0, dtype=np.int64)
        self.cells: Ints = np.zeros(0, dtype=np.int64)
        self.regions: Ints = np.zeros(1 + SIZE_CLASSES, dtype=np.int64)
        self.state: Ints = np.zeros(USED + len(layout.tables), dtype=np.int64)
        self.tables: list[Ints] = [np.zeros(3 * _FIRST_TABLE, dtype=np.int64) for _ in layout.tables]
        self._rows: Places = np.empty(0, dtype=np.uint32)
        self._at: Places = np.empty(0, dtype=np.uint32)

    def scratch(self, rows: int) -> tuple[Places, Places]:
        """Room to note which rows are its own and where their records begin."""
        if len(self._rows) < rows:
            self._rows, self._at = np.empty(rows, dtype=np.uint32), np.empty(rows, dtype=np.uint32)
        return self._rows, self._at

    @property
    def records(self) -> npt.NDArray[np.int64]:
        """The slot records, one per row."""
        return self.slots.reshape(-1, self.width)

    def hold(self, records: int) -> None:
        """Make room for that many records."""
        have = len(self.slots) // self.width
        if records > have:
            self.slots = _longer(self.slots, max(records, 2 * have, 16) * self.width)

    def more_cells(self, wanted: int) -> None:
        """Make room for a region of `wanted` cells, and then some."""
        self.cells = _longer(self.cells, len(self.cells) + max(wanted * self.cell, len(self.cells), 1024))

    def entries(self, table: int) -> npt.NDArray[np.int64]:
        """The counted values of a table: record offset + 1, word, count."""
        rows: npt.NDArray[np.int64] = self.tables[table].reshape(-1, 3)
        used: npt.NDArray[np.int64] = rows[rows[:, 0] != 0]
        return used

    def set_entries(self, table: int, entries: npt.NDArray[np.int64]) -> None:
        size = _FIRST_TABLE
        while size < 4 * len(entries):
            size *= 2
        self.tables[table] = np.zeros(3 * size, dtype=np.int64)
        self.state[USED + table] = len(entries)
        _refill(len(entries), np.ascontiguousarray(entries), self.tables[table])

    def more_table(self, table: int) -> None:
        self.set_entries(table, self.entries(table))


def _longer(array: Ints, length: int) -> Ints:
    """The array with zeros behind it; memory that is not used yet is not touched."""
    longer = np.zeros(length, dtype=np.int64)
    longer[: len(array)] = array
    return longer


@dataclass
class OverState:
    """Everything an OVER operator remembers between batches."""

    keys: KeyTable | None
    shards: list[Shard]
    texts: dict[str, ByteTable]
    pending: Batch | None = None
    upto: int = BEGIN
    swept_upto: int = BEGIN
    longest: int = 0
    """how far back frames began at most, of those that rows say"""
    kept_texts: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def shift(self) -> int:
        return len(self.shards).bit_length() - 1

    @property
    def slot_count(self) -> int:
        """One more than the highest slot ever used."""
        return min(1, len(self.shards[0].slots)) if self.keys is None else self.keys.size


def new_state(layout: OverLayout, threads: int) -> OverState:
    """A state without keys; the number of shards is the power of two that serves the threads."""
    types = [layout.spec.input[key].type for key in layout.spec.keys]
    shards = 1
    while types and shards < threads:
        shards *= 2
    texts = {arg.name: code_table(arg.type) for arg in layout.texts}
    return OverState(KeyTable(types) if types else None, [Shard(layout) for _ in range(shards)], texts)

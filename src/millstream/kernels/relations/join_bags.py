"""What a join of changes keeps of each input: how often each row is there, and how many match it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Batch, Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.relations import join_change_loops
from millstream.kernels.relations.join_change_loops import ANEW
from millstream.kernels.saving.content import Ledger
from millstream.kernels.saving.kept import SlotNumbers
from millstream.records import dataclass
from millstream.schema import Schema

_chain = compile_kernel(source_of(join_change_loops), "chain_values")

_FEW = 1_024
_BY_VALUE = {"key": -1, "count": 0, "shown": 0, "next": ANEW, "matches": 0, "given": 0}


class Bag:
    """Different rows by slot: the slot of their key, how often each is there, how many rows match it, and how often it
    is in the result for that; `shown` is `count` as far as results have come.

    Those of a key are chained, from `head` by `next`.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.values = KeyTable([column.type for column in schema])
        self.key, self.count, self.shown, self.next, self.matches, self.given = (
            np.full(8, value, dtype=np.int64) for value in _BY_VALUE.values()
        )
        self.head = np.full(1, -1, dtype=np.int64)
        self.numbers = SlotNumbers()
        self._enough = _FEW

    def encode(self, rows: pa.RecordBatch, keys: npt.NDArray[Any], key_count: int) -> Ints:
        """The slot of each row, whose keys have these slots."""
        slots = self.values.encode(rows.columns).astype(np.int64)
        size = self.values.size
        if size > len(self.key):
            more = max(size, 2 * len(self.key)) - len(self.key)
            for name, value in _BY_VALUE.items():
                setattr(self, name, np.append(getattr(self, name), np.full(more, value, dtype=np.int64)))
        self.key[slots] = keys
        self.reach(key_count)
        return slots

    def reach(self, keys: int) -> None:
        """Have a chain for each of so many keys."""
        if keys > len(self.head):
            more = max(keys, 2 * len(self.head)) - len(self.head)
            self.head = np.append(self.head, np.full(more, -1, dtype=np.int64))

    def take(self, slots: Ints, columns: Sequence[int]) -> list[pa.Array]:
        rows = self.rows(slots)
        return [rows.column(column) for column in columns]

    def rows(self, slots: Ints) -> pa.RecordBatch:
        rows = self.values.keys(slots.astype(np.int32))
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._schema.arrow)

    def present(self) -> Ints:
        """The slots of rows that are there."""
        live = self.values.live()
        present: Ints = live[self.count[live] != 0].astype(np.int64)
        return present

    def purge(self) -> bool:
        """Forget rows that are not there any more, if there are twice as many as there were."""
        if len(self.values) < self._enough:
            return False
        live = self.values.live()
        gone = live[self.count[live] == 0]
        self.values.release(gone)
        self.numbers.renew(gone)
        for name, value in _BY_VALUE.items():
            getattr(self, name)[gone] = value
        self._enough = max(_FEW, 2 * len(self.values))
        self.chain()
        return True

    def chain(self) -> None:
        """Chain all rows that are there."""
        present = self.present()
        self.head[:] = -1
        _chain(len(present), present, self.key, self.next, self.head)


@dataclass
class BagState:
    """Both bags, how far the inputs came, and changes of instants that are not complete."""

    keys: KeyTable | None
    sides: tuple[Bag, Bag]
    upto: list[int]
    waiting: list[list[Batch]] = field(default_factory=lambda: [[], []])
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def now(self) -> int:
        return min(self.upto)

    def purge(self) -> None:
        """Forget what is not there any more."""
        purged = [side.purge() for side in self.sides]
        if any(purged) and self.keys is not None:
            self.keys.release_others(side.key[side.values.live()] for side in self.sides)

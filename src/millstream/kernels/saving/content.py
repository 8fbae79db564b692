"""What a state is, as its kernel tells it: rows, keys with all that is known of them, and what belongs to no key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Batch, Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.saving.pieces import Pieces
from millstream.kernels.saving.signatures import Signature, signature_of
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.kernels.contract import KernelSpec

Rows: TypeAlias = Batch | pa.RecordBatch | pa.StructArray
"""Rows of a query, whose columns are saved under their places, since they may come to be called otherwise; or rows that
are the kernel's own."""
Array: TypeAlias = npt.NDArray[Any]
OWNER = "owner"


class Division:
    """Where rows were saved in pieces, and what was."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self.numbers: Ints = np.zeros(0, dtype=np.int64)
        self.values: dict[str, Array] = {}


@dataclass
class Ledger:
    """What was saved of a state in pieces; every state has one. Kernels whose keys have slots tell it which of them
    they touch and release."""

    head: bytes | None = None
    divisions: dict[str, Division] = field(default_factory=dict)
    slots: Pieces | None = None
    """where the keys are; None if they were never saved in pieces"""

    def touch(self, slots: npt.NDArray[Any], size: int) -> None:
        """What is known of the keys of these slots changes; `size` is one more than the highest slot there is."""
        if self.slots is not None:
            self.slots.touch(slots, size)

    def release(self, slots: npt.NDArray[Any]) -> None:
        """The keys of these slots are gone."""
        if self.slots is not None:
            self.slots.release(slots)


@dataclass(frozen=True)
class Few:
    """Rows that are few or soon gone: they are saved as a whole whenever anything is. `by` are the columns that tell
    whose they are, if not those of the spec's keys."""

    rows: Batch
    by: tuple[str, ...] | None = None
    is_placed: bool = False
    """whether columns have places for names already"""


@dataclass(frozen=True)
class KeptRows:
    """Rows of a state, by numbers that increase. A row has the same number for as long as it is kept, and no other row
    gets it before that is saved. `take` gives the rows at places; `changing` are further values of each that, other
    than these, may become different; `compared` become different with the row itself, and are not saved.

    Whose a row is its columns `by` tell, if these are not the keys of the spec; or its column "owner" has the number of
    a row of the table that is called so.
    """

    numbers: Ints
    take: Callable[[Ints], Rows]
    changing: Mapping[str, Array] = field(default_factory=dict)
    compared: Mapping[str, Array] = field(default_factory=dict)
    by: tuple[str, ...] | None = None
    owner: str | None = None
    is_placed: bool = False

    def all(self) -> Ints:
        return np.arange(len(self.numbers))

    def parts(self, name: str, places: Ints) -> dict[str, Rows | Array]:
        values = {of: values[places] for of, values in self.changing.items()}
        return {name: self.take(places), **values, f"{name}.number": self.numbers[places]}

    def division(self, name: str, ledger: Ledger) -> Pieces:
        """The pieces that the rows are in, which know now which of them came, changed or went."""
        own = ledger.divisions.setdefault(name, Division())
        places = np.searchsorted(own.numbers, self.numbers)
        known = places < len(own.numbers)
        known[known] = own.numbers[places[known]] == self.numbers[known]
        own.pieces.arrange(np.where(known, places, -1))
        stayed, before = np.flatnonzero(known), places[known]
        changed = np.zeros(len(stayed), dtype=np.bool_)
        for of, values in {**self.changing, **self.compared}.items():
            if len(stayed):
                changed |= values[stayed] != own.values[of][before]
        own.pieces.touch(stayed[changed], len(self.numbers))
        self._remember(own)
        return own.pieces

    def index(self, name: str, ledger: Ledger) -> Pieces:
        return ledger.divisions[name].pieces if name in ledger.divisions else Pieces()

    def adopt(self, name: str, ledger: Ledger, pieces: Pieces, numbers: Ints | None) -> None:
        """Rows that were put together from pieces, which know them in this order."""
        assert np.array_equal(self.numbers, [] if numbers is None else numbers), "rows keep their numbers"
        ledger.divisions[name] = Division()
        ledger.divisions[name].pieces = pieces
        self._remember(ledger.divisions[name])

    def _remember(self, own: Division) -> None:
        own.numbers = np.array(self.numbers)
        own.values = {of: np.array(values) for of, values in {**self.changing, **self.compared}.items()}


@dataclass(frozen=True)
class Slots:
    """All that is known of keys, a row for each, by slot. The keys are its first columns, named k0, k1, …; a kernel
    without keys has one slot. `ledger` is that of the state that touches them. A state that is loaded has its keys in
    the slots 0, 1, … in the order of their rows."""

    live: Ints
    ledger: Ledger
    take: Callable[[Ints], pa.StructArray]
    keys: int

    @property
    def by(self) -> tuple[str, ...]:
        return self.names(self.keys)

    @staticmethod
    def names(keys: int) -> tuple[str, ...]:
        """What the columns of so many keys are called."""
        return tuple(f"k{i}" for i in range(keys))

    @staticmethod
    def rows(keys: KeyTable | None, slots: Ints, columns: Mapping[str, pa.Array]) -> pa.StructArray:
        """Keys with what is known of them; None: there are none."""
        own = [] if keys is None else keys.keys(slots).columns
        return struct({**dict(zip(Slots.names(len(own)), own, strict=True)), **columns})

    def all(self) -> Ints:
        return self.live

    def parts(self, name: str, slots: Ints) -> dict[str, Rows | Array]:
        return {name: self.take(slots)}

    def division(self, name: str, ledger: Ledger) -> Pieces:
        """The pieces that the keys are in."""
        if self.ledger.slots is None:
            self.ledger.slots = Pieces()
            self.ledger.slots.touch(self.live, int(self.live.max(initial=-1)) + 1)
        return self.ledger.slots

    def index(self, name: str, ledger: Ledger) -> Pieces:
        return self.ledger.slots or Pieces()

    def adopt(self, name: str, ledger: Ledger, pieces: Pieces, numbers: Ints | None) -> None:
        self.ledger.slots = pieces


Table: TypeAlias = KeptRows | Slots
Content: TypeAlias = Mapping[str, Array | Few | Table]
"""What a state is, by name, the same tables each time. Arrays are numbers that never fall, and belong to no key."""


def struct(columns: Mapping[str, pa.Array]) -> pa.StructArray:
    """Rows that are a kernel's own."""
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def placed(content: Content, spec: KernelSpec) -> Content:
    """The content of a state with the rows of queries, and the keys in them, under the places of their columns."""
    signature, placed = signature_of(spec), dict(content)
    for name, part in content.items():
        if isinstance(part, Few | KeptRows) and not part.is_placed:
            by = tuple(map(signature.place, spec.keys or ())) if part.by is None else part.by
            if isinstance(part, Few):
                placed[name] = Few(part.rows.with_rows(signature.placed(part.rows.rows)), by)
            else:
                placed[name] = replace(part, take=partial(_taken, signature, part.take), by=by)
    return placed


def _taken(signature: Signature, take: Callable[[Ints], Rows], places: Ints) -> Rows:
    rows = take(places)
    if isinstance(rows, Batch):
        return rows.with_rows(signature.placed(rows.rows))
    return signature.placed(rows) if isinstance(rows, pa.RecordBatch) else rows


def within(name: str, content: Content, spec: KernelSpec) -> Content:
    """The content of a state in another, under a name; it belongs to a kernel of this spec."""
    inner: dict[str, Array | Few | Table] = {}
    for own, part in placed(content, spec).items():
        if isinstance(part, KeptRows):
            owner = None if part.owner is None else f"{name}.{part.owner}"
            changing = {f"{name}.{of}": values for of, values in part.changing.items()}
            part = replace(part, changing=changing, owner=owner, is_placed=True)
        elif isinstance(part, Few):
            part = replace(part, is_placed=True)
        inner[f"{name}.{own}"] = part
    return inner

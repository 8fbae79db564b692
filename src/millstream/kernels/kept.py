"""State that is rows: saved in pieces, of which only those are written that rows came to, or changed rows moved to.

A kernel tells what its state is, small things as they are and rows as `Kept`, and makes a state of the same parts.
Rows have numbers. What came, what changed and what is gone since the last save is found by comparing numbers, and
values that may change, with those of then; `Pieces` divides the rows as it divides keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import StateError
from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.pieces import Pieces
from millstream.kernels.piecewise import HEAD, index_parts, indexed, moved_pieces

Rows: TypeAlias = Batch | pa.RecordBatch


@dataclass(frozen=True)
class Kept:
    """Rows of a state, by numbers that increase. A row has the same number for as long as it is kept, and no other row
    gets it before that is saved. `take` gives the rows at places; `changing` are further values of each that, other
    than these, may become different; `touched` becomes different with the row itself."""

    numbers: Ints
    take: Callable[[Ints], Rows]
    changing: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    touched: Ints | None = None

    def parts(self, name: str, places: Ints) -> dict[str, Rows | npt.NDArray[Any]]:
        return {name: self.take(places), **{of: values[places] for of, values in self.changing.items()}}

    def compared(self) -> Mapping[str, npt.NDArray[Any]]:
        """All values that tell whether a row has to be saved again."""
        return self.changing if self.touched is None else {**self.changing, "": self.touched}


Content = Mapping[str, Kept | npt.NDArray[Any] | Rows]


class _Division:
    """Where the rows of one name were saved, and what was."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self.numbers: Ints = np.zeros(0, dtype=np.int64)
        self.values: dict[str, npt.NDArray[Any]] = {}

    @staticmethod
    def of(pieces: Pieces, numbers: Ints | None, kept: Kept) -> _Division:
        """Rows that were put together from pieces, which know them in this order."""
        assert np.array_equal(kept.numbers, [] if numbers is None else numbers), "rows keep their numbers"
        division = _Division()
        division.pieces = pieces
        division._remember(kept)
        return division

    def compare(self, kept: Kept) -> None:
        """Let the pieces know which rows came, changed or went."""
        places = np.searchsorted(self.numbers, kept.numbers)
        known = places < len(self.numbers)
        known[known] = self.numbers[places[known]] == kept.numbers[known]
        self.pieces.arrange(np.where(known, places, -1))
        stayed, before = np.flatnonzero(known), places[known]
        changed = np.zeros(len(stayed), dtype=np.bool_)
        for name, values in kept.compared().items():
            if len(stayed):
                changed |= values[stayed] != self.values[name][before]
        self.pieces.touch(stayed[changed], len(kept.numbers))
        self._remember(kept)

    def _remember(self, kept: Kept) -> None:
        self.numbers = np.array(kept.numbers)
        self.values = {name: np.array(values) for name, values in kept.compared().items()}


@dataclass
class Ledger:
    """What has been saved of a state: the head, and where its rows are."""

    head: bytes | None = None
    divisions: dict[str, _Division] = field(default_factory=dict)


class KeepsRows:
    """A kernel whose state is rows and little else: how it is saved follows from what its content is, and back."""

    spec: Any

    def open(self) -> Any:
        raise NotImplementedError

    def _content(self, state: Any) -> Content:
        """What the state is: the same names each time."""
        raise NotImplementedError

    def _made_of(self, parts: snapshots.Saved) -> Any:
        """The state of this content; names that had no rows are missing. `parts.numbers` tells rows' numbers, None if
        they are to be numbered anew."""
        raise NotImplementedError

    def snapshot(self, state: Any) -> bytes:
        parts: dict[str, Any] = {}
        for name, own in self._content(state).items():
            if not isinstance(own, Kept):
                parts[name] = own
            elif len(own.numbers):
                parts |= own.parts(name, np.arange(len(own.numbers)))
        return snapshots.save(self.spec, parts)

    def restore(self, saved: bytes) -> Any:
        return self._made_of(snapshots.load(self.spec, saved))

    def changes(self, state: Any) -> dict[int, bytes | None]:
        ledger, content = state.ledger, self._content(state)
        kept = _kept(content)
        changed: dict[int, bytes | None] = {}
        for turn, (name, own) in enumerate(kept.items()):
            division = ledger.divisions.setdefault(name, _Division())
            division.compare(own)
            moved = moved_pieces(self.spec, division.pieces, partial(_each, name, own))
            changed |= {_numbered(number, turn, len(kept)): piece for number, piece in moved.items()}
        head = self._head(content, ledger)
        if head != (ledger.head or self._head(self._content(self.open()), Ledger())):
            changed[HEAD] = head
        ledger.head = head
        return changed

    def assemble(self, pieces: Mapping[int, bytes]) -> Any:
        if not pieces:
            return self.open()
        if HEAD not in pieces:
            raise StateError("saved state is incomplete", detail="its first piece is missing")
        head = snapshots.load(self.spec, pieces[HEAD])
        names = list(_kept(self._content(self.open())))
        columns, placed = dict(head.columns), {}
        for turn, name in enumerate(names):
            own = {
                (number - 1) // len(names) + 1: piece
                for number, piece in pieces.items()
                if number != HEAD and (number - 1) % len(names) == turn
            }
            labels, live, found = indexed(self.spec, head, own, _index_of(name))
            placed[name] = Pieces.of(labels, live, BEGIN, None)
            if found:
                rows = {of: pa.concat_arrays(each) for of, each in _columns(found)}
                order = np.argsort(rows[f"{name}.number"].to_numpy(zero_copy_only=False), kind="stable")
                placed[name].arrange(order)
                columns |= {of: column.take(pa.array(order)) for of, column in rows.items()}
        parts = snapshots.Saved(columns)
        state = self._made_of(parts)
        content = _kept(self._content(state))
        divisions = {name: _Division.of(placed[name], parts.numbers(name), own) for name, own in content.items()}
        state.ledger = Ledger(pieces[HEAD], divisions)
        return state

    def _head(self, content: Content, ledger: Ledger) -> bytes:
        parts = {name: own for name, own in content.items() if not isinstance(own, Kept)}
        for name in _kept(content):
            division = ledger.divisions.get(name)
            parts |= index_parts(Pieces() if division is None else division.pieces, _index_of(name))
        return snapshots.save(self.spec, parts)


def _kept(content: Content) -> dict[str, Kept]:
    return {name: own for name, own in content.items() if isinstance(own, Kept)}


def _index_of(name: str) -> str:
    return f"{name}."


def _numbered(number: int, turn: int, turns: int) -> int:
    """The number of a piece among those of all names, which take turns."""
    return (number - 1) * turns + turn + 1


def _each(name: str, kept: Kept, groups: Sequence[Ints]) -> Iterator[dict[str, Any]]:
    for places in groups:
        yield {**kept.parts(name, places), f"{name}.number": kept.numbers[places]}


def _columns(pieces: list[tuple[snapshots.Saved, Ints]]) -> Iterator[tuple[str, list[pa.Array]]]:
    """The columns of pieces by name, as far as their rows are still theirs."""
    for name in dict.fromkeys(name for piece, _ in pieces for name in piece.columns if name != "piece"):
        # A point event's other end is its time.
        same = name.removesuffix("other") + "time"
        yield name, [piece.column(name if name in piece else same).take(pa.array(places)) for piece, places in pieces]


class KeptBatches:
    """Rows in the order they came, with numbers."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._numbers: list[Ints] = []
        self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def add(self, batch: Batch, numbers: Ints | None = None) -> None:
        if len(batch):
            self._batches.append(batch)
            self._numbers.append(np.arange(self._next, self._next + len(batch)) if numbers is None else numbers)
            self._next = int(self._numbers[-1][-1]) + 1

    def all(self) -> Batch | None:
        """All rows; None if there are none."""
        if len(self._batches) > 1:
            self._batches, self._numbers = [concat(self._batches, BEGIN)], [np.concatenate(self._numbers)]
        return self._batches[0] if self._batches else None

    @property
    def first(self) -> int:
        """The time of the first row; FOREVER if there is none."""
        return int(self._batches[0].time[0]) if self._batches else FOREVER

    def drop(self, count: int) -> None:
        """Forget the first rows."""
        rows = self.all()
        if rows is not None:
            self._batches = [rows.slice(count, len(rows))] if count < len(rows) else []
            self._numbers = [self._numbers[0][count:]] if count < len(rows) else []

    def keep(self, places: Ints) -> None:
        """Forget all rows but these."""
        rows = self.all()
        if rows is not None and len(places) < len(rows):
            self._batches = [rows.take(places)] if len(places) else []
            self._numbers = [self._numbers[0][places]] if len(places) else []

    def kept(self) -> Kept:
        return kept_batches(self._batches, self._numbers)


def kept_batches(batches: Sequence[Batch], numbers: Sequence[Ints]) -> Kept:
    """Rows of batches, with their numbers in any order."""
    together = np.concatenate([np.zeros(0, dtype=np.int64), *numbers])
    order = np.argsort(together, kind="stable")
    begins = np.cumsum([0, *map(len, batches)])

    def take(places: Ints) -> Batch:
        wanted = order[places]
        # Of each batch its own, one batch after the other, and then in the order that is asked for.
        by_batch = np.argsort(wanted, kind="stable")
        edges = np.searchsorted(wanted[by_batch], begins)
        parts = [
            batch.take(wanted[by_batch[edges[i] : edges[i + 1]]] - begins[i])
            for i, batch in enumerate(batches)
            if edges[i] < edges[i + 1]
        ]
        back = np.empty(len(wanted), dtype=np.int64)
        back[by_batch] = np.arange(len(wanted))
        return concat(parts, BEGIN).take(back)

    return Kept(together[order], take)


class SlotNumbers:
    """Numbers of keys that have slots: one that gets the slot of another has a number of its own."""

    def __init__(self) -> None:
        self._of: Ints = np.zeros(0, dtype=np.int64)
        self._next = 0

    def of(self, slots: npt.NDArray[Any]) -> Ints:
        more = int(slots.max(initial=-1)) + 1 - len(self._of)
        if more > 0:
            self._of = np.append(self._of, self._fresh(more))
        numbers: Ints = self._of[slots]
        return numbers

    def renew(self, slots: npt.NDArray[Any]) -> None:
        """The slots go to other keys."""
        self.of(slots)
        self._of[slots] = self._fresh(len(slots))

    def give(self, slots: npt.NDArray[Any], numbers: Ints | None) -> None:
        """Let keys that were saved have their numbers."""
        if numbers is not None and len(numbers):
            self._next = max(self._next, int(numbers.max()) + 1)
            # Slots that are new from here on are not to get one of these.
            self.of(slots)
            self._of[slots] = numbers

    def kept(self, slots: npt.NDArray[Any], take: Callable[[Ints], Rows], changing: Mapping[str, Ints]) -> Kept:
        """Keys of these slots, what is known of all by slot."""
        numbers = self.of(slots)
        order = np.argsort(numbers, kind="stable")
        own = slots[order].astype(np.int64)
        values = {name: of[own] for name, of in changing.items()}
        return Kept(numbers[order], lambda places: take(own[places]), values)

    def _fresh(self, count: int) -> Ints:
        self._next += count
        return np.arange(self._next - count, self._next)

"""The rows that a search may still look at, of all partitions, as arrays by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import ByteTable, KeyTable, Slots
from millstream.kernels.patterns import log_loops
from millstream.kernels.patterns.coding import decode, encode, is_odd
from millstream.kernels.relations.held_rows import HeldRows
from millstream.types import VARCHAR, SqlType

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

_link, _count, _link_far, _choose = (
    compile_kernel(source_of(log_loops), name) for name in ("link", "count", "link_far", "choose")
)
_SMALLEST = 1_024
_NONE: Ints = np.zeros(0, dtype=np.int64)


class RowLog:
    """Rows at positions 0, 1, … in order of arrival, linked within their partitions.

    Read: `time`, `seq`, `slot`, `next` and `prev` (positions of the neighbours in the partition, -1: none),
    `values[column]` (of `SqlType.kernel`, text as codes of `texts`) and `ok[column]` (false: NULL), all as long as the
    log and read-only; `last` (the newest position of each slot, -1: none) and `cut` (whether rows of the slot have been
    dropped: then the oldest one that is left is not the partition's first). `nulls` tells whether a value was NULL
    since the log was last empty. `labels` are the codes of the variables' names, `tables` number the values of types
    that have no form in kernels. `held` has the rows themselves, if they come out. What is not `linked` has no `next`,
    `prev` and `last`. Rows that are as far apart in their partition as one of `far` says (from 2 on) are linked, too.
    """

    def __init__(
        self,
        types: Mapping[str, SqlType],
        variables: Sequence[str],
        rows: pa.Schema | None,
        linked: bool = True,
        far: Sequence[int] = (),
    ) -> None:
        self.types = dict(types)
        self._linked, self._far = linked, tuple(far) if linked else ()
        self._links = (*(("next", "prev") * linked), *(f"{way}{n}" for n in self._far for way in ("back", "ahead")))
        self.texts = ByteTable(VARCHAR)
        self.labels = as_input(self.texts.slots(pa.array(list(variables), pa.string()), add=True).astype(np.int64))
        self.tables = {name: KeyTable([type_]) for name, type_ in types.items() if is_odd(type_)}
        self.held = None if rows is None else HeldRows(rows)
        self.nulls = False
        self._texts_kept = 0
        self.last: Ints = np.zeros(0, dtype=np.int64)
        self.cut: Bools = np.zeros(0, dtype=np.bool_)
        self._rows_of, self._oldest = _NONE, _NONE
        """how many rows each slot has, and the first of them, where far ones are linked"""
        self._size = 0
        self._arrays: dict[str, Array] = {}
        self._is_own = False
        """whether the arrays are this log's own: others are adopted as they are, and never written to"""
        self._nothing = self._empty()
        self._adopt(self._nothing)
        self._moves, self._moved = _NONE, _NONE

    def __len__(self) -> int:
        return self._size

    @property
    def slots(self) -> int:
        """How many slots arrays by slot have room for."""
        return len(self.last)

    def hold_slots(self, count: int) -> None:
        """Make room for this many slots."""
        more = max(count, 2 * self.slots) - self.slots
        if count > self.slots:
            self.last = np.concatenate([self.last, np.full(more, -1, dtype=np.int64)])
            self.cut = np.concatenate([self.cut, np.zeros(more, dtype=np.bool_)])
            if self._far:
                self._rows_of = np.concatenate([self._rows_of, np.zeros(more, dtype=np.int64)])
                self._oldest = np.concatenate([self._oldest, np.zeros(more, dtype=np.int64)])

    def add(
        self,
        time: Ints,
        seq: Ints,
        slot: Slots,
        columns: Mapping[str, tuple[Array, Bools]],
        rows: pa.RecordBatch | None,
    ) -> int:
        """Append rows of slots that there is room for; the position of the first."""
        since, count = self._size, len(time)
        if not count:
            return since
        new: dict[str, Array] = {"time": time, "seq": seq, "slot": slot.astype(np.int32, copy=False)}
        for name, (values, ok) in columns.items():
            new |= {f"v:{name}": values, f"ok:{name}": ok}
            self.nulls = self.nulls or not bool(ok.all())
        if since == 0:
            links = {name: np.empty(count, dtype=np.int32) for name in self._links}
            self._arrays, self._is_own = new | links, False
        else:
            self._append(new, since, count)
        self._size = since + count
        if self._linked:
            self._link(since, count)
        if self.held is not None and rows is not None:
            self.held.add(rows)
        self._show()
        return since

    def _link(self, since: int, count: int) -> None:
        arrays, end = self._arrays, self._size
        next_, prev, slot = arrays["next"], arrays["prev"], arrays["slot"]
        _link(count, slot, since, end, self.last, next_, prev)
        if self._far:
            before = np.empty(count, dtype=np.int64)
            _count(count, slot, since, end, self._rows_of, self._oldest, before)
            for far in self._far:
                _link_far(
                    count, far, slot, since, end, self._oldest, before, next_, prev, arrays[f"back{far}"],
                    arrays[f"ahead{far}"],
                )  # fmt: skip

    def link(self, rows: int) -> Array:
        """For each row the position of the one so many further on, or before it, in its partition; -1: none."""
        near = {-1: "prev", 1: "next"}.get(rows)
        return self._shown[near or f"{'back' if rows < 0 else 'ahead'}{abs(rows)}"]

    def rows_before(self, positions: Ints, rows: int) -> Ints:
        """The rows that are so many before others in their partitions, or the oldest there are; -1 stays."""
        if not self._size:
            return positions
        is_known = positions >= 0
        at = np.where(is_known, positions, 0)
        before = self.link(-rows)[at]
        oldest = at if rows == 1 else self._oldest[self.slot[at]]
        return np.where(is_known, np.where(before < 0, oldest, before), -1)

    def encode(self, name: str, column: pa.Array) -> tuple[Array, Bools]:
        """An Arrow column as the column of this name has its values here."""
        return encode(column, self.types[name], self.texts, self.tables.get(name))

    def decode(self, name: str, values: Array, ok: Bools) -> pa.Array:
        """The inverse of `encode`."""
        return decode(values, ok, self.types[name], self.texts, self.tables.get(name))

    def code_of(self, texts: Sequence[str]) -> Ints:
        """The codes of constants."""
        return self.texts.slots(pa.array(list(texts), pa.string()), add=True).astype(np.int64)

    def kept(self, floors: Ints) -> Bools:
        """Which rows are at or above the floors of their slots."""
        kept: Bools = np.arange(self._size) >= floors[self.slot]
        return kept

    def needed(self, floors: Ints) -> tuple[Ints, Bools]:
        """The positions of the rows at or above the floors of their slots, and which slots have rows below."""
        chosen, below = np.empty(self._size, dtype=np.int64), np.empty(self.slots, dtype=np.bool_)
        # Where few rows are kept, finding them by their links is much cheaper than looking at all.
        count = int(_choose(self._size, self.last, floors, self.prev, below, chosen))
        return np.sort(chosen[:count]), below

    def compact(self, chosen: Ints, below: Bools) -> Ints:
        """Drop all rows but those that `needed` gave: the new position of each old one, -1 where it is gone. The array
        is used again by the next call."""
        new = self._renumbering(chosen)
        self.cut |= below
        is_roomy = max(map(len, self._arrays.values())) > 4 * self._size + _SMALLEST
        for name, array in self._arrays.items():
            values = array[chosen]
            if name in self._links:
                values = renumbered(values, new).astype(np.int32)
            if self._is_own and not is_roomy and len(chosen):
                array[: len(chosen)] = values
            else:
                self._arrays[name] = values
        self._is_own = True
        self.last = renumbered(self.last, new)
        self._size = len(chosen)
        self._show()
        if not self._size:
            self.nulls = False
        if self._far:
            self._rows_of = np.bincount(self.slot, minlength=self.slots)
            self._oldest[self.slot[::-1]] = np.arange(self._size - 1, -1, -1)
        if self.held is not None:
            self.held.keep(chosen)
        self._forget_values()
        return new

    def _renumbering(self, chosen: Ints) -> Ints:
        if self._size > len(self._moves) or len(self._moves) > 4 * self._size + _SMALLEST:
            self._moves = np.full(self._size + self._size // 4, -1, dtype=np.int64)
        else:
            self._moves[self._moved] = -1
        new, self._moved = self._moves[: self._size], chosen
        new[chosen] = np.arange(len(chosen))
        return new

    def clear(self) -> None:
        """Drop all rows."""
        if not self._size:
            return
        self.cut[self.slot] = True
        self.last[:] = -1
        self._rows_of[:] = 0
        self._size, self.nulls = 0, False
        self._adopt(self._nothing)
        if self.held is not None:
            self.held.keep(np.empty(0, dtype=np.int64))
        self._forget_values()

    def forget(self, slots: Ints) -> None:
        """These slots will be used for other partitions, which have no rows yet."""
        self.last[slots] = -1
        self.cut[slots] = False

    def _forget_values(self) -> None:
        """Forget text and other numbered values that no row has, once they may be half of them."""
        texts = [name for name, type_ in self.types.items() if type_.is_coded and name not in self.tables]
        if len(self.texts) > 2 * self._texts_kept + _SMALLEST:
            used = np.concatenate([self.labels, *(self.values[name] for name in texts)])
            self.texts.release(np.setdiff1d(self.texts.live(), used))
            self._texts_kept = len(self.texts)
        for name, table in self.tables.items():
            if len(table) > 2 * self._size + _SMALLEST:
                table.release(np.setdiff1d(table.live(), self.values[name]))

    def _empty(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {name: np.empty(0, dtype=np.int64) for name in ("time", "seq")}
        arrays |= {name: np.empty(0, dtype=np.int32) for name in ("slot", *self._links)}
        for name, type_ in self.types.items():
            arrays |= {f"v:{name}": np.empty(0, dtype=type_.kernel), f"ok:{name}": np.empty(0, dtype=np.bool_)}
        return arrays

    def _adopt(self, arrays: dict[str, Array]) -> None:
        self._arrays, self._is_own = dict(arrays), False
        self._show()

    def _append(self, new: dict[str, Array], since: int, count: int) -> None:
        for name, array in self._arrays.items():
            if since + count > len(array) or not self._is_own:
                # A little more than is wanted: what is kept of the rows before varies from batch to batch.
                room = max(_SMALLEST, 2 * since, since + count + count // 4)
                longer = np.empty(room, dtype=array.dtype)
                longer[:since] = array[:since]
                array = self._arrays[name] = longer
            if name in new:
                array[since : since + count] = new[name]
        self._is_own = True

    def _show(self) -> None:
        shown = self._shown = {name: as_input(array[: self._size]) for name, array in self._arrays.items()}
        self.time, self.seq, self.slot = shown["time"], shown["seq"], shown["slot"]
        none = as_input(np.empty(0, dtype=np.int32))
        self.next, self.prev = (shown.get(name, none) for name in ("next", "prev"))
        self.values = {name: shown[f"v:{name}"] for name in self.types}
        self.ok = {name: shown[f"ok:{name}"] for name in self.types}


def renumbered(positions: Ints, new: Ints) -> Ints:
    """Positions after a log was compacted; -1 stays."""
    if not len(new):
        return np.full(len(positions), -1, dtype=np.int64)
    is_known = (positions >= 0) & (positions < len(new))
    return np.where(is_known, new[np.where(is_known, positions, 0)], -1)

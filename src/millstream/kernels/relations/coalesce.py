"""Equal rows that follow each other without a gap, as one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import ByRow, KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.relations import coalesce_loops
from millstream.kernels.relations.back import Lanes, Places
from millstream.kernels.relations.place_loops import END, FIRST_VALUE, OWNER, START
from millstream.kernels.relations.stages import ends_of
from millstream.kernels.saving.content import Content, Few, KeptRows, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.records import dataclass

_coalesce, _expire, _link_all = (
    compile_kernel(source_of(coalesce_loops), name) for name in ("coalesce", "expire", "link_all")
)

_WIDTH = FIRST_VALUE + 1
_LANES = {"start": START, "end": END, "until": FIRST_VALUE}
"""What is saved of a place; its value is, and chains are made anew."""


@register
@dataclass(frozen=True)
class CoalesceSpec(ByRow, KeepsColumns):
    """The same relation in fewer rows: one that begins where an equal one ends goes on with that.

    A row of at least `longest` leaves without waiting for more; so it bounds how long a row is held back, not how long
    one may be. Rows of one start are taken in order of their ends, and go on with the earliest row that they can.
    """

    longest: int

    def __post_init__(self) -> None:
        if self.longest < 1 or not len(self.input):
            raise ValueError("rows with values are put together up to a length")

    def build(self) -> CoalesceKernel:
        return CoalesceKernel(self)

    def describe(self) -> str:
        return f"coalesce up to {self.longest}"


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass
class CoalesceState:
    """Rows that have not left, as places owned by the slots of their values; `uses` counts these. `waiting` are rows
    of instants that are not over."""

    values: KeyTable
    places: Places = field(default_factory=lambda: Places(1))
    first: Ints = field(default_factory=_none)
    last: Ints = field(default_factory=_none)
    uses: Ints = field(default_factory=_none)
    waiting: Batch | None = None
    upto: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)

    def slots(self, columns: Sequence[pa.Array]) -> Ints:
        """The slots of rows' values, with room for what is known of each."""
        slots = self.values.encode(columns).astype(np.int64)
        more = self.values.size - len(self.uses)
        if more > 0:
            more = max(more, len(self.uses))
            chainless = np.full(more, -1, dtype=np.int64)
            self.first, self.last = np.append(self.first, chainless), np.append(self.last, chainless)
            self.uses = np.append(self.uses, np.zeros(more, dtype=np.int64))
        return slots


class CoalesceKernel:
    """Runs a CoalesceSpec."""

    def __init__(self, spec: CoalesceSpec) -> None:
        self.spec = spec
        self._types = [field.type for field in spec.input]

    def open(self) -> CoalesceState:
        return CoalesceState(KeyTable(self._types))

    def step(self, state: CoalesceState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        rows = self._over(state, batch)
        if rows is not None:
            self._arrive(state, rows)
        places = state.places
        _expire(len(places), places.first, state.upto, state.first, state.last, places.lanes, places.marks)
        return self._leave(state)

    def _over(self, state: CoalesceState, batch: Batch) -> Batch | None:
        """The rows that no other can come before or beside; the others wait."""
        pieces = [piece for piece in (state.waiting, batch) if piece is not None and len(piece)]
        state.waiting = None
        if not pieces:
            return None
        rows = concat(pieces, BEGIN)
        over = len(rows) if state.upto == FOREVER else int(np.searchsorted(rows.time, state.upto))
        if over < len(rows):
            state.waiting = rows.slice(over, len(rows))
        if not over:
            return None
        rows = rows.slice(0, over)
        return rows.take(np.lexsort((ends_of(rows), rows.time)))

    def _arrive(self, state: CoalesceState, rows: Batch) -> None:
        slots = state.slots(rows.rows.columns)
        state.places.reserve(len(rows))
        known = len(state.places)
        columns = (as_input(column) for column in (slots, rows.time, ends_of(rows)))
        places = state.places
        _coalesce(len(rows), *columns, self.spec.longest, state.first, state.last, places.lanes, places.marks)
        np.add.at(state.uses, places.held()[known:, OWNER], 1)

    def _leave(self, state: CoalesceState) -> Batch:
        done = state.places.release()
        upto = state.places.upto(state.upto)
        if not len(done):
            return Batch.empty(self.spec.output.arrow, upto)
        owners = done[:, OWNER]
        rows = self._rows(state, owners)
        np.subtract.at(state.uses, owners, 1)
        unused = np.unique(owners[state.uses[owners] == 0])
        if len(unused):
            state.values.release(unused)
        zeros = np.zeros(len(done), dtype=np.int64)
        return Batch(rows, done[:, START].copy(), zeros, upto, done[:, END].copy())

    def _rows(self, state: CoalesceState, slots: Ints) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(state.values.keys(slots).columns, schema=self.spec.input.arrow)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: CoalesceState) -> Content:
        held = state.places.held()
        rows = KeptRows(
            state.places.first + np.arange(len(held)),
            lambda places: self._rows(state, held[places, OWNER]),
            {name: held[:, lane] for name, lane in _LANES.items()},
        )
        waiting = {} if state.waiting is None else {"waiting": Few(state.waiting)}
        return {"upto": np.array([state.upto]), "rows": rows, **waiting}

    def load(self, parts: Saved) -> CoalesceState:
        state = self.open()
        state.upto = int(parts.array("upto")[0])
        state.waiting = parts.batch("waiting", state.upto) if "waiting" in parts else None
        if "rows" not in parts:
            return state
        rows, numbers = parts.rows("rows"), parts.numbers("rows")
        lanes: Lanes = np.zeros((len(rows), _WIDTH), dtype=np.int64)
        for name, lane in _LANES.items():
            lanes[:, lane] = parts.array(name)
        lanes[:, OWNER] = state.slots(rows.columns)
        np.add.at(state.uses, lanes[:, OWNER], 1)
        state.places.load(lanes[np.argsort(lanes[:, START], kind="stable")], 0 if numbers is None else int(numbers[0]))
        _link_all(len(lanes), state.first, state.last, state.places.lanes, state.places.marks)
        return state

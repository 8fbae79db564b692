"""What operators that sweep over time have in common: their state, and what it is when it is saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.keys import ByteTable
from millstream.kernels.relations import place_loops
from millstream.kernels.relations.back import Lanes, Places
from millstream.kernels.relations.front import END, SLOT, Front
from millstream.kernels.relations.groups import DIED, SweptGroups
from millstream.kernels.relations.place_loops import LINK, START
from millstream.kernels.saving.content import OWNER, Content, Few, KeptRows, Ledger, Slots, struct
from millstream.kernels.saving.lists import code_strings, fixed, lists, strings_of, unfixed, unlisted
from millstream.kernels.saving.snapshots import Saved
from millstream.records import dataclass

GROUPS, PLACES, LANES = "groups", "places", "lanes"

Codes = Iterator[tuple[npt.NDArray[np.bool_], int]]
"""Where codes of strings are in rows of lanes: which rows have one, and the lane."""


@dataclass
class SweepState:
    """Groups, the rows that are valid or wait for their instant, and the output that waits for its turn."""

    groups: SweptGroups
    fronts: list[Front]
    places: Places
    extras: Any = None
    """what else the operator keeps"""
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def progress(self) -> int:
        """All instants before this are complete."""
        return min(front.upto for front in self.fronts)

    @property
    def rows_held(self) -> int:
        """How many rows are valid or wait."""
        waiting = (front.waiting for front in self.fronts)
        return sum(len(front.ends) for front in self.fronts) + sum(len(batch) for batch in waiting if batch is not None)


class Sweep:
    """A kernel that sweeps over time. Groups are saved with all that is theirs alone; valid rows and output are rows of
    their own, which know their groups by numbers that last as long as these do."""

    _has_links = False
    """whether places are linked, which is found again; otherwise LINK is a lane as others are"""

    def open(self) -> SweepState:
        raise NotImplementedError

    def _owned(self, state: SweepState) -> Mapping[str, Lanes]:
        """What groups have many of, as rows of lanes, the first of which is the slot."""
        return {}

    def _texts(self, state: SweepState) -> Mapping[str, ByteTable]:
        """The strings that lanes have as codes, by argument."""
        return {}

    def _codes(self, part: str, rows: Lanes, arg: str) -> Codes:
        """Where codes of an argument's strings are in the rows of a part."""
        return iter(())

    def _linked(self, state: SweepState, owned: Mapping[str, Lanes]) -> None:
        """Find again what groups, places and what groups have many of know of each other."""
        raise NotImplementedError

    def export(self, state: SweepState) -> Content:
        groups, first = state.groups, state.places.first
        live = groups.needed(first)
        live = live[np.argsort(groups.numbers.of(live), kind="stable")]
        numbers = groups.numbers.of(live)
        number_of = np.zeros(len(groups.lanes), dtype=np.int64)
        number_of[live] = numbers
        by = Slots.names(0 if groups.keys is None else len(groups.keys.types))
        content: dict[str, Any] = {
            "uptos": np.array([front.upto for front in state.fronts]),
            "first": np.array([first]),
            GROUPS: KeptRows(numbers, partial(self._groups, state, live), {}, {"": groups.version[live]}, by),
        }
        for i, front in enumerate(state.fronts):
            rows, own = front.ends.all()
            order = np.argsort(own, kind="stable")
            take = partial(self._rows_of, state, _ends(i), rows[order], number_of)
            content[_ends(i)] = KeptRows(own[order], take, owner=GROUPS)
            if front.waiting is not None:
                content[f"waiting{i}"] = Few(front.waiting)
        held = state.places.held().copy()
        if self._has_links:
            held[:, LINK] = 0
        lanes = {str(lane): held[:, lane] for lane in range(held.shape[1])}
        take = partial(self._rows_of, state, PLACES, held, number_of)
        content[PLACES] = KeptRows(first + np.arange(len(held)), take, {}, lanes, owner=GROUPS)
        return content

    def _groups(self, state: SweepState, live: Ints, places: Ints) -> pa.StructArray:
        slots = live[places]
        lanes = state.groups.lanes[slots]
        number = np.full(len(state.groups.lanes), -1, dtype=np.int64)
        number[slots] = np.arange(len(slots))
        owned = {LANES: (np.arange(len(slots)), lanes)}
        for name, rows in self._owned(state).items():
            owner = number[rows[:, SLOT]]
            order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
            owned[name] = owner[order], rows[order]
        columns = {}
        for arg, table in self._texts(state).items():
            columns[_text(arg)] = strings_of(table, self._coded(owned, arg), len(slots))
        del owned[LANES]
        columns |= {name: lists(owner, fixed(rows[:, 1:]), len(slots)) for name, (owner, rows) in owned.items()}
        return Slots.rows(state.groups.keys, slots, {LANES: fixed(lanes), **columns})

    def _rows_of(self, state: SweepState, name: str, rows: Lanes, number_of: Ints, places: Ints) -> pa.StructArray:
        """Rows of lanes, by the numbers of their groups."""
        chosen, lane = rows[places], _owner_lane(name)
        columns = {OWNER: pa.array(number_of[chosen[:, lane]])}
        for arg, table in self._texts(state).items():
            coded = self._coded({name: (np.arange(len(chosen)), chosen)}, arg)
            columns[_text(arg)] = strings_of(table, coded, len(chosen))
        return struct({**columns, LANES: fixed(np.delete(chosen, lane, axis=1))})

    def _coded(self, owned: Mapping[str, tuple[Ints, Lanes]], arg: str) -> list[Any]:
        return [
            (owner, rows[:, lane], which)
            for name, (owner, rows) in owned.items()
            for which, lane in self._codes(name, rows, arg)
        ]

    def load(self, parts: Saved) -> SweepState:
        state = self.open()
        groups = state.groups
        for i, (front, upto) in enumerate(zip(state.fronts, parts.array("uptos").tolist(), strict=True)):
            front.upto = upto
            if (name := f"waiting{i}") in parts:
                front.add(parts.batch(name, upto, i))
        if GROUPS not in parts:
            state.places.load(np.zeros((0, state.places.lanes.shape[1]), dtype=np.int64), _first(parts))
            return state
        saved = parts.rows(GROUPS)
        keys = [] if groups.keys is None else [saved.column(name) for name in Slots.names(len(groups.keys.types))]
        slots = groups.slots(keys, len(saved))
        groups.numbers.give(slots, parts.numbers(GROUPS))
        lanes = unfixed(saved.column(LANES))
        owned = {LANES: (np.arange(len(saved)), lanes)}
        for name in self._owned(state):
            owner, values = unlisted(saved.column(name))
            owned[name] = owner, np.insert(unfixed(values), SLOT, slots[owner], axis=1)
        for arg, table in self._texts(state).items():
            code_strings(table, saved.column(_text(arg)), self._coded(owned, arg))
        places = self._loaded(state, PLACES, parts, slots)
        for i, front in enumerate(state.fronts):
            rows = self._loaded(state, _ends(i), parts, slots)
            front.ends.add(np.ascontiguousarray(rows[:, END]), rows, parts.numbers(_ends(i)))
        if parts.anew:
            # Places are others now: a group is forgotten once all of them have left.
            lanes[:, DIED] = len(places)
            places = places[np.argsort(places[:, START], kind="stable")]
        groups.lanes[slots] = lanes
        state.places.load(places, _first(parts))
        del owned[LANES]
        self._linked(state, {name: rows for name, (_, rows) in owned.items()})
        return state

    def _loaded(self, state: SweepState, name: str, parts: Saved, slots: Ints) -> Lanes:
        if name not in parts:
            width = state.places.lanes.shape[1] if name == PLACES else state.fronts[0].ends.width
            return np.zeros((0, width), dtype=np.int64)
        saved = parts.rows(name)
        owner = np.searchsorted(parts.array(f"{GROUPS}.number"), saved.column(OWNER).to_numpy())
        rows = np.insert(unfixed(saved.column(LANES)), _owner_lane(name), slots[owner], axis=1)
        for arg, table in self._texts(state).items():
            coded = self._coded({name: (np.arange(len(rows)), rows)}, arg)
            code_strings(table, saved.column(_text(arg)), coded)
        return rows


def _ends(port: int) -> str:
    return f"ends{port}"


def _text(arg: str) -> str:
    return f"text.{arg}"


def _owner_lane(name: str) -> int:
    """Where rows of lanes say which group they belong to."""
    return place_loops.OWNER if name == PLACES else SLOT


def _first(parts: Saved) -> int:
    """The number of the first place."""
    return 0 if parts.anew else int(parts.array("first")[0])

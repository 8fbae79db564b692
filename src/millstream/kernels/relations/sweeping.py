"""What operators that sweep over time have in common: their state, and how it is saved, divided and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Batch, Ints, concat
from millstream.kernels.kept import Ledger
from millstream.kernels.keys import bucket_of
from millstream.kernels.relations.back import Lanes, Places
from millstream.kernels.relations.front import END, SLOT, Front
from millstream.kernels.relations.groups import DIED, Groups
from millstream.kernels.relations.place_loops import OWNER, START

PLACES = "places"


@dataclass
class SweepState:
    """Groups, the rows that are valid or wait for their instant, and the output that waits for its turn."""

    groups: Groups
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


@dataclass
class Portable:
    """A state without links: groups are numbered 0, 1, …, and what belongs to one says so in a lane."""

    keys: pa.RecordBatch | None
    lanes: Lanes
    owned: dict[str, Lanes]
    """rows of lanes by name; the number of the group is in the lane OWNER of places, else in the first one"""
    waiting: dict[str, Batch]
    uptos: Ints
    texts: dict[str, pa.Array] = field(default_factory=dict)
    first: int = 0
    """the number of the first place"""
    numbers: dict[str, Ints] = field(default_factory=dict)
    """numbers that groups ("groups"), rows and strings keep for as long as they are there, if they are known"""


def owner_lane(name: str) -> int:
    """Where rows of lanes say which group they belong to."""
    return OWNER if name == PLACES else SLOT


def exported(state: SweepState, more: Mapping[str, Lanes]) -> Portable:
    """The portable form of a state; `more` holds further rows of lanes that begin with a slot."""
    live = state.groups.needed(state.places.first)
    number = np.zeros(len(state.groups.lanes), dtype=np.int64)
    number[live] = np.arange(len(live))
    ends = {f"ends{i}": front.ends.all() for i, front in enumerate(state.fronts)}
    owned = {name: rows for name, (rows, _) in ends.items()}
    owned |= {PLACES: state.places.held().copy(), **more}
    for name, rows in owned.items():
        rows[:, owner_lane(name)] = number[rows[:, owner_lane(name)]]
    lanes = state.groups.lanes[live]
    lanes[:, DIED] = np.maximum(lanes[:, DIED] - state.places.first, 0)
    keys = None if state.groups.keys is None else state.groups.keys.keys(live)
    batches = ((f"waiting{i}", front.waiting) for i, front in enumerate(state.fronts))
    waiting = {name: batch for name, batch in batches if batch is not None}
    numbers = {"groups": state.groups.numbers.of(live), **{name: own for name, (_, own) in ends.items()}}
    uptos = np.array([front.upto for front in state.fronts])
    return Portable(keys, lanes, owned, waiting, uptos, first=state.places.first, numbers=numbers)


def imported(state: SweepState, portable: Portable) -> dict[str, Lanes]:
    """Fill an empty state; gives back the rows of lanes that are not the state's own, with slots."""
    slots = state.groups.slots([] if portable.keys is None else portable.keys.columns, len(portable.lanes))
    state.groups.lanes[slots] = portable.lanes
    state.groups.lanes[slots, DIED] += portable.first
    state.groups.numbers.give(slots, portable.numbers.get("groups"))
    owned = dict(portable.owned)
    for name, rows in owned.items():
        rows = owned[name] = rows.copy()
        rows[:, owner_lane(name)] = slots[rows[:, owner_lane(name)]]
    for i, front in enumerate(state.fronts):
        rows = owned.pop(f"ends{i}")
        front.ends.add(np.ascontiguousarray(rows[:, END]), rows, portable.numbers.get(f"ends{i}"))
        front.upto = int(portable.uptos[i])
        if f"waiting{i}" in portable.waiting:
            front.add(portable.waiting[f"waiting{i}"].with_upto(front.upto))
    state.places.load(owned.pop(PLACES), portable.first)
    return owned


def divided(portable: Portable, parts: int, keys: Sequence[Sequence[int]]) -> list[Portable]:
    """The state by bucket of its keys; `keys` tells for each input which columns these are."""
    if portable.keys is None:
        nobody = np.zeros(0, dtype=np.int64)
        return [portable, *(_chosen(portable, nobody, {}) for _ in range(parts - 1))]
    owner = bucket_of(portable.keys.columns, parts)
    waits = {
        name: bucket_of([batch.rows.column(index) for index in keys[batch.port]], parts)
        for name, batch in portable.waiting.items()
    }
    return [
        _chosen(portable, np.flatnonzero(owner == part), {name: own == part for name, own in waits.items()})
        for part in range(parts)
    ]


def combined(portables: Sequence[Portable]) -> Portable:
    """States that share no group as one."""
    start = np.cumsum([0, *(len(portable.lanes) for portable in portables)])
    owned: dict[str, Lanes] = {}
    for name in portables[0].owned:
        parts = [portable.owned[name].copy() for portable in portables]
        for part, first in zip(parts, start, strict=False):
            part[:, owner_lane(name)] += first
        owned[name] = np.concatenate(parts)
    owned[PLACES] = owned[PLACES][np.argsort(owned[PLACES][:, START], kind="stable")]
    lanes = np.concatenate([portable.lanes for portable in portables])
    # Places of all states lie between those of one: a group is forgotten once all of them have left.
    lanes[:, DIED] = len(owned[PLACES])
    for name in owned:
        if name.startswith("ends"):
            owned[name] = owned[name][np.argsort(owned[name][:, END], kind="stable")]
    keys = [portable.keys for portable in portables if portable.keys is not None]
    waiting = {}
    for name in {name for portable in portables for name in portable.waiting}:
        batches = [portable.waiting[name] for portable in portables if name in portable.waiting]
        together = concat(batches, batches[0].upto)
        waiting[name] = together.take(np.argsort(together.time, kind="stable"))
    uptos = np.max([portable.uptos for portable in portables], axis=0)
    one = pa.Table.from_batches(keys).combine_chunks().to_batches() if keys else []
    return Portable(one[0] if one else keys[0] if keys else None, lanes, owned, waiting, uptos)


def _chosen(portable: Portable, own: Ints, waits: Mapping[str, Any]) -> Portable:
    number = np.full(len(portable.lanes), -1, dtype=np.int64)
    number[own] = np.arange(len(own))
    owned = {}
    for name, rows in portable.owned.items():
        owner = number[rows[:, owner_lane(name)]]
        owned[name] = rows[owner >= 0]
        owned[name][:, owner_lane(name)] = owner[owner >= 0]
    lanes = portable.lanes[own]
    lanes[:, DIED] = len(owned[PLACES])
    waiting = {name: portable.waiting[name].take(np.flatnonzero(mine)) for name, mine in waits.items() if mine.any()}
    keys = None if portable.keys is None else portable.keys.take(pa.array(own))
    return Portable(keys, lanes, owned, waiting, portable.uptos, portable.texts)

"""What the state of an OVER operator is: keys with their records, the rows of their rings, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.batch import Ints
from millstream.kernels.over.layout import OverLayout
from millstream.kernels.over.rings import place_rings, queue_runs, row_runs
from millstream.kernels.over.state import OverState, new_state
from millstream.kernels.saving.content import Content, Few, Slots
from millstream.kernels.saving.lists import Coded, Lanes, code_strings, fixed, lists, strings_of, unfixed, unlisted
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.saving.states import load_keys

_CELLS = "cells"

Owned = tuple[Ints, Lanes]
"""The record that each row of numbers belongs to, in their order, and these rows."""


def exported(layout: OverLayout, state: OverState) -> Content:
    """What the state is."""
    live = np.arange(state.slot_count) if state.keys is None else state.keys.live().astype(np.int64)
    slots = Slots(live, state.ledger, partial(_taken, layout, state), len(layout.spec.keys))
    pending = {} if state.pending is None else {"pending": Few(state.pending)}
    return {"upto": np.array([state.upto]), "slots": slots, **pending}


def _taken(layout: OverLayout, state: OverState, slots: Ints) -> pa.StructArray:
    shards = len(state.shards)
    records = np.zeros((len(slots), len(layout.slot_lanes)), dtype=np.int64)
    found: dict[str, list[Owned]] = {}
    for number, shard in enumerate(state.shards):
        mine = np.flatnonzero(slots % shards == number)
        own = shard.records[slots[mine] // shards]
        records[mine] = own
        if layout.logged:
            rows = row_runs(layout, own)
            cells = shard.cells[rows.cell[:, None] + np.arange(shard.cell)]
            found.setdefault(_CELLS, []).append((mine[rows.owner], cells))
        for i, queue in enumerate(layout.queues):
            entries = queue_runs(layout, own, i)
            places = shard.cells[entries.cell + layout.cell_lanes[f"{queue.name}_queue"]]
            found.setdefault(f"queue{i}", []).append((mine[entries.owner], places[:, None]))
        if layout.tables:
            number_of = np.full(len(shard.records), -1, dtype=np.int64)
            number_of[slots[mine] // shards] = mine
        for i in range(len(layout.tables)):
            counted = shard.entries(i)
            owner = number_of[(counted[:, 0] - 1) // shard.width]
            found.setdefault(f"table{i}", []).append((owner[owner >= 0], counted[owner >= 0, 1:]))
    owned = {name: _gathered(parts) for name, parts in found.items()}
    columns: dict[str, pa.Array] = {}
    for arg in layout.texts:
        coded = _coded(layout, arg, records, owned)
        columns[f"text.{arg.name}"] = strings_of(state.texts[arg.name], coded, len(slots))
    columns["record"] = fixed(records)
    columns |= {name: lists(owner, fixed(rows), len(slots)) for name, (owner, rows) in owned.items()}
    return Slots.rows(state.keys, slots, columns)


def _gathered(parts: Sequence[Owned]) -> Owned:
    """All parts together in the order of their owners."""
    owner = np.concatenate([owner for owner, _ in parts])
    order = np.argsort(owner, kind="stable")
    return owner[order], np.concatenate([rows for _, rows in parts])[order]


def _coded(layout: OverLayout, arg: ArgumentColumn, records: Lanes, owned: dict[str, Owned]) -> list[Coded]:
    """Everywhere that codes of an argument's strings stand."""
    every = np.arange(len(records))
    found: list[Any] = [(every, records[:, value], records[:, known] == 1) for known, value in layout.text_lanes(arg)]
    if arg.name in layout.cell_lanes:
        owner, cells = owned[_CELLS]
        lane = cells[:, layout.cell_lanes[arg.name]]
        found.append((owner, lane, lane >= 0))
    for i, part in enumerate(layout.tables):
        if part.arg == arg:
            owner, rows = owned[f"table{i}"]
            found.append((owner, rows[:, 0], np.ones(len(rows), dtype=np.bool_)))
    return found


def loaded(layout: OverLayout, parts: Saved, threads: int) -> OverState:
    """A running state."""
    state = new_state(layout, threads)
    state.upto = int(parts.array("upto")[0])
    state.pending = parts.batch("pending", state.upto) if "pending" in parts else None
    if "slots" not in parts:
        return state
    saved = parts.rows("slots")
    load_keys(state.keys, saved)
    records = unfixed(saved.column("record"))
    for lane in (layout.slot_lanes[f"{frame.name}_width"] for frame in layout.logged if frame.is_own):
        state.longest = max(state.longest, int(records[:, lane].max(initial=0)))
    names = [_CELLS] if layout.logged else []
    names += [f"queue{i}" for i in range(len(layout.queues))] + [f"table{i}" for i in range(len(layout.tables))]
    owned: dict[str, Owned] = {}
    for name in names:
        owner, rows = unlisted(saved.column(name))
        owned[name] = owner, unfixed(rows)
    for arg in layout.texts:
        code_strings(state.texts[arg.name], saved.column(f"text.{arg.name}"), _coded(layout, arg, records, owned))
    shards = len(state.shards)
    for number, shard in enumerate(state.shards):
        own = records[number::shards].copy()
        mine = np.full(len(records), -1, dtype=np.int64)
        mine[number::shards] = np.arange(len(own))
        if layout.logged:
            owner, cells = _chosen(owned[_CELLS], mine)
            lanes = place_rings(layout, own, np.bincount(owner, minlength=len(own)))
            shard.cells = np.zeros(lanes, dtype=np.int64)
            shard.regions[0] = lanes
            shard.cells[row_runs(layout, own).cell[:, None] + np.arange(shard.cell)] = cells
            for i, queue in enumerate(layout.queues):
                lane = layout.cell_lanes[f"{queue.name}_queue"]
                shard.cells[queue_runs(layout, own, i).cell + lane] = _chosen(owned[f"queue{i}"], mine)[1][:, 0]
        shard.slots = own.reshape(-1)
        for i in range(len(layout.tables)):
            owner, counted = _chosen(owned[f"table{i}"], mine)
            shard.set_entries(i, np.column_stack([owner * shard.width + 1, counted]))
    state.kept_texts = {name: len(table) for name, table in state.texts.items()}
    return state


def _chosen(owned: Owned, number: Ints) -> Owned:
    """The rows of the records that have a number, under that."""
    owner = number[owned[0]]
    return owner[owner >= 0], owned[1][owner >= 0]

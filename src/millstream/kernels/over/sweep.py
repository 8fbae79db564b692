"""Forgetting: keys whose rows have all left their frames, and strings that nothing refers to any more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.batch import BEGIN
from millstream.kernels.keys.words import to_words
from millstream.kernels.over.layout import OverLayout
from millstream.kernels.over.loops import FIRST_CAPACITY
from millstream.kernels.over.rings import row_runs
from millstream.kernels.over.state import OverState, Shard

_KEYS_AT_LEAST = 256
_TEXTS_AT_LEAST = 1_024


def sweep(layout: OverLayout, state: OverState) -> None:
    """Forget what is dead: keys once all that lived the last time and were not seen since are dead, strings once there
    may be as many dead ones as there were in all. Either way the work is little for each row that came in between."""
    expires = None if layout.expires is None else max(layout.expires, state.longest)
    keys = 0 if state.keys is None else len(state.keys)
    if expires is not None and keys >= _KEYS_AT_LEAST and state.upto > state.swept_upto + expires:
        _forget_keys(layout, state, max(state.upto, BEGIN + expires) - expires)
        state.swept_upto = state.upto
    for arg in layout.texts:
        table = state.texts[arg.name]
        if len(table) > 2 * state.kept_texts.get(arg.name, 0) + _TEXTS_AT_LEAST:
            used = np.concatenate([_used_codes(layout, arg, shard) for shard in state.shards])
            table.release(np.setdiff1d(table.live(), used))
            state.kept_texts[arg.name] = len(table)


def _forget_keys(layout: OverLayout, state: OverState, since: int) -> None:
    assert state.keys is not None
    live = state.keys.live()
    shards = len(state.shards)
    ended = None
    if layout.spec.ends is not None:
        column = state.keys.keys(live).column(layout.spec.keys.index(layout.spec.ends))
        ended = to_words(column, layout.spec.input[layout.spec.ends].type)[0] < since
    dead = []
    for number, shard in enumerate(state.shards):
        mine = live[live % shards == number]
        own = shard.records[mine // shards]
        gone = np.ones(len(own), dtype=np.bool_) if ended is None else ended[live % shards == number]
        if layout.logged:
            lanes = layout.slot_lanes
            base, capacity, tail = (own[:, lanes[name]] for name in ("base", "capacity", "tail"))
            newest = base + ((tail - 1) & (capacity - 1)) * shard.cell
            if ended is None:
                gone = shard.cells[newest + layout.cell_lanes["time"]] < since
            _free_regions(shard, base[gone], capacity[gone])
        offsets = (mine[gone] // shards) * shard.width
        for table in range(len(layout.tables)):
            entries = shard.entries(table)
            shard.set_entries(table, entries[~np.isin(entries[:, 0] - 1, offsets)])
        shard.records[mine[gone] // shards] = 0
        dead.append(mine[gone])
    slots = np.concatenate(dead)
    state.keys.release(slots)
    state.ledger.release(slots)


def _free_regions(shard: Shard, base: npt.NDArray[np.int64], capacity: npt.NDArray[np.int64]) -> None:
    """Chain the regions of each size in front of those that are free already."""
    kind, size = 1, FIRST_CAPACITY
    while kind < len(shard.regions):
        places = base[capacity == size]
        if len(places):
            shard.cells[places[:-1]] = places[1:] + 1
            shard.cells[places[-1]] = shard.regions[kind]
            shard.regions[kind] = places[0] + 1
        kind, size = kind + 1, size * 2


def _used_codes(layout: OverLayout, arg: ArgumentColumn, shard: Shard) -> npt.NDArray[np.int64]:
    records = shard.records
    used = [records[records[:, known] == 1, value] for known, value in layout.text_lanes(arg)]
    if arg.name in layout.cell_lanes:
        used.append(shard.cells[row_runs(layout, records).cell + layout.cell_lanes[arg.name]])
    used += [shard.entries(i)[:, 1] for i, part in enumerate(layout.tables) if part.arg == arg]
    return np.concatenate([np.zeros(0, dtype=np.int64), *used])

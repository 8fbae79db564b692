"""Partitions in a form that can be saved, divided and put together: their keys, rows and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.patterns.log import Bools, RowLog
from millstream.kernels.patterns.machine import Array, Machine, Part
from millstream.kernels.snapshots import Saved

_MACHINE = "machine."


@dataclass(frozen=True)
class Exported:
    """Some slots: their keys, rows in order of arrival with the place of their slot, and what the machine knows."""

    keys: pa.RecordBatch | None
    cut: Bools
    owner: Ints
    time: Ints
    seq: Ints
    rows: pa.RecordBatch | None
    machine: dict[str, Array]


@dataclass(frozen=True)
class Loaded:
    """Slots that were exported, and which of them to load (None: all)."""

    exported: Exported
    own: Ints | None


def export_slots(
    machine: Machine, state: Any, log: RowLog, keys: KeyTable | None, groups: Sequence[Ints]
) -> Iterator[Exported]:
    """Each group of slots."""
    kept = log.kept(machine.floors(state, log))
    for slots in groups:
        owner = np.full(log.slots, -1)
        owner[slots] = np.arange(len(slots))
        mine = owner[log.slot]
        chosen = np.flatnonzero(kept & (mine >= 0))
        place = np.full(len(log), -1)
        place[chosen] = np.arange(len(chosen))
        cut = log.cut[slots]
        cut[mine[~kept & (mine >= 0)]] = True
        yield Exported(
            None if keys is None else keys.keys(slots), cut, mine[chosen],
            log.time[chosen], log.seq[chosen], _rows(log, chosen), machine.export(state, slots, place),
        )  # fmt: skip


def _rows(log: RowLog, chosen: Ints) -> pa.RecordBatch | None:
    if log.held is not None:
        return log.held.take(chosen)
    if not log.types:
        return None
    columns = [log.decode(name, log.values[name][chosen], log.ok[name][chosen]) for name in log.types]
    return pa.RecordBatch.from_arrays(columns, names=list(log.types))


def to_saved(exported: Exported) -> dict[str, Any]:
    """Named parts of a snapshot."""
    names = ("cut", "owner", "time", "seq")
    parts: dict[str, Any] = {name: getattr(exported, name) for name in names}
    parts |= {name: part for name in ("keys", "rows") if (part := getattr(exported, name)) is not None}
    return parts | {f"{_MACHINE}{name}": array for name, array in exported.machine.items()}


def from_saved(saved: Saved) -> Exported:
    """The inverse of `to_saved`."""
    keys, rows = (saved.rows(name) if name in saved else None for name in ("keys", "rows"))
    names = ("cut", "owner", "time", "seq")
    cut, owner, time, seq = (np.array(saved.array(name)) for name in names)
    machine = {name.removeprefix(_MACHINE): saved.array(name) for name in saved.columns if name.startswith(_MACHINE)}
    return Exported(keys, cut, owner, time, seq, rows, machine)


def loaded(machine: Machine, log: RowLog, keys: KeyTable | None, parts: Sequence[Loaded]) -> tuple[int, Any]:
    """Fill an empty log and key table with slots numbered from 0: how many they are, and the machine's state."""
    owns = [np.arange(len(part.exported.cut)) if part.own is None else part.own for part in parts]
    total = sum(map(len, owns))
    log.hold_slots(total)
    if keys is not None:
        for part, own in zip(parts, owns, strict=True):
            assert part.exported.keys is not None
            if len(own):
                keys.encode(part.exported.keys.take(pa.array(own)).columns)
    slots, chosens, begin = [], [], 0
    for part, own in zip(parts, owns, strict=True):
        exported = part.exported
        number = np.full(len(exported.cut) + 1, -1)
        number[own] = begin + np.arange(len(own))
        mine = number[exported.owner]
        chosens.append(np.flatnonzero(mine >= 0))
        slots.append(mine[mine >= 0])
        log.cut[begin : begin + len(own)] = exported.cut[own]
        begin += len(own)
    positions = _fill(log, parts, slots, chosens)
    loads = []
    for part, own, chosen, position in zip(parts, owns, chosens, positions, strict=True):
        places = np.full(len(part.exported.owner), -1)
        places[chosen] = position
        loads.append(Part(part.exported.machine, own, places))
    return total, machine.load(loads)


def _fill(log: RowLog, parts: Sequence[Loaded], slots: list[Ints], chosens: list[Ints]) -> list[Ints]:
    """Add the chosen rows of all parts in order of arrival; their positions."""
    if not sum(map(len, chosens)):
        return chosens
    pairs = [(part.exported, chosen) for part, chosen in zip(parts, chosens, strict=True)]
    time = np.concatenate([exported.time[chosen] for exported, chosen in pairs])
    seq = np.concatenate([exported.seq[chosen] for exported, chosen in pairs])
    order = np.lexsort((seq, time))
    rows = None
    columns = {}
    if log.held is not None or log.types:
        batches = [exported.rows.take(pa.array(chosen)) for exported, chosen in pairs if exported.rows is not None]
        table = pa.Table.from_batches(batches).take(pa.array(order)).combine_chunks()
        rows = table.to_batches()[0]
        columns = {name: log.encode(name, rows.column(name)) for name in log.types}
    log.add(
        time[order],
        seq[order],
        np.concatenate(slots)[order].astype(np.int32),
        columns,
        None if log.held is None else rows,
    )
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return np.split(position, np.cumsum([len(chosen) for chosen in chosens])[:-1])

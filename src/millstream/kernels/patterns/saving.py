"""What the state of a search is: partitions with their keys, their rows, and what the machine knows of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.patterns.log import RowLog
from millstream.kernels.patterns.machine import Machine, Positions
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.saving.content import struct
from millstream.kernels.saving.lists import lists, unlisted
from millstream.kernels.saving.signatures import signature_of
from millstream.kernels.saving.snapshots import Saved

_MACHINE = "machine."


def taken(spec: MatchSpec, machine: Machine, state: Any, log: RowLog, slots: Ints) -> dict[str, pa.Array]:
    """What is known of these slots, their rows in order of arrival."""
    kept = log.kept(machine.floors(state, log))
    number = np.full(log.slots, -1)
    number[slots] = np.arange(len(slots))
    mine = number[log.slot]
    chosen = np.flatnonzero(kept & (mine >= 0))
    chosen = chosen[np.argsort(mine[chosen], kind="stable")]
    owner = mine[chosen]
    place = np.full(len(log), -1)
    place[chosen] = np.arange(len(chosen)) - np.searchsorted(owner, owner)
    cut = log.cut[slots]
    cut[mine[~kept & (mine >= 0)]] = True
    rows = {"time": pa.array(log.time[chosen]), "seq": pa.array(log.seq[chosen])}
    held = _rows(log, chosen)
    if held is not None:
        rows["row"] = signature_of(spec).placed(held).to_struct_array()
    known = {f"{_MACHINE}{name}": column for name, column in machine.export(state, slots, place).items()}
    return {"cut": pa.array(cut), "rows": lists(owner, struct(rows), len(slots)), **known}


def _rows(log: RowLog, chosen: Ints) -> pa.RecordBatch | None:
    if log.held is not None:
        return log.held.take(chosen)
    columns = {name: log.decode(name, log.values[name][chosen], log.ok[name][chosen]) for name in log.types}
    return pa.RecordBatch.from_pydict(columns) if columns else None


def loaded(machine: Machine, log: RowLog, parts: Saved) -> Any:
    """Fill an empty log with slots numbered from 0; the machine's state."""
    saved = parts.rows("slots")
    count = len(saved)
    log.hold_slots(count)
    log.cut[:count] = saved.column("cut").to_numpy(zero_copy_only=False)
    owner, values = unlisted(saved.column("rows"))
    time, seq = (values.field(name).to_numpy() for name in ("time", "seq"))
    order = np.lexsort((seq, time))
    if len(order):
        rows, columns = None, {}
        if log.held is not None or log.types:
            rows = parts.named(values.field("row").take(pa.array(order)))
            columns = {name: log.encode(name, rows.column(name)) for name in log.types}
        held = None if log.held is None else rows
        log.add(time[order], seq[order], owner[order].astype(np.int32), columns, held)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    known = {
        name.removeprefix(_MACHINE): saved.column(name) for name in saved.schema.names if name.startswith(_MACHINE)
    }
    return machine.load(known, Positions(np.searchsorted(owner, np.arange(count)), position))

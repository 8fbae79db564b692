"""The saved form of an OVER operator's state: as one snapshot, or in pieces of which only changed ones are given.

A piece holds some keys and is never changed: keys that were touched move to new pieces, and the head, piece 0, tells
which keys of each older piece are still its own. So what is saved is what was touched, wherever it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import StateError
from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.over.layout import Layout
from millstream.kernels.over.pieces import Pieces
from millstream.kernels.over.portable import Owned, Portable, combine, export, export_each, rebuild
from millstream.kernels.over.spec import OverSpec
from millstream.kernels.over.state import OverState, new_state

Parts = dict[str, npt.NDArray[Any] | pa.Array | pa.RecordBatch | Batch]
HEAD = 0


def save_portable(spec: OverSpec, portable: Portable) -> bytes:
    """Snapshot bytes."""
    return snapshots.save(spec, _parts(portable))


def load_portable(layout: Layout, saved: bytes) -> Portable:
    """The inverse of `save_portable`."""
    return _portable(layout, snapshots.load(layout.spec, saved))


def changed_pieces(layout: Layout, state: OverState) -> dict[int, bytes | None]:
    """What changed since the last call, by piece."""
    if state.pieces is None:
        if state.upto == BEGIN and state.pending is None and not state.slot_count:
            return {}
        state.pieces = Pieces()
        state.pieces.touch(np.arange(state.slot_count) if state.keys is None else state.keys.live(), state.slot_count)
    pieces = state.pieces
    gone, made = pieces.regroup()
    changed: dict[int, bytes | None] = dict.fromkeys(gone)
    portables = export_each(layout, state, [slots for _, slots in made])
    for (number, _), portable in zip(made, portables, strict=True):
        changed[number] = snapshots.save(layout.spec, _parts(portable) | {"piece": pieces.label(number)})
    if pieces.is_head_old(state.upto, state.pending):
        changed[HEAD] = _saved_head(layout.spec, state, pieces)
    return changed


def assembled(layout: Layout, saved: Mapping[int, bytes], threads: int) -> OverState:
    """A running state from its pieces."""
    if not saved:
        return new_state(layout, threads)
    if HEAD not in saved:
        raise StateError("saved state is incomplete", detail="its first piece is missing")
    head = snapshots.load(layout.spec, saved[HEAD])
    labels = np.array(head.array("pieces")).reshape(-1, 2)
    if set(saved) != {HEAD, *labels[:, 0].tolist()}:
        raise StateError("saved state is incomplete", detail=f"it has {len(saved)} of {len(labels) + 1} pieces")
    upto = int(head.array("upto")[0])
    pending = head.batch("pending", upto) if "pending" in head else None
    bits = head.array("live")
    live = np.unpackbits(bits.reshape(len(labels), len(bits) // max(1, len(labels))), axis=1).astype(np.bool_)
    portables = [replace(export(layout, new_state(layout, 1)), pending=pending, upto=upto)]
    for label, own in zip(labels, live, strict=True):
        piece = snapshots.load(layout.spec, saved[int(label[0])])
        if not np.array_equal(piece.array("piece"), label):
            raise StateError(
                "saved state is not of one moment", detail=f"piece {label[0]} is older or newer than others"
            )
        portables.append(_portable(layout, piece).of(np.flatnonzero(own)))
    state = rebuild(layout, combine(layout, portables), threads)
    if state.keys is not None and len(state.keys) != int(live.sum()):
        raise StateError("saved state is not of one moment", detail="a key is in several pieces")
    state.pieces = Pieces.of(labels, live, state.upto, state.pending)
    return state


def _saved_head(spec: OverSpec, state: OverState, pieces: Pieces) -> bytes:
    """What belongs to no key, and which keys belong to which piece."""
    labels, live = pieces.index()
    parts: Parts = {"upto": np.array([state.upto]), "pieces": labels, "live": np.packbits(live, axis=1)}
    if state.pending is not None:
        parts["pending"] = state.pending
    pieces.head_given(state.upto, state.pending)
    return snapshots.save(spec, parts)


def _parts(portable: Portable) -> Parts:
    parts: Parts = {
        "upto": np.array([portable.upto]),
        "records": portable.records,
        "cells": portable.cells.rows,
        "cells.owner": portable.cells.owner,
    }
    for name, owned in (("queue", portable.queues), ("table", portable.tables)):
        for i, part in enumerate(owned):
            parts |= {f"{name}{i}": part.rows, f"{name}{i}.owner": part.owner}
    parts |= {f"text.{name}": values for name, values in portable.texts.items()}
    if portable.keys is not None:
        parts["keys"] = portable.keys
    if portable.pending is not None:
        parts["pending"] = portable.pending
    return parts


def _portable(layout: Layout, parts: snapshots.Saved) -> Portable:
    def owned(name: str, width: int) -> Owned:
        return Owned(parts.array(f"{name}.owner"), np.array(parts.array(name)).reshape(-1, width))

    upto = int(parts.array("upto")[0])
    return Portable(
        parts.rows("keys") if layout.spec.keys else None,
        np.array(parts.array("records")).reshape(-1, len(layout.slot_lanes)),
        owned("cells", max(1, len(layout.cell_lanes))),
        tuple(owned(f"queue{i}", 1) for i in range(len(layout.queues))),
        tuple(owned(f"table{i}", 2) for i in range(len(layout.tables))),
        {arg.name: parts.column(f"text.{arg.name}") for arg in layout.texts},
        parts.batch("pending", upto) if "pending" in parts else None,
        upto,
    )

"""The saved form of an OVER operator's state: as one snapshot, or in pieces of which only changed ones are given.

A piece holds some keys and is never changed: keys that were touched move to new pieces, and the head, piece 0, tells
which keys of each older piece are still its own. So what is saved is what was touched, wherever it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.errors import StateError
from millstream.kernels import piecewise, snapshots
from millstream.kernels.batch import BEGIN
from millstream.kernels.over.layout import Layout
from millstream.kernels.over.portable import Owned, Portable, combine, export, export_each, rebuild
from millstream.kernels.over.spec import OverSpec
from millstream.kernels.over.state import OverState, new_state
from millstream.kernels.pieces import Pieces
from millstream.kernels.piecewise import Assembly, Parts


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

    def head() -> Parts | None:
        if not pieces.is_head_old(state.upto, state.pending):
            return None
        pieces.head_given(state.upto, state.pending)
        return {"upto": np.array([state.upto])} | ({} if state.pending is None else {"pending": state.pending})

    return piecewise.changed_pieces(
        layout.spec, pieces, lambda groups: map(_parts, export_each(layout, state, groups)), head
    )


def assembled(layout: Layout, saved: Mapping[int, bytes], threads: int) -> OverState:
    """A running state from its pieces."""
    if not saved:
        return new_state(layout, threads)
    assembly = Assembly.of(layout.spec, saved)
    upto = int(assembly.head.array("upto")[0])
    pending = assembly.head.batch("pending", upto) if "pending" in assembly.head else None
    portables = [replace(export(layout, new_state(layout, 1)), pending=pending, upto=upto)]
    portables += [_portable(layout, piece).of(own) for piece, own in assembly.pieces]
    state = rebuild(layout, combine(layout, portables), threads)
    if state.keys is not None and len(state.keys) != int(assembly.live.sum()):
        raise StateError("saved state is not of one moment", detail="a key is in several pieces")
    state.pieces = Pieces.of(assembly.labels, assembly.live, state.upto, state.pending)
    return state


def _parts(portable: Portable) -> dict[str, Any]:
    parts: dict[str, Any] = {
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

"""Keyed state saved in pieces of which only changed ones are given; see `Pieces` for how keys are divided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import StateError
from millstream.kernels import snapshots
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.pieces import Bools, Pieces

Parts = Mapping[str, npt.NDArray[Any] | pa.Array | pa.RecordBatch | Batch]
HEAD = 0


def changed_pieces(
    spec: object,
    pieces: Pieces,
    export_each: Callable[[Sequence[Ints]], Iterable[Parts]],
    head: Callable[[], Parts | None],
) -> dict[int, bytes | None]:
    """The pieces that changed, by number: `export_each` gives what is known of the keys of each group of slots, `head`,
    asked afterwards, what belongs to no key, or None if that has not changed and no key has moved."""
    changed = moved_pieces(spec, pieces, export_each)
    parts_of_head = head()
    if parts_of_head is not None:
        changed[HEAD] = snapshots.save(spec, {**parts_of_head, **index_parts(pieces)})
    return changed


def moved_pieces(
    spec: object, pieces: Pieces, export_each: Callable[[Sequence[Ints]], Iterable[Parts]]
) -> dict[int, bytes | None]:
    """The pieces that are new or gone, without the head."""
    gone, made = pieces.regroup()
    changed: dict[int, bytes | None] = dict.fromkeys(gone)
    for (number, _), parts in zip(made, export_each([slots for _, slots in made]), strict=True):
        changed[number] = snapshots.save(spec, {**parts, "piece": pieces.label(number)})
    return changed


def index_parts(pieces: Pieces, of: str = "") -> dict[str, npt.NDArray[Any]]:
    """What the head tells of pieces; several divisions in one head have different names."""
    labels, bits = pieces.index()
    return {f"{of}pieces": labels, f"{of}live": bits}


@dataclass(frozen=True)
class Assembly:
    """What was saved: the head, and the pieces with the places of the keys that are still theirs."""

    head: snapshots.Saved
    labels: Ints
    live: Bools
    pieces: list[tuple[snapshots.Saved, Ints]]

    @staticmethod
    def of(spec: object, saved: Mapping[int, bytes]) -> Assembly:
        """The pieces that belong together; StateError if they are not all of one moment."""
        if HEAD not in saved:
            raise StateError("saved state is incomplete", detail="its first piece is missing")
        head = snapshots.load(spec, saved[HEAD])
        return Assembly(head, *indexed(spec, head, {number: own for number, own in saved.items() if number != HEAD}))


def indexed(
    spec: object, head: snapshots.Saved, saved: Mapping[int, bytes], of: str = ""
) -> tuple[Ints, Bools, list[tuple[snapshots.Saved, Ints]]]:
    """The labels of the pieces that the head tells of, which of their keys are still theirs, and the pieces with the
    places of these; StateError if what was saved is something else."""
    index = np.array(head.array(f"{of}pieces")).reshape(-1, 4)
    labels, live = index[:, :2], Pieces.live_of(index, head.array(f"{of}live"))
    if set(saved) != set(labels[:, 0].tolist()):
        raise StateError("saved state is incomplete", detail=f"it has {len(saved)} of {len(labels)} pieces")
    pieces = []
    for label, own in zip(labels, live, strict=True):
        piece = snapshots.load(spec, saved[int(label[0])])
        if not np.array_equal(piece.array("piece"), label):
            raise StateError(
                "saved state is not of one moment", detail=f"piece {label[0]} is older or newer than others"
            )
        pieces.append((piece, np.flatnonzero(own)))
    return labels, live, pieces

"""What a bucket keeps between micro-batches, in Spark's state store: rows that wait for time, and the kernel's state.

Both are kept in pieces, so that a micro-batch reads and writes only what it needs: waiting rows by blob, with an
index of their times in the head; the kernel's state in the pieces that the kernel divides it into, of which only
changed ones are written. Each access is a message to Java and back, so what is small is kept in the head itself.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections import OrderedDict
from dataclasses import field, fields
from typing import Any

import numpy as np

from millstream.errors import StateError
from millstream.hosts.spark.stage import FORMAT, Stage
from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.contract import Kernel, State
from millstream.kernels.saving import states as saving
from millstream.records import dataclass

LIVE_BUCKETS = 256
"""Buckets whose kernel state a worker process keeps at hand."""

NEAR_BYTES = 1 << 16
"""Bytes of a stage's blobs and pieces that the head of a bucket may hold: they are written with it, changed or not."""

READABLE = (4, 5, FORMAT)
"""Formats of heads: 4 has no blobs and pieces in it; before 6 all that waits are rows, no partials."""


@dataclass
class Head:
    """The small part of a bucket's state, read and written as a whole."""

    signature: str
    format: int = FORMAT
    upto: int = BEGIN
    timer: int = -1
    late: int = 0
    """fresh rows that came after their time had passed"""
    next_blob: int = 0
    token: str = ""
    """random, new with every change: a worker's live state is valid only for the token it was left with"""
    clocks: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    """when each clock moved last, in µs of wall-clock time"""
    waiting: list[tuple[int, int, int, int]] = field(default_factory=list)
    """of each waiting blob: its number, its port, its earliest time, its rows"""
    pieces: dict[str, int] = field(default_factory=dict)
    """the bytes of each piece of the kernel's state"""
    near: dict[str, bytes] = field(default_factory=dict)
    """blobs (w and their number) and pieces (k and their number) that are kept here"""

    @staticmethod
    def first(stage: Stage, now: int) -> Head:
        count = len(stage.beating)
        return Head(stage.signature, clocks=[BEGIN] * count, moved=[now] * count)

    def check(self, stage: Stage) -> None:
        """Refuse the state of another query."""
        if self.signature != stage.signature:
            raise StateError(
                "the checkpoint belongs to another query",
                detail="a kernel, its columns or the number of buckets changed since the state was saved",
                hint="start with a new checkpoint directory",
            )

    def tick(self, clock: int, upto: int, now: int) -> None:
        """A clock has come to `upto`."""
        self.moved[clock] = now
        self.clocks[clock] = max(self.clocks[clock], upto)

    @property
    def waiting_rows(self) -> int:
        return sum(rows for _, _, _, rows in self.waiting)

    @property
    def kernel_bytes(self) -> int:
        return sum(self.pieces.values())

    def put_near(self, name: str, blob: bytes, most: int) -> bool:
        """Keep a blob or piece here, in place of the one of that name; False if more than `most` bytes would be."""
        others = sum(len(held) for key, held in self.near.items() if key != name)
        if others + len(blob) > most:
            self.near.pop(name, None)
            return False
        self.near[name] = blob
        return True

    def saved(self) -> dict[str, Any]:
        """The head as JSON has it."""
        near = {name: b64encode(blob).decode() for name, blob in self.near.items()}
        return {**{entry.name: getattr(self, entry.name) for entry in fields(self)}, "near": near}

    @staticmethod
    def read(saved: dict[str, Any]) -> Head:
        if saved.get("format") not in READABLE:
            raise StateError(
                f"the checkpoint has format {saved.get('format')}, this version reads format {FORMAT}",
                hint="finish the query with the version that started it, or start with a new checkpoint directory",
            )
        waiting = [tuple(entry) for entry in saved["waiting"]]
        near = {name: b64decode(blob) for name, blob in saved.get("near", {}).items()}
        return Head(**{**saved, "format": FORMAT, "waiting": waiting, "near": near})


class Store:
    """The blobs and pieces of one stage in a bucket; the implicit key (the bucket) is set by Spark around every call.

    Stages that share the variables of an operator are told apart by `slot`, the first part of their keys.
    """

    def __init__(self, waiting: Any, kernel: Any, slot: tuple[int, ...] = (), near: int | None = None) -> None:
        self._blobs = waiting
        self._pieces = kernel
        self._slot = slot
        self._near = NEAR_BYTES if near is None else near

    def hold(self, head: Head, port: int, earliest: int, rows: int, blob: bytes) -> None:
        """Keep a blob of rows that wait for their time."""
        if not head.put_near(f"w{head.next_blob}", blob, self._near):
            self._blobs.updateValue((*self._slot, head.next_blob), (blob,))
        head.waiting.append((head.next_blob, port, earliest, rows))
        head.next_blob += 1

    def due(self, head: Head, upto: int) -> list[tuple[int, bytes]]:
        """Take out the waiting blobs (with their ports) that hold rows below `upto`."""
        taken = [entry for entry in head.waiting if entry[2] < upto]
        found = [(port, self._taken(head, number)) for number, port, _, _ in taken]
        head.waiting = [entry for entry in head.waiting if entry[2] >= upto]
        return found

    def _taken(self, head: Head, number: int) -> bytes:
        near = head.near.pop(f"w{number}", None)
        if near is not None:
            return near
        blob = bytes(self._blobs.getValue((*self._slot, number))[0])
        self._blobs.removeKey((*self._slot, number))
        return blob

    def pieces(self, head: Head) -> dict[int, bytes]:
        """All pieces of the kernel's state."""
        return {int(number): self._piece(head, int(number)) for number in head.pieces}

    def _piece(self, head: Head, number: int) -> bytes:
        near = head.near.get(f"k{number}")
        return bytes(self._pieces.getValue((*self._slot, number))[0]) if near is None else near

    def put_pieces(self, head: Head, changes: dict[int, bytes | None]) -> None:
        """Write the pieces that changed."""
        for number, piece in changes.items():
            name = f"k{number}"
            far = str(number) in head.pieces and name not in head.near
            if piece is None:
                head.pieces.pop(str(number), None)
                head.near.pop(name, None)
            else:
                head.pieces[str(number)] = len(piece)
            if piece is not None and not head.put_near(name, piece, self._near):
                self._pieces.updateValue((*self._slot, number), (piece,))
            elif far:
                self._pieces.removeKey((*self._slot, number))
        head.token = os.urandom(8).hex()

    def clear(self, head: Head) -> None:
        """Forget everything: the stage is no more."""
        for number, _, _, _ in head.waiting:
            if f"w{number}" not in head.near:
                self._blobs.removeKey((*self._slot, number))
        for piece in head.pieces:
            if f"k{piece}" not in head.near:
                self._pieces.removeKey((*self._slot, int(piece)))


class SoleStore(Store):
    """The state variables of an operator that runs one stage."""

    def __init__(self, handle: Any) -> None:
        super().__init__(
            handle.getMapState("waiting", "number BIGINT", "blob BINARY"),
            handle.getMapState("kernel", "number BIGINT", "piece BINARY"),
            near=getattr(handle, "near_bytes", None),
        )
        self._head = handle.getValueState("head", "head STRING")

    def head(self) -> Head | None:
        found = self._head.get()
        return None if found is None else Head.read(json.loads(found[0]))

    def put_head(self, head: Head) -> None:
        self._head.update((json.dumps(head.saved()),))


_LIVE: OrderedDict[tuple[str, int], tuple[str, State]] = OrderedDict()
"""By the place of a stage and its bucket: the token that its state was left with, and the state."""


def live_state(kernel: Kernel, store: Store, head: Head, place: str, bucket: int) -> State:
    """The bucket's kernel state: as this process left it if nobody changed it since, otherwise put together again."""
    token, live = _LIVE.pop((place, bucket), ("", None))
    if live is not None and token and token == head.token:
        return live
    return saving.assemble(kernel, store.pieces(head)) if head.pieces else kernel.open()


def keep_live(head: Head, place: str, bucket: int, live: State) -> None:
    """Remember the state for the next micro-batch."""
    _LIVE[(place, bucket)] = (head.token, live)
    while len(_LIVE) > LIVE_BUCKETS:
        _LIVE.popitem(last=False)


def clocks_of(head: Head) -> tuple[Ints, Ints]:
    """Where the clocks stand, and when each moved last."""
    return np.array(head.clocks, dtype=np.int64), np.array(head.moved, dtype=np.int64)

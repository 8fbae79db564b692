"""What a bucket keeps between micro-batches, in Spark's state store: rows that wait for time, and the kernel's state.

Both are kept in pieces, so that a micro-batch reads and writes only what it needs: waiting rows by blob, with an
index of their times in the head; the kernel's snapshot in chunks, of which only changed ones are written.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import BEGIN
from millstream.kernels.contract import Kernel, State

CHUNK = 1 << 18
"""Bytes of a piece of the kernel's snapshot."""

LIVE_BUCKETS = 256
"""Buckets whose kernel state a worker process keeps at hand."""


@dataclass
class Head:
    """The small part of a bucket's state, read and written as a whole."""

    fingerprint: str
    upto: int = BEGIN
    timer: int = -1
    late: int = 0
    """fresh rows that came after their time had passed"""
    next_blob: int = 0
    snapshot_size: int = 0
    token: bytes = b""
    """random, new with every change: a worker's live state is valid only for the token it was left with"""
    waiting: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    """one row per waiting blob: its number, its port, its earliest time"""


class Store:
    """A bucket's state variables; the implicit key (the bucket) is set by Spark around every call."""

    HEAD = (
        "fingerprint STRING, upto BIGINT, timer BIGINT, late BIGINT, next_blob BIGINT, snapshot_size BIGINT, "
        "token BINARY, waiting BINARY"
    )

    def __init__(self, handle: Any) -> None:
        self._head = handle.getValueState("head", self.HEAD)
        self._blobs = handle.getMapState("waiting", "number BIGINT", "blob BINARY")
        self._chunks = handle.getMapState("kernel", "number BIGINT", "chunk BINARY")

    def head(self) -> Head | None:
        found = self._head.get()
        if found is None:
            return None
        fingerprint, upto, timer, late, next_blob, snapshot_size, token, waiting = found
        index = np.frombuffer(bytes(waiting), dtype=np.int64).reshape(-1, 3)
        return Head(fingerprint, upto, timer, late, next_blob, snapshot_size, bytes(token), index)

    def put_head(self, head: Head) -> None:
        self._head.update(
            (
                head.fingerprint,
                head.upto,
                head.timer,
                head.late,
                head.next_blob,
                head.snapshot_size,
                head.token,
                head.waiting.tobytes(),
            )
        )

    def hold(self, head: Head, port: int, earliest: int, blob: bytes) -> None:
        """Keep a blob of rows that wait for their time."""
        self._blobs.updateValue((head.next_blob,), (blob,))
        entry = np.array([[head.next_blob, port, earliest]], dtype=np.int64)
        head.waiting = np.concatenate([head.waiting, entry])
        head.next_blob += 1

    def due(self, head: Head, upto: int) -> list[tuple[int, bytes]]:
        """Take out the waiting blobs (with their ports) that hold rows below `upto`."""
        taken = head.waiting[:, 2] < upto
        found = [(int(port), bytes(self._blobs.getValue((int(n),))[0])) for n, port, _ in head.waiting[taken]]
        for number in head.waiting[taken, 0]:
            self._blobs.removeKey((int(number),))
        head.waiting = head.waiting[~taken]
        return found

    def snapshot(self, head: Head) -> bytes:
        """The kernel's snapshot; empty if none was saved yet."""
        count = -(-head.snapshot_size // CHUNK)
        return b"".join(bytes(self._chunks.getValue((number,))[0]) for number in range(count))

    def put_snapshot(self, head: Head, old: bytes, new: bytes) -> None:
        """Save a snapshot where `old` is saved now."""
        for start in range(0, len(new), CHUNK):
            chunk = new[start : start + CHUNK]
            if chunk != old[start : start + CHUNK]:
                self._chunks.updateValue((start // CHUNK,), (chunk,))
        for number in range(-(-len(new) // CHUNK), -(-len(old) // CHUNK)):
            self._chunks.removeKey((number,))
        head.snapshot_size = len(new)
        head.token = os.urandom(8)


@dataclass
class Live:
    """A kernel's state in this worker process, and the snapshot that the store has of it."""

    state: State
    saved: bytes


_LIVE: OrderedDict[tuple[str, int], tuple[bytes, Live]] = OrderedDict()


def live_state(kernel: Kernel, store: Store, head: Head, bucket: int) -> Live:
    """The bucket's kernel state: as this process left it if nobody changed it since, otherwise restored."""
    token, live = _LIVE.pop((head.fingerprint, bucket), (b"", None))
    if live is not None and token and token == head.token:
        return live
    saved = store.snapshot(head)
    return Live(kernel.restore(saved) if saved else kernel.open(), saved)


def keep_live(head: Head, bucket: int, live: Live) -> None:
    """Remember the state for the next micro-batch."""
    _LIVE[(head.fingerprint, bucket)] = (head.token, live)
    while len(_LIVE) > LIVE_BUCKETS:
        _LIVE.popitem(last=False)

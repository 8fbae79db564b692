"""The kernel contract: what every stateful operator is to the hosts that run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from millstream.kernels.batch import Batch
from millstream.schema import Schema

State = Any
"""A kernel's own state object: arrays, reachable only through the kernel that opened it."""


class Kernel(Protocol):
    """What an operator does to a stream, one batch at a time.

    A kernel never reads a clock, a file or a socket. Time reaches it as `batch.upto`, so the same input gives the
    same output on any host and under any batching. One kernel owns all keys of its shard.

    Laws, tested over every registered kernel: any split of the input into batches gives the same output;
    snapshot → restore between any two steps changes nothing, nor does assembling the pieces that changes gave;
    splitting the state by key, stepping the parts apart with the same progress and merging changes nothing; compiled
    loops equal their Python bodies.
    """

    def open(self) -> State:
        """The state before the first batch."""
        ...

    def step(self, state: State, batch: Batch) -> Batch:
        """Take a batch in (`batch.port` tells the input) and give back what became final, in order."""
        ...

    def snapshot(self, state: State) -> bytes:
        """The state as Arrow IPC bytes."""
        ...

    def restore(self, saved: bytes) -> State:
        """The inverse of `snapshot`."""
        ...

    def changes(self, state: State) -> dict[int, bytes | None]:
        """The pieces of the state that changed since the last call, or since it was opened or assembled, by number;
        None for one that is gone. A state that was restored, split or merged gives all of its pieces the first time."""
        ...

    def assemble(self, pieces: Mapping[int, bytes]) -> State:
        """The state whose pieces these are: all that `changes` gave so far, later ones in place of earlier ones. The
        next `changes` tells only what changes from here."""
        ...

    def split(self, state: State, parts: int) -> list[State]:
        """The state divided by key: part i holds the keys whose `bucket_of(keys, parts)` is i (see `keys.py`)."""
        ...

    def merge(self, states: Sequence[State]) -> State:
        """One state that holds all keys of `states`, which share no key."""
        ...


class RowStage(Protocol):
    """Work on rows and their times that keeps nothing: it runs where the rows are, without an exchange."""

    @property
    def output(self) -> Schema: ...

    @property
    def most(self) -> int:
        """The most rows that it makes of one."""
        ...

    def numbered(self, spread: int) -> RowStage:
        """The same, giving the rows that it makes of one arrival numbers of their own, `spread` bits further up."""
        ...

    def step(self, batch: Batch) -> Batch: ...

    def describe(self) -> str:
        """One line for EXPLAIN."""
        ...


class KernelSpec(Protocol):
    """A frozen, picklable description of a kernel; `build` makes it run. Specs travel, kernels do not."""

    @property
    def inputs(self) -> tuple[Schema, ...]:
        """The schema of each input port."""
        ...

    @property
    def output(self) -> Schema: ...

    @property
    def keys(self) -> tuple[str, ...] | None:
        """Columns (present in every input) by which the state may be divided; None if it may not; () is one group."""
        ...

    def build(self) -> Kernel: ...

    def describe(self) -> str:
        """One line for EXPLAIN."""
        ...

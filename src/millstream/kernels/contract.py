"""The kernel contract: what every stateful operator is to the hosts that run it.

A kernel opens a state, steps it, tells what it is and makes it of that again. All else that hosts do with states
follows from the last two, once for all kernels: `saving.py` has snapshot, restore, changes, assemble, split and merge.

What a state is (`content.py`) has three kinds of parts, each under a name:

- keys with all that is known of them, a row for each slot (`Slots`). The kernel says which slots a step touched or
  released, and those are saved; a kernel without keys has one slot. What a key has many of is a list in its row.
- rows that came and go (`KeptRows`), with numbers that last as long as they do. What came, went or changed is found by
  comparing numbers, and values that may change, with those that were saved: loops need not tell.
- the head: numbers that belong to no key and never fall, as progress (arrays; of several states the highest counts),
  and rows that are few or soon gone (`Few`).

Every state has a `ledger`, where saving notes what it has saved.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from millstream.kernels.batch import Batch
from millstream.kernels.saving.content import Content
from millstream.kernels.saving.snapshots import Saved
from millstream.schema import Schema

State = Any
"""A kernel's own state object: arrays, reachable only through the kernel that opened it, and a `ledger`."""


class Kernel(Protocol):
    """What an operator does to a stream, one batch at a time.

    A kernel never reads a clock, a file or a socket. Time reaches it as `batch.upto`, so the same input gives the
    same output on any host and under any batching. One kernel owns all keys of its shard.

    Laws, tested over every registered kernel: any split of the input into batches gives the same output;
    snapshot → restore between any two steps changes nothing, nor does assembling the pieces that changes gave;
    splitting the state by key, stepping the parts apart with the same progress and merging changes nothing; compiled
    loops equal their Python bodies.
    """

    @property
    def spec(self) -> KernelSpec: ...

    def open(self) -> State:
        """The state before the first batch."""
        ...

    def step(self, state: State, batch: Batch) -> Batch:
        """Take a batch in (`batch.port` tells the input) and give back what became final, in order."""
        ...

    def export(self, state: State) -> Content:
        """What the state is."""
        ...

    def load(self, parts: Saved) -> State:
        """The state of this content; names that had no rows are missing. Of states that were put together, rows of
        different keys come in order of time if they have times, otherwise in any; those of one key in theirs."""
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


PARTIALS = 1
"""The port of partials for a kernel of one input; one of several has a port for each, after all inputs."""


class Partials(Protocol):
    """Rows put together before they travel, for a kernel that takes on port `PARTIALS` what it would take as rows.

    A partial has the time and the arrival number of its first row. Partials and rows may come in any mixture: those of
    a step are in order, as always, and no row that comes later is below `upto`. A spec with `partials` gives this.
    """

    @property
    def output(self) -> Schema: ...

    def step(self, batch: Batch) -> Batch:
        """The partials of a batch, whose rows may be in any order."""
        ...

    def each(self, batch: Batch) -> Batch:
        """The rows of a batch as partials of one row each."""
        ...

    def counted(self, partials: pa.RecordBatch) -> int:
        """How many rows partials stand for."""
        ...

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


def partials_of(spec: KernelSpec) -> tuple[Partials | None, ...]:
    """How the rows of each input may be put together before they travel; None if the kernel must see them."""
    found: tuple[Partials | None, ...] | Partials | None = getattr(spec, "partials", None)
    return found if isinstance(found, tuple) else (found, *(None for _ in spec.inputs[1:]))


def keys_of(spec: KernelSpec, port: int) -> tuple[str, ...]:
    """The key's columns of an input: they have the same names in all, unless the spec says otherwise."""
    by_port: tuple[tuple[str, ...], ...] | None = getattr(spec, "keys_by_port", None)
    return (spec.keys or ()) if by_port is None else by_port[port]

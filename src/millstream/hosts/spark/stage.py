"""A stage of a streaming query: a kernel with its state, and how it learns how far time has come."""

from __future__ import annotations

from functools import cache

import numpy as np

from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.contract import Kernel, KernelSpec
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.saving.signatures import signature_of
from millstream.limits import NO_LIMITS, Limits
from millstream.records import dataclass

FORMAT = 6
"""The version of what a stage keeps of a bucket."""

FILE_FORMAT = 1
"""The version of the files that hold it, where no store of Spark's does."""


@cache
def bucket_ids(buckets: int) -> tuple[int, ...]:
    """The numbers under which Spark knows the buckets of a stage.

    Spark hashes them to spread buckets over tasks; the numbers are such that every number of tasks that divides the
    number of buckets gives each task as many.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < buckets:
        found.setdefault(spark_hash(number) % buckets, number)
        number += 1
    return tuple(found[bucket] for bucket in range(buckets))


def spark_hash(number: int) -> int:
    """What Spark's `hash` makes of an INT: Murmur3 of its four bytes.

    >>> spark_hash(0), spark_hash(1), spark_hash(42)
    (933211791, -559580957, 29417773)
    """
    mask = 0xFFFFFFFF

    def turned(word: int, by: int) -> int:
        return ((word << by) | (word >> (32 - by))) & mask

    word = turned((number * 0xCC9E2D51) & mask, 15)
    word = 42 ^ ((word * 0x1B873593) & mask)
    word = (turned(word, 13) * 5 + 0xE6546B64) & mask
    word ^= 4
    word = ((word ^ (word >> 16)) * 0x85EBCA6B) & mask
    word = ((word ^ (word >> 13)) * 0xC2B2AE35) & mask
    word ^= word >> 16
    return word - (1 << 32) if word >> 31 else word


@dataclass(frozen=True)
class LateRows(KeepsColumns):
    """What a stage of LATE(stream) stands for: it gives out the rows that others leave out, and runs no kernel."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Any division will do; by all columns it is an even one."""
        return self.input.names

    def build(self) -> Kernel:
        raise NotImplementedError("late rows pass through no kernel")

    def describe(self) -> str:
        return "late rows"


@dataclass(frozen=True)
class Stage:
    """A kernel, into how many buckets its keys fall, and the clocks of its inputs."""

    spec: KernelSpec
    buckets: int
    beating: tuple[bool, ...]
    """of each clock, whether heartbeats tell all; otherwise Spark's watermark tells it too"""
    per_ms: int = 1000
    """units of time in a millisecond of Spark's watermark"""
    watermarked: bool = False
    wide: bool = False
    """whether it gives out rows as they are, not packed: the last stage of a program"""
    idle: int | None = None
    """microseconds after which a clock that stands still is left out; None is never"""
    number: int = 0
    """its place in the program, where it is told apart from the others"""
    allowed: Limits = NO_LIMITS
    """what its kernel may cost, for each batch of a bucket"""
    ports: tuple[int, ...] = ()
    """of each clock, the input whose time it tells"""
    fixed: bool = True
    """whether there are just so many buckets; otherwise that many at most, and the checkpoint says how many"""
    beside: bool = False
    """whether it runs where the rows of its source are read: then its buckets have partitions of that, not keys"""

    @property
    def signature(self) -> str:
        """Equal for stages that can continue each other's state."""
        divided = "partitions in " if self.beside else ""
        return f"{divided}{self.buckets} buckets, {len(self.beating)} clocks, {signature_of(self.spec).digest}"

    def passed(self, clocks: list[int], upto: int) -> tuple[int, ...]:
        """Before which time rows of each input are late: where its own clocks stand, though others may be behind."""
        count = len(self.spec.inputs)
        if count == 1 or self.watermarked or not self.ports:
            return (upto,) * count
        own = [[clock for clock, of in zip(clocks, self.ports, strict=True) if of == port] for port in range(count)]
        return tuple(max(upto, min(clocks, default=upto)) for clocks in own)

    def reached(self, clocks: Ints, moved: Ints, watermark: int, now: int) -> int:
        """How far time has come: the slowest of the clocks that still move."""
        if self.watermarked and watermark > 0:
            # Spark's watermark starts at zero, which says nothing yet
            clocks = np.where(self.beating, clocks, np.maximum(clocks, watermark * self.per_ms))
        if self.idle is not None:
            moving = moved > now - self.idle
            if moving.any():
                clocks = clocks[moving]
        return int(clocks.min(initial=2**63 - 1)) if len(clocks) else BEGIN

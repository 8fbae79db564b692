"""A stage of a streaming query: a kernel with its state, and how it learns how far time has come."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.contract import Kernel, KernelSpec
from millstream.schema import Schema

FORMAT = 3
"""The version of what a stage keeps in the state store."""


@dataclass(frozen=True)
class LateRows:
    """What a stage of LATE(stream) stands for: it gives out the rows that others leave out, and runs no kernel."""

    input: Schema

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,)

    @property
    def output(self) -> Schema:
        return self.input

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
    idle: int | None = None
    """microseconds after which a clock that stands still is left out; None is never"""

    @property
    def fingerprint(self) -> str:
        """Equal for stages that can continue each other's state."""
        return hashlib.sha256(f"{self.buckets} {len(self.beating)} {self.spec!r}".encode()).hexdigest()[:16]

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

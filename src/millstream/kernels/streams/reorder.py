"""Arrivals into order: rows wait out a slack, and those that come too late go to a stream of their own."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.one_input import KeepsColumns, Unkeyed
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import Runs, in_order
from millstream.plan.lengths import length_told
from millstream.records import dataclass


@dataclass(frozen=True)
class _Arrivals(Unkeyed, KeepsColumns):
    """Raw arrivals with increasing `seq`, in any order of time. A batch's `upto` is a heartbeat that holds for the rows
    after it (BEGIN: none). Before each row, time has come to the later of the last heartbeat and the highest time so
    far less `slack` microseconds: a row below that is late."""

    slack: int

    def __post_init__(self) -> None:
        if not 0 <= self.slack < 2**62:
            raise ValueError(f"a slack of {self.slack}")

    def state_signature(self) -> object:
        """Rows that wait, and how far time has come: another slack goes on from there."""
        return self.input


@register
@dataclass(frozen=True)
class ReorderSpec(_Arrivals):
    """The rows that are in time, in order of time, then of arrival."""

    def build(self) -> ReorderKernel:
        return ReorderKernel(self)

    def describe(self) -> str:
        return f"reorder: slack {length_told(self.slack)}"


@register
@dataclass(frozen=True)
class LateSpec(_Arrivals):
    """The rows that are late, in order of arrival, at the time that had been reached when they came."""

    def build(self) -> LateKernel:
        return LateKernel(self)

    def describe(self) -> str:
        return f"late rows: slack {length_told(self.slack)}"


@dataclass
class TimeProgress:
    """How far time has come: the last heartbeat and the highest time of any row."""

    beat: int = BEGIN
    highest: int = BEGIN
    late_count: int = 0
    ledger: Ledger = field(default_factory=Ledger, kw_only=True)

    def advance(self, batch: Batch, slack: int) -> tuple[Ints, npt.NDArray[np.bool_], int]:
        """Take arrivals in: where time stood before each row, which rows are late, and where it stands now."""
        peaks = np.maximum.accumulate(np.concatenate([[self.highest], batch.time]).astype(np.int64, copy=False))
        reached = np.maximum(self.beat, _less(peaks, slack))
        late = batch.time < reached[:-1]
        self.highest = int(peaks[-1])
        self.beat = max(self.beat, batch.upto)
        self.late_count += int(np.count_nonzero(late))
        return reached[:-1], late, max(self.beat, int(reached[-1]))

    def follow(self, batch: Batch, slack: int) -> int | None:
        """Take in arrivals in order of time, none of them late: where time stands now; None if they are not so."""
        time = batch.time
        if len(time):
            first, last = int(time[0]), int(time[-1])
            if first < self.reached(slack) or (len(time) > 1 and bool((time[1:] < time[:-1]).any())):
                return None
            self.highest = max(self.highest, last)
        self.beat = max(self.beat, batch.upto)
        return self.reached(slack)

    def reached(self, slack: int) -> int:
        """Where time stands."""
        return max(self.beat, max(self.highest, BEGIN + slack) - slack)

    def parts(self) -> Ints:
        return np.array([self.beat, self.highest, self.late_count], dtype=np.int64)


def _less(times: Ints, slack: int) -> Ints:
    """Times less a slack, not below the beginning."""
    return np.maximum(times, BEGIN + slack) - slack


@dataclass
class ReorderState:
    progress: TimeProgress = field(default_factory=TimeProgress)
    waiting: Runs = field(default_factory=Runs)
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def late_count(self) -> int:
        """How many rows came too late so far."""
        return self.progress.late_count


class ReorderKernel:
    """Runs a ReorderSpec."""

    def __init__(self, spec: ReorderSpec) -> None:
        self.spec = spec

    def open(self) -> ReorderState:
        return ReorderState()

    def step(self, state: ReorderState, batch: Batch) -> Batch:
        upto = state.progress.follow(batch, self.spec.slack)
        if upto is None:
            _, late, upto = state.progress.advance(batch, self.spec.slack)
            if late.any():
                batch = batch.take(np.flatnonzero(~late))
        waiting = state.waiting
        if self.spec.slack == 0 and len(waiting) == 0:
            # Without slack a row in time is not below any before it: nothing waits, nothing moves.
            return batch.with_upto(upto)
        waiting.add(batch)
        pieces = waiting.release(upto)
        return in_order(pieces).with_upto(upto) if pieces else batch.slice(0, 0).with_upto(upto)

    def export(self, state: ReorderState) -> Content:
        return {"progress": state.progress.parts(), "waiting": state.waiting.kept()}

    def load(self, parts: Saved) -> ReorderState:
        state = ReorderState(TimeProgress(*(int(value) for value in parts.array("progress"))))
        if "waiting" in parts:
            state.waiting.add(parts.batch("waiting", BEGIN), parts.numbers("waiting"))
        return state


class LateKernel:
    """Runs a LateSpec."""

    def __init__(self, spec: LateSpec) -> None:
        self.spec = spec

    def open(self) -> TimeProgress:
        return TimeProgress()

    def step(self, state: TimeProgress, batch: Batch) -> Batch:
        reached, late, upto = state.advance(batch, self.spec.slack)
        chosen = np.flatnonzero(late)
        return replace(batch.take(chosen), time=reached[chosen], other=None, upto=upto)

    def export(self, state: TimeProgress) -> Content:
        return {"progress": state.parts()}

    def load(self, parts: Saved) -> TimeProgress:
        return TimeProgress(*(int(value) for value in parts.array("progress")))

"""Kernels whose state is rows that wait for their time."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from millstream.kernels.batch import BEGIN
from millstream.kernels.contract import KernelSpec
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import Runs
from millstream.records import dataclass


@dataclass
class WaitingState:
    """Rows at the times that they wait for, and how far time has come for kernels that have to remember it."""

    waiting: Runs = field(default_factory=Runs)
    upto: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)


class WaitingRows:
    """A kernel of rows that wait; they begin with the columns of its input, and its keys divide them."""

    spec: Any

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec

    def open(self) -> WaitingState:
        return WaitingState()

    def export(self, state: WaitingState) -> Content:
        return {"upto": np.array([state.upto]), "rows": state.waiting.kept()}

    def load(self, parts: Saved) -> WaitingState:
        state = WaitingState(upto=int(parts.array("upto")[0]))
        if "rows" in parts:
            state.waiting.add(parts.batch("rows", BEGIN), parts.numbers("rows"))
        return state

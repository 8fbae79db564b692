"""Several stages as one kernel: rows that stay with their key need no exchange in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

from millstream.expressions.nodes import Column
from millstream.kernels.batch import Batch
from millstream.kernels.compute import Computation, ComputeStage
from millstream.kernels.contract import Kernel, KernelSpec, Partials, State, partials_of
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger, within
from millstream.kernels.saving.snapshots import Saved
from millstream.records import dataclass
from millstream.schema import Schema

Stage = KernelSpec | ComputeStage


def why_not_chained(stages: Sequence[Stage]) -> str | None:
    """What keeps stages from running one after the other as one kernel; None if nothing does."""
    if all(isinstance(stage, ComputeStage) for stage in stages):
        return "no stage is a kernel"
    if any(len(stage.inputs) != 1 for stage in stages):
        return "a stage has several inputs"
    for before, after in pairwise(stages):
        if before.output != after.inputs[0]:
            return f"{after.describe()} does not fit behind {before.describe()}"
    keys = _keys(stages)
    if keys.count(keys[0]) < len(keys) and keys[0] is not None:
        return "the stages have different keys"
    return "the key is computed on the way" if keys[0] is not None and None in keys[0] else None


def _keys(stages: Sequence[Stage]) -> list[tuple[str | None, ...] | None]:
    """The key of each kernel stage in columns of the first stage's input; a column that is none of these is None."""
    origin = {name.lower(): name for name in stages[0].inputs[0].names}
    found: list[tuple[str | None, ...] | None] = []
    for stage in stages:
        if not isinstance(stage, ComputeStage):
            names = None if stage.keys is None else [name.lower() for name in stage.keys]
            found.append(None if names is None else tuple(origin.get(name) for name in names))
            # A row that leaves a kernel has the key it came with; other columns need not be what they were.
            origin = {name: origin[name] for name in names or () if name in origin and name in stage.output}
        elif stage.columns is not None:
            origin = {
                name.lower(): origin[expr.name.lower()]
                for name, expr in stage.columns
                if isinstance(expr, Column) and expr.name.lower() in origin
            }
    return found


@register
@dataclass(frozen=True)
class ChainSpec:
    """Stages one after the other. Kernels among them have one input each and, unless the first is in one place, all
    the same key, which reaches them unchanged from the columns that come in."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        problem = why_not_chained(self.stages)
        if problem is not None:
            raise ValueError(problem)

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return self.stages[0].inputs

    @property
    def output(self) -> Schema:
        return self.stages[-1].output

    @property
    def keys(self) -> tuple[str, ...] | None:
        keys = _keys(self.stages)[0]
        return None if keys is None else tuple(name for name in keys if name is not None)

    @property
    def partials(self) -> Partials | None:
        """Those of the first kernel, which alone meets the rows."""
        first = self.stages[0]
        return None if isinstance(first, ComputeStage) else partials_of(first)[0]

    def state_signature(self) -> object:
        """That of the kernels; what is computed between them keeps nothing."""
        return tuple(stage for stage in self.stages if not isinstance(stage, ComputeStage))

    def build(self) -> ChainKernel:
        return ChainKernel(self)

    def describe(self) -> str:
        return " → ".join(stage.describe() for stage in self.stages)


@dataclass
class StagesState:
    """The states of the kernels among the stages."""

    states: list[State]
    ledger: Ledger = field(default_factory=Ledger)


class StagedKernel:
    """What keeps a state for each of several kernels: how these are opened, saved and restored."""

    _kernels: list[Kernel]

    def open(self) -> StagesState:
        return StagesState([kernel.open() for kernel in self._kernels])

    def export(self, state: StagesState) -> Content:
        content: dict[str, Any] = {}
        for i, (kernel, own) in enumerate(zip(self._kernels, state.states, strict=True)):
            content |= within(f"stage{i}", kernel.export(own), kernel.spec)
        return content

    def load(self, parts: Saved) -> StagesState:
        states = [kernel.load(parts.within(f"stage{i}", kernel.spec)) for i, kernel in enumerate(self._kernels)]
        return StagesState(states)


class ChainKernel(StagedKernel):
    """Runs a ChainSpec."""

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        self._stages: list[Kernel | Computation] = [stage.build() for stage in spec.stages]
        self._kernels = [stage for stage in self._stages if not isinstance(stage, Computation)]

    def step(self, state: StagesState, batch: Batch) -> Batch:
        states = iter(state.states)
        for stage in self._stages:
            batch = stage.step(batch) if isinstance(stage, Computation) else stage.step(next(states), batch)
        return batch

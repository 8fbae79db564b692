"""Several stages as one kernel: rows that stay with their key need no exchange in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from millstream.errors import StateError
from millstream.kernels import snapshots
from millstream.kernels.batch import Batch
from millstream.kernels.compute import Computation, ComputeStage
from millstream.kernels.contract import Kernel, KernelSpec, State
from millstream.kernels.registry import register
from millstream.plan.expr import Column
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

    def state_signature(self) -> object:
        """That of the kernels; what is computed between them keeps nothing."""
        return tuple(stage for stage in self.stages if not isinstance(stage, ComputeStage))

    def build(self) -> ChainKernel:
        return ChainKernel(self)

    def describe(self) -> str:
        return " → ".join(stage.describe() for stage in self.stages)


@dataclass
class ChainState:
    """The states of the kernels among the stages, and whether the pieces given so far tell whose they are."""

    states: list[State]
    labelled: bool = False


class ChainKernel:
    """Runs a ChainSpec."""

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        self._stages: list[Kernel | Computation] = [stage.build() for stage in spec.stages]
        self._kernels = [stage for stage in self._stages if not isinstance(stage, Computation)]

    def open(self) -> ChainState:
        return ChainState([kernel.open() for kernel in self._kernels])

    def step(self, state: ChainState, batch: Batch) -> Batch:
        states = iter(state.states)
        for stage in self._stages:
            batch = stage.step(batch) if isinstance(stage, Computation) else stage.step(next(states), batch)
        return batch

    def snapshot(self, state: ChainState) -> bytes:
        saved = [kernel.snapshot(own) for kernel, own in zip(self._kernels, state.states, strict=True)]
        return snapshots.save(
            self.spec, {f"stage{i}": np.frombuffer(own, dtype=np.uint8) for i, own in enumerate(saved)}
        )

    def restore(self, saved: bytes) -> ChainState:
        parts = snapshots.load(self.spec, saved)
        return ChainState(
            [kernel.restore(parts.array(f"stage{i}").tobytes()) for i, kernel in enumerate(self._kernels)]
        )

    def changes(self, state: ChainState) -> dict[int, bytes | None]:
        # Pieces of the stages take turns; the turn after the last is that of the label, which never changes.
        turns = len(self._kernels) + 1
        changed = {
            turns * number + i: piece
            for i, (kernel, own) in enumerate(zip(self._kernels, state.states, strict=True))
            for number, piece in kernel.changes(own).items()
        }
        if changed and not state.labelled:
            state.labelled = True
            changed[turns - 1] = snapshots.save(self.spec, {"stages": np.array([turns - 1])})
        return changed

    def assemble(self, pieces: Mapping[int, bytes]) -> ChainState:
        turns = len(self._kernels) + 1
        if not pieces:
            return self.open()
        if turns - 1 not in pieces:
            raise StateError("saved state is incomplete", detail="it does not tell which stages it belongs to")
        snapshots.load(self.spec, pieces[turns - 1])
        own: list[dict[int, bytes]] = [{} for _ in range(turns)]
        for number, piece in pieces.items():
            own[number % turns][number // turns] = piece
        return ChainState([kernel.assemble(own[i]) for i, kernel in enumerate(self._kernels)], labelled=True)

    def split(self, state: ChainState, parts: int) -> list[ChainState]:
        divided = [kernel.split(own, parts) for kernel, own in zip(self._kernels, state.states, strict=True)]
        return [ChainState(list(states)) for states in zip(*divided, strict=True)]

    def merge(self, states: Sequence[ChainState]) -> ChainState:
        own = zip(*(state.states for state in states), strict=True)
        return ChainState([kernel.merge(of_stage) for kernel, of_stage in zip(self._kernels, own, strict=True)])

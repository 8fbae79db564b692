"""The description of a kernel that runs a program over a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from millstream.kernels.one_input import OneInput
from millstream.kernels.registry import register
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.failed import FAILED_SCHEMA
from millstream.plan.node import by_told
from millstream.plan.programs.modes import Closing, Mode, Sliding
from millstream.plan.programs.nodes import Program
from millstream.plan.programs.product import product
from millstream.plan.programs.python import code_in
from millstream.records import dataclass
from millstream.schema import Field, Schema

if TYPE_CHECKING:
    from millstream.kernels.programs.kernel import AggregateKernel


Failing = Literal["stop", "skip", "report"]
"""What becomes of a row that a program fails on: it is an error, or left out; or such rows are what is given out."""


@register
@dataclass(frozen=True)
class AggregateSpec(OneInput):
    """A program over the rows of each group; `args` are the columns that are its arguments, `results` the names of what
    it returns.

    For each returned row there is one with the columns of the row that was worked on and what was returned; in mode
    Closing with the key columns and what was returned, at the time that the key column `ends` tells.
    """

    keys: tuple[str, ...]
    program: Program
    args: tuple[str, ...]
    mode: Mode
    results: tuple[str, ...]
    ends: str | None = None
    failing: Failing = field(default="stop", metadata={"later": True})

    def __post_init__(self) -> None:
        if tuple(self.input[name].type for name in self.args) != tuple(field.type for field in self.program.parameters):
            raise ValueError(f"{self.program.name} does not take these arguments")
        if len(self.results) != len(self.program.result):
            raise ValueError(f"{self.program.name} has {len(self.program.result)} results")
        if len(self.program.shorter) != (len(self.mode.shorter) if isinstance(self.mode, Sliding) else 0):
            raise ValueError("each shorter window has its EXPIRE")
        if (self.ends is not None) != isinstance(self.mode, Closing) or (self.ends and self.ends not in self.keys):
            raise ValueError("groups end by a key column, in mode Closing")
        _ = self.output

    @cached_property
    def output(self) -> Schema:
        if self.failing == "report":
            return FAILED_SCHEMA
        results = (Field(name, field.type) for name, field in zip(self.results, self.program.result, strict=True))
        given = self.input.fields if self.ends is None else tuple(self.input[key] for key in self.keys)
        return Schema((*given, *results))

    def renamed(self, input: Schema, name: Callable[[str], str]) -> AggregateSpec:
        """The same over columns with other names."""
        keys, args = (tuple(map(name, names)) for names in (self.keys, self.args))
        return replace(self, input=input, keys=keys, args=args, ends=None if self.ends is None else name(self.ends))

    def build(self) -> AggregateKernel:
        from millstream.kernels.programs.kernel import AggregateKernel

        return AggregateKernel(self)

    def describe(self) -> str:
        if self.failing == "report":
            return f"Failed rows of: {replace(self, failing='skip').describe()}"
        return f"{self.program.name}({', '.join(self.args)}){by_told(self.keys)} {self.mode} ({self._path()})"

    def _path(self) -> str:
        return path_of(self.program, self.mode, self.results)


@register
@dataclass(frozen=True)
class GroupSpec(OneInput):
    """Aggregates over the rows of each group: a row with the key columns and all results, at the time that the key
    column `ends` tells. Built-in ones are computed by accumulators, the others by their programs."""

    keys: tuple[str, ...]
    calls: tuple[AggregateCall[str], ...]
    ends: str
    failing: Failing = field(default="stop", metadata={"later": True})
    mode = Closing()

    def __post_init__(self) -> None:
        if self.ends not in self.keys:
            raise ValueError("groups end by a key column")
        _ = self.output

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments of all calls, one after the other."""
        return tuple(arg for call in self.calls for arg in call.args)

    @cached_property
    def output(self) -> Schema:
        if self.failing == "report":
            return FAILED_SCHEMA
        results = (field for call in self.calls for field in call.fields)
        return Schema((*(self.input[key] for key in self.keys), *results))

    @cached_property
    def program(self) -> Program | None:
        """The calls that are not built in, as one program."""
        programs = [call.program for call in self.calls if call.program is not None]
        return product(programs) if programs else None

    def renamed(self, input: Schema, name: Callable[[str], str]) -> GroupSpec:
        """The same over columns with other names."""
        calls = tuple(replace(call, args=tuple(map(name, call.args))) for call in self.calls)
        return replace(self, input=input, keys=tuple(map(name, self.keys)), calls=calls, ends=name(self.ends))

    def build(self) -> AggregateKernel:
        from millstream.kernels.programs.kernel import AggregateKernel

        return AggregateKernel(self)

    def describe(self) -> str:
        if self.failing == "report":
            return f"Failed rows of: {replace(self, failing='skip').describe()}"
        results = [name for call in self.calls if call.program is not None for name in call.names]
        path = "compiled" if self.program is None else path_of(self.program, self.mode, results)
        if path.startswith("row by row") and len(results) < len(self.output) - len(self.keys):
            path = f"compiled, but {', '.join(results)} {path}"
        fns = ", ".join(call.fn for call in self.calls)
        return f"{fns}({', '.join(self.args)}) by {', '.join(self.keys)} {self.mode} ({path})"


def path_of(program: Program, mode: Mode, results: Sequence[str]) -> str:
    """How a program runs."""
    from millstream.kernels.programs.compiled import orders_of, why_not_compiled
    from millstream.kernels.programs.factors import factors

    parts = factors(program, mode)
    reasons = [why_not_compiled(part.program, mode) for part in parts]
    if None not in reasons:
        return f"row by row: {code_in(program) or why_not_compiled(program, mode)}"
    said = ["compiled", *orders_of(program, mode)]
    for part, reason in zip(parts, reasons, strict=True):
        if reason is not None:
            said.append(f"but {', '.join(results[i] for i in part.results)} row by row: {reason}")
    return ", ".join(said)


def why_slow(program: Program, mode: Mode) -> str | None:
    """What keeps a program from running as a compiled loop; None if nothing does."""
    # the compiler's text is needed only where somebody asks
    from millstream.kernels.programs.compiled import why_not_compiled

    return why_not_compiled(program, mode)

"""The spec of an ASOF join."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from millstream.kernels.contract import Kernel
from millstream.kernels.one_input import ByKeys
from millstream.kernels.registry import register
from millstream.plan.event_joins import Comparison
from millstream.plan.node import by_told
from millstream.records import dataclass
from millstream.schema import Schema

LEFT, RIGHT = 0, 1

UNMATCHED = 2**62
"""When a row without a match happens that could have had one to the end of all input: after everything else, and early
enough that windows can be counted from there."""


@register
@dataclass(frozen=True)
class AsofSpec(ByKeys):
    """Each row of `left` with the row of `right` that is equal in the columns `by`, which both have, and whose time is
    the nearest for which left time `op` right time holds. NULL equals nothing here.

    Of several such rows of one time it is the one next to it: backward the last to arrive, forward the first. Backward,
    a result happens at the time of its left row; forward, of its right row. `columns` are those of the result, each
    with its side. With `outer`, a row without a match is a result with NULLs.
    """

    left: Schema
    right: Schema
    by: tuple[str, ...]
    columns: tuple[tuple[Literal["left", "right"], str], ...]
    op: Comparison
    outer: bool = False

    def __post_init__(self) -> None:
        for name in self.by:
            if self.left[name].type != self.right[name].type:
                raise ValueError(f"{name} is not of one type")
        if not self.columns:
            raise ValueError("a join without columns")
        self.output  # noqa: B018 - refuses duplicate names

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.left, self.right)

    @cached_property
    def output(self) -> Schema:
        return Schema(tuple((self.left if side == "left" else self.right)[name] for side, name in self.columns))

    @property
    def is_backward(self) -> bool:
        return self.op in (">=", ">")

    @property
    def is_strict(self) -> bool:
        return self.op in ("<", ">")

    def build(self) -> Kernel:
        if self.is_backward:
            from millstream.kernels.asof.backward import BackwardKernel

            return BackwardKernel(self)
        from millstream.kernels.asof.forward import ForwardKernel

        return ForwardKernel(self)

    def describe(self) -> str:
        which = "latest before" if self.is_backward else "first after"
        return f"{'left ' if self.outer else ''}asof join{by_told(self.by)}: the {which} ({self.op})"

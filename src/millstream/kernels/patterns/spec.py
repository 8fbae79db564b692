"""The spec of a kernel that searches for a row pattern."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.kernels.one_input import OneInput
from millstream.kernels.registry import register
from millstream.plan.failed import FAILED_SCHEMA
from millstream.plan.patterns.search import Search
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.kernels.patterns.kernel import MatchKernel


@register
@dataclass(frozen=True)
class MatchSpec(OneInput):
    """The matches of a pattern in each partition, as they become certain."""

    search: Search
    failed: bool = field(default=False, metadata={"later": True})
    """what is given out instead: the combinations of rows of which a condition could not be computed"""
    lenient: bool = field(default=False, metadata={"later": True})
    """whether matches with an aggregate that cannot be computed are left out, and such conditions do not hold"""

    def __post_init__(self) -> None:
        _ = self.output

    @cached_property
    def output(self) -> Schema:
        return FAILED_SCHEMA if self.failed else self.search.output(self.input)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.search.keys

    def build(self) -> MatchKernel:
        from millstream.kernels.patterns.kernel import MatchKernel

        return MatchKernel(self)

    def describe(self) -> str:
        from millstream.kernels.patterns.kernel import describe_machine

        if self.failed:
            return f"Failed conditions of match {self.search}"
        return f"match {self.search} ({describe_machine(self.search)})"

"""What specs and stages have in common, most of those with one input."""

from __future__ import annotations

from typing import Protocol, Self

from millstream.records import dataclass
from millstream.schema import Schema


@dataclass(frozen=True)
class OneInput:
    """Takes rows of the columns `input`."""

    input: Schema

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,)


@dataclass(frozen=True)
class KeepsColumns(OneInput):
    """Gives out rows of the columns that it takes."""

    @property
    def output(self) -> Schema:
        return self.input


class _HasBy(Protocol):
    @property
    def by(self) -> tuple[str, ...]: ...


class _HasInput(Protocol):
    @property
    def input(self) -> Schema: ...


class ByKeys:
    """Rows that have the same values in the columns `by` belong together."""

    @property
    def keys(self: _HasBy) -> tuple[str, ...]:
        return self.by


class ByRow:
    """Equal rows belong together."""

    @property
    def keys(self: _HasInput) -> tuple[str, ...]:
        return self.input.names


class Unkeyed:
    """All rows are in one place."""

    keys = None


class AtMostOne:
    """A row stage that makes at most one row of one, so that arrival numbers stay as they are."""

    most = 1

    def numbered(self, spread: int) -> Self:
        return self

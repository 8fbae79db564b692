"""What specs and stages with one input have in common."""

from __future__ import annotations

from typing import Self

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


class AtMostOne:
    """A row stage that makes at most one row of one, so that arrival numbers stay as they are."""

    @property
    def most(self) -> int:
        return 1

    def numbered(self, spread: int) -> Self:
        return self

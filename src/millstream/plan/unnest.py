"""Rows taken apart by an array that they hold."""

from __future__ import annotations

from functools import cached_property

from millstream.plan.node import Kind, Unary, require_names
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType


@dataclass(frozen=True)
class Unnest(Unary):
    """Each row once for every element of the array in column `array`, in order, with the element in column `name`."""

    array: str
    name: str
    works_by_row = True

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.EVENTS:
            raise ValueError("UNNEST needs events")
        require_names((self.array,), self.input.schema, "UNNEST")
        self.schema  # noqa: B018 - refuses duplicate names

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, Field(self.name, element_of(self.input.schema[self.array].type))))

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((self.array,))

    def label(self) -> str:
        return f"Unnest {self.array} as {self.name}"


def element_of(type_: SqlType) -> SqlType:
    """What arrays of a type hold; ValueError for other types."""
    if type_.element is None:
        raise ValueError(f"{type_} is not an array")
    return type_.element

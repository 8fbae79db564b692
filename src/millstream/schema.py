"""A schema: named, typed columns. Names are matched without regard to case and keep the spelling they were given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import pyarrow as pa

from millstream.records import dataclass
from millstream.types import SqlType


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: SqlType

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True)
class Schema:
    """An ordered list of fields whose names differ even when case is ignored."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if len(self._index) != len(self.fields):
            raise ValueError(f"duplicate column names in {self}")

    @staticmethod
    def of(**columns: SqlType) -> Schema:
        """A schema from keyword arguments, for tests and small literals."""
        return Schema(tuple(Field(name, type_) for name, type_ in columns.items()))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {field.name.lower(): i for i, field in enumerate(self.fields)}

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._index

    def __getitem__(self, name: str) -> Field:
        return self.fields[self._index[name.lower()]]

    def index(self, name: str) -> int:
        return self._index[name.lower()]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(field.name, field.type.arrow) for field in self.fields])

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ")"


def unique_names(names: Iterable[str]) -> list[str]:
    """The names with `_2`, `_3`, … after those that occurred before, case ignored.

    >>> unique_names(["price", "Price", "price_2"])
    ['price', 'Price_2', 'price_2_2']
    """
    taken: set[str] = set()
    unique = []
    for name in names:
        chosen, number = name, 1
        while chosen.lower() in taken:
            number += 1
            chosen = f"{name}_{number}"
        taken.add(chosen.lower())
        unique.append(chosen)
    return unique

"""What accumulators are told of the source that they stand in: where their lanes are, and what their argument is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from millstream.kernels.accumulators import loops
from millstream.kernels.keys.words import is_wide
from millstream.kernels.source.passes import imports_of
from millstream.kernels.source.writer import indented
from millstream.records import dataclass
from millstream.types import SqlType

_HELPERS = tuple(
    name for name in vars(loops) if not name.startswith("_") and name not in ("annotations", "math", "np", "Any")
)


@dataclass(frozen=True)
class Lane:
    """A cell of a record."""

    name: str
    is_float: bool = False


class _Laned(Protocol):
    @property
    def lanes(self) -> Sequence[Lane]: ...


@dataclass(frozen=True)
class Place:
    """A record in generated source: the text of each of its lanes, to be read or assigned."""

    text: Callable[[str, bool], str]

    def __getitem__(self, lane: str) -> str:
        return self.text(lane, False)

    def float(self, lane: str) -> str:
        """The text of a lane that holds a float."""
        return self.text(lane, True)

    @staticmethod
    def named(ints: str, floats: str, prefix: str) -> Place:
        """A record in an array, and its view as floats; constants tell where lanes are.

        >>> Place.named("slots", "sums", "s + A")["count"]
        'slots[s + A_COUNT]'
        >>> Place.named("records", "sums", "at, A")["count"]
        'records[at, A_COUNT]'
        """
        return Place(lambda lane, is_float: f"{floats if is_float else ints}[{prefix}_{lane.upper()}]")

    @staticmethod
    def numbered(ints: str, floats: str, base: str, state: _Laned) -> Place:
        """A record of a state in an array, and its view as floats, whose lanes are numbered from `base` on."""
        numbers = {lane.name: i for i, lane in enumerate(state.lanes)}
        return Place(lambda lane, is_float: f"{floats if is_float else ints}[{base} + {numbers[lane]}]")

    @staticmethod
    def local(prefix: str) -> Place:
        """A record in plain variables.

        >>> Place.local("t0_").float("sum")
        't0_sum'
        """
        return Place(lambda lane, _: f"{prefix}{lane}")


@dataclass(frozen=True)
class Argument:
    """What an aggregate is over. Variables that its source needs begin with its name."""

    name: str
    type: SqlType

    @property
    def kind(self) -> str:
        if is_code(self.type):
            return "text"
        return "float" if self.type.name == "DOUBLE" else "int"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_wide(self) -> bool:
        """Whether 64 bits cannot hold a sum of such integers."""
        return self.type.name in ("BIGINT", "DECIMAL")

    @property
    def null_is_nan(self) -> bool:
        """Whether NULL travels as a float that is no number, as `{name}_in` tells."""
        return False

    @property
    def texts(self) -> str:
        """The arrays that tell the strings of codes: where each begins, how long it is, all bytes."""
        return f"{self.name}_starts, {self.name}_lengths, {self.name}_arena"

    def scaled(self, value: str) -> str:
        """An integer value as the number that it stands for."""
        return f"float({value}) / {10.0**self.type.scale!r}" if self.type.scale else f"float({value})"


def is_code(type_: SqlType) -> bool:
    """Whether loops see values of a type as codes of bytes: strings, and what 64 bits cannot hold."""
    return type_.is_coded or type_.is_nested or is_wide(type_)


def held(at: Place, lane: str, arg: Argument) -> str:
    """The text of a lane that holds a value of an argument."""
    return at.float(lane) if arg.is_float else at[lane]


def imports(source: str) -> str:
    """The lines that source with accumulators begins with."""
    return "\n".join(["import math", *imports_of(loops.__name__, _HELPERS, source), ""])


def guarded(known: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines that run if a value is one."""
    if known == "True":
        yield from lines
    elif lines := list(lines):
        yield f"if {known}:"
        yield from indented(lines)

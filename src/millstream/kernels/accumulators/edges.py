"""The first or the last value so far, NULL or not."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.accumulators.places import Argument, Lane, Place, held
from millstream.kernels.source.writer import indented
from millstream.records import dataclass
from millstream.types import SqlType


@dataclass(frozen=True)
class EdgeValue:
    """The first or the last value of an argument. `known` is 0 before there is one, 2 if it is NULL."""

    arg: Argument
    fn: str

    @property
    def args(self) -> tuple[Argument, ...]:
        return (self.arg,)

    @property
    def holds(self) -> dict[str, Argument]:
        """The lanes that hold a value if `known` is 1."""
        return {"value": self.arg}

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return (Lane("known"), Lane("value", self.arg.is_float))

    def begin(self, at: Place) -> Iterator[str]:
        yield f"{at['known']} = 0"
        yield f"{self._value(at)} = {'0.0' if self.arg.is_float else '0'}"

    def enter(self, at: Place, value: str, known: str = "True") -> Iterator[str]:
        yield from self._noted(at, "1" if known == "True" else f"1 if {known} else 2", value)

    def merge(self, at: Place, other: Place) -> Iterator[str]:
        yield f"if {other['known']} != 0:"
        yield from indented(self._noted(at, other["known"], self._value(other)))

    def result(self, at: Place, fn: str, type_: SqlType, out: str, ok: str, overflow: str) -> Iterator[str]:
        yield f"{ok} = {at['known']} == 1"
        yield f"{out} = {self._value(at)}"

    def _noted(self, at: Place, known: str, value: str) -> Iterator[str]:
        lines = [f"{at['known']} = {known}", f"{self._value(at)} = {value}"]
        if self.fn == "first_value":
            yield f"if {at['known']} == 0:"
            yield from indented(lines)
        else:
            yield from lines

    def _value(self, at: Place) -> str:
        return held(at, "value", self.arg)

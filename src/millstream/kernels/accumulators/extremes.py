"""The least, greatest, first known or last known value so far."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.accumulators.places import Argument, Lane, Place, guarded
from millstream.kernels.source.writer import indented
from millstream.records import dataclass
from millstream.types import SqlType


@dataclass(frozen=True)
class Extreme:
    """The best of an argument's values: of equal ones the first. NaN is the greatest float."""

    arg: Argument
    fn: str

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return (Lane("any"), Lane("best", self.arg.is_float))

    def begin(self, at: Place) -> Iterator[str]:
        yield f"{at['any']} = 0"
        yield f"{self._best(at)} = {'0.0' if self.arg.is_float else '0'}"

    def enter(self, at: Place, value: str, known: str = "True") -> Iterator[str]:
        yield from guarded(known, self._offered(at, value))

    def merge(self, at: Place, other: Place) -> Iterator[str]:
        yield from guarded(f"{other['any']} != 0", self._offered(at, self._best(other)))

    def result(self, at: Place, fn: str, type_: SqlType, out: str, ok: str, overflow: str) -> Iterator[str]:
        yield f"{ok} = {at['any']} != 0"
        yield f"{out} = {self._best(at)}"

    def _offered(self, at: Place, value: str) -> Iterator[str]:
        taken = [f"{at['any']} = 1", f"{self._best(at)} = {value}"]
        if self.fn == "last_known":
            yield from taken
            return
        if self.fn == "first_known":
            yield f"if {at['any']} == 0:"
        else:
            yield f"{self.arg.name}_old = {self._best(at)}"
            yield f"if {at['any']} == 0 or {self.comes_first(value, f'{self.arg.name}_old')}:"
        yield from indented(taken)

    def comes_first(self, left: str, right: str) -> str:
        """Whether one value beats another on the way to the least or greatest."""
        if self.fn == "max":
            left, right = right, left
        if self.arg.kind == "int":
            return f"{left} < {right}"
        if self.arg.kind == "float":
            return f"{left} < {right} or ({right} != {right} and {left} == {left})"
        return f"text_before({left}, {right}, {self.arg.texts})"

    def _best(self, at: Place) -> str:
        return at.float("best") if self.arg.is_float else at["best"]

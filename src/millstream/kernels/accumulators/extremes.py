"""The least, greatest, first known or last known value so far, or the value beside the least or greatest."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.accumulators.places import Argument, Lane, Place, guarded, held
from millstream.kernels.source.writer import indented
from millstream.records import dataclass
from millstream.types import SqlType


@dataclass(frozen=True)
class Extreme:
    """The best of an argument's values: of equal ones the first. NaN is the greatest float. The result is that value,
    or the one `beside` it."""

    arg: Argument
    fn: str
    beside: Argument | None = None

    @property
    def args(self) -> tuple[Argument, ...]:
        """In the order of a call's arguments."""
        return (self.arg,) if self.beside is None else (self.beside, self.arg)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        beside = () if self.beside is None else (Lane("beside", self.beside.is_float),)
        return (Lane("any"), Lane("best", self.arg.is_float), *beside)

    @property
    def holds(self) -> dict[str, Argument]:
        """The lanes that hold a value if `any` is not 0."""
        return {"best": self.arg} | ({} if self.beside is None else {"beside": self.beside})

    def begin(self, at: Place) -> Iterator[str]:
        yield f"{at['any']} = 0"
        for lane, arg in self.holds.items():
            yield f"{held(at, lane, arg)} = {'0.0' if arg.is_float else '0'}"

    def enter(self, at: Place, value: str, known: str = "True", beside: str = "") -> Iterator[str]:
        yield from guarded(known, self._offered(at, value, beside))

    def merge(self, at: Place, other: Place) -> Iterator[str]:
        beside = "" if self.beside is None else held(other, "beside", self.beside)
        yield from guarded(f"{other['any']} != 0", self._offered(at, self._best(other), beside))

    def result(self, at: Place, fn: str, type_: SqlType, out: str, ok: str, overflow: str) -> Iterator[str]:
        yield f"{ok} = {at['any']} != 0"
        yield f"{out} = {self._best(at) if self.beside is None else held(at, 'beside', self.beside)}"

    def _offered(self, at: Place, value: str, beside: str) -> Iterator[str]:
        taken = [f"{at['any']} = 1", f"{self._best(at)} = {value}"]
        if self.beside is not None:
            taken.append(f"{held(at, 'beside', self.beside)} = {beside}")
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
        if self.fn in ("max", "max_by"):
            left, right = right, left
        if self.arg.kind == "int":
            return f"{left} < {right}"
        if self.arg.kind == "float":
            return f"{left} < {right} or ({right} != {right} and {left} == {left})"
        return f"text_before({left}, {right}, {self.arg.texts})"

    def _best(self, at: Place) -> str:
        return held(at, "best", self.arg)

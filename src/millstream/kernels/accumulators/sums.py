"""Counts, sums and squares of values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millstream.kernels.accumulators.places import Argument, Lane, Place, guarded
from millstream.kernels.source.writer import indented
from millstream.types import SqlType

SPREADS = frozenset(("stddev_samp", "stddev_pop", "var_samp", "var_pop"))


def _exact(name: str) -> list[Lane]:
    """The lanes of an exact sum."""
    return [Lane(f"{name}{part}", True) for part in ("", "_low", "_error")]


@dataclass(frozen=True)
class Sums:
    """Count, sum and squares of an argument's values, as far as calls need them; no argument: the count of rows."""

    arg: Argument | None
    has_sum: bool = False
    has_squares: bool = False

    @property
    def lanes(self) -> tuple[Lane, ...]:
        lanes = [Lane("count")]
        if self.arg is not None and self.arg.is_float:
            if self.has_sum or self.has_squares:
                lanes += [*_exact("sum"), Lane("odd"), Lane("net")]
            if self.has_squares:
                lanes += [*_exact("squares"), Lane("huge")]
        elif self.arg is not None:
            if self.has_sum:
                lanes += [Lane("sum"), Lane("sum_low")] if self.arg.is_wide else [Lane("sum")]
            if self.has_squares:
                lanes += [*_exact("total"), *_exact("squares")]
        return tuple(lanes)

    @property
    def exact_sums(self) -> tuple[str, ...]:
        """The first lanes of its exact sums."""
        return tuple(lane.name.removesuffix("_error") for lane in self.lanes if lane.name.endswith("_error"))

    def joined(self, other: object) -> Sums:
        """What serves the calls of both."""
        assert isinstance(other, Sums) and other.arg == self.arg
        return replace(self, has_sum=self.has_sum or other.has_sum, has_squares=self.has_squares or other.has_squares)

    def begin(self, at: Place) -> Iterator[str]:
        for lane in self.lanes:
            yield f"{at.float(lane.name)} = 0.0" if lane.is_float else f"{at[lane.name]} = 0"

    def enter(self, at: Place, value: str, known: str = "True") -> Iterator[str]:
        yield from guarded(known, self._changed(at, value, entering=True))

    def leave(self, at: Place, value: str, known: str = "True") -> Iterator[str]:
        yield from guarded(known, self._left(at, value))

    def merge(self, at: Place, other: Place) -> Iterator[str]:
        for name in self.exact_sums:
            lanes = _texts(at, name)
            yield f"{lanes} = merged({lanes}, {_texts(other, name)})"
        rare = {"odd": ("odd", "net"), "huge": ("huge",)}
        for lane in self.lanes:
            if lane.name in rare:
                yield f"if {other[lane.name]} != 0:"
                yield from (f"    {at[name]} += {other[name]}" for name in rare[lane.name])
            elif not lane.is_float and lane.name != "net":
                yield f"{at[lane.name]} += {other[lane.name]}"

    def _left(self, at: Place, value: str) -> Iterator[str]:
        yield from self._changed(at, value, entering=False)
        if self.exact_sums:
            yield f"if {at['count']} == 0:"
            yield from indented(self.reset(at))

    def _changed(self, at: Place, v: str, entering: bool) -> Iterator[str]:
        sign, step = ("", "+=") if entering else ("-", "-=")
        yield f"{at['count']} {step} 1"
        if self.arg is None:
            return
        if self.arg.is_float and self.exact_sums:
            yield f"if {v} - {v} == 0.0:"
            yield from indented(self._summed(at, "sum", f"{sign}{v}"))
            if self.has_squares:
                yield f"    if abs({v}) < LARGEST_SQUARED:"
                yield from indented(self._squared(at, v, sign), 2)
                yield "    else:"
                yield f"        {at['huge']} {step} 1"
            yield f"elif {v} != {v}:"
            yield f"    {at['odd']} {step} 1"
            yield "else:"
            yield f"    {at['odd']} {step} 1 << 32"
            yield f"    {at['net']} {step} 1 if {v} > 0.0 else -1"
        elif self.has_sum and self.arg.is_wide:
            yield f"{at['sum']} {step} {v} >> 32"
            yield f"{at['sum_low']} {step} {v} & LOW_HALF"
        elif self.has_sum:
            yield f"{at['sum']} {step} {v}"
        if not self.arg.is_float and self.has_squares:
            yield f"number = {self.arg.scaled(v)}"
            yield from self._summed(at, "total", f"{sign}number")
            yield from self._squared(at, "number", sign)

    def _summed(self, at: Place, name: str, value: str) -> Iterator[str]:
        yield f"{_texts(at, name)} = added({_texts(at, name)}, {value})"

    def _squared(self, at: Place, value: str, sign: str) -> Iterator[str]:
        lanes = _texts(at, "squares")
        yield f"{lanes} = with_square({lanes}, {value}, {sign}1.0)"

    def reset(self, at: Place) -> Iterator[str]:
        """The exact sums begin anew."""
        return (f"{at.float(lane.name)} = 0.0" for lane in self.lanes if lane.is_float)

    def again(self, at: Place, value: str) -> Iterator[str]:
        """A value enters exact sums that began anew; it has been counted before."""
        assert self.arg is not None
        if self.arg.is_float:
            yield f"number = {value}"
            yield "if number - number == 0.0:"
            yield from indented(self._summed(at, "sum", "number"))
            if self.has_squares:
                yield "    if abs(number) < LARGEST_SQUARED:"
                yield from indented(self._squared(at, "number", ""), 2)
        else:
            yield f"number = {self.arg.scaled(value)}"
            yield from self._summed(at, "total", "number")
            yield from self._squared(at, "number", "")

    def unsure(self, at: Place) -> str:
        """Whether so much was lost from its exact sums that it may show in a result: larger values that have left took
        the digits of others with them."""
        return " or ".join(f"unsure({_texts(at, name)})" for name in self.exact_sums)

    def result(self, at: Place, fn: str, type_: SqlType, out: str, ok: str, overflow: str) -> Iterator[str]:
        if fn == "count":
            yield f"{out} = {at['count']}"
            return
        yield f"n = {at['count']}"
        least = 2 if fn.endswith("_samp") else 1
        yield f"{ok} = n >= {least}"
        yield f"if n >= {least}:"
        yield from indented(self._sum_result(at, fn, type_, out, overflow) if fn in ("sum", "avg") else
                            self._spread(at, fn, out))  # fmt: skip
        yield "else:"
        yield f"    {out} = {'0.0' if type_.name == 'DOUBLE' else '0'}"

    def _sum_result(self, at: Place, fn: str, type_: SqlType, out: str, overflow: str) -> Iterator[str]:
        assert self.arg is not None
        if self.arg.is_float:
            total = f"float_sum({at.float('sum')}, {at.float('sum_low')}, {at['odd']}, {at['net']})"
            yield f"{out} = {total}{'' if fn == 'sum' else ' / n'}"
            return
        units = f"(n * {10.0**self.arg.type.scale!r})" if self.arg.type.scale else "n"
        if not self.arg.is_wide:
            yield f"{out} = {at['sum']}" if fn == "sum" else f"{out} = float({at['sum']}) / {units}"
            return
        yield f"upper = {at['sum']} + ({at['sum_low']} >> 32)"
        yield f"under = {at['sum_low']} & LOW_HALF"
        if fn == "avg":
            yield f"{out} = (upper * 4294967296.0 + under) / {units}"
            return
        yield "if upper < -0x8000_0000 or upper > 0x7FFF_FFFF:"
        yield f"    {overflow}"
        yield f"{out} = (upper << 32) + under"
        if type_.name == "DECIMAL":
            yield f"if abs({out}) >= 1_000_000_000_000_000_000:"
            yield f"    {overflow}"

    def _spread(self, at: Place, fn: str, out: str) -> Iterator[str]:
        assert self.arg is not None
        sums = f"{', '.join(_lanes(at, 'sum' if self.arg.is_float else 'total')[:2])}, {_texts(at, 'squares')}"
        yield f"result = spread({sums}, n) / {'(n - 1)' if fn.endswith('samp') else 'n'}"
        if self.arg.is_float:
            yield f"if {at['odd']} != 0 or {at['huge']} != 0:"
            yield "    result = math.nan"
        yield f"{out} = {'math.sqrt(result)' if fn.startswith('stddev') else 'result'}"


def _lanes(at: Place, name: str) -> list[str]:
    return [at.float(lane.name) for lane in _exact(name)]


def _texts(at: Place, name: str) -> str:
    """The lanes of an exact sum, as arguments or as what is assigned to."""
    return ", ".join(_lanes(at, name))

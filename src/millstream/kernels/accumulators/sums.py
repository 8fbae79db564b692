"""Counts, sums and squares of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from millstream.kernels.accumulators.places import Argument, Lane, Place, guarded
from millstream.kernels.source.writer import indented
from millstream.plan.aggregates import HALVES
from millstream.records import dataclass
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

    holds: ClassVar[dict[str, Argument]] = {}
    """lanes that hold a value: none"""

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
        if self.arg is not None and self.arg.is_float and self.exact_sums:
            # NULL that is no number goes the way of what is no number: usual values are not asked whether they are one
            is_asked_last = self.arg.null_is_nan and known == f"{self.arg.name}_in"
            first, then = ("True", known) if is_asked_last else (known, "True")
            yield from guarded(first, self._float(at, value, then))
        else:
            yield from guarded(known, self._changed(at, value, entering=True))

    def leave(self, at: Place, value: str, known: str = "True") -> Iterator[str]:
        yield from guarded(known, self._left(at, value))

    def merge(self, at: Place, other: Place) -> Iterator[str]:
        for name in self.exact_sums:
            yield from _merged(at, other, name, "a" if self.arg is None else self.arg.name)
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
        if self.arg is not None and self.arg.is_float and self.exact_sums:
            yield from self._float(at, v, "True", sign, step)
            return
        yield f"{at['count']} {step} 1"
        if self.arg is None:
            return
        if self.has_sum and self.arg.is_wide:
            yield f"{at['sum']} {step} {v} >> 32"
            yield f"{at['sum_low']} {step} {v} & LOW_HALF"
        elif self.has_sum:
            yield f"{at['sum']} {step} {v}"
        if not self.arg.is_float and self.has_squares:
            yield f"number = {self.arg.scaled(v)}"
            yield from self._summed(at, "total", f"{sign}number")
            yield from self._squared(at, "number", sign)

    def _float(self, at: Place, v: str, known: str, sign: str = "", step: str = "+=") -> Iterator[str]:
        """A float comes or goes: first the way of nearly all, which asks as little as it can."""
        assert self.arg is not None
        x = self.arg.name
        yield f"{x}_x = {sign}{v}"
        counted = f"{at['count']} {step} 1"
        usual = [f"{at.float('sum')} = {x}_to", f"{at.float('sum_low')} = {x}_low"]
        closely = [*self._summed(at, "sum", f"{x}_x")]
        if self.has_squares:
            yield f"if abs({x}_x) < LARGEST_SQUARED:"
            yield f"    {counted}"
            yield from indented(_two_sum(at, "sum", x))
            yield f"    if {_is_exact(at.float('sum_low'), f'{x}_rest', f'{x}_low')}:"
            yield from indented(usual, 2)
            yield "    else:"
            yield from indented(closely, 2)
            yield from indented(_with_square(at, x, sign))
        else:
            yield from _two_sum(at, "sum", x)
            yield f"if {_is_exact(at.float('sum_low'), f'{x}_rest', f'{x}_low')}:"
            yield from indented([counted, *usual])
        yield "else:" if known == "True" else f"elif {known}:"
        yield f"    {counted}"
        yield f"    if {x}_x - {x}_x == 0.0:"
        yield from indented(closely, 2)
        if self.has_squares:
            yield f"        {at['huge']} {step} 1"
        yield f"    elif {x}_x != {x}_x:"
        yield f"        {at['odd']} {step} 1"
        yield "    else:"
        yield f"        {at['odd']} {step} 1 << 32"
        yield f"        {at['net']} += 1 if {x}_x > 0.0 else -1"

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
        yield from indented(self._sum_result(at, fn, type_, out, overflow) if fn in ("sum", "avg") or fn in HALVES
                            else self._spread(at, fn, out))  # fmt: skip
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
        if fn in HALVES:
            yield f"{out} = {'upper' if fn == 'sum_high' else 'under'}"
            return
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


def _two_sum(at: Place, name: str, x: str) -> Iterator[str]:
    """`{x}_to` and `{x}_rest` are exactly the high lane and the value; `{x}_low` is the low lane with that rest."""
    high = at.float(name)
    yield f"{x}_to = {high} + {x}_x"
    yield f"{x}_back = {x}_to - {high}"
    yield f"{x}_rest = ({high} - ({x}_to - {x}_back)) + ({x}_x - {x}_back)"
    yield f"{x}_low = {at.float(f'{name}_low')} + {x}_rest"


def _is_exact(left: str, right: str, total: str) -> str:
    """Whether nothing was rounded away from a sum of two: then, and only then, each is what is left without the
    other."""
    return f"({total} - {left} == {right}) & ({total} - {right} == {left})"


def _with_square(at: Place, x: str, sign: str) -> Iterator[str]:
    """The same as `with_square` where low is small beside high, as nearly always. Squares have twice the digits
    of values: most lose some."""
    yield f"{x}_square = {x}_x * {x}_x"
    yield f"{x}_back = SPLITTER * {x}_x"
    yield f"{x}_upper = {x}_back - ({x}_back - {x}_x)"
    yield f"{x}_under = {x}_x - {x}_upper"
    rest = f"(({x}_upper * {x}_upper - {x}_square) + 2.0 * {x}_upper * {x}_under) + {x}_under * {x}_under"
    yield f"{x}_more = {f'-({rest})' if sign else rest}"
    if sign:
        yield f"{x}_square = -{x}_square"
    yield from _added_pair(at, "squares", [f"{x}_square", f"{x}_more"], x)
    yield from _with_lost(at, "squares", [f"{x}_square", f"{x}_more", "0.0"], x)


def _with_lost(at: Place, name: str, other: Sequence[str], x: str) -> Iterator[str]:
    """A sum becomes that of `_added_pair`, with what was lost in the error."""
    (high, low, error), (_, other_low, other_error) = _lanes(at, name), other
    yield f"{x}_back = {x}_lower - {low}"
    yield f"{x}_lost = abs(({low} - ({x}_lower - {x}_back)) + ({other_low} - {x}_back))"
    yield f"{x}_back = {x}_low - {x}_lower"
    yield f"{x}_lost += abs(({x}_lower - ({x}_low - {x}_back)) + ({x}_rest - {x}_back))"
    yield f"if abs({x}_low) <= abs({x}_to) * NEAR:"
    yield f"    {high} = {x}_to"
    yield f"    {low} = {x}_low"
    yield f"    {error} += {x}_lost + {other_error}"
    yield "else:"
    yield f"    {_texts(at, name)} = merged({_texts(at, name)}, {', '.join(other)})"


def _added_pair(at: Place, name: str, other: Sequence[str], x: str) -> Iterator[str]:
    """`{x}_to` and `{x}_low` are a sum and another, both in two parts; `{x}_lower` and `{x}_rest` make up the low
    one."""
    (high, low, _), (other_high, other_low, *_) = _lanes(at, name), other
    yield f"{x}_to = {high} + {other_high}"
    yield f"{x}_back = {x}_to - {high}"
    yield f"{x}_rest = ({high} - ({x}_to - {x}_back)) + ({other_high} - {x}_back)"
    yield f"{x}_lower = {low} + {other_low}"
    yield f"{x}_low = {x}_lower + {x}_rest"


def _merged(at: Place, other: Place, name: str, x: str) -> Iterator[str]:
    """The same as `merged`, the usual way first."""
    (high, low, _), (_, other_low, other_error) = _lanes(at, name), _lanes(other, name)
    yield from _added_pair(at, name, _lanes(other, name), x)
    if name == "squares":
        yield from _with_lost(at, name, _lanes(other, name), x)
        return
    is_exact = _is_exact(low, other_low, f"{x}_lower"), _is_exact(f"{x}_lower", f"{x}_rest", f"{x}_low")
    yield f"if {is_exact[0]} & {is_exact[1]} & ({other_error} == 0.0):"
    yield f"    {high} = {x}_to"
    yield f"    {low} = {x}_low"
    yield "else:"
    yield f"    {_texts(at, name)} = merged({_texts(at, name)}, {_texts(other, name)})"

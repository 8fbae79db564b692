"""Conditions as kernel source, in which text is known by its codes, or as Python where they have none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.expressions.kernel.coded_text import NotCompilable, on_codes
from millstream.expressions.kernel.source import KernelExpr, to_kernel_source
from millstream.expressions.nodes import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    told,
    transform,
)
from millstream.kernels.batch import Ints
from millstream.kernels.jit import as_input
from millstream.kernels.source.objects import compile_objects
from millstream.plan.patterns.search import Search
from millstream.records import dataclass
from millstream.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, SqlType

_READ_BY_MAKERS = {"round": 1}
"""Functions whose source depends on the values of their constant arguments, from which one on."""


class Constants:
    """The constants of a search's conditions, in the order they stand there.

    Loops take them as arguments, so that searches that differ in nothing else share their loops. In source, a whole
    number, or the code of a text, is the variable `v_i<place>`, a DOUBLE `v_f<place>`.
    """

    def __init__(self) -> None:
        self._whole: list[int | str] = []
        self._floats: list[float] = []
        self._lifted: dict[Hashable, tuple[Expr, tuple[str, ...]]] = {}
        self._numbers: dict[Hashable, int] = {}

    def compiled(
        self, place: Hashable, condition: Expr, names: Mapping[str, str], present: tuple[str, ...] = ()
    ) -> KernelExpr:
        """A condition as source over `v_<name>` and `n_<name>`, and over constants; `place` tells one condition from
        others that happen to be equal; what is in `present` is never NULL."""
        if place not in self._lifted:
            before = self._names()
            lifted = self._lift(on_codes(condition, lambda text: self._named(text).name))
            self._lifted[place] = lifted, tuple(name for name in self._names() if name not in before)
        lifted, own = self._lifted[place]
        source = to_kernel_source(lifted, {**names, **{f"constant {name}": name for name in own}}, (*own, *present))
        if source is None:
            raise NotCompilable(f"{condition} has no compiled form")
        return source

    def number(self, place: Hashable, value: int) -> int:
        """The place among the whole numbers of one that is no part of a condition."""
        if place not in self._numbers:
            self._whole.append(value)
            self._numbers[place] = len(self._whole) - 1
        return self._numbers[place]

    def lines(self, place: Hashable = None) -> list[str]:
        """Source that reads the constants of a condition, or all, from two arrays, `whole` and `real`."""
        names = self._names() if place is None else self._lifted[place][1]
        return [f"v_{name} = {'whole' if name[0] == 'i' else 'real'}[{name[1:]}]" for name in names]

    def _names(self) -> tuple[str, ...]:
        return (*(f"i{i}" for i in range(len(self._whole))), *(f"f{i}" for i in range(len(self._floats))))

    def arrays(self, code_of: Callable[[Sequence[str]], Ints]) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Both arrays; `code_of` gives the codes of text."""
        texts = [i for i, value in enumerate(self._whole) if isinstance(value, str)]
        whole = np.array([0 if isinstance(value, str) else value for value in self._whole], dtype=np.int64)
        if texts:
            whole[texts] = code_of([str(self._whole[i]) for i in texts])
        return as_input(whole), as_input(np.array(self._floats, dtype=np.float64))

    def _lift(self, expr: Expr) -> Expr:
        if isinstance(expr, Literal):
            return self._lifted_literal(expr)
        children = expr.children()
        fixed = _READ_BY_MAKERS.get(expr.fn, len(children)) if isinstance(expr, Call) else len(children)
        lifted = tuple(self._lift(child) if i < fixed else child for i, child in enumerate(children))
        return expr.with_children(lifted) if children else expr

    def _lifted_literal(self, literal: Literal) -> Expr:
        value, type_ = literal.value, literal.type
        if isinstance(value, bool) or not isinstance(value, int | float):
            return literal
        if type_ == BIGINT and -(2**31) <= value < 2**31:
            # Arithmetic with what fits 32 bits needs no look at overflow.
            return Cast(BIGINT, self._named(int(value), INTEGER))
        return self._named(float(value) if type_ == DOUBLE else int(value), type_)

    def _named(self, value: int | float | str, type_: SqlType = BIGINT) -> Column:
        if isinstance(value, float):
            self._floats.append(value)
            return Column(type_, f"constant f{len(self._floats) - 1}")
        self._whole.append(value)
        return Column(type_, f"constant i{len(self._whole) - 1}")


@dataclass
class Doubt:
    """A part of a condition that may fail: whether it does for the values that the condition reads, how it is written,
    and the values to show, each by its places among these: two are the halves of a sum."""

    fails: Callable[[list[Any]], bool]
    said: str
    shown: dict[str, tuple[int, ...]]


def doubts_of(search: Search, condition: Expr, read: list[str]) -> tuple[Doubt, ...]:
    """The parts of a condition, over values with these names, that are taken as false where they fail."""
    parts = conjuncts(condition)
    tried = [part for part in parts if isinstance(part, Call) and part.fn == "$passing"]
    sure = tuple(part for part in parts if part not in tried)
    places = {name: i for i, name in enumerate(read)}
    found = []
    for part in tried:
        shown: dict[str, tuple[int, ...]] = {}
        halves: set[str] = set()

        def as_said(each: Expr, shown: dict[str, tuple[int, ...]] = shown, halves: set[str] = halves) -> Expr:
            if isinstance(each, Call) and each.fn == "$total":
                high, low, *_ = (column for column in each.args if isinstance(column, Column))
                shown[told(high)] = places[high.name], places[low.name]
                halves |= {high.name, low.name}
                return Column(each.type, told(high))
            return each

        said = search.spelled(transform(part.args[0], as_said))
        for name in sorted(columns_of(part) - halves):
            shown[search.spelled(Column(search.values[name], name))] = (places[name],)
        fails = conjunction((*sure, Call(BOOLEAN, "$failed", part.args)))
        found.append(Doubt(evaluated(fails, places), said, shown))
    return tuple(found)


def evaluated(condition: Expr, places: Mapping[str, int]) -> Callable[[list[Any]], bool]:
    """A condition as a Python function of the values of its columns, at these places of a list."""
    evaluate = compile_objects(condition, lambda _, part: f"row[{places[part.name]}]")
    return lambda values: evaluate(values) is True

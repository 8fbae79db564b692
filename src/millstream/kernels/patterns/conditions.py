"""Conditions as kernel source, in which text is known by its codes, or as Python where they have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.kernels.coded_text import NotCompilable, on_codes
from millstream.kernels.programs.evaluate import Closure, Expressions
from millstream.physical.expressions.kernel import KernelExpr, to_kernel_source
from millstream.plan.expr import Column, Expr


def compiled(condition: Expr, names: Mapping[str, str], texts: dict[str, int]) -> KernelExpr:
    """A condition as source over `v_<name>` and `n_<name>`; text constants are `v_text<i>`, entered in `texts`."""
    known = dict(names)

    def column_of(text: str) -> str:
        known[f"text {text}"] = f"text{texts.setdefault(text, len(texts))}"
        return f"text {text}"

    coded = on_codes(condition, column_of)
    present = {f"text{i}" for i in texts.values()}
    source = to_kernel_source(coded, known, present)
    if source is None:
        raise NotCompilable(f"{condition} has no compiled form")
    return source


def evaluated(condition: Expr, places: Mapping[str, int]) -> Callable[[list[Any]], bool]:
    """A condition as a Python function of the values of its columns, at these places of a list."""

    def column(part: Column) -> Closure:
        place = places[part.name]
        return lambda frame: frame[place]

    def other(part: Expr) -> Closure:
        raise TypeError(f"{part} in a pattern")

    closure = Expressions(column, other)(condition)
    return lambda frame: closure(frame) is True

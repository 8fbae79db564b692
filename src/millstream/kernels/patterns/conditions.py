"""Conditions as kernel source, in which text is known by its codes, or as Python where they have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.kernels.programs.evaluate import Closure, Expressions
from millstream.physical.expressions.kernel import KernelExpr, to_kernel_source
from millstream.plan.expr import Call, Case, Cast, Column, Expr, Literal, transform, walk
from millstream.types import BIGINT

_ON_CODES = frozenset({"=", "<>", "in", "is_distinct", "is_null", "coalesce"})
"""What can be asked of text that is known by its code alone."""


class NotCompilable(Exception):
    """Why a condition is evaluated row by row."""


def compiled(condition: Expr, names: Mapping[str, str], texts: dict[str, int]) -> KernelExpr:
    """A condition as source over `v_<name>` and `n_<name>`; text constants are `v_text<i>`, entered in `texts`."""
    known = dict(names)
    coded = _coded(condition, known, texts)
    present = {f"text{i}" for i in texts.values()}
    source = to_kernel_source(coded, known, present)
    if source is None:
        raise NotCompilable(f"{condition} has no compiled form")
    return source


def _coded(expr: Expr, names: dict[str, str], texts: dict[str, int]) -> Expr:
    for part in walk(expr):
        coded = any(child.type.is_coded for child in part.children())
        if coded and (isinstance(part, Cast) or (isinstance(part, Call) and part.fn not in _ON_CODES)):
            raise NotCompilable(f"{part} needs the text itself, and kernels have only its code")
        if part.type.is_coded and isinstance(part, Call) and part.fn != "coalesce":
            raise NotCompilable(f"{part} makes new text")
        if part.type.name in ("BLOB", "DECIMAL", "NULL") and not (isinstance(part, Literal) and part.value is None):
            raise NotCompilable(f"{part} is {part.type}")

    def change(part: Expr) -> Expr:
        if not part.type.is_coded:
            return part
        match part:
            case Literal(value=str(text)):
                number = texts.setdefault(text, len(texts))
                names[f"text {text}"] = f"text{number}"
                return Column(BIGINT, f"text {text}")
            case Literal():
                return Literal(BIGINT, part.value)
            case Column():
                return Column(BIGINT, part.name)
            case Call():
                return Call(BIGINT, part.fn, part.args)
            case Case():
                return Case(BIGINT, part.whens, part.default)
        raise NotCompilable(f"{part} is text")

    return transform(expr, change)


def evaluated(condition: Expr, places: Mapping[str, int]) -> Callable[[list[Any]], bool]:
    """A condition as a Python function of the values of its columns, at these places of a list."""

    def column(part: Column) -> Closure:
        place = places[part.name]
        return lambda frame: frame[place]

    def other(part: Expr) -> Closure:
        raise TypeError(f"{part} in a pattern")

    closure = Expressions(column, other)(condition)
    return lambda frame: closure(frame) is True

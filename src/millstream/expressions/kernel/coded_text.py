"""Expressions in loops, where text is known by its dictionary code alone."""

from __future__ import annotations

from collections.abc import Callable

from millstream.expressions.nodes import Call, Case, Cast, Column, Expr, Literal, transform, walk
from millstream.types import BIGINT

_ON_CODES = frozenset({"=", "<>", "in", "is_distinct", "is_null", "coalesce"})


class NotCompilable(Exception):
    """Why something has no form in a compiled loop."""


def on_codes(expr: Expr, column_of: Callable[[str], str]) -> Expr:
    """The expression with text replaced by its codes; `column_of` names the column that has the code of a constant.

    NotCompilable where the text itself is needed, or a value has no form in loops.
    """
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
                return Column(BIGINT, column_of(text))
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


def has_kernel_form(expr: Expr) -> bool:
    """Whether loops can compute an expression of columns that they have, text by its codes."""
    from millstream.expressions.kernel.source import to_kernel_source

    if isinstance(expr, Column):
        return True
    try:
        coded = on_codes(expr, lambda _: "")
    except NotCompilable:
        return False
    return to_kernel_source(coded, {part.name: "x" for part in walk(coded) if isinstance(part, Column)}) is not None

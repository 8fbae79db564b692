"""Helpers of generated source in a form that machine code does in few instructions; they mean what those do that all
kernels have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from millstream.expressions.kernel.helpers import helper_source
from millstream.kernels.jit.primitives import difference, product, remainder, total


def k_add(a: Any, b: Any) -> Any:
    result, fits = total(a, b)
    if not fits:
        raise OverflowError("the result does not fit BIGINT")
    return result


def k_subtract(a: Any, b: Any) -> Any:
    result, fits = difference(a, b)
    if not fits:
        raise OverflowError("the result does not fit BIGINT")
    return result


def k_multiply(a: Any, b: Any) -> Any:
    result, fits = product(a, b)
    if not fits:
        raise OverflowError("the result does not fit BIGINT")
    return result


def k_modulo(a: Any, b: Any) -> Any:
    if b == -1:
        return 0
    return remainder(a, b)


_OWN: dict[str, Callable[..., Any]] = {
    "k_add": k_add, "k_modulo": k_modulo, "k_multiply": k_multiply, "k_subtract": k_subtract,
}  # fmt: skip


def arithmetic_source(names: Iterable[str]) -> str:
    """The source text of helpers; it needs the primitives imported above."""
    wanted = set(names)
    own = [inspect.getsource(_OWN[name]) for name in sorted(wanted & _OWN.keys())]
    return "\n\n".join([helper_source(wanted - _OWN.keys()), *own])

"""Aggregates over the rows of a query, as functions of the list of their arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Context, Decimal
from functools import reduce
from typing import Any

from millstream.errors import DataError
from millstream.functions.literals import decimal_value
from millstream.kernels.programs.python import vectorised
from millstream.physical.expressions.object_functions import bounds
from millstream.physical.expressions.object_values import equality_key, order_key
from millstream.plan.builtin_programs import builtin_program
from millstream.plan.programs import Program, Summary
from millstream.plan.python import Vectorised
from millstream.types import SqlType

Finish = Callable[[list[tuple[Any, ...]]], Any]
"""From the arguments of every row, in order, to the value; for a program, to the rows that it returned."""

_EXACT = Context(prec=100)


def finisher(
    summary: Summary, nested: Callable[[Program], Callable[[list[tuple[Any, ...]]], list[list[Any]]]]
) -> Finish:
    """What computes a summary."""
    if summary.program is not None:
        run = nested(summary.program)
        return (lambda rows: run(_distinct(rows, summary))) if summary.distinct else run
    if isinstance(summary, Vectorised):
        return vectorised(summary)
    if not summary.args:
        return len
    if summary.fn not in _BUILT_IN:
        run = nested(builtin_program(summary.fn, summary.args[0].type, summary.type))
        return lambda rows: (run(_distinct(rows, summary) if summary.distinct else rows) or [[None]])[-1][0]
    compute = _BUILT_IN[summary.fn](summary)

    def finish(rows: list[tuple[Any, ...]]) -> Any:
        present = [row for row in rows if row[0] is not None]
        return compute([row[0] for row in (_distinct(present, summary) if summary.distinct else present)])

    return finish


def _distinct(rows: list[tuple[Any, ...]], summary: Summary) -> list[tuple[Any, ...]]:
    """The first of equal rows."""
    keys = [equality_key(arg.type) for arg in summary.args]
    first: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        key = tuple(value if k is None or value is None else k(value) for k, value in zip(keys, row, strict=True))
        first.setdefault(key, row)
    return list(first.values())


def _count(summary: Summary) -> Callable[[list[Any]], Any]:
    return len


def _sum(summary: Summary) -> Callable[[list[Any]], Any]:
    add = _adder(summary.args[0].type)

    def compute(values: list[Any]) -> Any:
        if not values:
            return None
        # Not Python's sum: that of floats depends on more than their order.
        return _fitting(reduce(add, values), summary)

    return compute


def _average(summary: Summary) -> Callable[[list[Any]], Any]:
    add = _adder(summary.args[0].type)
    return lambda values: float(reduce(add, values)) / len(values) if values else None


def _adder(type_: SqlType) -> Callable[[Any, Any], Any]:
    return _EXACT.add if type_.name == "DECIMAL" else operator.add


def _fitting(total: Any, summary: Summary) -> Any:
    if summary.type.is_integer:
        low, high = bounds(summary.type)
        if not low <= total <= high:
            raise DataError(f"{summary} does not fit {summary.type}")
    elif isinstance(total, Decimal):
        try:
            return decimal_value(total, summary.type)
        except ValueError:
            raise DataError(f"{summary} does not fit {summary.type}") from None
    return total


def _extreme(choose: Callable[..., Any]) -> Callable[[Summary], Callable[[list[Any]], Any]]:
    def make(summary: Summary) -> Callable[[list[Any]], Any]:
        key = order_key(summary.type)
        return lambda values: choose(values, key=key) if values else None

    return make


_BUILT_IN: dict[str, Callable[[Summary], Callable[[list[Any]], Any]]] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _extreme(min),
    "max": _extreme(max),
}

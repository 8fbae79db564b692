"""Aggregates over the rows of a query, as functions of the list of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache, reduce
from typing import Any

from millstream.errors import DataError
from millstream.expressions.functions.literals import decimal_value
from millstream.expressions.object_functions import EXACT
from millstream.expressions.object_values import equality_key
from millstream.kernels.accumulators import Accumulator, Argument, Place, entered, imports
from millstream.kernels.accumulators.places import is_code
from millstream.kernels.accumulators.sums import SPREADS
from millstream.kernels.programs.python import vectorised
from millstream.kernels.source.writer import Writer
from millstream.plan.aggregates import HALVES
from millstream.plan.programs.nodes import AggregateValue, Program
from millstream.plan.programs.python import Vectorised
from millstream.types import INTEGER, SqlType

Finish = Callable[[list[tuple[Any, ...]]], Any]
"""From the arguments of every row, in order, to the value; for a program, to the rows that it returned."""


def finisher(
    summary: AggregateValue, nested: Callable[[Program], Callable[[list[tuple[Any, ...]]], list[list[Any]]]]
) -> Finish:
    """What computes a summary."""
    if isinstance(summary, Vectorised):
        return vectorised(summary)
    compute = nested(summary.program) if summary.program is not None else _built_in(summary)
    return (lambda rows: compute(_distinct(rows, summary))) if summary.distinct else compute


def _distinct(rows: list[tuple[Any, ...]], summary: AggregateValue) -> list[tuple[Any, ...]]:
    """The first of equal rows."""
    keys = [equality_key(arg.type) for arg in summary.args]
    first: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        first.setdefault(tuple(v if k is None else k(v) for k, v in zip(keys, row, strict=True)), row)
    return list(first.values())


def _built_in(summary: AggregateValue) -> Finish:
    if not summary.args:
        return len
    types = tuple(arg.type for arg in summary.args)
    of_decimals = types[0].name == "DECIMAL" and summary.fn in ("sum", "avg")
    compute = (_of_decimals if of_decimals else _accumulated)(summary.fn, types, summary.type)

    def finish(rows: list[tuple[Any, ...]]) -> Any:
        try:
            return compute(rows)
        except (OverflowError, ValueError):
            raise DataError(f"{summary} does not fit {summary.type}") from None

    return finish


@cache
def _accumulated(fn: str, types: tuple[SqlType, ...], result: SqlType) -> Finish:
    """The aggregate that all kernels have, over objects: those that are no numbers compare as numbers do."""
    args, values = [], []
    for i, type_ in enumerate(types):
        value, of = f"x{i}", type_
        if type_.name == "DECIMAL" and (fn in SPREADS or fn in HALVES):
            value = f"int(x{i}.scaleb({type_.scale}))"
        elif is_code(type_) or type_.name == "DECIMAL":
            of = INTEGER
        args.append(Argument(f"x{i}", of))
        values.append((value, f"x{i} is not None"))
    accumulator, at = Accumulator(fn, tuple(args), result), Place.local("held_")
    write = Writer(0)
    with write.block("def finish(rows):"):
        write(*accumulator.state.begin(at))
        with write.block(f"for {''.join(f'{arg.name}, ' for arg in args)} in rows:"):
            write(*entered(accumulator.state, at, *values))
        write(*accumulator.result(at, "out", "ok", "raise OverflowError"))
        write("return out" if fn == "count" else "return out if ok else None")
    made: dict[str, Any] = {}
    exec(imports(write.text) + write.text, made)
    finish: Finish = made["finish"]
    return finish


def _of_decimals(fn: str, types: tuple[SqlType, ...], result: SqlType) -> Finish:
    """Sum and average of decimals of any length."""

    def compute(rows: list[tuple[Any, ...]]) -> Any:
        present = [value for (value,) in rows if value is not None]
        if not present:
            return None
        total: Decimal = reduce(EXACT.add, present)
        return decimal_value(total, result) if fn == "sum" else float(total) / len(present)

    return compute

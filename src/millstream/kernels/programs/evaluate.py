"""Scalar expressions as Python closures: what the row engine runs for each row.

Each expression is compiled once. Common functions are Python here; other functions of numbers and times run the source
that kernels run; what is left, such as most functions of text, is evaluated on a batch of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.programs.evaluate_functions import cast_function, identity, strict_function
from millstream.kernels.programs.rows_values import equality_key, order_key, to_arrow, to_values
from millstream.plan.expr import Call, Case, Cast, Column, Expr, Literal, told
from millstream.schema import Field, Schema

Frame = list[Any]
"""What a closure reads: the current row of every range, and what else the engine puts there."""

Closure = Callable[[Frame], Any]
Compile = Callable[[Expr], Closure]

_REMEMBERED = 4096


class Expressions:
    """Compiles expressions; `column` and `other` say what columns, and expressions of other kinds, compile to."""

    def __init__(self, column: Callable[[Column], Closure], other: Compile) -> None:
        self._column = column
        self._other = other

    def __call__(self, expr: Expr) -> Closure:
        match expr:
            case Column():
                return self._column(expr)
            case Literal():
                return _constant(expr.value)
            case Case():
                return self._case(expr)
            case Cast():
                return self._cast(expr)
            case Call():
                return self._call(expr)
        return self._other(expr)

    def _case(self, expr: Case) -> Closure:
        arms = [(self(when), self(then)) for when, then in expr.whens]
        default = self(expr.default)

        def run(frame: Frame) -> Any:
            for when, then in arms:
                if when(frame):
                    return then(frame)
            return default(frame)

        return run

    def _cast(self, expr: Cast) -> Closure:
        arg = self(expr.arg)
        function = cast_function(expr)
        if function is None:
            return _of_parts(expr, [arg], strict=True)
        return arg if function is identity else _unary(_explained(expr, function), arg)

    def _call(self, expr: Call) -> Closure:
        special = _SPECIAL.get(expr.fn)
        parts = [self(arg) for arg in expr.args]
        if special is not None:
            return special(expr, parts)
        function = strict_function(expr)
        if function is None:
            return _of_parts(expr, parts, strict=False)
        function = _explained(expr, function)
        if len(parts) == 1:
            return _unary(function, parts[0])
        if len(parts) == 2:
            return _binary(function, *parts)
        return _variadic(function, parts)


def _constant(value: Any) -> Closure:
    return lambda frame: value


def _explained(expr: Expr, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its overflows told as errors of the data."""

    def run(*values: Any) -> Any:
        try:
            return function(*values)
        except (OverflowError, ValueError) as error:
            raise DataError(f"cannot evaluate {told(expr)}", detail=str(error) or None) from None

    return run if getattr(function, "may_fail", False) else function


def _unary(function: Callable[[Any], Any], arg: Closure) -> Closure:
    def run(frame: Frame) -> Any:
        value = arg(frame)
        return None if value is None else function(value)

    return run


def _binary(function: Callable[[Any, Any], Any], left: Closure, right: Closure) -> Closure:
    def run(frame: Frame) -> Any:
        a = left(frame)
        if a is None:
            return None
        b = right(frame)
        return None if b is None else function(a, b)

    return run


def _variadic(function: Callable[..., Any], parts: list[Closure]) -> Closure:
    def run(frame: Frame) -> Any:
        values = [part(frame) for part in parts]
        return None if None in values else function(*values)

    return run


def _and(expr: Call, parts: list[Closure]) -> Closure:
    left, right = parts

    def run(frame: Frame) -> Any:
        a = left(frame)
        if a is False:
            return False
        b = right(frame)
        return b if a else (False if b is False else None)

    return run


def _or(expr: Call, parts: list[Closure]) -> Closure:
    left, right = parts

    def run(frame: Frame) -> Any:
        a = left(frame)
        if a is True:
            return True
        b = right(frame)
        return (True if b else None) if a is None else b

    return run


def _is_null(expr: Call, parts: list[Closure]) -> Closure:
    (arg,) = parts
    return lambda frame: arg(frame) is None


def _is_distinct(expr: Call, parts: list[Closure]) -> Closure:
    left, right = parts
    key = equality_key(expr.args[0].type) or identity
    return lambda frame: key(left(frame)) != key(right(frame))


def _in(expr: Call, parts: list[Closure]) -> Closure:
    subject, *items = parts
    key = equality_key(expr.args[0].type) or identity

    def run(frame: Frame) -> Any:
        value = subject(frame)
        if value is None:
            return None
        wanted, unknown = key(value), False
        for item in items:
            found = item(frame)
            if found is None:
                unknown = True
            elif key(found) == wanted:
                return True
        return None if unknown else False

    return run


def _coalesce(expr: Call, parts: list[Closure]) -> Closure:
    def run(frame: Frame) -> Any:
        for part in parts:
            value = part(frame)
            if value is not None:
                return value
        return None

    return run


def _nullif(expr: Call, parts: list[Closure]) -> Closure:
    left, right = parts
    key = equality_key(expr.args[0].type) or identity

    def run(frame: Frame) -> Any:
        value = left(frame)
        return None if value is None or key(value) == key(right(frame)) else value

    return run


def _extreme(choose: Callable[..., Any]) -> Callable[[Call, list[Closure]], Closure]:
    def make(expr: Call, parts: list[Closure]) -> Closure:
        key = order_key(expr.type)

        def run(frame: Frame) -> Any:
            values = [value for part in parts if (value := part(frame)) is not None]
            return choose(values, key=key) if values else None

        return run

    return make


_SPECIAL: dict[str, Callable[[Call, list[Closure]], Closure]] = {
    "and": _and, "or": _or, "is_null": _is_null, "is_distinct": _is_distinct, "in": _in, "coalesce": _coalesce,
    "nullif": _nullif, "greatest": _extreme(max), "least": _extreme(min),
}  # fmt: skip
"""Functions that do not just give NULL for NULL."""


def _of_parts(expr: Expr, parts: list[Closure], strict: bool) -> Closure:
    """An expression over the values of its parts: by the source that kernels run, or as a batch of one row."""
    fields = tuple(Field(f"a{i}", part.type) for i, part in enumerate(expr.children()))
    # Constants stay: patterns and formats must be.
    outer = expr.with_children(
        tuple(
            part if isinstance(part, Literal) else Column(part.type, field.name)
            for part, field in zip(expr.children(), fields, strict=True)
        )
    )
    function = _from_kernel(outer, fields) or _from_batch(outer, Schema(fields))

    def run(frame: Frame) -> Any:
        values = [part(frame) for part in parts]
        if strict and None in values:
            return None
        try:
            return function(*values)
        except (DataError, OverflowError) as error:
            detail = error.detail if isinstance(error, DataError) else str(error)
            raise DataError(f"cannot evaluate {told(expr)}", detail=detail) from None

    return run


def _from_kernel(expr: Expr, fields: tuple[Field, ...]) -> Callable[..., Any] | None:
    from millstream.physical.expressions import HELPERS, to_kernel_source

    if "DECIMAL" in (expr.type.name, *(field.type.name for field in fields)):
        return None
    source = to_kernel_source(expr, {field.name: field.name for field in fields})
    if source is None:
        return None
    names = ", ".join([*(f"v_{field.name}" for field in fields), *(f"n_{field.name}" for field in fields)])
    text = f"lambda {names}: None if {source.null} else {source.value}"
    compute = eval(text, {"np": np, **HELPERS})

    def run(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            result = compute(*values, *(value is None for value in values))
        return result.item() if isinstance(result, np.generic) else result

    return run


def _from_batch(expr: Expr, schema: Schema) -> Callable[..., Any]:
    from millstream.physical.expressions import compile_arrow

    evaluate = compile_arrow((expr,), schema)

    def run(*values: Any) -> Any:
        columns = [to_arrow([value], field.type) for value, field in zip(values, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow) if columns else _NO_COLUMNS
        return to_values(evaluate(rows)[0], expr.type)[0]

    # -0.0 and 0.0 would be one key.
    return run if any(field.type.name == "DOUBLE" for field in schema) else lru_cache(_REMEMBERED)(run)


_NO_COLUMNS = pa.record_batch([pa.nulls(1, pa.bool_())], names=["row"])

"""Functions and casts of objects that kernels have no form of: of text and decimals in Python, others on a batch."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from functools import lru_cache
from itertools import islice
from typing import Any

import pyarrow as pa

from millstream.expressions.functions.literals import decimal_value
from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal
from millstream.expressions.object_values import to_arrow, to_values
from millstream.schema import Field, Schema
from millstream.types import BIGINT, INTEGER, SqlType, integer_bounds

Function = Callable[..., Any]

EXACT = Context(prec=100)
_REMEMBERED = 4096


def identity(value: Any) -> Any:
    return value


def bounds(type_: SqlType) -> tuple[int, int]:
    """The least and the greatest value of a type whose values are integers."""
    found = integer_bounds(type_) or integer_bounds(INTEGER if type_.name == "DATE" else BIGINT)
    assert found is not None
    return found


def strict_function(expr: Call) -> Function | None:
    """The function of a call of which NULL gives NULL, for values that are not; None if there is no such here."""
    maker = _MAKERS.get(expr.fn)
    return None if maker is None else maker(expr)


def function_of_nulls(expr: Call) -> Function | None:
    """The function of a call that is more than NULL for some NULLs; None if there is no such here."""
    return _OF_NULLS.get(expr.fn)


def cast_function(expr: Cast) -> Function | None:
    """What a cast does; `identity` where the value stays as it is, None if it is not done here."""
    source, target = expr.arg.type, expr.type
    kinds = {source.name, target.name}
    pair = (bounds(source), bounds(target)) if source.is_integer and target.is_integer else None
    wider = pair is not None and pair[1][0] <= pair[0][0] and pair[0][1] <= pair[1][1]
    if target in (source, source.base) or wider or kinds == {"TIMESTAMP", "TIMESTAMPTZ"}:
        return identity
    if target.domain:
        return None
    if source.is_integer and target.is_text:
        return str
    if source.is_integer and target.name == "DECIMAL" and not expr.safe:
        return lambda value: fitting(Decimal(value), target)
    return None


def of_batch(expr: Call | Cast) -> Function:
    """A function of the values of an expression's parts, evaluated on a batch of one row."""
    from millstream.expressions.evaluator import compile_arrow

    fields = tuple(Field(f"a{i}", part.type) for i, part in enumerate(expr.children()))
    # Constants stay: patterns and formats must be.
    outer: Expr = expr.with_children(
        tuple(
            part if isinstance(part, Literal) else Column(part.type, field.name)
            for part, field in zip(expr.children(), fields, strict=True)
        )
    )
    schema = Schema(fields)
    evaluate = compile_arrow((outer,), schema)

    def run(*values: Any) -> Any:
        columns = [to_arrow([value], field.type) for value, field in zip(values, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow) if columns else _NO_COLUMNS
        return to_values(evaluate(rows)[0], expr.type)[0]

    # -0.0 and 0.0 would be one key, and nested values are none.
    return (
        run
        if any(field.type.name == "DOUBLE" or field.type.is_nested for field in schema)
        else lru_cache(_REMEMBERED)(run)
    )


_NO_COLUMNS = pa.record_batch([pa.nulls(1, pa.bool_())], names=["row"])


def fitting(value: Decimal, type_: SqlType) -> Decimal:
    """A number as one of a type of decimals; OverflowError if it does not fit."""
    try:
        return decimal_value(value, type_)
    except ValueError:
        raise OverflowError(f"{value} does not fit {type_}") from None


class GrowingArray:
    """An array that shares its elements with those it grew from: a step longer without a copy. None ever changes."""

    __slots__ = ("_elements", "_length")

    def __init__(self, elements: list[Any], length: int) -> None:
        self._elements, self._length = elements, length

    @classmethod
    def of(cls, array: GrowingArray | list[Any]) -> GrowingArray:
        return array if isinstance(array, GrowingArray) else cls(list(array), len(array))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return islice(self._elements, self._length)

    def with_last(self, value: Any) -> GrowingArray:
        # only the longest may append to the elements; others take a copy of their own
        elements = self._elements if len(self._elements) == self._length else list(self)
        elements.append(value)
        return GrowingArray(elements, self._length + 1)


def _exactly(function: Function) -> Callable[[Call], Function | None]:
    """Arithmetic of decimals."""
    return lambda expr: (lambda *values: fitting(function(*values), expr.type)) if _is_decimal(expr) else None


def _is_decimal(expr: Call) -> bool:
    return expr.type.name == "DECIMAL"


def _like(expr: Call) -> Function | None:
    pattern = expr.args[1]
    if len(expr.args) != 2 or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return None
    signs = {"%": ".*", "_": "."}
    matches = re.compile("".join(signs.get(sign) or re.escape(sign) for sign in pattern.value), re.DOTALL).fullmatch
    return lambda text, _: matches(text) is not None


def _substring(expr: Call) -> Function | None:
    numbers = [arg.value for arg in expr.args[1:] if isinstance(arg, Literal)]
    if len(numbers) != len(expr.args) - 1 or not all(isinstance(n, int) for n in numbers) or numbers[0] < 1:  # type: ignore[operator]
        return None
    start = int(numbers[0]) - 1  # type: ignore[call-overload]
    if len(numbers) == 1:
        return lambda text, _: text[start:]
    end = start + int(numbers[1])  # type: ignore[call-overload]
    return (lambda text, _, __: text[start:end]) if end >= start else None


def _always(function: Function) -> Callable[[Call], Function]:
    return lambda expr: function


_MAKERS: dict[str, Callable[[Call], Function | None]] = {
    "+": _exactly(EXACT.add),
    "-": _exactly(EXACT.subtract),
    "*": _exactly(EXACT.multiply),
    # Decimal's own signs round to 28 digits.
    "neg": lambda expr: Decimal.copy_negate if _is_decimal(expr) else None,
    "abs": lambda expr: Decimal.copy_abs if _is_decimal(expr) else None,
    "||": _always(operator.add),
    "array_length": _always(len),
    "like": _like,
    "length": _always(len),
    "substring": _substring,
    "contains": _always(lambda text, part: part in text),
    "starts_with": _always(str.startswith),
    "ends_with": _always(str.endswith),
}

_OF_NULLS: dict[str, Function] = {
    "list_value": lambda *values: list(values),
    "array_append": lambda array, value: None if array is None else GrowingArray.of(array).with_last(value),
}

"""What has no form in loops, evaluated in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.nodes import Column, Expr
from millstream.expressions.object_values import to_values
from millstream.kernels.events.instances import Codes
from millstream.kernels.patterns.coding import decode, encode, is_odd
from millstream.kernels.source.objects import compile_objects
from millstream.types import SqlType

_PLAIN = {"BOOLEAN": bool, "DOUBLE": float}


class Asking:
    """Answers what generated source asks about an event and an instance."""

    def __init__(self, asked: list[tuple[Expr, tuple[Column, ...]]]) -> None:
        self._functions: list[Callable[[list[Any]], Any]] = []
        self._types = [[column.type for column in read] for _, read in asked]
        self._results = [expr.type for expr, _ in asked]
        for expr, read in asked:
            self._functions.append(_function(expr, {column.name: place for place, column in enumerate(read)}))

    def of(self, codes: Codes) -> Callable[[int, tuple[Any, ...], tuple[Any, ...]], Any]:
        """A function for source to call: a value in the form that loops have for it, None if it is NULL."""

        def ask(number: int, values: tuple[Any, ...], nulls: tuple[Any, ...]) -> Any:
            given = zip(values, nulls, self._types[number], strict=True)
            frame = [None if null else _object(value, type_, codes) for value, null, type_ in given]
            return _word(self._functions[number](frame), self._results[number], codes)

        return ask


def _function(expr: Expr, places: dict[str, int]) -> Callable[[list[Any]], Any]:
    return compile_objects(expr, lambda _, part: f"row[{places[part.name]}]")


def _object(value: Any, type_: SqlType, codes: Codes) -> Any:
    if type_.is_coded or type_.name == "DECIMAL":
        table = codes.table(type_) if is_odd(type_) else None
        return to_values(decode(np.array([value]), np.array([True]), type_, codes.texts, table), type_)[0]
    return _PLAIN.get(type_.name, int)(value)


def _word(value: Any, type_: SqlType, codes: Codes) -> Any:
    if value is None or not (type_.is_coded or type_.name == "DECIMAL"):
        return value
    table = codes.table(type_) if is_odd(type_) else None
    return encode(pa.array([value], type_.arrow), type_, codes.texts, table)[0][0]

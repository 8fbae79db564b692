"""Expressions as Python source over objects, with None for NULL: for what runs row by row.

Where kernels have a form of a function, that form is written, over arguments that are not None. What has none there, as
most functions of text and of decimals, is a function of Python that source calls by a name. No text of a statement gets
into source: what is not a number is a constant with a name, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from millstream.errors import DataError
from millstream.expressions.kernel import functions as kernel_functions
from millstream.expressions.kernel.forms import Form, SourceScope, Truth, Value
from millstream.expressions.kernel.source import float_source
from millstream.expressions.nodes import CATCHING, Call, Case, Cast, Column, Expr, Literal, told
from millstream.expressions.object_functions import (
    cast_function,
    function_of_nulls,
    identity,
    of_batch,
    strict_function,
)

_COMPARING = frozenset({"=", "<>", "<", "<=", ">", ">=", "is_distinct", "in", "nullif", "greatest", "least"})
"""Functions whose forms serve objects of any kind."""

_OF_NULLS = frozenset({"is_distinct", "in", "nullif", "greatest", "least"})
"""Functions with a form that do not just give NULL for NULL."""

_PLAIN = frozenset({"k_equal", "k_less", "k_greatest", "k_least", "k_modulo", "k_sign", "k_year", "k_month", "k_day"})
"""Of those that give no numbers of NumPy, the helpers that never fail."""

_OF_INTEGERS = _PLAIN | {"k_add", "k_subtract", "k_multiply", "k_divide", "k_negate", "k_absolute", "k_in_range"}
"""Helpers that give no numbers of NumPy."""

_LONGEST = 60
"""How many parentheses an expression may open: Python nests no more than 200."""


class Names(Protocol):
    """The source that expressions become part of."""

    constants: dict[str, Any]

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        ...

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        ...

    def function(self, text: str) -> str:
        """The name of a function without arguments that gives what a text does where it is called."""
        ...


class Objects:
    """Writes expressions; `column` and `other` say what columns, and expressions of other kinds, are."""

    def __init__(self, names: Names, column: Callable[[Column], str], other: Callable[[Expr], str]) -> None:
        self._names = names
        self._column = column
        self._other = other

    def __call__(self, expr: Expr) -> str:
        text = self._source(expr)
        if text.count("(") <= _LONGEST:
            return text
        return f"{self._names.function(text)}()"

    def _source(self, expr: Expr) -> str:
        match expr:
            case Column():
                return self._column(expr)
            case Literal():
                return self._literal(expr)
            case Case():
                text = self(expr.default)
                for when, then in reversed(expr.whens):
                    text = f"{self(then)} if {self(when)} else {text}"
                return f"({text})"
            case Call(fn="and" | "or"):
                return self._decided(expr)
            case Call(fn="is_null", args=(arg,)):
                _, given = self._argument(arg)
                return "False" if given is None else f"({given} is None)"
            case Call(fn=fn, args=(arg,)) if fn in CATCHING:
                caught = self._names.constant(fails if fn == "$failed" else tried)
                return f"{caught}({self._names.function(self(arg))})"
            case Call(fn="coalesce"):
                *first, last = expr.args
                names = [self._names.fresh("x") for _ in first]
                tests = [
                    f"{name} if ({name} := {self(arg)}) is not None else"
                    for name, arg in zip(names, first, strict=True)
                ]
                return f"({' '.join([*tests, self(last)])})"
            case Call() | Cast():
                return self._applied(expr)
        return self._other(expr)

    def _literal(self, literal: Literal) -> str:
        value = literal.value
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, float):
            return float_source(value)
        return f"({value})" if isinstance(value, int) else self._names.constant(value)

    def _decided(self, expr: Call) -> str:
        """AND and OR of any number of parts, evaluated until one of them decides."""
        deciding = expr.fn == "or"
        parts = [(self._names.fresh("x"), self(part)) for part in _chain(expr, expr.fn)]
        decided = " or ".join(f"({name} := {text}) is {deciding}" for name, text in parts)
        unknown = " or ".join(f"{name} is None" for name, _ in parts)
        return f"({deciding} if {decided} else None if {unknown} else {not deciding})"

    def _applied(self, expr: Call | Cast) -> str:
        """A function of arguments, each of which is evaluated once."""
        if isinstance(expr, Cast) and cast_function(expr) is identity:
            return self(expr.arg)
        args = [self._argument(arg) for arg in expr.children()]
        names = [name for name, _ in args]
        tests = [f"{given} is None" for name, given in args if given is not None]
        bound = [given for name, given in args if given is not None and given != name]
        if (strict := self._strict(expr, names)) is not None:
            return f"(None if {' or '.join(tests)} else {strict})" if tests else strict
        return f"({', '.join([*bound, self._of_nulls(expr, names)])})[-1]" if bound else self._of_nulls(expr, names)

    def _argument(self, arg: Expr) -> tuple[str, str | None]:
        """What an argument is called, and what is tested first, and gives it that name; None for constants."""
        text = self(arg)
        if isinstance(arg, Literal) and arg.value is not None:
            return text, None
        if text.isidentifier() and text != "None":
            return text, text
        name = self._names.fresh("x")
        return name, f"({name} := {text})"

    def _strict(self, expr: Call | Cast, names: list[str]) -> str | None:
        """What a function gives of arguments none of which is None, if it gives NULL of others."""
        if not (isinstance(expr, Call) and expr.fn in _OF_NULLS):
            found = self._form(expr, names, nulls=False)
            if found is not None:
                return found
            function = cast_function(expr) if isinstance(expr, Cast) else strict_function(expr)
            if function is not None:
                return f"{self._names.constant(explained(expr, function))}({', '.join(names)})"
        if isinstance(expr, Cast):
            return f"{self._names.constant(explained(expr, of_batch(expr)))}({', '.join(names)})"
        return None

    def _of_nulls(self, expr: Call | Cast, names: list[str]) -> str:
        found = self._form(expr, names, nulls=True) if isinstance(expr, Call) and expr.fn in _OF_NULLS else None
        if found is not None:
            return found
        function = function_of_nulls(expr) if isinstance(expr, Call) else None
        return f"{self._names.constant(explained(expr, function or of_batch(expr)))}({', '.join(names)})"

    def _form(self, expr: Call | Cast, names: list[str], nulls: bool) -> str | None:
        """The form that kernels have, over arguments of these names."""
        scope = SourceScope()
        parts = zip(expr.children(), names, strict=True)
        values = [
            Value(arg.type, name, f"({name} is None)" if nulls and not isinstance(arg, Literal) else "False")
            for arg, name in parts
        ]
        if nulls:
            values = [
                Value(arg.type, "None", "True") if isinstance(arg, Literal) and arg.value is None else value
                for arg, value in zip(expr.children(), values, strict=True)
            ]
        form: Form | None
        if isinstance(expr, Cast):
            form = kernel_functions.cast(expr, values[0], scope)
        elif expr.fn in _COMPARING:
            form = kernel_functions.MAKERS[expr.fn](expr, values, scope)
        elif any(part.type.name == "DECIMAL" for part in (expr, *expr.args)):
            return None
        else:
            form = kernel_functions.call(expr, values, scope)
        if form is None:
            return None
        # of arguments that are not NULL, a condition holds or does not
        value = Value(expr.type, form.true, "False") if isinstance(form, Truth) and not nulls else form.as_value()
        text = value.value if value.null == "False" else f"(None if {value.null} else {value.value})"
        if scope.helpers <= _PLAIN and "np." not in text:
            return text
        given = (name for arg, name in zip(expr.children(), names, strict=True) if not isinstance(arg, Literal))
        inputs = ", ".join(dict.fromkeys(given))
        function = eval(f"lambda {inputs}: {text}", self._names.constants)
        if "np." in text or not scope.helpers <= _OF_INTEGERS:
            function = _unboxed(function)
        return f"{self._names.constant(explained(expr, function))}({inputs})"


def tried(function: Callable[[], Any]) -> Any:
    """What TRY gives: None where a value cannot be computed."""
    try:
        return function()
    except (DataError, OverflowError, ValueError):
        return None


def fails(function: Callable[[], Any]) -> bool:
    """Whether a value cannot be computed."""
    try:
        function()
    except (DataError, OverflowError, ValueError):
        return True
    return False


def explained(expr: Expr, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its overflows told as errors of the data."""

    def run(*values: Any) -> Any:
        try:
            return function(*values)
        except (OverflowError, ValueError) as error:
            raise DataError(f"cannot evaluate {told(expr)}", detail=str(error) or None) from None
        except DataError as error:
            raise DataError(f"cannot evaluate {told(expr)}", detail=error.detail) from None

    return run


def _unboxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with numbers of Python instead of NumPy's, and without its warnings."""

    def run(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(*values)
        return result.item() if isinstance(result, np.generic) else result

    return run


def _chain(expr: Expr, fn: str) -> Iterator[Expr]:
    if isinstance(expr, Call) and expr.fn == fn:
        for arg in expr.args:
            yield from _chain(arg, fn)
    else:
        yield expr

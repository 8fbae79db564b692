"""Aggregates and functions written in Python: the decorators that make one of a class or of a function."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any, TypeVar

from millstream.catalog import AggregateDef, FunctionDef
from millstream.errors import CatalogError
from millstream.expressions.python_calls import PythonCode
from millstream.types import SqlType, parse_type

Made = TypeVar("Made", bound=Callable[..., Any])

_STATES = ("initialize", "iterate", "expire", "terminate")
_GIVEN = ("window", "oldest")
"""What an object finds in `self` while a tuple is worked on."""
_DEFINITIONS = "__millstream_aggregate__"

FUNCTION_EXAMPLE = '@ms.function("plus_one", parameters={"x": "DOUBLE"}, returns="DOUBLE")'
EXAMPLE = '@ms.aggregate("total", parameters={"x": "DOUBLE"}, returns="DOUBLE")'


def aggregate(
    name: str,
    *,
    parameters: Mapping[str, str | None],
    returns: Mapping[str, str] | str,
    window: bool | None = None,
    one_row: bool = False,
) -> Callable[[Made], Made]:
    """Make an aggregate from a class with the methods initialize, iterate and optionally expire and terminate, or from
    a function of whole columns. `register_aggregate` adds it to a session.

    `parameters` are SQL types by name (None: any type), `returns` is a SQL type or several by name. `window` says
    whether it is the window version; by default, a class that has `expire` or uses `self.window` or `self.oldest` is.
    `one_row` promises that every call returns exactly one row (that of `terminate`, if there is one).
    """
    given = tuple((each, None if text is None else _type(name, each, text)) for each, text in parameters.items())
    columns = {name: returns} if isinstance(returns, str) else dict(returns)
    result = tuple((each, _type(name, each, text)) for each, text in columns.items())
    if not result:
        raise CatalogError(f"aggregate {name} returns no columns", hint=EXAMPLE)

    def decorate(made: Made) -> Made:
        if isinstance(made, type):
            _check_class(name, made, len(given))
            versions: tuple[bool, ...] = (_speaks_of_window(made) if window is None else window,)
        else:
            _check_function(name, made, len(given), len(result))
            versions = (False, True) if window is None else (window,)
        definitions = [AggregateDef(name, given, result, window=each, one_row=one_row) for each in versions]
        # without the class itself, which would then contain itself when it is sent to other processes
        setattr(made, _DEFINITIONS, definitions)
        return made

    return decorate


def function(name: str, *, parameters: Mapping[str, str], returns: str) -> Callable[[Made], Made]:
    """Make a scalar function of SQL from a Python function. `register_function` adds it to a session.

    It is called with Arrow arrays, one for each parameter with a value for each row, and returns as many values: an
    Arrow array, or anything that `pyarrow.array` accepts. `parameters` are SQL types by name, `returns` is a SQL type.
    The value for a row must depend on that row alone.
    """
    given = tuple((each, _type(name, each, text)) for each, text in parameters.items())
    result = _type(name, "its result", returns)

    def decorate(made: Made) -> Made:
        if not isinstance(made, FunctionType):
            raise CatalogError(f"function {name} is not a function in Python")
        _check_arguments(name, made, len(given))
        setattr(made, _DEFINITIONS, [FunctionDef(name, given, result)])
        return made

    return decorate


def definitions_of(made: Any) -> tuple[AggregateDef | FunctionDef, ...]:
    """The function, or the versions of an aggregate, that a decorator made of a class or of a function."""
    found: list[AggregateDef | FunctionDef] | None = getattr(made, "__dict__", {}).get(_DEFINITIONS)
    if found is None:
        raise CatalogError(
            f"{getattr(made, '__name__', made)} is not an aggregate or a function of SQL",
            hint=f"write {EXAMPLE} or {FUNCTION_EXAMPLE} above it",
        )
    code = PythonCode(found[0].name, _digest(made), made)
    return tuple(replace(definition, python=code) for definition in found)


def _type(name: str, column: str, text: str) -> SqlType:
    type_ = parse_type(text) if isinstance(text, str) else None
    if type_ is None:
        raise CatalogError(f"{name}: no type {text} for {column}", hint="a type of SQL, such as 'DOUBLE'")
    return type_


def _check_class(name: str, made: type, arguments: int) -> None:
    for state, when in (("initialize", "a group's first tuple"), ("iterate", "every other tuple")):
        if not callable(getattr(made, state, None)):
            raise CatalogError(
                f"aggregate {name} has no {state}",
                hint=f"def {state}(self, …) says what to do at {when}; iterate = initialize is one for both",
            )
    for attribute in _GIVEN:
        if hasattr(made, attribute):
            raise CatalogError(
                f"aggregate {name} has its own {attribute}", detail="that name is reserved for the window"
            )
    if not hasattr(made, "__dict__") or not made.__dictoffset__:
        raise CatalogError(f"aggregate {name} has __slots__", hint="remove __slots__: its state is saved by name")
    for state in _STATES:
        if callable(getattr(made, state, None)):
            _check_arguments(f"{name}.{state}", getattr(made, state), 1 + (0 if state == "terminate" else arguments))
    if callable(getattr(made, "save", None)) != callable(getattr(made, "load", None)):
        raise CatalogError(f"aggregate {name} has only one of save and load", hint="load takes what save returned")
    if "__init__" in vars(made):
        _check_arguments(f"{name}.__init__", made.__init__, 1)  # type: ignore[misc]


def _check_function(name: str, made: Any, arguments: int, columns: int) -> None:
    if not isinstance(made, FunctionType):
        raise CatalogError(f"aggregate {name} is neither a class nor a function")
    if columns != 1:
        raise CatalogError(
            f"aggregate {name} is a function with {columns} results", hint="write a class to return several columns"
        )
    _check_arguments(name, made, arguments)


def _check_arguments(what: str, function: Any, count: int) -> None:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        values = count - ("." in what)
        raise CatalogError(f"{what} does not take {values} argument{'s' * (values != 1)}", detail=str(error)) from None


def _speaks_of_window(made: type) -> bool:
    methods = [getattr(made, state, None) for state in _STATES]
    names = {name for method in methods for name in _code_names(getattr(method, "__code__", None))}
    return callable(getattr(made, "expire", None)) or bool(names & set(_GIVEN))


def _code_names(code: CodeType | None) -> set[str]:
    if code is None:
        return set()
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_code_names, inner))


def _digest(made: Any) -> str:
    """What tells one class or function from another: its text, or its compiled form where there is no text."""
    try:
        text = inspect.getsource(made)
    except (OSError, TypeError):
        functions = [made] if isinstance(made, FunctionType) else [v for _, v in sorted(vars(made).items())]
        text = "\n".join(_code_text(value.__code__) for value in functions if isinstance(value, FunctionType))
    return hashlib.sha256(f"{text}{_surroundings(made)}".encode()).hexdigest()[:16]


def _surroundings(made: Any) -> list[tuple[str, str]]:
    """The plain values of the function around a class or a function that it uses."""
    functions = [made] if isinstance(made, FunctionType) else [v for _, v in sorted(vars(made).items())]
    found = []
    for function in functions:
        if isinstance(function, FunctionType):
            for name, value in sorted(inspect.getclosurevars(function).nonlocals.items()):
                if isinstance(value, int | float | str | bytes | None):
                    found.append((name, repr(value)))
    return found


def _code_text(code: CodeType) -> str:
    consts = [
        _code_text(const) if isinstance(const, CodeType)
        # the order of a set differs from process to process
        else repr(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const)
        for const in code.co_consts
    ]  # fmt: skip
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {consts}"

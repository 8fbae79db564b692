"""Runs aggregates written in Python: objects, their methods, and what passes between them and SQL."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import GeneratorType
from typing import Any

from millstream.errors import DataError, MillstreamError, StateError
from millstream.expressions.object_values import to_arrow
from millstream.expressions.python_calls import PythonCode
from millstream.kernels.programs import plain_values
from millstream.kernels.programs.python_values import PLAIN, from_python, to_python
from millstream.plan.programs.python import Method, Vectorised
from millstream.schema import Schema

_HIDDEN_COLUMNS = 2
"""A row of the window ends with its time and its number."""


class PythonWindow(Sequence[Any]):
    """The tuples in the window, oldest first, as a class sees them: `del window[i]` and `window.delete(test)` remove
    some, which then do not expire."""

    __slots__ = ("_rows", "_view")

    def __init__(self, rows: list[list[Any]], view: Callable[[list[Any]], Any]) -> None:
        self._rows = rows
        self._view = view

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        found = self._rows[place]
        return [self._view(row) for row in found] if isinstance(place, slice) else self._view(found)

    def __iter__(self) -> Iterator[Any]:
        return map(self._view, list(self._rows))

    def __delitem__(self, place: int | slice) -> None:
        del self._rows[place]

    def delete(self, test: Callable[[Any], object]) -> int:
        """Remove the tuples for which `test` is true, and tell how many they were."""
        before = len(self._rows)
        self._rows[:] = [row for row in list(self._rows) if not test(self._view(row))]
        return before - len(self._rows)


def new_object(code: PythonCode) -> Any:
    """An object of the class, for a group that begins."""
    with _blaming(code, "__init__"):
        return _class(code.made)()


def saved_object(code: PythonCode, instance: Any) -> bytes:
    """An object as bytes: what its `save` returns, or its attributes, which must be plain values."""
    try:
        held = instance.save() if hasattr(instance, "save") else instance.__getstate__()
        return plain_values.dumps(held)
    except Exception as error:
        raise StateError(
            f"the state of {code.name} cannot be saved: {type(error).__name__}: {error}",
            hint="keep plain values in self, or define save(self), which returns some, and load(self, saved)",
        ) from error


def loaded_object(code: PythonCode, saved: bytes) -> Any:
    """The inverse of `saved_object`."""
    try:
        held = plain_values.loads(saved)
        kind = _class(code.made)
        instance = kind.__new__(kind)
        if hasattr(instance, "load"):
            instance.load(held)
        elif hasattr(instance, "__setstate__"):
            instance.__setstate__(held)
        elif held:
            instance.__dict__.update(held)
    except Exception as error:
        raise StateError(
            f"the state of {code.name} cannot be read: {error}",
            detail=type(error).__name__,
            hint="open the session with the version that saved it, or start in a new directory",
        ) from error
    return instance


def caller(
    method: Method, window: Schema | None
) -> Callable[[Any, list[Any], list[list[Any]] | None], list[list[Any]]]:
    """What calls a method: from the object, the arguments and the rows of the window to the rows that it returns.

    With `one_row` it must return one; without a `result` it must return none.
    """
    code, state, result = method.code, method.state, method.result
    given = [to_python(arg.type) for arg in method.args]
    converted = any(given)
    view = None if window is None else _viewer(window)

    def call(instance: Any, values: list[Any], rows: list[list[Any]] | None) -> list[list[Any]]:
        if converted:
            values = [v if to is None or v is None else to(v) for v, to in zip(values, given, strict=True)]
        with _blaming(code, state):
            if view is not None and rows is not None:
                instance.__dict__["window"] = PythonWindow(rows, view)
            try:
                returned = getattr(instance, state)(*values)
                listed = list(returned) if isinstance(returned, GeneratorType) else _rows(returned)
            finally:
                instance.__dict__.pop("window", None)
        if result is None:
            if listed:
                raise DataError(
                    f"{code.name}.{state} returned a row, which is not allowed",
                    hint="with one_row=True only terminate may return a row; without it, initialize and iterate must",
                )
            return []
        if method.one_row and len(listed) != 1:
            raise DataError(
                f"{code.name}.{state} returned {len(listed)} rows",
                detail="one_row=True promises exactly one",
                hint="return one row; (None,) is a row with NULL",
            )
        return [_row(code, state, row, result) for row in listed]

    return call


def vectorised(summary: Vectorised) -> Callable[[list[tuple[Any, ...]]], Any]:
    """What calls a function: from the arguments of all rows to its value."""
    code = summary.code

    def compute(rows: list[tuple[Any, ...]]) -> Any:
        columns = list(zip(*rows, strict=True)) or [() for _ in summary.args]
        arrays = [to_arrow(column, arg.type) for column, arg in zip(columns, summary.args, strict=True)]
        with _blaming(code, None):
            value = code.made(*arrays)
        return _value(code, None, value, code.name, summary.type)

    return compute


def _rows(returned: Any) -> list[Any]:
    if returned is None:
        return []
    return returned if isinstance(returned, list) else [returned]


def _row(code: PythonCode, state: str, row: Any, result: Schema) -> list[Any]:
    """A returned row, as the schema wants it."""
    if isinstance(row, dict):
        if set(row) != set(result.names):
            raise _misshapen(code, state, f"a row with {', '.join(map(str, row)) or 'no columns'}", result)
        row = tuple(row[name] for name in result.names)
    if not isinstance(row, tuple):
        if len(result) != 1:
            raise _misshapen(code, state, f"{type(row).__name__} {row!r}", result)
        row = (row,)
    if len(row) != len(result):
        raise _misshapen(code, state, f"a row of {len(row)} values", result)
    return [
        value if value is None or type(value) is PLAIN.get(field.type.name)
        else _value(code, state, value, field.name, field.type)
        for value, field in zip(row, result, strict=True)
    ]  # fmt: skip


def _value(code: PythonCode, state: str | None, value: Any, name: str, type_: Any) -> Any:
    try:
        return from_python(value, type_)
    except (TypeError, ValueError, OverflowError, ArithmeticError) as error:
        shown = f"{value!r:.80}"
        raise DataError(
            f"{_title(code, state)} returned {type(value).__name__} {shown}, and {name} is {type_}",
            detail=str(error) or None,
        ) from None


def _misshapen(code: PythonCode, state: str, what: str, result: Schema) -> DataError:
    return DataError(
        f"{code.name}.{state} returned {what}",
        detail=f"a row is ({', '.join(f'{field.name} {field.type}' for field in result)})",
        hint="return a tuple or a dict for one row, a list of those for several, None for no row",
    )


def _title(code: PythonCode, state: str | None) -> str:
    return code.name if state is None else f"{code.name}.{state}"


class _blaming:
    """Errors of the user's code become ours, with the name of what failed."""

    __slots__ = ("_code", "_state")

    def __init__(self, code: PythonCode, state: str | None) -> None:
        self._code = code
        self._state = state

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception) or isinstance(error, MillstreamError):
            return
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = None if trace is None else f"line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename}"
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DataError(f"{_title(self._code, self._state)} failed: {what}", detail=place) from error


@cache
def _class(made: Any) -> Any:
    """The user's class, with what the window gives it."""
    return type(
        made.__name__,
        (made,),
        {"window": (), "oldest": property(_oldest), "__module__": made.__module__, "__qualname__": made.__qualname__},
    )


def _oldest(instance: Any) -> Any:
    return instance.window[0] if instance.window else None


def _viewer(window: Schema) -> Callable[[list[Any]], Any]:
    """What shows a row of the window as a named tuple."""
    kind = namedtuple("Tuple", window.names, rename=True)  # type: ignore[misc]
    converters = [to_python(field.type) for field in window]
    if not any(converters):
        return lambda row: kind(*row[:-_HIDDEN_COLUMNS])
    return lambda row: kind(
        *(value if to is None or value is None else to(value) for value, to in zip(row, converters, strict=False))
    )

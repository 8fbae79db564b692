"""Statements take turns.

Threads go by two locks, always in this order. Statements (SQL, declarations, starting and stopping queries) hold the
session's from binding to the end, so the catalog that a statement was bound to is the one that it runs in. Rows hold
the host's, which a statement takes only for the moment in which it takes effect and is noted: what is bound and planned
meanwhile does not hold up rows. So all calls take effect one after another, in the order in which they are noted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_Given = ParamSpec("_Given")
_Self = TypeVar("_Self", bound="TakesTurns")
_Value = TypeVar("_Value")


class TakesTurns(Protocol):
    """What has statements that take turns."""

    @property
    def turn(self) -> AbstractContextManager[Any]: ...


def in_turn(method: Callable[Concatenate[_Self, _Given], _Value]) -> Callable[Concatenate[_Self, _Given], _Value]:
    """A method that waits for statements of other threads to end."""

    @wraps(method)
    def waiting(self: _Self, /, *args: _Given.args, **named: _Given.kwargs) -> _Value:
        with self.turn:
            return method(self, *args, **named)

    return waiting

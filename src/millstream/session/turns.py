"""Statements take turns.

Threads go by two locks, always in this order. Statements (SQL, declarations, starting and stopping queries) hold the
session's from binding to the end, so the catalog that a statement was bound to is the one that it runs in. A query on
stored tables lets others have their turn while DuckDB answers it: it changes nothing, and may take long. Rows hold
the host's, which a statement takes only for the moment in which it takes effect and is noted: what is bound and planned
meanwhile does not hold up rows. So all calls take effect one after another, in the order in which they are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_Given = ParamSpec("_Given")
_Self = TypeVar("_Self", bound="TakesTurns")
_Value = TypeVar("_Value")


class StatementTurn:
    """A lock that a thread may take again while it has it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._taken = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        self._taken -= 1
        self._lock.release()

    def take_within(self, seconds: float) -> bool:
        """Take it if that is possible in so many seconds; whether it was."""
        taken = self._lock.acquire(timeout=seconds)
        self._taken += taken
        return taken

    @contextmanager
    def let_others(self) -> Iterator[None]:
        """Who has it lets others have it meanwhile."""
        taken, self._taken = self._taken, 0
        for _ in range(taken):
            self._lock.release()
        try:
            yield
        finally:
            for _ in range(taken):
                self._lock.acquire()
            self._taken = taken


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

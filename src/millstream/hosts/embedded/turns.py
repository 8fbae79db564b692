"""The host's lock, which threads take in turn; rows of small pushes wait until another turn could see them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from threading import RLock
from typing import Any

from millstream import limits
from millstream.catalog import Clock, StreamDef
from millstream.hosts.embedded.streams import Stream
from millstream.kernels import jit
from millstream.limits import Limits
from millstream.types import SqlType, integer_bounds

MOST_ROWS = 16
"""Rows of one push that may wait: larger pushes are worth a step of their own."""
MOST_WAITING = 256
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_KINDS: dict[str, type] = {"DOUBLE": float, "VARCHAR": str, "BOOLEAN": bool, "TIMESTAMP": dt.datetime}


class Turns:
    """A lock: calls from several threads take turns, and in its turn each runs kernels as its session says.

    `before` runs at the beginning of every turn. Inside `bare` it does not, and nothing may look at results.
    """

    def __init__(
        self, policy: Callable[[], jit.Policy], allowed: Callable[[], Limits], before: Callable[[], None]
    ) -> None:
        self.bare = RLock()
        self._policy = policy
        self._allowed = allowed
        self._before = before
        self._entered: list[tuple[Token[jit.Policy], Token[Limits]]] = []

    def __enter__(self) -> None:
        self.bare.acquire()
        self._entered.append((jit.enter(self._policy()), limits.allow(self._allowed())))
        if len(self._entered) == 1:
            try:
                self._before()
            except BaseException:
                self.__exit__()
                raise

    @contextmanager
    def aside(self) -> Iterator[None]:
        """As in its turn, but nobody waits: for what nobody else can see yet."""
        policy, allowed = jit.enter(self._policy()), limits.allow(self._allowed())
        try:
            yield
        finally:
            jit.leave(policy)
            limits.forbid(allowed)

    def __exit__(self, *_: object) -> None:
        policy, allowed = self._entered.pop()
        jit.leave(policy)
        limits.forbid(allowed)
        self.bare.release()


class SmallPushes:
    """Rows of small pushes, in order of arrival. They surely fit their stream and are on time, so the caller already
    knows what becomes of them; the graph takes them together."""

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[tuple[Stream, list[Any]]] = []
        self._latest: dict[Stream, int] = {}

    def add(self, stream: Stream, rows: Any) -> bool:
        """Let rows wait, if that cannot be noticed."""
        if type(rows) is not list or not 0 < len(rows) <= MOST_ROWS:
            return False
        definition = stream.definition
        if definition.clock is Clock.INTERNAL or stream.ended:
            return False
        checks = _checks_of(definition)
        if checks is None:
            return False
        place = None if definition.clock is Clock.LATENT else definition.schema.index(definition.time_column or "")
        latest = self._latest.get(stream, stream.latest)
        for row in rows:
            if type(row) is not tuple or len(row) != len(checks):
                return False
            for value, check in zip(row, checks, strict=True):
                if value is not None and not check(value):
                    return False
            if place is not None:
                time = row[place]
                if time is None:
                    return False
                if type(time) is dt.datetime:
                    time = (time - _EPOCH) // _MICROSECOND
                if time < latest and (time < latest - definition.slack or time < stream.progress):
                    return False
                latest = max(latest, time)
        self._latest[stream] = latest
        if self._runs and self._runs[-1][0] is stream:
            self._runs[-1][1].extend(rows)
        else:
            self._runs.append((stream, list(rows)))
        self.count += len(rows)
        return True

    def take(self) -> list[tuple[Stream, list[Any]]]:
        """All that wait, and from now on none do."""
        runs, self._runs, self.count = self._runs, [], 0
        self._latest.clear()
        return runs


_Check = Callable[[Any], bool]
_CHECKS: dict[int, tuple[StreamDef, list[_Check] | None]] = {}


def _checks_of(definition: StreamDef) -> list[_Check] | None:
    """Whether a value surely fits, for each column; None if a column's type takes more to tell."""
    known = _CHECKS.get(id(definition))
    if known is None or known[0] is not definition:
        checks = [_check_of(field.type) for field in definition.schema]
        known = definition, None if None in checks else [check for check in checks if check is not None]
        if len(_CHECKS) > 1000:
            _CHECKS.clear()
        _CHECKS[id(definition)] = known
    return known[1]


def _check_of(type_: SqlType) -> _Check | None:
    bounds = integer_bounds(type_) if type_.is_integer else None
    if bounds is not None:
        least, most = bounds
        return lambda value: type(value) is int and least <= value <= most
    if type_.domain:
        return None
    kind = _KINDS.get(type_.name)
    if kind is str:
        return lambda value: type(value) is str and value.isascii()
    if kind is dt.datetime:
        return lambda value: type(value) is dt.datetime and value.tzinfo is None
    return None if kind is None else lambda value: type(value) is kind

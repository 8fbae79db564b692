"""How plans print lengths of time: as time, or as numbers where streams are ordered by numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

_by_number = ContextVar("by_number", default=False)


def length_told(length: int) -> str:
    """A length of time in the words of the query that is printed."""
    return str(length) if _by_number.get() else f"[{timedelta(microseconds=length)}]"


@contextmanager
def lengths_told(*, by_number: bool) -> Iterator[None]:
    """Within, lengths are told as numbers or as time. Plans do not know: to them, time is a number always."""
    before = _by_number.set(by_number)
    try:
        yield
    finally:
        _by_number.reset(before)

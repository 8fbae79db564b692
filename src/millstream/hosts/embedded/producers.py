"""Numbered pushes take effect once, even if they are retried: the last number of each producer."""

from __future__ import annotations

from dataclasses import astuple

from millstream.hosts.contract import Counts, Once

MOST = 10_000
"""producers that are remembered: the latest"""


class Producers:
    """What became of the last push of each producer."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Counts]] = {}

    def done(self, once: Once | None) -> Counts | None:
        """What became of a push that was there before, none of it if it was not the last; None for a new one."""
        number, counts = self._last.get(once.producer, (-1, Counts())) if once is not None else (-1, Counts())
        if once is None or once.number > number:
            return None
        return counts if once.number == number else Counts()

    def remember(self, once: Once | None, counts: Counts) -> Counts:
        """A push has taken effect."""
        if once is not None:
            self._last.pop(once.producer, None)
            self._last[once.producer] = (once.number, counts)
            if len(self._last) > MOST:
                del self._last[next(iter(self._last))]
        return counts

    def saved(self) -> list[list[str | int]]:
        return [[producer, number, *astuple(counts)] for producer, (number, counts) in self._last.items()]

    def load(self, saved: list[list[str | int]]) -> None:
        self._last = {str(name): (int(number), Counts(*map(int, counts))) for name, number, *counts in saved}

"""Rates of a run, from the progress it reports."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.hosts.contract import Progress

RECENT = 3.0
"""Seconds over which a rate is taken while the run goes on."""


class Meter:
    """Remembers the latest progress and enough earlier ones for rates."""

    def __init__(self, *, resumed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        from millstream.hosts.contract import Progress

        self._clock = clock
        self._lock = Lock()
        self._started = clock()
        self._first = Progress()
        self._samples: deque[tuple[float, Progress]] = deque([(self._started, self._first)])
        self._ended: float | None = None
        self._counts_begin = not resumed

    def add(self, progress: Progress) -> None:
        """The run has come this far now. Of a resumed run the first report only says where it begins."""
        with self._lock:
            now = self._clock()
            if not self._counts_begin:
                self._counts_begin, self._first = True, progress
                self._samples.clear()
            self._samples.append((now, progress))
            while len(self._samples) > 2 and now - self._samples[1][0] >= RECENT:
                self._samples.popleft()

    def end(self) -> None:
        """From now on rates are those of the whole run."""
        self._ended = self._clock()

    @property
    def elapsed(self) -> float:
        return (self._ended if self._ended is not None else self._clock()) - self._started

    @property
    def latest(self) -> Progress:
        with self._lock:
            return self._samples[-1][1]

    @property
    def fraction(self) -> float | None:
        """How much of the input has been read, if the total is known."""
        latest = self.latest
        if not latest.total:
            return None
        return min(1.0, (sum(latest.rows_in.values()) + latest.rejected) / latest.total)

    def rate_in(self, name: str) -> float:
        """Rows per second that a stream got."""
        return self._rate(name, lambda progress: progress.rows_in)

    def rate_out(self, name: str) -> float:
        """Rows per second that a query delivered."""
        return self._rate(name, lambda progress: progress.rows_out)

    def rate(self) -> float:
        """Rows per second that all streams got together."""
        return sum(self.rate_in(name) for name in self.latest.rows_in)

    def _rate(self, name: str, of: Callable[[Progress], Mapping[str, int]]) -> float:
        with self._lock:
            since, before = self._samples[0]
            latest = self._samples[-1][1]
        if self._ended is not None:
            since, before = self._started, self._first
        seconds = (self._ended if self._ended is not None else self._clock()) - since
        return (of(latest).get(name, 0) - of(before).get(name, 0)) / seconds if seconds > 0 else 0.0

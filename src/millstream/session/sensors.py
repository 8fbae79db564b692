"""A proxy of a sensor: it samples as often as the running queries ask for, and not at all while none does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event, RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from millstream.catalog import StreamDef
from millstream.errors import CatalogError, DataError
from millstream.hosts.contract import Counts, ReadyQuery
from millstream.physical.nodes import streams_of
from millstream.plan.reach import steps

if TYPE_CHECKING:
    from millstream.session.database import Database

log = logging.getLogger("millstream")

LOOK_SECONDS = 0.1
"""after which it looks whether queries have come or gone, at the latest"""


class SensorProxy:
    """Calls `sample` in a thread of its own and pushes the rows that it returns into a stream.

    The time between two samples is the shortest step that a running query asks for: the SLIDE of its window over the
    stream, or the length of a window without one. Queries without windows of time ask for a sample every `every`
    seconds. It is never less than `fastest` seconds. While no query reads the stream, nothing is sampled.

    `sample` returns a row (a tuple or dict), a list of rows, or None if the sensor does not answer. However long it
    takes, only this proxy waits for it, and samples that were due meanwhile are left out.
    """

    def __init__(
        self, db: Database, stream: str, sample: Callable[[], Any], *, every: float = 1.0, fastest: float = 0.001
    ) -> None:
        if not (every > 0 and fastest > 0):
            raise DataError("every and fastest are seconds above 0")
        self._definition = db.catalog.get(stream, StreamDef).pushed()
        self._database, self._sample = db, sample
        self._every, self._fastest = every, fastest
        self._turn = RLock()
        self._stopped = Event()
        self._known: dict[str, tuple[ReadyQuery, float | None]] = {}
        self.samples = 0
        """how often it has sampled"""
        self.failures = 0
        """how often `sample` failed in the thread; the next one is tried when it is due"""
        self.error: Exception | None = None
        """how it failed last"""
        self._thread = Thread(target=self._run, name=f"millstream-sensor-{self._definition.name}", daemon=True)
        self._thread.start()

    @property
    def period(self) -> float | None:
        """Seconds between samples as the running queries ask for; None while none reads the stream."""
        known: dict[str, tuple[ReadyQuery, float | None]] = {}
        periods = []
        for query in self._database.queries():
            program, found = query._program, self._known.get(query.name)
            period = found[1] if found is not None and found[0] is program else self._asked(program)
            known[query.name] = program, period
            with suppress(CatalogError):  # it may just have been stopped
                if period is not None and query.state == "running":
                    periods.append(period)
        self._known = known
        return max(min(periods), self._fastest) if periods else None

    def _asked(self, program: ReadyQuery) -> float | None:
        """How often a query asks for a sample; None if it does not read the stream."""
        name = self._definition.name.lower()
        if name not in streams_of(program.plan):
            return None
        step = None if program.bound is None or self._definition.is_by_number else steps(program.bound).get(name)
        return self._every if step is None else step / 1_000_000

    def ask(self) -> Counts | None:
        """Sample now, and push the rows; None if the sensor does not answer."""
        with self._turn:
            self.samples += 1
            rows = self._sample()
            if rows is None:
                return None
            return self._database.push(self._definition.name, [rows] if isinstance(rows, tuple | dict) else rows)

    def stop(self) -> None:
        """Sample no more; a sample in progress is not waited for."""
        self._stopped.set()

    def __enter__(self) -> SensorProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        last: float | None = None
        wait = 0.0
        while not self._stopped.wait(wait) and not self._database._closed:
            period = self.period
            now = monotonic()
            if period is not None and (last is None or now >= last + period):
                # samples that were due while another one took long are not made up for
                last = now if last is None or now >= last + 2 * period else last + period
                try:
                    self.ask()
                except Exception as error:
                    self.failures, self.error = self.failures + 1, error
                    if self.failures == 1:
                        log.warning("the sensor of %s failed: %s", self._definition.name, error)
            due = LOOK_SECONDS if period is None or last is None else last + period - monotonic()
            wait = max(0.0, min(due, LOOK_SECONDS))

"""Work on a thread, while the main thread handles signals and the screen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

TICK = 0.1
ASK_AGAIN = 2.0
ECHO = 0.5
"""A second signal within so many seconds is the first again, sent to the process and to its group."""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Signals:
    """The first SIGINT or SIGTERM is remembered; the second ends the process at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._when = 0.0

    @contextmanager
    def caught(self) -> Iterator[Signals]:
        before = {number: signal.signal(number, self._note) for number in CODES}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """The code a process ends with after the signal; 0 if there was none."""
        return 0 if self.received is None else CODES[self.received]

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received, self._when = signal.Signals(number), time.monotonic()
        elif time.monotonic() - self._when > ECHO:
            os._exit(CODES[signal.Signals(number)])


def watch(
    work: Callable[[], None], interrupt: Callable[[], object], tick: Callable[[], None], signals: Signals
) -> None:
    """Do `work` on a thread, calling `tick` now and then; after a signal `interrupt` asks it to end."""
    failure: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)

    thread = Thread(target=body, name="run", daemon=True)
    thread.start()
    asked = 0.0
    while thread.is_alive():
        # asked again from time to time: a request that came before the work had begun may have been missed
        if signals.received is not None and time.monotonic() - asked > ASK_AGAIN:
            asked = time.monotonic()
            interrupt()
        tick()
        thread.join(TICK)
    if failure:
        raise failure[0]

"""Limits of what statements and queries may cost, and how work in progress is cancelled.

Whoever begins a piece of work enters it (`working`); what may take long asks now and then whether to go on (`check`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import field

from millstream.errors import CancelledError, LimitError
from millstream.records import dataclass


@dataclass(frozen=True)
class Limits:
    """What one statement, or one query per batch of rows, may cost; 0 is no limit."""

    seconds: float = 0.0
    rows: int = 0
    memory: int = 0

    def __bool__(self) -> bool:
        return bool(self.seconds or self.rows or self.memory)

    def check_rows(self, rows: int) -> None:
        if self.rows and rows > self.rows:
            raise LimitError(
                f"the result has more than {self.rows:,} rows",
                detail="limited by the setting max_output_rows",
                hint="ask for fewer rows, with WHERE, GROUP BY or LIMIT",
            )

    def check_seconds(self, seconds: float) -> None:
        if self.seconds and seconds > self.seconds:
            raise too_long(self.seconds)

    def check_memory(self, size: int) -> None:
        if self.memory and size > self.memory:
            raise LimitError(
                f"the query keeps more than {self.memory:,} bytes of state",
                detail="limited by the setting memory_limit",
                hint="use shorter windows, or fewer keys",
            )


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Unfetched:
    """How many rows of a query may wait to be fetched (0: any number), and whether older ones are then dropped."""

    rows: int = 0
    drop: bool = False

    def error(self) -> LimitError:
        return LimitError(
            f"more than {self.rows:,} rows wait to be fetched",
            detail="limited by the setting max_unfetched_rows, and when_unfetched is stop",
            hint="fetch more often, write to a sink, or drop the oldest rows: SET when_unfetched = 'drop'",
        )


def too_long(seconds: float) -> LimitError:
    return LimitError(
        f"it took longer than {seconds:g} s",
        detail="limited by the setting statement_timeout",
        hint="make the statement cheaper, or ask the operator for more time",
    )


def cancelled() -> CancelledError:
    return CancelledError("it was cancelled")


@dataclass(eq=False)
class Work:
    """A piece of work with an end: a deadline, or that somebody cancels it."""

    limits: Limits = NO_LIMITS
    deadline: float = float("inf")
    is_cancelled: bool = False
    _interrupts: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, limits: Limits) -> None:
        """The time of work that is done again and again runs from now on."""
        self.limits = limits
        self.deadline = time.monotonic() + limits.seconds if limits.seconds else float("inf")

    def check(self) -> None:
        if (error := self.verdict()) is not None:
            raise error

    def verdict(self) -> CancelledError | LimitError | None:
        """Why it must not go on, if that is so."""
        if self.is_cancelled:
            return cancelled()
        return too_long(self.limits.seconds) if time.monotonic() > self.deadline else None

    def cancel(self) -> None:
        """From another thread: end it soon."""
        self.is_cancelled = True
        self.interrupt()

    def interrupt(self) -> None:
        with self._lock:
            for call in self._interrupts:
                call()

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While another engine works for us: how it is asked to stop. An error that it raises then becomes ours."""
        self.check()
        with self._lock:
            self._interrupts.append(interrupt)
        timer = None
        if self.deadline != float("inf"):
            timer = threading.Timer(max(self.deadline - time.monotonic(), 0), self.interrupt)
            timer.daemon = True
            timer.start()
        try:
            if self.is_cancelled:
                raise cancelled()
            yield
        except Exception:
            self.check()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            with self._lock:
                self._interrupts.remove(interrupt)


_current: ContextVar[Work | None] = ContextVar("work", default=None)


_allowed: ContextVar[Limits] = ContextVar("allowed", default=NO_LIMITS)


def allowed() -> Limits:
    """What each operator may cost while rows pass through it."""
    return _allowed.get()


def allow(limits: Limits) -> Token[Limits]:
    return _allowed.set(limits)


def forbid(token: Token[Limits]) -> None:
    """Take back what `allow` gave."""
    _allowed.reset(token)


def current() -> Work | None:
    return _current.get()


def check() -> None:
    """Whether the work in progress may go on; it raises if not."""
    work = _current.get()
    if work is not None:
        work.check()


def check_made(rows: int) -> None:
    """Whether an operator that has made so many rows of a batch, or is about to, may go on; it raises if not."""
    _allowed.get().check_rows(rows)
    check()


def enter(work: Work) -> Token[Work | None]:
    return _current.set(work)


def leave(token: Token[Work | None]) -> None:
    """Take back what `enter` did."""
    _current.reset(token)


@contextmanager
def working(limits: Limits) -> Iterator[Work]:
    """A piece of work of its own."""
    work = Work()
    work.begin(limits)
    token = enter(work)
    try:
        yield work
    finally:
        leave(token)

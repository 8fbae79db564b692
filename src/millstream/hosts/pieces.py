"""A large batch goes through an operator in pieces, so that limits and cancel hold within it.

Results do not depend on how rows are batched, so it may be cut anywhere.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from millstream import limits
from millstream.hosts.sizes import size_of
from millstream.kernels.batch import Batch, concat
from millstream.kernels.contract import Kernel, State
from millstream.limits import Limits

_SECONDS, _SECONDS_LIMITED = 1.0, 0.1
"""how long a piece should take, without limits and with them: so late may it be noticed that it shall end"""
_FIRST, _FIRST_LIMITED = 2_048, 256
"""rows of the first piece, while nobody knows how long it takes"""
_MEASURED_EVERY = 1 << 15
"""rows after which a state is measured"""
_GROWTH = 8
"""a piece has at most so many times the rows of those before it: what rows cost may depend on the rows"""


class Pace:
    """How many rows an operator can take at once, by how long it took for others."""

    def __init__(self) -> None:
        self.rows = 0
        """0: not known yet"""
        self.seconds = 0.0
        """how long it has worked on rows"""

    def piece(self, allowed: Limits) -> int:
        return self.rows or (_FIRST_LIMITED if allowed else _FIRST)

    def learn(self, rows: int, emitted: int, seconds: float, allowed: Limits) -> None:
        """It took so many rows, emitted so many, and needed so long."""
        self.seconds += seconds
        fits = rows * (_SECONDS_LIMITED if allowed else _SECONDS) / max(seconds, 1e-6)
        if allowed.rows and emitted:
            fits = min(fits, rows * allowed.rows / emitted)
        self.rows = max(1, min(int(fits), max(_GROWTH * rows, self.piece(allowed))))


def in_pieces(
    step: Callable[[Batch], Batch], batch: Batch, pace: Pace, allowed: Limits, between: Callable[[Batch], None]
) -> Batch:
    """What an operator makes of a batch. `between` is told of each piece that it took, and raises an error if it shall
    not go on; one that takes too long, or emits too much, raises a LimitError."""
    begin = now = time.perf_counter()
    rows, done, emitted = len(batch), 0, 0
    found: list[Batch] = []
    while True:
        piece = _cut(batch, done, done + pace.piece(allowed))
        result = step(piece)
        before, now = now, time.perf_counter()
        taken, made = len(piece), len(result)
        done, emitted = done + taken, emitted + made
        if taken:
            pace.learn(taken, made, now - before, allowed)
        if allowed:
            allowed.check_seconds(now - begin)
            allowed.check_rows(emitted)
        between(piece)
        if done >= rows and not found:
            return result
        found.append(result)
        if done >= rows:
            return concat([each for each in found if len(each)] or found[-1:], result.upto)


class Growth:
    """Measures a state now and then: after so many rows, or so many bytes, that it may have grown too large."""

    def __init__(self) -> None:
        self._rows = self._bytes = 0

    def check(self, allowed: Limits, taken: Batch, state: object) -> None:
        self._rows += len(taken)
        self._bytes += taken.rows.nbytes
        if self._rows >= _MEASURED_EVERY or self._bytes >= allowed.memory // 8:
            self._rows = self._bytes = 0
            allowed.check_memory(size_of(state))


class Bounded:
    """The steps of a kernel within limits, for hosts that run each kernel by itself."""

    def __init__(self, allowed: Limits) -> None:
        self._allowed = allowed
        self._paces: dict[int, Pace] = defaultdict(Pace)
        self._growth = Growth()

    def step(self, kernel: Kernel, state: State, batch: Batch) -> Batch:
        allowed = self._allowed
        if not allowed:
            return kernel.step(state, batch)

        def may_go_on(taken: Batch) -> None:
            if allowed.memory:
                self._growth.check(allowed, taken, state)

        token = limits.allow(allowed)
        try:
            with limits.working(allowed):
                return in_pieces(
                    lambda piece: kernel.step(state, piece), batch, self._paces[batch.port], allowed, may_go_on
                )
        finally:
            limits.forbid(token)


def _cut(batch: Batch, start: int, stop: int) -> Batch:
    """Rows of a batch as one of its own; time has come to the next row behind them."""
    if stop >= len(batch):
        return batch if not start else batch.slice(start, len(batch))
    return batch.slice(start, stop).with_upto(min(batch.upto, int(batch.time[stop])))

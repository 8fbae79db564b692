"""Saving kernels' states after every batch: what it costs beside keys, or rows in windows, that a batch does not touch.

python benchmarks/kernel_state.py [--rounds N] [over | windows]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.kernels import jit
from millstream.kernels.batch import Batch
from millstream.kernels.over import Frame, OverSpec
from millstream.kernels.saving import states as saving
from millstream.plan.aggregate_calls import AggregateCall
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR

# what tests and benchmarks share
sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.window_states import GROWING, WINDOW_STATES, Store, WindowState

QUOTES = Schema.of(key=BIGINT, price=DOUBLE, venue=VARCHAR)
WINDOW = 10**9
TOUCHED = 1_000


def spec(frame: Frame) -> OverSpec:
    calls = (
        AggregateCall.over("a", "avg", "price", frame, False, DOUBLE),
        AggregateCall.over("m", "max", "price", frame, False, DOUBLE),
        AggregateCall.over("v", "min", "venue", frame, False, VARCHAR),
    )
    return OverSpec(QUOTES, ("key",), calls)


def rows(keys: np.ndarray, at: int) -> Batch:
    columns = [pa.array(keys), pa.array(keys * 0.25), pa.array(np.char.add("v", (keys % 20).astype(str)))]
    times = np.full(len(keys), at)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=QUOTES.arrow), times, np.arange(len(keys)), at + 1)


def measure(over: OverSpec, idle: int, choose: Callable[[], np.ndarray], rounds: int) -> list[float]:
    """Milliseconds of a step, of the changes after it and of a snapshot (medians), the worst changes, KB given, and
    milliseconds of assembling everything."""
    kernel = over.build()
    state = kernel.open()
    saved: dict[int, bytes] = {}
    spent: list[list[float]] = []
    for at in range(10 + rounds):
        batch = rows(np.arange(idle) if at < 4 else choose(), at)
        start = time.perf_counter()
        kernel.step(state, batch)
        stepped = time.perf_counter()
        changes = saving.changes(kernel, state)
        given = time.perf_counter()
        saved = {n: piece for n, piece in (saved | changes).items() if piece is not None}
        if at >= 10:
            spent.append([stepped - start, given - stepped, sum(len(piece or b"") for piece in changes.values()) / 1e6])
    start = time.perf_counter()
    saving.snapshot(kernel, state)
    whole = time.perf_counter() - start
    start = time.perf_counter()
    saving.assemble(kernel, saved)
    assembled = time.perf_counter() - start
    step, change, size = np.median(spent, axis=0) * 1e3
    return [step, change, max(change for _, change, _ in spent) * 1e3, whole * 1e3, assembled * 1e3, size]


def written(case: WindowState, window: int, rounds: int) -> tuple[float, float, int]:
    """KB that saving after a batch writes, on average while the window is full, KB of a snapshot, and how many pieces
    there are at the end."""
    kernel = case.spec(window).build()
    state, store = kernel.open(), Store.of(kernel)
    full = 2 * window // TOUCHED
    total = 0
    for number, turn in enumerate(case.turns(window, TOUCHED, full + rounds)):
        for batch in turn:
            kernel.step(state, batch)
        given = store.save(state)
        total += given if number >= full else 0
    return total / rounds / 1e3, len(saving.snapshot(kernel, state)) / 1e3, len(store.pieces)


def windows(rounds: int) -> None:
    small, large = 10_000, 100_000
    print(f"batches of {TOUCHED:,} rows beside windows of {small:,} and {large:,}; KB given by one call of changes")
    print(f"{'kernel':>22} {'snapshot':>9} {'changes':>8} {'pieces':>7} {'snapshot':>9} {'changes':>8} {'pieces':>7}")
    for case in (*WINDOW_STATES, GROWING):
        line = f"{case.name:>22}"
        for window in (small, large):
            given, whole, pieces = written(case, window, rounds)
            line += f" {whole:9.0f} {given:8.0f} {pieces:7}"
        print(line, flush=True)


def over(rounds: int) -> None:
    chance = np.random.default_rng(1)
    print(f"batches of {TOUCHED:,} keys; milliseconds, and KB given by one call of changes")
    print(f"{'frame':>6} {'touched':>10} {'idle':>9} {'step':>8} {'changes':>8} {'worst':>8} {'snapshot':>9} "
          f"{'assemble':>9} {'KB':>8}")  # fmt: skip
    for name, frame in (("rows", Frame("rows", 3)), ("range", Frame("range", WINDOW))):
        for idle in (10_000, 100_000):
            touched: dict[str, Callable[[], np.ndarray]] = {
                "others": lambda idle=idle: idle + np.arange(TOUCHED),
                "any": lambda idle=idle: chance.choice(idle, TOUCHED, replace=False),
            }
            for kind, choose in touched.items():
                step, change, worst, whole, assembled, size = measure(spec(frame), idle, choose, rounds)
                print(f"{name:>6} {kind:>10} {idle:>9,} {step:8.2f} {change:8.2f} {worst:8.2f} {whole:9.1f} "
                      f"{assembled:9.1f} {size:8.0f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("what", nargs="?", choices=["over", "windows"])
    given = parser.parse_args()
    with jit.using("on", threads=1):
        if given.what != "windows":
            over(given.rounds)
        if given.what != "over":
            windows(given.rounds)


if __name__ == "__main__":
    main()

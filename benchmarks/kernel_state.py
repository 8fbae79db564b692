"""Saving an OVER kernel's state after every batch: its cost by the number of keys that a batch does not touch.

python benchmarks/kernel_state.py [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from millstream.kernels import jit
from millstream.kernels.batch import Batch
from millstream.kernels.over import Frame, OverCall, OverSpec
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR

QUOTES = Schema.of(key=BIGINT, price=DOUBLE, venue=VARCHAR)
WINDOW = 10**9
TOUCHED = 1_000


def spec(frame: Frame) -> OverSpec:
    calls = (
        OverCall("a", "avg", "price", frame, False, DOUBLE),
        OverCall("m", "max", "price", frame, False, DOUBLE),
        OverCall("v", "min", "venue", frame, False, VARCHAR),
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
        changes = kernel.changes(state)
        given = time.perf_counter()
        saved = {n: piece for n, piece in (saved | changes).items() if piece is not None}
        if at >= 10:
            spent.append([stepped - start, given - stepped, sum(len(piece or b"") for piece in changes.values()) / 1e6])
    start = time.perf_counter()
    kernel.snapshot(state)
    whole = time.perf_counter() - start
    start = time.perf_counter()
    kernel.assemble(saved)
    assembled = time.perf_counter() - start
    step, change, size = np.median(spent, axis=0) * 1e3
    return [step, change, max(change for _, change, _ in spent) * 1e3, whole * 1e3, assembled * 1e3, size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    chance = np.random.default_rng(1)
    print(f"batches of {TOUCHED:,} keys; milliseconds, and KB given by one call of changes")
    print(f"{'frame':>6} {'touched':>10} {'idle':>9} {'step':>8} {'changes':>8} {'worst':>8} {'snapshot':>9} "
          f"{'assemble':>9} {'KB':>8}")  # fmt: skip
    with jit.using("on", threads=1):
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


if __name__ == "__main__":
    main()

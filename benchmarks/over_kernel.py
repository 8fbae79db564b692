"""The OVER kernel alone: rows per second of `step` against a bare hand-written Numba loop, and its cost by window.

python benchmarks/over_kernel.py [--rows N] [--threads 1,2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numba import njit

from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.over import Frame, OverSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, TIMESTAMP

QUOTES = Schema.of(ts=TIMESTAMP, key=BIGINT, price=DOUBLE)
MICROSECONDS_PER_ROW = 10


@njit(nogil=True)
def bare_rows(slots, price, out, keys, size):
    """The average of the last `size` rows of each key: what one would write by hand, keys being 0, 1, 2, …"""
    ring = np.zeros((keys, size))
    count = np.zeros(keys, np.int64)
    total = np.zeros(keys)
    for i in range(len(price)):
        k = slots[i]
        place = count[k] % size
        if count[k] >= size:
            total[k] -= ring[k, place]
        ring[k, place] = price[i]
        total[k] += price[i]
        count[k] += 1
        out[i] = total[k] / min(count[k], size)


@njit(nogil=True)
def bare_range(slots, times, price, out, keys, width, capacity):
    """The average over the last `width` of time of each key, with a ring that is known to be large enough."""
    when = np.zeros((keys, capacity), np.int64)
    value = np.zeros((keys, capacity))
    head = np.zeros(keys, np.int64)
    tail = np.zeros(keys, np.int64)
    total = np.zeros(keys)
    mask = capacity - 1
    for i in range(len(price)):
        k = slots[i]
        since = times[i] - width
        while head[k] < tail[k] and when[k, head[k] & mask] < since:
            total[k] -= value[k, head[k] & mask]
            head[k] += 1
        when[k, tail[k] & mask] = times[i]
        value[k, tail[k] & mask] = price[i]
        tail[k] += 1
        total[k] += price[i]
        out[i] = total[k] / (tail[k] - head[k])


class Data:
    """Quotes of some keys, evenly in time."""

    def __init__(self, rows: int, keys: int) -> None:
        chance = np.random.default_rng(1)
        self.keys = keys
        self.slots = chance.integers(0, keys, rows)
        self.price = np.round(chance.random(rows) * 1000, 2)
        self.times = np.arange(rows, dtype=np.int64) * MICROSECONDS_PER_ROW
        self.seq = np.arange(rows, dtype=np.int64)
        columns = [
            pa.array(self.times).view(pa.timestamp("us")),
            pa.array(self.slots * 7919 + 13),
            pa.array(self.price),
        ]
        self.rows = pa.RecordBatch.from_arrays(columns, schema=QUOTES.arrow)

    def batches(self, size: int) -> list[Batch]:
        cuts = range(0, len(self.price), size)
        parts = [Batch(self.rows, self.times, self.seq, FOREVER).slice(i, min(i + size, len(self.price))) for i in cuts]
        return [*(part.with_upto(int(part.time[-1])) for part in parts[:-1]), parts[-1]]


def rate(rows: int, work: Callable[[], object], repeat: int = 3) -> float:
    """Rows per second, the best of some runs: other work on the machine only ever slows a run down."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return rows / best


def kernel_rate(data: Data, frame: Frame, batch_size: int, threads: int, repeat: int = 3) -> float:
    spec = OverSpec(QUOTES, ("key",), (AggregateCall.over("mean", "avg", "price", frame, False, DOUBLE),))
    batches = data.batches(batch_size)
    with jit.using("on", threads=threads):
        kernel = spec.build()
        kernel.step(kernel.open(), batches[0].slice(0, 100))

        def work() -> None:
            state = kernel.open()
            for batch in batches:
                kernel.step(state, batch)

        return rate(len(data.price), work, repeat)


def bare_rate(data: Data, frame: Frame, repeat: int = 3) -> float:
    out = np.empty(len(data.price))
    assert frame.preceding is not None
    if frame.unit == "rows":
        bare_rows(data.slots[:10], data.price[:10], out, data.keys, 3)
        return rate(len(out), lambda: bare_rows(data.slots, data.price, out, data.keys, frame.preceding + 1), repeat)
    capacity = 1 << int(2 * frame.preceding / MICROSECONDS_PER_ROW / data.keys).bit_length()
    bare_range(data.slots[:10], data.times[:10], data.price[:10], out, data.keys, 1, 16)
    return rate(
        len(out),
        lambda: bare_range(data.slots, data.times, data.price, out, data.keys, frame.preceding, capacity),
        repeat,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    threads = [int(text) for text in options.threads.split(",")]

    data = Data(options.rows, 10_000)
    ten_seconds = Frame("range", 10_000_000)
    for name, frame in (("avg ROWS 49", Frame("rows", 49)), ("avg RANGE 10 s, 100 rows a window", ten_seconds)):
        bare = bare_rate(data, frame)
        print(f"{name}: bare loop {bare / 1e6:.1f} M rows/s", flush=True)
        for count in threads:
            for size in (65_536, 262_144, 1_048_576):
                own = kernel_rate(data, frame, size, count)
                print(
                    f"  {count} thread(s), batches of {size:>9,}: {own / 1e6:6.1f} M rows/s, {own / bare:.2f} of bare"
                )

    print("avg RANGE by rows a window, a million rows held in all, 1 thread")
    first = 0.0
    for window in (100, 1_000, 10_000, 100_000):
        held = Data(options.rows, 1_000_000 // window)
        own = kernel_rate(held, Frame("range", 1_000_000 * MICROSECONDS_PER_ROW), 262_144, 1)
        first = first or own
        print(f"  {window:>7,} rows: {1e9 / own:5.1f} ns a row, {first / own:.2f} of the first", flush=True)


if __name__ == "__main__":
    main()

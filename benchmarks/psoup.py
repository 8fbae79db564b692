"""PSoup's three strategies: what an arrival and an invocation cost, in processor time, by the rate of arrivals.

    python benchmarks/psoup.py [--window 32768] [--rates 100 1000 10000 100000] [--keep 4]

A query selects rows of a sliding window by intervals of one, two or four columns, and is invoked again and again; the
rate is the rows that arrive between two invocations.

- eager (PSoup-C): the query runs, and its present answer is kept. An invocation reads it: `q.snapshot()`.
- lazy (PSoup-P): the condition is applied to rows as they arrive, and those that fulfil it are kept by a derived
  stream. The window is applied at the invocation: `SELECT … FROM HISTORY(matching) WHERE t > …`.
- not materialised (NoMat): rows are kept as they are; condition and window are applied at the invocation.

All three must give the same rows. Machines are noisy: read the ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import millstream as ms

COLUMNS = ("a", "b", "c", "d")
INVOCATIONS = 12
"""for each rate; the first two warm up"""


def rows(first: int, count: int) -> pa.Table:
    draw = np.random.default_rng(first)
    values = {name: pa.array(draw.integers(0, 100, count), pa.int32()) for name in COLUMNS}
    return pa.table({**values, "t": np.arange(first, first + count)})


class Strategy:
    """A session in which one query is registered, and how it is invoked."""

    def __init__(self, name: str, condition: str, window: int, keep: int) -> None:
        self.name, self.condition, self.window = name, condition, window
        self.db = ms.connect(threads=1)
        kept = f" KEEP {keep * window}" if name == "not materialised" else ""
        self.db.execute(f"CREATE STREAM data (a INT, b INT, c INT, d INT, t BIGINT) ORDER BY t{kept}")
        if name == "eager":
            self.query = self.db.sql(f"SELECT a, b, t FROM data [RANGE {window}] WHERE {condition}", "registered")
        elif name == "lazy":
            self.db.execute(
                f"CREATE STREAM matching KEEP {keep * window} AS SELECT a, b, t FROM data WHERE {condition}"
            )

    def invoke(self, now: int) -> pa.Table:
        if self.name == "eager":
            return self.query.snapshot()
        source, more = ("matching", "") if self.name == "lazy" else ("data", f" AND {self.condition}")
        text = f"SELECT a, b, t FROM HISTORY({source}) WHERE t > {now - self.window} AND t <= {now}{more}"
        return self.db.sql(text).fetch()


def spent(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measure(condition: str, window: int, keep: int, rate: int) -> dict[str, tuple[float, float]]:
    """For each strategy the nanoseconds of an arrival and the milliseconds of an invocation."""
    strategies = [Strategy(name, condition, window, keep) for name in ("eager", "lazy", "not materialised")]
    arrivals: dict[str, list[float]] = {each.name: [] for each in strategies}
    invocations: dict[str, list[float]] = {each.name: [] for each in strategies}
    filled = rows(0, window)
    for each in strategies:
        each.db.push("data", filled)
    now = window
    for _ in range(INVOCATIONS):
        arriving = rows(now, rate)
        now += rate
        answers = []
        for each in strategies:
            arrivals[each.name].append(spent(lambda each=each, arriving=arriving: each.db.push("data", arriving)))
            invocations[each.name].append(
                spent(lambda each=each, now=now, answers=answers: answers.append(each.invoke(now - 1)))
            )
        told = [sorted(zip(*answer.select(["a", "b", "t"]).to_pydict().values(), strict=True)) for answer in answers]
        assert told[0] == told[1] == told[2], "the strategies differ"
    for each in strategies:
        each.db.close()
    return {
        name: (min(arrivals[name][2:]) / rate * 1e9, sorted(invocations[name][2:])[INVOCATIONS // 2 - 1] * 1e3)
        for name in arrivals
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=1 << 15)
    parser.add_argument("--keep", type=int, default=4, help="how many windows of rows are kept")
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    wishes = parser.parse_args()
    for columns in (1, 2, 4):
        condition = " AND ".join(f"{name} BETWEEN 20 AND 59" for name in COLUMNS[:columns])
        print(f"{columns} interval{'s' * (columns > 1)}, window of {wishes.window:,} rows; an arrival, an invocation")
        for rate in wishes.rates:
            found = measure(condition, wishes.window, wishes.keep, rate)
            told = "; ".join(f"{name} {row:6.0f} ns {each:6.2f} ms" for name, (row, each) in found.items())
            print(f"  {rate:>8,} rows between invocations: {told}", flush=True)


if __name__ == "__main__":
    main()

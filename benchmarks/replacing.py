"""How replacing a query disturbs a thousand others.

python benchmarks/replacing.py --queries 1000 --changes 20

Rows with numbers are pushed, and each push ends when every query has its results. Meanwhile one query,
which writes the numbers to a file, is replaced again and again. The figures are the latencies of pushes that no change
overlaps, and of those that one does. At the end the file has each number once: nothing was lost or doubled.
With --saved, the session is in a directory, so that each change is saved with a checkpoint.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import millstream as ms

ROWS = 20
"""of a push"""
SHAPES = (
    "SELECT n, v FROM s WHERE v > {c}",
    "SELECT k, n, avg(v) OVER (PARTITION BY k RANGE 1000 PRECEDING) AS x FROM s WHERE v > {c}",
    "SELECT ISTREAM(k, count(*) AS c) FROM s [RANGE 500] WHERE v > {c} GROUP BY k",
    "SELECT k, window_end, sum(v) AS x FROM TUMBLE(s, t, 1000) WHERE v > {c} GROUP BY k, window_start, window_end",
)
DEFINITIONS = (
    "SELECT n, sum(v) OVER (PARTITION BY k ROWS 5 PRECEDING) AS x FROM s",
    "SELECT n, max(v) OVER (PARTITION BY k RANGE 100 PRECEDING) AS x FROM s",
)


class Pushing(threading.Thread):
    """Pushes rows until it is told to end; when each push began and ended."""

    def __init__(self, db: ms.Database) -> None:
        super().__init__()
        self.db, self.done, self.pushed = db, threading.Event(), 0
        self.spans: list[tuple[float, float]] = []

    def run(self) -> None:
        random = np.random.default_rng(0)
        while not self.done.is_set():
            first, self.pushed = self.pushed, self.pushed + ROWS
            values = random.integers(0, 1000, ROWS).tolist()
            rows = [(n, n % 50, float(v), n) for n, v in zip(range(first, self.pushed), values, strict=True)]
            begin = time.perf_counter()
            self.db.push("s", rows)
            self.spans.append((begin, time.perf_counter()))
            time.sleep(0.005)


def p99(spans: list[tuple[float, float]]) -> float:
    return float(np.percentile([end - begin for begin, end in spans], 99)) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--keep", default="10000", help="what the stream keeps, as in KEEP")
    parser.add_argument("--seconds", type=float, default=15, help="before the first change")
    parser.add_argument("--saved", action="store_true", help="a session in a directory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-replacing-") as place:
        db = ms.connect(f"{place}/session") if given.saved else ms.connect()
        db.execute(f"CREATE STREAM s (n BIGINT, k INT, v DOUBLE, t BIGINT) ORDER BY t KEEP {given.keep}")
        for number in range(given.queries):
            # results that nobody fetches are dropped: one reader per query would measure the readers
            db.sql(SHAPES[number % len(SHAPES)].format(c=900 + number % 97), name=f"q{number}")
        db.execute(f"CREATE SINK out WITH (connector = 'file', path = '{place}/out', format = 'csv')")
        db.sql(f"INSERT INTO out {DEFINITIONS[0]}", name="changing")
        pushing = Pushing(db)
        pushing.start()
        time.sleep(given.seconds)
        changes = []
        for number in range(1, given.changes + 1):
            begin = time.perf_counter()
            db.execute(f"ALTER QUERY changing AS {DEFINITIONS[number % 2]}")
            changes.append((begin, time.perf_counter()))
            time.sleep(0.2)
        pushing.done.set()
        pushing.join()
        db.finish()
        db.close()
        warm = changes[0][0] - given.seconds * 0.8
        others = [(b, e) for b, e in pushing.spans if b > warm and not any(b < y and e > x for x, y in changes)]
        during = [(b, e) for b, e in pushing.spans if any(b < y and e > x for x, y in changes)]
        print(f"{given.queries} queries, {pushing.pushed} rows, {given.changes} changes of {_mean(changes):.1f} ms")
        for title, spans in (("without a change", others), ("during a change", during)):
            print(f"pushes {title}: {len(spans)}, mean {_mean(spans):.1f}, p99 {p99(spans):.1f} ms")
        print(f"p99 {p99(during) / p99(others):.2f} times as long")
        numbers = sorted(
            int(line.split(",")[0]) for path in Path(f"{place}/out").rglob("*.csv") for line in _lines(path)
        )
        print(f"numbers in the sink: {len(numbers)}, each once: {numbers == list(range(pushing.pushed))}")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def _mean(spans: list[tuple[float, float]]) -> float:
    return float(np.mean([end - begin for begin, end in spans])) * 1e3


if __name__ == "__main__":
    main()

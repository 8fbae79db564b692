"""Costs that must not grow: with how many queries run, and with how many windows a relation joins.

    python benchmarks/cliffs.py [name …]

Each line compares something small with something large, measured in this run.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import millstream as ms

STREAM = "CREATE STREAM {} (k BIGINT, v BIGINT, t BIGINT) ORDER BY t"


def starting_a_query() -> None:
    """What starting a window query costs while 20 and while 1,000 others run."""
    taken = []
    with ms.connect() as db:
        db.execute(STREAM.format("s"))
        db.push("s", [(i % 5, i, i) for i in range(100)])
        for i in range(1_020):
            text = f"SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS {i % 97} PRECEDING) FROM s WHERE v > {i}"
            began = time.perf_counter()
            db.sql(text)
            taken.append(1e3 * (time.perf_counter() - began))
    few, many = (statistics.median(taken[first : first + 20]) for first in (20, 1_000))
    print(f"starting a query: {few:.1f} ms beside 20 others, {many:.1f} ms beside 1,000: {many / few:.1f} times")


def looking_at_a_join() -> None:
    """What snapshot() of a join costs, beside all pushes before it, for 10 and for 40 windows."""
    ratios = []
    for windows in (10, 40):
        with ms.connect(jit="off") as db:
            for i in range(windows):
                db.execute(STREAM.format(f"s{i}"))
            sources = ", ".join(f"s{i} [RANGE {5 * windows}]" for i in range(windows))
            equal = " AND ".join(f"s{i - 1}.k = s{i}.k" for i in range(1, windows))
            query = db.sql(
                f"SELECT s0.k, {', '.join(f's{i}.v AS v{i}' for i in range(windows))} FROM {sources} WHERE {equal}"
            )
            assert isinstance(query, ms.Query)
            began = time.perf_counter()
            for i in range(windows):
                db.push(f"s{i}", [(j % 5, j, windows * j + i) for j in range(50)])
            pushed = time.perf_counter() - began
            query.snapshot()
            ratios.append((time.perf_counter() - began - pushed) / pushed)
    small, large = ratios
    print(f"snapshot() of a join: {small:.2f} of all pushes for 10 windows, {large:.2f} for 40")


def pushing_while_queries_start() -> None:
    """How long a push of 100 rows takes while queries start whose kernels were never compiled before."""
    queries = [
        "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS 10 PRECEDING) AS s FROM s",
        "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 50] GROUP BY k",
        "SELECT DISTINCT k FROM s [RANGE 100]",
    ]
    taken = []
    with tempfile.TemporaryDirectory() as cache, ms.connect() as db:
        os.environ["MILLSTREAM_CACHE"] = cache
        db.execute(STREAM.format("s"))
        until = time.perf_counter() + 20
        while time.perf_counter() < until:
            if len(taken) % 50 == 20 and queries:
                db.sql(queries.pop())
            time_now = 25 * len(taken)
            rows = [(i % 50, i, time_now + i // 4) for i in range(100)]
            began = time.perf_counter()
            db.push("s", rows)
            taken.append(1e3 * (time.perf_counter() - began))
            for query in db.queries():
                query.fetch()
        del os.environ["MILLSTREAM_CACHE"]
    taken.sort()
    half, most = taken[len(taken) // 2], taken[int(0.99 * len(taken))]
    print(f"pushing 100 rows while queries start: median {half:.1f} ms, 99 % {most:.1f} ms, longest {taken[-1]:.0f} ms")


FIRST = """
import millstream as ms
db = ms.connect()
db.execute("CREATE STREAM s (k BIGINT, v BIGINT, t BIGINT) ORDER BY t")
query = db.sql("SELECT k, v * 2 AS w FROM s WHERE v > 1")
db.push("s", [(1, 2, 3)])
assert query.fetch().num_rows == 1
"""


def first_row() -> None:
    """What a fresh process spends until it has its first row, beside one that only imports numpy and pyarrow."""

    def seconds(program: str) -> float:
        taken = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", program], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return statistics.median(taken)

    bare, whole = seconds("import numpy, pyarrow"), seconds(FIRST)
    print(f"first row of a fresh process: {whole:.2f} s of processor time, {bare:.2f} s of it numpy and pyarrow")


LINES: dict[str, Callable[[], None]] = {
    "first": first_row,
    "starting": starting_a_query,
    "looking": looking_at_a_join,
    "pushing": pushing_while_queries_start,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or LINES:
        LINES[name]()

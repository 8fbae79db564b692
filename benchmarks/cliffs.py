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
import threading
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


STARTING = (
    "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS 10 PRECEDING) AS s FROM s",
    "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 50] GROUP BY k",
    "SELECT DISTINCT k FROM s [RANGE 100]",
    "SELECT k, avg(v) OVER (PARTITION BY k ORDER BY t RANGE 40 PRECEDING) AS m FROM s",
    "SELECT v FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES LAST(b.v) AS v PATTERN (a b+ c)"
    " DEFINE b AS b.v > PREV(b.v), c AS c.v < PREV(c.v))",
)


def pushing_while_queries_start() -> None:
    """How long a push of 100 rows takes while another thread starts five queries whose kernels were never compiled
    before, beside pushes before any of them starts, with a query that runs all the time."""
    before, meanwhile = [], []
    with tempfile.TemporaryDirectory() as cache, ms.connect() as db:
        os.environ["MILLSTREAM_CACHE"] = cache
        db.execute(STREAM.format("s"))
        db.sql("SELECT k, v FROM s WHERE v > 50", name="always")

        def start_queries() -> None:
            for text in STARTING:
                db.sql(text)
                time.sleep(2)

        starting = threading.Thread(target=start_queries)
        began_at = time.perf_counter()
        while len(before) < 500 or starting.is_alive() or time.perf_counter() < began_at + 20:
            taken = before if len(before) < 500 else meanwhile
            time_now = 25 * (len(before) + len(meanwhile))
            rows = [(i % 50, i, time_now + i // 4) for i in range(100)]
            began = time.perf_counter()
            db.push("s", rows)
            taken.append(1e3 * (time.perf_counter() - began))
            if len(before) == 500 and not meanwhile:
                began_at = time.perf_counter()
                starting.start()
            for query in db.queries():
                query.fetch()
            time.sleep(0.002)
        starting.join()
        del os.environ["MILLSTREAM_CACHE"]

    def told(taken: list[float]) -> str:
        half, most = (sorted(taken)[int(share * len(taken))] for share in (0.5, 0.99))
        return f"median {half:.1f} ms, 99 % {most:.1f} ms, longest {max(taken):.0f} ms of {len(taken)}"

    print(f"pushing 100 rows while 5 queries start: {told(meanwhile)}; before: {told(before)}")


FIRST = """
import datetime as dt
import millstream as ms
db = ms.connect()
db.execute("CREATE STREAM s (k BIGINT, v BIGINT, t TIMESTAMP) ORDER BY t")
query = db.sql("SELECT k, v * 2 AS w FROM s WHERE v > 1")
db.push("s", [(1, 2, dt.datetime(2026, 1, 1))])
assert query.fetch().num_rows == 1
"""


def first_row() -> None:
    """What a fresh process spends until it has its first row, beside some that only import what it cannot do without.

    Bytecode is cached, as it is once a package is installed, whatever the environment says.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds(program: str) -> tuple[float, float]:
        """Until the program's last line, and from there to the end of its process."""
        until, behind = [], []
        program += "\nimport time; print(time.process_time())"
        for _ in range(9):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            told = subprocess.run([sys.executable, "-c", program], check=True, env=environment, stdout=subprocess.PIPE)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            until.append(float(told.stdout))
            behind.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - until[-1])
        return statistics.median(until), statistics.median(behind)

    seconds(FIRST)
    arrow = "import numpy, pyarrow"
    bare, others, (whole, end) = seconds(arrow)[0], seconds(f"{arrow}, pyarrow.compute, sqlglot")[0], seconds(FIRST)
    print(
        f"first row of a fresh process: {whole:.2f} s of processor time; {others:.2f} s of it the imports of numpy, "
        f"pyarrow.compute and sqlglot, of which numpy and pyarrow {bare:.2f} s; the end of the process: {end:.2f} s"
    )


LINES: dict[str, Callable[[], None]] = {
    "first": first_row,
    "starting": starting_a_query,
    "looking": looking_at_a_join,
    "pushing": pushing_while_queries_start,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or LINES:
        LINES[name]()

"""How fast a new query is filled from the history of a stream.

    python benchmarks/history.py --rows 10000000
    python benchmarks/history.py --rows 100000000 --start-up
    python benchmarks/history.py --rows 20000000 --spark

A session in a directory keeps all rows as Parquet files. It is opened again, and queries start WITH HISTORY: rows a
second from the statement to the first live row, and how long pushes of others took meanwhile, at most.

With --start-up: how long it takes to open a session with a tenth of the rows and with all of them, to ask for an hour
of history, and to start a window; and the most memory that a process needs for that, and for a query over all rows.

With --spark: rows a second of a job that is new, from its start to the results for all rows of Parquet files; and of a
query that is altered, so that the job computes its state from these files again before it goes on. Both with all that
starting a job costs; before, a job over few rows starts the workers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms

BATCH = 1_000_000
LAST = "SELECT count(*) AS n FROM HISTORY(s) WHERE ts >= TIMESTAMP '{since}'"
QUERIES = {
    "filter": "SELECT k, v FROM s WHERE v > 0.999",
    "sum over all": "SELECT ISTREAM(count(*) AS n, sum(v) AS x) FROM s [RANGE UNBOUNDED] WHERE v > 0.999",
    "sums of minutes": "SELECT k, window_end, sum(v) AS x FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) "
    "GROUP BY k, window_start, window_end",
    "average over a minute": "SELECT k, x FROM (SELECT k, avg(v) OVER (PARTITION BY k RANGE 1 MINUTE PRECEDING) AS x "
    "FROM s) WHERE x > 0.999",
}


def rows(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    times = (np.arange(first, first + count) * 1_000).astype("datetime64[us]")
    return pa.table({"k": random.integers(0, 10_000, count, dtype=np.int32), "v": random.random(count), "ts": times})


def write(directory: str, first: int, end: int) -> None:
    begin = time.perf_counter()
    with ms.connect(directory) as db:
        if not first:
            db.execute("CREATE STREAM s (k INT, v DOUBLE, ts TIMESTAMP) ORDER BY ts KEEP ALL")
        for start in range(first, end, BATCH):
            db.push("s", rows(start, min(BATCH, end - start)))
    print(f"written: {(end - first) / (time.perf_counter() - begin) / 1e6:.2f} M rows/s", flush=True)


def start_up(directory: str, count: int) -> None:
    """In a process of its own."""

    def told(what: str) -> None:
        seconds, status = time.perf_counter() - begin, Path("/proc/self/status").read_text()
        memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        print(f"  {what}: {seconds:.2f} s, {memory:.0f} MB at most", flush=True)

    begin = time.perf_counter()
    with ms.connect(directory) as db:
        told(f"opened with {count} rows")
        since = np.datetime64((count - 3_600_000) * 1_000, "us")
        begin = time.perf_counter()
        found = db.sql(LAST.format(since=str(since).replace("T", " "))).fetch().to_pylist()
        told(f"an hour of history, {found[0]['n']} rows")
        begin = time.perf_counter()
        query = db.sql("SELECT count(*) AS n FROM s [RANGE 1 MINUTE]", history=str(since + 3_500_000_000))
        told(f"a window of a minute, {query.snapshot().to_pylist()[0]['n']} rows")
        query.stop()
        begin = time.perf_counter()
        query = db.sql(f"{QUERIES['filter']} WITH HISTORY")
        told(f"a filter over all rows, {query.fetch().num_rows} rows")
        query.stop()


def on_spark(count: int) -> None:
    from millstream.hosts.spark.session import get_session
    from millstream.spark import Millstream

    with tempfile.TemporaryDirectory(prefix="millstream-history-") as place:
        for name, total in (("few", 1000), ("all", count)):
            (Path(place) / name).mkdir()
            for number, first in enumerate(range(0, total, BATCH)):
                part = rows(first, min(BATCH, total - first))
                pq.write_table(part, f"{place}/{name}/{number:05}.parquet")
        for number, (name, text) in enumerate(QUERIES.items()):
            for given, total in (("few", 1000), ("all", count)):
                m = Millstream(get_session())
                m.execute(
                    "CREATE STREAM s (k INT, v DOUBLE, ts TIMESTAMP) ORDER BY ts WITH (connector = 'file', "
                    f"path = '{place}/{given}', format = 'parquet', follow = true)"
                )
                checkpoint, now = f"{place}/checkpoint-{given}-{number}", {"availableNow": True}
                took = []
                for query in (text, text.replace("MINUTE", "HOUR").replace("count(*) AS n, ", "max(k) AS n, ")):
                    begin = time.perf_counter()
                    m.start({"q": query}, checkpoint=checkpoint, trigger=now, altered=["q"]).wait()
                    took.append(total / (time.perf_counter() - begin) / 1e6)
                m.close()
                if given == "all":
                    again = f", altered {took[1]:.2f} M rows/s" if text != query else ""
                    print(f"{name}: new {took[0]:.2f} M rows/s{again}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10 * BATCH)
    parser.add_argument("--start-up", action="store_true")
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    count = given.rows
    if given.spark:
        on_spark(count)
        return
    if given.start_up:
        with tempfile.TemporaryDirectory(prefix="millstream-history-") as place:
            for first, end in ((0, count // 10), (count // 10, count)):
                write(f"{place}/kept", first, end)
                process = multiprocessing.get_context("spawn").Process(target=start_up, args=(f"{place}/kept", end))
                process.start()
                process.join()
        return
    with tempfile.TemporaryDirectory(prefix="millstream-history-") as place:
        directory = f"{place}/kept"
        write(directory, 0, count)
        begin = time.perf_counter()
        db = ms.connect(directory)
        print(f"opened again in {time.perf_counter() - begin:.2f} s")
        db.execute("CREATE STREAM other (v INT)")
        db.sql("SELECT v FROM other WHERE v > 10")
        for name, text in QUERIES.items():
            longest, done = [0.0], threading.Event()

            def push(longest: list[float] = longest, done: threading.Event = done) -> None:
                while not done.wait(0.005):
                    start = time.perf_counter()
                    db.push("other", [(1,)])
                    longest[0] = max(longest[0], time.perf_counter() - start)

            thread = threading.Thread(target=push)
            thread.start()
            begin = time.perf_counter()
            query = db.sql(f"{text} WITH HISTORY")
            seconds = time.perf_counter() - begin
            done.set()
            thread.join()
            found = query.fetch().num_rows
            query.stop()
            print(f"{name}: {count / seconds / 1e6:.2f} M rows/s, {found} rows, longest push {longest[0] * 1e3:.0f} ms")
        db.close()


if __name__ == "__main__":
    main()

"""How fast a new query is filled from the history of a stream.

python benchmarks/history.py --rows 10000000

A session in a directory keeps all rows as Parquet files. It is opened again, and queries start WITH HISTORY: rows a
second from the statement to the first live row, and how long pushes of others took meanwhile, at most.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time

import numpy as np
import pyarrow as pa

import millstream as ms

BATCH = 1_000_000
QUERIES = {
    "filter": "SELECT k, v FROM s WHERE v > 0.999",
    "sum over all": "SELECT ISTREAM(count(*) AS n, sum(v) AS x) FROM s [RANGE UNBOUNDED] WHERE v > 0.999",
    "average over a minute": "SELECT k, x FROM (SELECT k, avg(v) OVER (PARTITION BY k RANGE 1 MINUTE PRECEDING) AS x "
    "FROM s) WHERE x > 0.999",
}


def rows(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    times = (np.arange(first, first + count) * 1_000).astype("datetime64[us]")
    return pa.table({"k": random.integers(0, 10_000, count, dtype=np.int32), "v": random.random(count), "ts": times})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10 * BATCH)
    count = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="millstream-history-") as place:
        directory = f"{place}/kept"
        begin = time.perf_counter()
        with ms.connect(directory) as db:
            db.execute("CREATE STREAM s (k INT, v DOUBLE, ts TIMESTAMP) ORDER BY ts KEEP ALL")
            for first in range(0, count, BATCH):
                db.push("s", rows(first, min(BATCH, count - first)))
        print(f"written: {count / (time.perf_counter() - begin) / 1e6:.2f} M rows/s")
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

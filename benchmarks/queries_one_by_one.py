"""Queries of one shape that `sql()` starts one by one: as one, and with `share_templates` left out.

    python benchmarks/queries_one_by_one.py [--only tumble,over,…] [--count 1000] [--rows 1000]

What one more query takes to start, and a push of some rows, of which each is for one of the queries (or, in
`define`, for all). Processor time of one thread.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

import millstream as ms

STREAM = "CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t"
SHAPES = {
    "tumble": "SELECT window_end, count(*) AS n, sum(v) AS x FROM TUMBLE(TABLE s, DESCRIPTOR(t), 1000) "
    "WHERE k = {k} GROUP BY window_start, window_end",
    "over": "SELECT v, avg(v) OVER (ROWS 9 PRECEDING) AS x FROM s WHERE k = {k}",
    "pattern": "SELECT * FROM (SELECT * FROM s WHERE k = {k}) MATCH_RECOGNIZE (ORDER BY t "
    "MEASURES A.v AS a, LAST(C.v) AS c PATTERN (A B+ C+) DEFINE B AS v < PREV(v), C AS v > PREV(v))",
    "define": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.v AS a, LAST(B.v) AS b "
    "PATTERN (A B+) DEFINE A AS v > 0.9{k:04d}, B AS v < PREV(v))",
    "next": "SELECT v_1, v FROM FILTER{{k = {k} AND v > 0.9}}(s) NEXT{{$1.k = $2.k AND $2.v < $1.v}} s",
    "changes": "ISTREAM (SELECT name, max(v) AS x FROM s [RANGE 1000] WHERE k = {k} GROUP BY name)",
}
MORE = 10
"""so many queries are started again to see what one takes"""


def measure(text: str, count: int, rows: int, shared: bool) -> tuple[float, float, int]:
    """Seconds that a query takes to start and that a push takes, and the rows of all results."""
    draws = np.random.default_rng(count)
    with ms.connect(threads=1, jit="on") as db:
        db.execute(STREAM)
        if not shared:
            db.execute("SET disable_rule = 'share_templates'")
        queries = [db.sql(text.format(k=k)) for k in range(count - MORE)]
        begun = time.process_time()
        queries += [db.sql(text.format(k=k)) for k in range(count - MORE, count)]
        start = (time.process_time() - begun) / MORE
        spent = []
        for place in range(8):
            names = np.array(["a", "b", "c"])[draws.integers(0, 3, rows)]
            keys = pa.array(draws.integers(0, count, rows), pa.int32())
            times = pa.array(np.arange(place * rows, (place + 1) * rows), pa.int32())
            batch = pa.table({"k": keys, "name": names, "v": draws.random(rows), "t": times})
            begun = time.process_time()
            db.push("s", batch)
            spent.append(time.process_time() - begun)
        found = sum(query.fetch().num_rows for query in queries)
    return start, sum(spent[3:]) / len(spent[3:]), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SHAPES))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    for name in given.only.split(","):
        start, push, found = measure(SHAPES[name], given.count, given.rows, shared=True)
        alone, apart, same = measure(SHAPES[name], given.count, given.rows, shared=False)
        assert found == same, (found, same)
        print(
            f"{name:8} query {given.count}: {start * 1e3:.1f} ms, alone {alone * 1e3:.1f} ({alone / start:.1f}x)   "
            f"{given.rows} rows: {push * 1e3:.1f} ms, alone {apart * 1e3:.1f} ({apart / push:.1f}x)",
            flush=True,
        )


if __name__ == "__main__":
    main()

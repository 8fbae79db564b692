"""What pushing rows in bulk costs, in processor time, also beside another checkout of Millstream, in turns.

python benchmarks/pushes.py --other /path/to/checkout/src
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

QUERIES = {
    "filter": "SELECT k, v FROM s WHERE v > 0.5",
    "over": "SELECT k, avg(v) OVER (PARTITION BY k ORDER BY ts RANGE 10 SECONDS PRECEDING) AS m FROM s",
    "rows": "SELECT k, avg(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS m FROM s",
    "extremes": "SELECT k, max(v) OVER (PARTITION BY k ORDER BY ts RANGE 10 SECONDS PRECEDING) AS m FROM s",
    "tumble": "SELECT k, sum(v) AS m FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY k, window_start, window_end",
    "five": "SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS m, min(v) AS low, max(v) AS high "
    "FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY k, window_start, window_end",
    "texts": "SELECT k, min(name) AS m FROM TUMBLE(s, ts, INTERVAL 10 SECONDS) GROUP BY k, window_start, window_end",
    "hop": "SELECT k, avg(v) AS m FROM HOP(s, ts, INTERVAL 1 SECOND, INTERVAL 10 SECONDS) "
    "GROUP BY k, window_start, window_end",
    "groups": "SELECT k, count(*) AS n, sum(v) AS s FROM s [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "join": "SELECT a.k, a.v FROM s [RANGE 1 SECOND] AS a JOIN s [NOW] AS b ON a.k = b.k WHERE b.v > 0.9",
    "pattern": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(d.v) AS v PATTERN (a d+ u+) "
    "DEFINE d AS v < PREV(v), u AS v > PREV(v))",
    "own": "SELECT k, spread(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS m FROM s",
}
OWN = """CREATE WINDOW AGGREGATE spread(x DOUBLE) : DOUBLE {
    TABLE state(total DOUBLE, n INT), inwindow(wx DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (x, 1); INSERT INTO RETURN VALUES (x); }
    ITERATE: { UPDATE state SET total = total + x, n = n + 1; INSERT INTO RETURN SELECT total / n FROM state; }
    EXPIRE: { UPDATE state SET total = total - oldest(), n = n - 1; }
}"""
NAMES = pa.array([f"name {number:05}" for number in range(1000)])
BASE = 1_700_000_000_000_000


def measure(text: str, rows: int, batch: int, rounds: int) -> float:
    """Seconds of processor time for so many rows: the least of the rounds after the first, which compiles."""
    import millstream as ms

    draw, times, done = np.random.default_rng(1), [], 0
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, v DOUBLE, name VARCHAR, ts TIMESTAMP) ORDER BY ts")
        db.execute(OWN)
        query = db.sql(text)
        for _ in range(rounds + 1):
            parts = []
            for _ in range(rows // batch):
                at = pa.array(BASE + (done + np.arange(batch)) * 100, pa.timestamp("us"))
                keys = pa.array(draw.integers(0, 1000, batch), pa.int32())
                names = pa.DictionaryArray.from_arrays(pa.array(draw.integers(0, 1000, batch), pa.int32()), NAMES)
                columns = {"k": keys, "v": draw.random(batch), "name": names.cast(pa.string()), "ts": at}
                parts.append(pa.table(columns))
                done += batch
            began = time.process_time()
            for part in parts:
                db.push("s", part)
            times.append(time.process_time() - began)
            query.fetch()
            if compiler := sys.modules.get("millstream.kernels.jit.aside"):
                # code is compiled in a process of its own while rows run as Python
                compiler.compiler().settle()
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[2_000_000, 100_000])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default=",".join(QUERIES))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--other", type=Path, help="the folder src of another checkout, measured in turns with this one"
    )
    parser.add_argument("--one", help="one query, here and now: only the seconds are printed")
    wishes = parser.parse_args()
    if wishes.one:
        print(measure(QUERIES[wishes.one], wishes.rows, wishes.batches[0], wishes.rounds))
        return
    own = Path(__file__).parents[1] / "src"
    for name in wishes.only.split(","):
        for batch in wishes.batches:
            best: dict[Path, float] = {}
            for _ in range(wishes.turns):
                for place in (own, wishes.other) if wishes.other else (own,):
                    command = [sys.executable, __file__, "--one", name, "--batches", str(batch)]
                    command += ["--rows", str(wishes.rows), "--rounds", str(wishes.rounds)]
                    told = subprocess.run(
                        command,
                        env=os.environ | {"PYTHONPATH": str(place)},
                        check=True,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    best[place] = min(best.get(place, float("inf")), float(told.stdout))
            line = f"{name:8} batches of {batch:>9,}: {best[own] / wishes.rows * 1e9:6.1f} ns a row"
            if wishes.other:
                line += f", other {best[wishes.other] / wishes.rows * 1e9:6.1f}: {best[own] / best[wishes.other]:.2f}x"
            print(line, flush=True)


if __name__ == "__main__":
    main()

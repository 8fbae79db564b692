"""RUMOR's third workload: ten streams with the same content, as one that carries them all (a channel) and as ten.

    python benchmarks/queries_channels.py [--counts 10,100,1000] [--capacities 2,5,20] [--rounds 12]

The number of streams is the capacity of the channel, in the paper 10 by default, with 1,000 queries; it varies the
number of queries at capacity 10 (figure 5.9 c), and the capacity (5.9 d). A query looks for the event of `u` that
follows an event of its stream with an equal value, within a duration by Zipf (long ones are more likely): NEXT is the
paper's `;`, FOLD its `μ`. With the channel, a round is one event that belongs
to all streams and one of `u`; without, it is an event of each of the streams and one of `u`, as in the paper.
Results of the channel are counted in two forms: a row for each query, and as the paper gives them out, a row with the
queries that it belongs to (`sql_many(…, merged=True)`). Both must be what the queries of the streams give. Queries
of one stream that are equal run once, so what is compared is the channel alone. Rounds/s by processor time.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from queries import told
from queries_workloads import zipf

BATCH = 10_000
CAPACITY, QUERIES = 10, 1_000
"""the defaults of the paper"""
OTHER = "CREATE STREAM u (b0 INT, b1 INT, t BIGINT) ORDER BY t"
WANTED = 10


def text(operator: str, stream: str, length: str) -> str:
    """The query of one stream, or of a channel: there an event belongs to the first `m` streams."""
    is_channel = stream == "c"
    if operator == "NEXT":
        first = "FILTER{m > $stream}(c)" if is_channel else stream
        return f"SELECT a0, a1, b1 FROM {first} NEXT{{$1.a0 = $2.b0 AND DUR <= {length}}} u"
    named = f"(SELECT {'m, ' if is_channel else ''}a0, a1, a0 AS b0, a1 AS b1 FROM {stream})"
    first = f"FILTER{{m > $stream}}({named})" if is_channel else named
    then = f"FOLD{{$2.b0 = $.a0 AND DUR <= {length}, $2.b1 > $.b1, }} (SELECT b0, b1 FROM u)"
    return f"SELECT a0, a1, b0, b1 FROM {first} {then}"


def lengths(count: int) -> list[int]:
    drawn = 1_000 - zipf(np.random.default_rng(count), count, 1_000, 1.5)
    return [int(length) for length in drawn]


def events(draws: np.random.Generator, names: tuple[str, str], begin: int, late: int) -> dict[str, Any]:
    values = {name: pa.array(draws.integers(0, 1_000, BATCH), pa.int32()) for name in names}
    return {**values, "t": np.arange(begin, begin + BATCH) * 2 + late}


def measure(operator: str, count: int, capacity: int, form: str, rounds: int) -> tuple[float, float]:
    """Rounds/s, and results in a round; the first batches are not counted."""
    draws, warm, spent, found = np.random.default_rng(3), min(3, rounds // 2), 0.0, 0
    with ms.connect(threads=1, jit="on") as db:
        db.execute(OTHER)
        if form == "apart":
            for i in range(capacity):
                db.execute(f"CREATE STREAM s{i} (a0 INT, a1 INT, t BIGINT) ORDER BY t")
            queries: list[Any] = [
                db.sql(text(operator, f"s{i % capacity}", str(length))) for i, length in enumerate(lengths(count))
            ]
        else:
            db.execute("CREATE STREAM c (m INT, a0 INT, a1 INT, t BIGINT) ORDER BY t")
            rows = [{"id": i, "stream": i % capacity, "w": length} for i, length in enumerate(lengths(count))]
            queries = [db.sql_many(text(operator, "c", "$w"), rows, key="id", merged=form == "merged")]
        for number in range(rounds):
            first = events(draws, ("a0", "a1"), number * BATCH, 0)
            other = pa.table(events(draws, ("b0", "b1"), number * BATCH, 1))
            members = {"m": pa.array(np.full(BATCH, capacity), pa.int32())} if form != "apart" else {}
            batch = pa.table({**members, **first})
            begun = time.process_time()
            for stream in ["c"] if members else [f"s{i}" for i in range(capacity)]:
                db.push(stream, batch)
            db.push("u", other)
            got = [query.fetch() for query in queries]
            if number >= warm:
                spent += time.process_time() - begun
                found += sum(_results(table, form) for table in got)
    counted = BATCH * (rounds - warm)
    return counted / spent, found / counted


def _results(table: pa.Table, form: str) -> int:
    if form != "merged":
        return int(table.num_rows)
    return sum(len(chunk.flatten()) for chunk in table.column("queries").chunks)


def compare(operator: str, count: int, capacity: int, rounds: int) -> None:
    # where the streams apart take long, fewer rounds do
    apart, expected = measure(operator, count, capacity, "apart", max(rounds * 10 // max(count, 10), 4))
    seen = {}
    for form in ("merged", "rows"):
        rate, results = measure(operator, count, capacity, form, rounds)
        assert abs(results - expected) < 0.05 * expected, (results, expected)
        seen[form] = rate / apart
    print(
        f"{capacity:3} streams {count:7,} queries {expected:7.1f} results a round   apart {apart:10,.0f}/s   channel: "
        f"{seen['merged']:5.1f}x with the queries of each row, {seen['rows']:5.1f}x with a row for each query",
        flush=True,
    )
    if count == QUERIES and capacity == CAPACITY:
        told(f"{operator} of {count:,} queries at capacity {capacity}, times the streams apart", seen["merged"], WANTED)
    if count == capacity:
        # each stream has one query: the channel cannot take less time than one of the streams does by itself
        best = measure(operator, 1, 1, "apart", rounds)[0] / apart
        print(f"    one of these streams by itself: {best:5.1f}x, which no channel can exceed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="10,100,1000")
    parser.add_argument("--capacities", default="2,5,20")
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    counts, capacities = ([int(each) for each in text.split(",") if each] for text in (given.counts, given.capacities))
    for operator in ("NEXT", "FOLD"):
        print(f"{operator}: rounds/s of streams as one channel, and apart", flush=True)
        for count in counts:
            compare(operator, count, CAPACITY, given.rounds)
        for capacity in capacities:
            compare(operator, QUERIES, capacity, given.rounds)


if __name__ == "__main__":
    main()

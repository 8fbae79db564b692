"""Many standing queries of one shape, `symbol = $symbol AND price > $low`: events/s and memory as their number grows.

Each event matches about five queries, however many there are. Compared in one run, on one thread of Python each:

- one: a single query that gives as many rows (every event, five times);
- alone: the same queries, each evaluated by itself on the same engine (up to 10,000);
- DuckDB: a join of each batch with the table of constants.

Throughput is by processor time, which a busy machine changes less than wall time.

    python benchmarks/queries.py [--most 1000000] [--events 400000] [--plots]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import millstream as ms
from millstream.arrays import release_unused
from millstream.hosts.embedded import consumers

BATCH = 20_000
MATCHES = 5
PER_SYMBOL = 50
STREAM = "CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, t BIGINT) ORDER BY t"
TEXT = "SELECT symbol, price FROM quotes WHERE symbol = $symbol AND price > $low"


def symbols(count: int) -> pa.Array:
    return pa.array([f"S{i}" for i in range(max(count // PER_SYMBOL, 1))])


def constants(count: int, draw: np.random.Generator) -> pa.Table:
    known = symbols(count)
    chosen = known.take(pa.array(draw.integers(0, len(known), count)))
    # prices are below 10; a tenth of the limits lets some through
    per_symbol = count / len(known)
    low = draw.uniform(0, 10 * per_symbol / MATCHES, count) if per_symbol > MATCHES else np.zeros(count)
    return pa.table({"id": np.arange(count), "symbol": chosen, "low": low})


def batches(count: int, events: int, draw: np.random.Generator) -> list[pa.Table]:
    known, made = symbols(count), []
    for start in range(0, events, BATCH):
        chosen = known.take(pa.array(draw.integers(0, len(known), BATCH)))
        times = np.arange(start, start + BATCH)
        made.append(pa.table({"symbol": chosen, "price": draw.uniform(9, 10, BATCH), "t": times}))
    return made


def throughput(data: list[pa.Table], step: Callable[[pa.Table], int], warm: int = 3) -> tuple[float, float]:
    """Events/s, and rows out per event; the first batches are not counted."""
    for batch in data[:warm]:
        step(batch)
    begun = time.process_time()
    out = sum(step(batch) for batch in data[warm:])
    spent = time.process_time() - begun
    events = BATCH * (len(data) - warm)
    return events / spent, out / events


def session() -> Any:
    db = ms.connect(threads=1, jit="on")
    db.execute(STREAM)
    return db


def shared(rows: pa.Table, data: list[pa.Table]) -> tuple[float, float, float, float]:
    db = session()
    release_unused()
    before = resident()
    begun = time.process_time()
    many = db.sql_many(TEXT, rows, key="id")
    db.push("quotes", data[0].slice(0, 1))
    started = time.process_time() - begun
    memory = (resident() - before) / rows.num_rows

    def step(batch: pa.Table) -> int:
        db.push("quotes", batch)
        return int(many.fetch().num_rows)

    rate, out = throughput(data, step)
    return rate, out, rows.num_rows / started, memory


def one(data: list[pa.Table], out: float) -> float:
    """A single query that gives as many rows: each event with rows of a table, as many times as queries matched it."""
    db = session()
    db.execute("CREATE TABLE copies (n INT)")
    copies = max(round(out), 1)
    db.execute("INSERT INTO copies VALUES " + ", ".join(f"({n})" for n in range(copies)))
    query = db.sql("SELECT n, symbol, price FROM quotes, copies WHERE price > 0")

    def step(batch: pa.Table) -> int:
        db.push("quotes", batch)
        return int(query.fetch().num_rows)

    return throughput(data, step)[0]


def alone(rows: pa.Table, data: list[pa.Table]) -> float:
    """Every query by itself: filters are not grouped."""
    least, consumers.LEAST_MEMBERS = consumers.LEAST_MEMBERS, 1 << 60
    try:
        db = session()
        queries = [db.sql(TEXT, params={"symbol": row["symbol"], "low": row["low"]}) for row in rows.to_pylist()]

        def step(batch: pa.Table) -> int:
            db.push("quotes", batch)
            return sum(query.fetch().num_rows for query in queries)

        return throughput(data[: 3 if rows.num_rows <= 1_000 else 2], step, warm=1)[0]
    finally:
        consumers.LEAST_MEMBERS = least


def by_duckdb(rows: pa.Table, data: list[pa.Table]) -> float:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE wanted AS SELECT * FROM rows")

    def step(batch: pa.Table) -> int:
        sql = "SELECT id, b.symbol, price FROM batch AS b, wanted AS w WHERE b.symbol = w.symbol AND b.price > w.low"
        return int(connection.sql(sql).to_arrow_table().num_rows)

    return throughput(data[:6], step)[0]


def resident() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def told(what: str, seen: float, wanted: float, at_most: bool = False) -> None:
    """A line about what is wanted, and what was seen."""
    holds = seen <= wanted if at_most else seen >= wanted
    bound = "at most" if at_most else "at least"
    print(f"{'ok  ' if holds else 'MISS'} {what}: {seen:,.4g} (wanted: {bound} {wanted:,})", flush=True)


def changes(count: int, draw: np.random.Generator) -> None:
    """What it takes to add and drop one query among many, and the first event after it; then a tenth of them."""
    db = session()
    many = db.sql_many(TEXT, constants(count, draw), key="id")
    event = [("S0", 9.5, 0)]
    db.push("quotes", event)
    many.fetch()
    spent: dict[str, list[float]] = {"add": [], "drop": []}
    for i in range(100):
        begun = time.process_time()
        many.add([{"id": count + i, "symbol": "S0", "low": 1.0}])
        db.push("quotes", event)
        spent["add"].append(time.process_time() - begun)
    for i in range(100):
        begun = time.process_time()
        many.drop([count + i])
        db.push("quotes", event)
        spent["drop"].append(time.process_time() - begun)
    for what, times in spent.items():
        told(f"{what} one among {count:,}, median ms", float(np.median(times)) * 1e3, 5, at_most=True)
        told(f"{what} one among {count:,}, longest pause in ms", max(times) * 1e3, 100, at_most=True)
    tenth = max(count // 10, 1)
    begun = time.process_time()
    many.drop(range(tenth))
    db.push("quotes", event)
    told("dropped/s in bulk", tenth / (time.process_time() - begun), 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--plots", action="store_true", help="write the curves to docs/images")
    given = parser.parse_args()
    titles = zip(
        (9, 11, 5, 7, 8, 8, 9, 6),
        ("queries", "events/s", "out", "of one", "x alone", "x DuckDB", "added/s", "bytes"),
        strict=True,
    )
    print(*(f"{title:>{width}}" for width, title in titles))
    counts: list[int] = []
    curves: dict[str, list[float | None]] = {"as one set": [], "one query": [], "one by one": [], "DuckDB": []}
    count = 1
    while count <= given.most:
        draw = np.random.default_rng(count)
        rows, data = constants(count, draw), batches(count, given.events, draw)
        rate, out, added, memory = shared(rows, data)
        single, duck = one(data, out), by_duckdb(rows, data)
        separate = alone(rows, data) if count <= 10_000 else None
        times = f"{rate / separate:8.1f}" if separate else f"{'':8}"
        print(
            f"{count:9,} {rate:11,.0f} {out:5.1f} {rate / single:7.2f} {times} {rate / duck:8.1f} {added:9,.0f} "
            f"{memory:6.0f}",
            flush=True,
        )
        counts.append(count)
        for curve, value in zip(curves.values(), (rate, single, separate, duck), strict=True):
            curve.append(value)
        if count == 10_000 and separate:
            told("10,000 queries, times one by one", rate / separate, 1_000)
        count *= 10
    told(f"{counts[-1]:,} queries, throughput of one query with as many rows", rate / single, 0.5)
    told(f"{counts[-1]:,} queries, events/s", rate, 100_000)
    told(f"{counts[-1]:,} queries, bytes for each", memory, 200, at_most=True)
    told("added/s in bulk", added, 10_000)
    changes(given.most, np.random.default_rng(1))
    if given.plots:
        from aggregates_plots import draw as drawn

        place = Path(__file__).parent.parent / "docs" / "images" / "many_selections.png"
        drawn(place, "Selections of one shape, five matches an event", "queries", "events/s", tuple(counts), curves)


if __name__ == "__main__":
    main()

"""Events that follow each other: the papers' Examples 4 and 10 over quotes.

    python benchmarks/events.py [--rows 10000000] [--symbols 1000] [--only examples,symbols]

examples: events/s on one core, by processor time, from Arrow batches to fetched results. symbols: the same with a
hundred times as many symbols, which should cost the same. Machines are noisy: read the ratios.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

import millstream as ms

BATCH = 1 << 18

EXAMPLES = {
    "Example 4: rising for at least 30 minutes": """
        SELECT Name, Price_1, Price FROM FILTER{DUR >= 1800000} (
            Stock FOLD{$2.Name = $.Name, $2.Price > $.Price, } Stock)""",
    "Example 10: falling after a large trade, then up 5 %": """
        SELECT Name, MaxPrice, MinPrice, Price AS FinalPrice FROM FILTER{Price > 1.05 * MinPrice_1} (
            FILTER{DUR >= 600000} (
                SELECT Name, Price_1 AS MaxPrice, Price AS MinPrice
                FROM FILTER{Volume > 10000}(Stock) FOLD{$2.Name = $.Name, $2.Price < $.Price, } Stock)
            NEXT{$2.Name = $1.Name} Stock)""",
}


def quotes(rows: int, symbols: int, seed: int = 7) -> list[pa.RecordBatch]:
    """Random walks of prices; each symbol has a quote every six minutes or so, times are in milliseconds."""
    rng = np.random.default_rng(seed)
    names = pa.array([f"S{number:05}" for number in range(symbols)])
    prices = np.full(symbols, 100.0)
    batches = []
    for begin in range(0, rows, BATCH):
        size = min(BATCH, rows - begin)
        symbol = rng.integers(0, symbols, size)
        moves = rng.normal(0, 3, size).round(2)
        order = np.argsort(symbol, kind="stable")
        walked = np.empty(size)
        starts = np.flatnonzero(np.diff(symbol[order], prepend=-1))
        sums = np.cumsum(moves[order])
        before = np.repeat(sums[starts] - moves[order][starts], np.diff(np.append(starts, size)))
        walked[order] = prices[symbol[order]] + sums - before
        prices[symbol[order[np.append(starts[1:], size) - 1]]] = walked[order[np.append(starts[1:], size) - 1]]
        volume = rng.integers(1, 12_000, size)
        time_ = np.arange(begin, begin + size) * max(1, 360_000 // symbols)
        batches.append(
            pa.RecordBatch.from_arrays(
                [
                    names.take(pa.array(symbol)),
                    pa.array(walked.round(2)),
                    pa.array(volume, pa.int32()),
                    pa.array(time_),
                ],
                names=["Name", "Price", "Volume", "t"],
            )
        )
    return batches


def run(text: str, batches: list[pa.RecordBatch]) -> tuple[float, int]:
    """Events a second of processor time behind the first batch, which warms up; and how many were found."""
    with ms.connect(jit="on", threads=1) as db:
        db.execute("CREATE STREAM Stock (Name VARCHAR, Price DOUBLE, Volume INT, t BIGINT) ORDER BY t")
        query = db.sql(text)
        db.push("Stock", batches[0])
        found = query.fetch().num_rows
        began = time.process_time()
        for batch in batches[1:]:
            db.push("Stock", batch)
            found += query.fetch().num_rows
        spent = time.process_time() - began
        return sum(map(len, batches[1:])) / spent, found


def examples(options: argparse.Namespace) -> None:
    print(f"{options.rows:,} quotes of {options.symbols:,} symbols")
    batches = quotes(options.rows, options.symbols)
    for name, text in EXAMPLES.items():
        rate, found = run(text, batches)
        print(f"  {name:<54} {rate / 1e6:6.2f} M events/s   ({found:,} found; wanted: 5)", flush=True)


def symbols(options: argparse.Namespace) -> None:
    rows = min(options.rows, 4_000_000)
    print(f"{rows:,} quotes, by how many symbols there are")
    for name, text in EXAMPLES.items():
        rates = {many: run(text, quotes(rows, many))[0] for many in (100, 1_000, 10_000)}
        told = ", ".join(f"{many:,}: {rate / 1e6:.2f} M/s" for many, rate in rates.items())
        print(f"  {name:<54} {told}; {rates[100] / rates[10_000]:.2f}x the cost (wanted: at most 1.3)", flush=True)


PARTS = {"examples": examples, "symbols": symbols}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    for part in options.only.split(","):
        PARTS[part](options)


if __name__ == "__main__":
    main()

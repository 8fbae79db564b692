"""Quotes for the benchmark of patterns: random walks of symbols, as Arrow batches, Parquet files and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

START = 1_700_000_000_000_000
PER_SECOND = 10_000
BATCH_ROWS = 262_144


class Quotes:
    """Quotes in order of time: each is of a random symbol, whose price moves by up to 1 either way.

    With `unchanged`, that share of the prices is the same as before.
    """

    def __init__(self, symbols: int = 1_000, seed: int = 7, unchanged: float = 0.0) -> None:
        self.symbols = symbols
        self._unchanged = unchanged
        self._random = np.random.default_rng(seed)
        self._prices = np.full(symbols, 1_000.0)
        self._made = 0

    def take(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The next rows: symbol, price and time in microseconds."""
        symbol = self._random.integers(0, self.symbols, rows)
        move = np.round(self._random.uniform(-1, 1, rows), 4)
        if self._unchanged:
            move[self._random.random(rows) < self._unchanged] = 0.0
        order = np.argsort(symbol, kind="stable")
        first = np.flatnonzero(np.diff(symbol[order], prepend=-1))
        walked = np.cumsum(move[order])
        counts = np.diff(first, append=rows)
        before = np.repeat(walked[first] - move[order][first], counts)
        price = np.empty(rows)
        price[order] = np.round(self._prices[symbol[order]] + walked - before, 4)
        last = order[first + counts - 1]
        self._prices[symbol[last]] = price[last]
        time = START + np.arange(self._made, self._made + rows, dtype=np.int64) * (1_000_000 // PER_SECOND)
        self._made += rows
        return symbol, price, time

    def batches(self, rows: int, text: bool = False) -> Iterator[pa.RecordBatch]:
        """The next rows in Arrow batches, symbols as numbers or as text."""
        names = pa.array([f"S{number:05d}" for number in range(self.symbols)])
        for low in range(0, rows, BATCH_ROWS):
            symbol, price, time = self.take(min(BATCH_ROWS, rows - low))
            keys = names.take(pa.array(symbol)) if text else pa.array(symbol)
            columns = [keys, pa.array(price), pa.array(time).cast(pa.timestamp("us"))]
            yield pa.RecordBatch.from_arrays(columns, names=["symbol", "price", "ts"])


def write_csv(folder: Path, rows: int, symbols: int, files: int = 2) -> None:
    """Quotes as CSV, each symbol in one of the files; each file is in order of time."""
    table = pa.Table.from_batches(list(Quotes(symbols).batches(rows)))
    symbol = table["symbol"].to_numpy()
    micros = table["ts"].cast(pa.int64()).to_numpy()
    # the column there has milliseconds only, and a symbol must not have two quotes at one instant
    apart = pa.array((START + (micros - START) * 10) // 1_000).cast(pa.timestamp("ms"))
    table = table.set_column(2, "ts", apart)
    folder.mkdir(parents=True)
    options = csv.WriteOptions(include_header=False)
    for number in range(files):
        csv.write_csv(table.filter(pa.array(symbol % files == number)), folder / f"part-{number}.csv", options)


def write_parquet(folder: Path, rows: int, symbols: int, files: int) -> None:
    """Quotes as Parquet files whose names tell the order."""
    quotes = Quotes(symbols)
    folder.mkdir(parents=True)
    for number in range(files):
        table = pa.Table.from_batches(list(quotes.batches(rows // files)))
        pq.write_table(table, folder / f"part-{number:05d}.parquet")

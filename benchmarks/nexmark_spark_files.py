"""The files that the NEXMark benchmark reads: bids, persons and auctions of our generator, and quotes of 10 K keys."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.generators.draws import Draws
from millstream.connectors.generators.nexmark import Auctions, Bids, Persons
from millstream.connectors.generators.table import GeneratedRows, Settings, as_declared
from millstream.types import TIMESTAMP

KEYS = 10_000
EVENTS_PER_SECOND = 10_000
SCHEMAS = {
    "bid": {"auction": "BIGINT", "bidder": "BIGINT", "price": "DOUBLE", "date_time": "TIMESTAMPTZ"},
    "person": {"id": "BIGINT", "name": "VARCHAR", "date_time": "TIMESTAMPTZ"},
    "auction": {"id": "BIGINT", "seller": "BIGINT", "date_time": "TIMESTAMPTZ"},
    "quotes": {"ts": "TIMESTAMPTZ", "key": "BIGINT", "price": "DOUBLE"},
}
TIMES = {"bid": "date_time", "person": "date_time", "auction": "date_time", "quotes": "ts"}
# q8 reads no bids, so its events are ten times as many
_GENERATED: dict[str, tuple[type[GeneratedRows], float]] = {
    "bid": (Bids, 1.0),
    "person": (Persons, 10 / 46),
    "auction": (Auctions, 30 / 46),
}


def make_files(directory: Path, rows: int, files: int, tables: Set[str]) -> dict[str, int]:
    """Write what is not there yet, in order of time, in files whose names tell the order; how many rows there are."""
    counts = {}
    for table in sorted(tables):
        share = _GENERATED[table][1] if table in _GENERATED else 1.0
        per_file = int(rows * share) // files
        counts[table] = per_file * files
        folder = directory / table
        if folder.exists():
            continue
        folder.mkdir(parents=True)
        for number in range(files):
            pq.write_table(_table(table, number * per_file, per_file), folder / f"part-{number:05d}.parquet")
    return counts


def bids(first: int, rows: int) -> pa.Table:
    """Some of the bids."""
    return _table("bid", first, rows)


def _table(table: str, first: int, rows: int) -> pa.Table:
    if table == "quotes":
        return _quotes(first, rows)
    kind, _ = _GENERATED[table]
    made = kind(np.arange(first, first + rows), Settings(seed=7, rate=float(EVENTS_PER_SECOND)), Draws(7))
    columns: dict[str, Any] = {}
    for name in SCHEMAS[table]:
        type_ = kind.columns[name].type
        columns[name] = as_declared(made.column(name), type_, type_)
    columns["date_time"] = columns["date_time"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    assert kind.columns["date_time"].type == TIMESTAMP
    return pa.table(columns)


def _quotes(first: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(first)
    ts = 1_700_000_000_000_000 + np.arange(first, first + rows) * (1_000_000 // EVENTS_PER_SECOND)
    return pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
            "key": rng.integers(0, KEYS, rows),
            "price": rng.random(rows) * 100,
        }
    )

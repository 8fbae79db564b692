"""Whether memory stays where it is when quotes come for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import millstream as ms
from patterns_contenders import QUERY, STREAM
from patterns_data import BATCH_ROWS, Quotes

TELL = 10_000_000
ROWS = """SELECT * FROM quotes MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES CLASSIFIER() AS label, min(price) AS lowest
    ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A DOWN{3,} UP{3,}) WITHIN INTERVAL '1' MINUTE
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"""
"""Unlike the other query, its rows come out, so they are held while they may."""


def watch_memory(rows: int, symbols: int) -> None:
    """Push so many quotes past two standing queries; tell the memory of the process as they go by."""
    quotes = Quotes(symbols)
    with ms.connect() as db:
        db.execute(STREAM.format(key="BIGINT", source=""))
        db.execute("CREATE SINK nothing WITH (connector = 'null')")
        db.execute(f"INSERT INTO nothing {QUERY}")
        db.execute(f"INSERT INTO nothing {ROWS}")
        began, done, told, first_size = time.perf_counter(), 0, 0, 0.0
        tell = min(TELL, max(rows // 5, BATCH_ROWS))
        for batch in quotes.batches(rows):
            db.push("quotes", batch)
            done += len(batch)
            if done // tell > told:
                told = done // tell
                size = resident()
                first_size = first_size or size
                rate = done / (time.perf_counter() - began) / 1e6
                print(f"  {done / 1e6:8.1f} M rows   {size:8,.0f} MB   {rate:6.2f} M rows/s", flush=True)
        db.finish()
        print(f"  since {tell / 1e6:.1f} M rows: {resident() - first_size:+,.0f} MB   (wanted: flat)")


def resident() -> float:
    """The memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

"""Whether memory stays where it is when quotes come for ever."""

from __future__ import annotations

import millstream as ms
from memory import MemoryWatch
from patterns_contenders import QUERY, STREAM
from patterns_data import Quotes

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
        watch, done = MemoryWatch(rows), 0
        for batch in quotes.batches(rows):
            db.push("quotes", batch)
            done += len(batch)
            watch.passed(done)
        db.finish()
        watch.ended()

"""Whether memory stays where it is when rows come for ever: windows, a join and groups over generated bids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import millstream as ms
from memory import MemoryWatch

BATCH = 200_000
PER_SECOND = 10_000
STREAMS = """
CREATE STREAM bid (auction BIGINT, price DOUBLE, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM auction (id BIGINT, seller BIGINT, ts TIMESTAMP) ORDER BY ts;
CREATE SINK nothing WITH (connector = 'null');
INSERT INTO nothing SELECT auction, count(*) AS n, max(price) AS top FROM bid [RANGE 10 SECONDS] GROUP BY auction;
INSERT INTO nothing SELECT A.id, A.seller, B.price FROM bid [NOW] AS B, auction [RANGE 10 SECONDS] AS A
    WHERE B.auction = A.id;
INSERT INTO nothing SELECT window_start, auction, count(*) AS n FROM HOP(bid, ts, 2 SECONDS, 10 SECONDS)
    GROUP BY window_start, window_end, auction;
"""


def watch_memory(rows: int) -> None:
    """Push so many bids through three standing queries; tell the memory of the process as they go by."""
    rng = np.random.default_rng(3)
    with ms.connect() as db:
        db.execute(STREAMS)
        watch = MemoryWatch(rows)
        for low in range(0, rows, BATCH):
            ts = (np.arange(low, low + BATCH) * (1_000_000 // PER_SECOND)).astype("datetime64[us]")
            newest = np.arange(low, low + BATCH) // 15 + 100
            db.push("auction", pa.table({"id": newest[::15], "seller": newest[::15] % 997, "ts": ts[::15]}))
            columns = {"auction": newest - rng.integers(0, 100, BATCH), "price": rng.random(BATCH), "ts": ts}
            db.push("bid", pa.table(columns))
            watch.passed(low + BATCH)
        db.finish()
        watch.ended()

"""Whether memory stays where it is when rows come for ever: windows, a join and groups over generated bids."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import millstream as ms

BATCH = 200_000
TELL = 10_000_000
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
    tell = max(BATCH, min(TELL, rows // 5 // BATCH * BATCH))
    with ms.connect() as db:
        db.execute(STREAMS)
        began, first_size = time.perf_counter(), 0.0
        for low in range(0, rows, BATCH):
            ts = (np.arange(low, low + BATCH) * (1_000_000 // PER_SECOND)).astype("datetime64[us]")
            newest = np.arange(low, low + BATCH) // 15 + 100
            db.push("auction", pa.table({"id": newest[::15], "seller": newest[::15] % 997, "ts": ts[::15]}))
            columns = {"auction": newest - rng.integers(0, 100, BATCH), "price": rng.random(BATCH), "ts": ts}
            db.push("bid", pa.table(columns))
            done = low + BATCH
            if done % tell == 0:
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

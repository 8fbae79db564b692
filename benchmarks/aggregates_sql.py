"""The aggregates that the benchmark compares, in SQL, and the kernels that the planner makes of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.saving import snapshots
from millstream.kernels.saving import states as saving
from millstream.physical.nodes import Apply, Compute, Physical, Source

BATCH_ROWS = 262_144
MICROSECONDS_PER_ROW = 10
HASHES = ((1_000_003, 17, 4_093), (69_069, 12_345, 4_091), (40_503, 7, 4_079))
"""The multiplier, the summand and the modulus of each hash function of the frequent items."""

STREAM = "CREATE STREAM bid (ts TIMESTAMP, key BIGINT, item BIGINT, price DOUBLE, num BIGINT, size BIGINT) ORDER BY ts"

EXPIRING_AVERAGE = """
CREATE WINDOW AGGREGATE expiring_avg(Next DOUBLE) : DOUBLE {
    TABLE state(tsum DOUBLE, cnt INTEGER); TABLE inwindow(wnext DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
    ITERATE: { UPDATE state SET tsum = tsum + Next, cnt = cnt + 1; INSERT INTO RETURN SELECT tsum / cnt FROM state; }
    EXPIRE: { UPDATE state SET cnt = cnt - 1, tsum = tsum - oldest().wnext; } }"""

KEEPING_AVERAGE = """
CREATE AGGREGATE keeping_avg(Next DOUBLE, num BIGINT, size BIGINT) : DOUBLE {
    TABLE state(tsum DOUBLE, cnt INTEGER); TABLE kept(n BIGINT, value DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO kept VALUES (num, Next);
                   INSERT INTO RETURN VALUES (Next); }
    ITERATE: {
        UPDATE state SET cnt = cnt - 1, tsum = tsum - (SELECT value FROM kept WHERE n = num - size)
            WHERE EXISTS (SELECT n FROM kept WHERE n = num - size);
        DELETE FROM kept WHERE n = num - size;
        INSERT INTO kept VALUES (num, Next);
        UPDATE state SET tsum = tsum + Next, cnt = cnt + 1;
        INSERT INTO RETURN SELECT tsum / cnt FROM state; } }"""

NAIVE_AVERAGE = """
CREATE WINDOW AGGREGATE naive_avg(Next DOUBLE) : DOUBLE {
    TABLE inwindow(wnext DOUBLE);
    INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT avg(wnext) FROM inwindow; } }"""

DECAYED_AVERAGE = """
CREATE AGGREGATE decay_online_avg(Next DOUBLE) : DOUBLE {
    TABLE state(tsum DOUBLE, cnt INTEGER);
    INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
    ITERATE: { UPDATE state SET tsum = 0.9 * tsum + 1.1 * Next, cnt = cnt + 1;
               INSERT INTO RETURN SELECT tsum / cnt FROM state; } }"""


def hashed(item: str, which: int) -> str:
    times, plus, modulus = HASHES[which]
    return f"({item} * {times} + {plus}) % {modulus}"


def _counted(item: str) -> str:
    """Statements that count an item in each table."""
    return "\n".join(
        f"UPDATE c{i} SET n = n + 1 WHERE h = {hashed(item, i)};"
        f" INSERT INTO c{i} VALUES ({hashed(item, i)}, 1) WHERE sqlcode > 0;"
        for i in range(len(HASHES))
    )


def _uncounted(item: str) -> str:
    return "\n".join(f"UPDATE c{i} SET n = n - 1 WHERE h = {hashed(item, i)};" for i in range(len(HASHES)))


_TABLES = " ".join(f"TABLE c{i}(h BIGINT, n BIGINT);" for i in range(len(HASHES)))
_FOUND = ", ".join(f"(SELECT n FROM c{i} WHERE h = {hashed('Next', i)})" for i in range(len(HASHES)))
_ESTIMATE = f"INSERT INTO RETURN VALUES (least({_FOUND}));"

EXPIRING_ITEMS = f"""
CREATE WINDOW AGGREGATE expiring_items(Next BIGINT) : BIGINT {{
    {_TABLES} TABLE inwindow(wnext BIGINT);
    INITIALIZE: ITERATE: {{ {_counted("Next")} {_ESTIMATE} }}
    EXPIRE: {{ {_uncounted("oldest().wnext")} }} }}"""

KEEPING_ITEMS = f"""
CREATE AGGREGATE keeping_items(Next BIGINT, num BIGINT, size BIGINT) : BIGINT {{
    {_TABLES} TABLE kept(k BIGINT, value BIGINT);
    INITIALIZE: ITERATE: {{
        {_uncounted("(SELECT value FROM kept WHERE k = num - size)")}
        DELETE FROM kept WHERE k = num - size;
        INSERT INTO kept VALUES (num, Next);
        {_counted("Next")} {_ESTIMATE} }} }}"""

NAIVE_ITEMS = f"""
CREATE WINDOW AGGREGATE naive_items(Next BIGINT) : BIGINT {{
    TABLE inwindow(wnext BIGINT);
    INITIALIZE: ITERATE: {{ INSERT INTO RETURN SELECT least({
    ", ".join(
        f"sum(CASE WHEN {hashed('wnext', i)} = {hashed('Next', i)} THEN 1 ELSE 0 END)" for i in range(len(HASHES))
    )
}) FROM inwindow; }} }}"""


AGGREGATES = (
    EXPIRING_AVERAGE, KEEPING_AVERAGE, NAIVE_AVERAGE, DECAYED_AVERAGE, EXPIRING_ITEMS, KEEPING_ITEMS, NAIVE_ITEMS,
)  # fmt: skip


def session(**settings: Any) -> ms.Database:
    """A session that knows the stream and the aggregates."""
    db = ms.connect(jit="on", threads=1, **settings)
    db.execute(STREAM)
    for text in AGGREGATES:
        db.execute(text)
    return db


class Chain:
    """The kernels of a query, each fed by the one before; the projection at the end is left out."""

    def __init__(self, db: ms.Database, query: str) -> None:
        self.kernels: list[Any] = [spec.build() for spec in _specs(db.prepare(query).plan)]
        self.states = [kernel.open() for kernel in self.kernels]
        self.columns = self.kernels[0].spec.input.names

    def step(self, batch: Batch) -> Batch:
        """What comes out for a batch with the columns of the first kernel."""
        for kernel, state in zip(self.kernels, self.states, strict=True):
            batch = kernel.step(state, batch)
        return batch

    def window_values(self) -> int:
        """How many values the windows hold: those of rows or of panes, and that of a pane that is not complete."""
        return sum(
            1 if hasattr(kernel, "engine") else _held(kernel, state)
            for kernel, state in zip(self.kernels, self.states, strict=True)
        )

    def bytes_held(self) -> int:
        """The size of the saved state."""
        return sum(len(saving.snapshot(kernel, state)) for kernel, state in zip(self.kernels, self.states, strict=True))


def _specs(plan: Physical) -> Iterator[Any]:
    """The kernels of a plan without branches, the first to run first."""
    for below in plan.inputs:
        yield from _specs(below)
    if isinstance(plan, Apply):
        yield plan.spec
    elif not isinstance(plan, Source | Compute):
        raise TypeError(f"not a plain chain of kernels: {plan.label()}")


def _held(kernel: Any, state: Any) -> int:
    if hasattr(kernel, "engine"):
        return int(kernel.engine.rows_held(state.groups))
    saved = snapshots.load(kernel.spec, saving.snapshot(kernel, state)).columns
    return len(saved["cells"]) if "cells" in saved else 0


class Data:
    """Bids in order of time, in batches."""

    def __init__(self, rows: int, keys: int = 1_000, items: int = 50_000) -> None:
        chance = np.random.default_rng(7)
        number = np.arange(rows, dtype=np.int64)
        self.rows = rows
        self.time = number * MICROSECONDS_PER_ROW
        self.number = number
        columns = {
            "ts": pa.array(self.time).view(pa.timestamp("us")),
            "key": pa.array(chance.integers(0, keys, rows)),
            "item": pa.array((items * chance.random(rows) ** 3).astype(np.int64)),
            "price": pa.array(np.round(chance.random(rows) * 1000, 2)),
            "num": pa.array(number),
            "size": pa.array(np.zeros(rows, dtype=np.int64)),
        }
        self.table = pa.table(columns)
        self.whole = self.table.to_batches()[0]

    def batches(self, columns: tuple[str, ...], size: int = BATCH_ROWS) -> list[Batch]:
        rows = self.whole.select(list(columns))
        whole = Batch(rows, self.time, self.number, FOREVER)
        parts = [whole.slice(start, min(start + size, self.rows)) for start in range(0, self.rows, size)]
        return [part.with_upto(int(part.time[-1])) for part in parts]

    def together(self, columns: tuple[str, ...], window: int) -> Batch:
        """All rows as one batch; their size is that of the window."""
        rows = self.whole.select(list(columns))
        if "size" in columns:
            place = columns.index("size")
            rows = rows.set_column(place, "size", pa.array(np.full(self.rows, window)))
        return Batch(rows, self.time, self.number, FOREVER)

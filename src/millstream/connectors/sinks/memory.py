"""Sinks that keep rows in memory, or only count them."""

from __future__ import annotations

import pyarrow as pa

from millstream.connectors.contract import Offset, SeenAtOnce
from millstream.schema import Schema


class MemorySink(SeenAtOnce):
    """Keeps all rows; offsets are `{rows}`."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._batches: list[pa.RecordBatch] = []

    def open(self, schema: Schema, committed: Offset) -> None:
        self._schema = schema.arrow
        kept = self.table().slice(0, int(committed.get("rows", 0)))
        self._batches = kept.to_batches()

    def write(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def commit(self) -> Offset:
        return {"rows": self.rows}

    def close(self) -> None:
        return

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def table(self) -> pa.Table:
        """All rows written since the sink was opened, and those committed before."""
        return pa.Table.from_batches(self._batches, schema=self._schema)


class BlackholeSink(SeenAtOnce):
    """Counts rows and forgets them; offsets are `{rows}`."""

    def __init__(self) -> None:
        self.rows = 0

    def open(self, schema: Schema, committed: Offset) -> None:
        self.rows = int(committed.get("rows", 0))

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows

    def commit(self) -> Offset:
        return {"rows": self.rows}

    def close(self) -> None:
        return

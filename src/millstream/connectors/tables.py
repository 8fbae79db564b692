"""Bounded sources over data already in Arrow: a table in memory, or a dataset read when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from millstream.connectors.contract import Chunk, Offset, Rejected
from millstream.connectors.convert.common import DEFAULT_RULES, Fitted
from millstream.connectors.convert.fit import fit_batch, locate
from millstream.schema import Schema

_ROWS_PER_CHUNK = 65_536


class TableSource:
    """The rows of a table; offsets are `{row}`."""

    bounded = True
    replayable = True

    def __init__(self, table: pa.Table, schema: Schema, name: str) -> None:
        self._table = table
        self._schema = schema
        self._name = name

    def size(self) -> int | None:
        return int(self._table.num_rows)

    def values(self, column: str) -> Iterator[pa.Array]:
        return iter(self._table.column(_own_name(self._table.schema, self._schema, column)).chunks)

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        start = int(offset.get("row", 0))
        rows = limit or _ROWS_PER_CHUNK
        while start < self._table.num_rows and not stop():
            part = self._table.slice(start, rows).combine_chunks().to_batches()[0]
            yield _chunk(part, self._schema, self._name, start)
            start += part.num_rows


class DatasetSource:
    """The rows of a pyarrow Dataset in its own order, read as needed; offsets are `{row}`."""

    bounded = True
    replayable = True

    def __init__(self, dataset: Any, schema: Schema, name: str) -> None:
        self._dataset = dataset
        self._schema = schema
        self._name = name

    def size(self) -> int | None:
        return int(self._dataset.count_rows())

    def values(self, column: str) -> Iterator[pa.Array]:
        name = _own_name(self._dataset.schema, self._schema, column)
        return (batch.column(0) for batch in self._dataset.to_batches(columns=[name]))

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        wanted = int(offset.get("row", 0))
        rows = limit or _ROWS_PER_CHUNK
        row = 0
        for batch in self._dataset.to_batches(batch_size=rows):
            start, row = row, row + batch.num_rows
            if row <= wanted:
                continue
            skipped = max(0, wanted - start)
            for first in range(skipped, batch.num_rows, rows):
                if stop():
                    return
                yield _chunk(batch.slice(first, rows), self._schema, self._name, start + first)


def _own_name(arrow: pa.Schema, schema: Schema, column: str) -> str:
    """What a declared column is called in the data."""
    place = locate(arrow.names, schema)[schema.index(column)]
    if place is None:
        raise ValueError(column)
    return str(arrow.names[place])


def _chunk(part: pa.RecordBatch, schema: Schema, name: str, start: int) -> Chunk:
    fitted = fit_batch(part, schema, DEFAULT_RULES)
    return Chunk(fitted.rows, {"row": start + part.num_rows}, rejections(fitted, part, name, start))


def rejections(fitted: Fitted, part: pa.RecordBatch, origin: str, start: int = 0) -> tuple[Rejected, ...]:
    """Entries for the rows of an Arrow batch that did not fit."""
    return tuple(
        Rejected(reason, repr(part.slice(row, 1).to_pylist()[0]), f"{origin}:{start + row + 1}")
        for row, reason in fitted.bad.items()
    )

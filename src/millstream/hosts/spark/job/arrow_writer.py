"""What data sinks in Python are made of: tasks that take Arrow batches, also of PySpark 4.0, which gives them rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter

if TYPE_CHECKING:
    from pyspark.sql import Row

_AT_ONCE = 10_000
_GIVES_BATCHES = hasattr(datasource, "DataSourceStreamArrowWriter")

ArrowWriter: Any = datasource.DataSourceStreamArrowWriter if _GIVES_BATCHES else DataSourceStreamWriter
"""The base of a writer whose tasks take Arrow batches; a data source returns it through `for_tasks`."""


def for_tasks(writer: Any, schema: Any) -> Any:
    """The writer as this version of Spark calls it: with batches, or with rows of that schema."""
    return writer if _GIVES_BATCHES else _OfRows(writer, schema)


class _OfRows(DataSourceStreamWriter):  # type: ignore[misc]
    """Makes batches of rows."""

    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> Any:
        return self._writer.write(self._batches(iterator))

    def _batches(self, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        while some := list(islice(rows, _AT_ONCE)):
            yield from LocalDataToArrowConversion.convert(some, self._schema, False).to_batches()

    def commit(self, messages: list[Any], batchId: int) -> None:
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self._writer.abort(messages, batchId)

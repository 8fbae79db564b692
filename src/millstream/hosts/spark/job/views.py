"""The content of relations in running jobs, as tables that anybody may query: a view is what came and has not gone.

A job runs ISTREAM and DSTREAM of a view's query. After each micro-batch that changed it, its whole content is a new
Parquet file, which takes the place of the last one as a temporary view of the session. A micro-batch that is repeated
starts from the file before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = 3
"""How many versions stay, for readers that have planned to read one."""

_SIGN = "$sign"


class MaintainedView:
    """The content of one relation, in a directory of its own."""

    def __init__(self, spark: SparkSession, name: str, directory: Path, schema: pa.Schema) -> None:
        self._spark = spark
        self._name = name
        self._directory = directory
        self._schema = schema
        self._came = schema.empty_table()
        directory.mkdir(parents=True, exist_ok=True)
        if not self._versions():
            self._write(schema.empty_table(), -1)
        self._show()

    def came(self, frame: DataFrame, batch: int) -> None:
        """Rows that begin to be valid in a micro-batch; `went` follows."""
        self._came = self._taken(frame)

    def went(self, frame: DataFrame, batch: int) -> None:
        """Rows that stop being valid in a micro-batch: the content changes."""
        went = self._taken(frame)
        again = any(number >= batch for number in self._versions())
        if not (self._came.num_rows or went.num_rows or again):
            return
        for number, path in self._versions().items():
            if number >= batch:
                path.unlink()
        before = pq.read_table(self._versions()[max(self._versions())], schema=self._schema)
        self._write(changed(before, self._came, went), batch)
        self._show()
        for number in sorted(self._versions())[:-KEPT]:
            self._versions()[number].unlink()

    def clear(self) -> None:
        """Begin anew, with nothing."""
        for path in self._versions().values():
            path.unlink()
        self._write(self._schema.empty_table(), -1)
        self._show()

    def _taken(self, frame: DataFrame) -> pa.Table:
        rows: pa.Table = frame.toArrow()
        return rows.rename_columns(self._schema.names).cast(self._schema)

    def _versions(self) -> dict[int, Path]:
        return {int(path.stem.removeprefix("content-")) - 1: path for path in self._directory.glob("content-*.parquet")}

    def _write(self, rows: pa.Table, batch: int) -> None:
        path = self._directory / f"content-{batch + 1:08d}.parquet"
        hidden = path.with_name("." + path.name)
        pq.write_table(rows, hidden)
        hidden.rename(path)

    def _show(self) -> None:
        latest = self._versions()[max(self._versions())]
        self._spark.read.parquet(str(latest)).createOrReplaceTempView(self._name)


def changed(content: pa.Table, came: pa.Table, went: pa.Table) -> pa.Table:
    """A bag of rows with those that came and without those that went.

    >>> row = pa.table({"x": [1]})
    >>> changed(row, pa.table({"x": [1, 2]}), row).sort_by("x").to_pylist()
    [{'x': 1}, {'x': 2}]
    """
    parts = [
        table.append_column(_SIGN, pa.array(np.full(table.num_rows, sign)))
        for table, sign in ((content, 1), (came, 1), (went, -1))
    ]
    names = content.schema.names
    sums = pa.concat_tables(parts).group_by(names).aggregate([(_SIGN, "sum")])
    counts = np.maximum(sums.column(f"{_SIGN}_sum").to_numpy(), 0)
    return sums.select(names).take(pa.array(np.repeat(np.arange(sums.num_rows), counts)))

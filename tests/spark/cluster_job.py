"""A job for a cluster: the same query over the same files, bounded, streaming and in-process; it prints what it saw.

It is submitted with the package as a zip, so where modules come from tells whether the zip reached the workers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms
from millstream.spark import Millstream

STREAM = "CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 2 SECONDS"
QUERY = """
SELECT symbol, ts, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total,
       count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS n
FROM quotes"""


def where_from(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: the file that the package is imported from, and whether kernels were compiled there."""
    import millstream

    for batch in batches:
        time.sleep(0.3)  # so that no executor takes all tasks
        file = str(Path(str(millstream.__file__)).absolute())
        compiled = any(name.startswith("millstream_kernel_") for name in sys.modules)
        yield pa.RecordBatch.from_pylist([{"file": file, "compiled": compiled}] * batch.num_rows)


def rows_of(table: pa.Table) -> list[list[Any]]:
    rows = [[row["symbol"], str(row["ts"]), row["total"], row["n"]] for row in table.to_pylist()]
    return sorted(rows, key=str)


def main(folder: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    declared = f"{STREAM} WITH (connector='file', path='{folder}/in'"

    db = ms.connect()
    db.execute(f"{declared})")
    expected = rows_of(db.sql(QUERY).arrow())
    db.close()

    m = Millstream(spark)
    m.execute(f"{declared})")
    bounded = rows_of(m.sql(QUERY).toArrow())
    files = spark.range(6, numPartitions=6).mapInArrow(where_from, "file STRING, compiled BOOLEAN").collect()

    m = Millstream(spark)
    m.execute(f"{declared}, follow=true)")
    writer = m.sql(QUERY).writeStream.format("parquet").option("path", f"{folder}/out")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = rows_of(spark.read.parquet(f"{folder}/out").toArrow())

    told = {
        "driver": str(ms.__file__),
        "workers": [list(row) for row in files],
        "expected": expected,
        "bounded": bounded,
        "streamed": streamed,
    }
    Path(folder, "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])

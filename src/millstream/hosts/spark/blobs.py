"""Rows of a stream, with their times and arrival numbers, as one binary value: what exchanges and state carry.

Nothing here needs Spark: the same code packs and unpacks in workers, in state and in tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import EngineError
from millstream.kernels.batch import Batch, Ints
from millstream.schema import Schema

TIME = "__t"
SEQ = "__seq"


def layout_of(schema: Schema) -> pa.Schema:
    """The Arrow columns inside programs: time, arrival number, then the plan's columns under names that are safe."""
    fields = [pa.field(TIME, pa.int64()), pa.field(SEQ, pa.int64())]
    return pa.schema(fields + [pa.field(f"c{i}", field.type.arrow) for i, field in enumerate(schema)])


def fit(rows: pa.RecordBatch, layout: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly the layout's schema: Spark has its own time unit, zone names and non-null columns."""
    if rows.schema == layout:
        return rows
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, layout, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def for_spark(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in types that Spark takes from Arrow: times of day in nanoseconds."""
    if not any(pa.types.is_time(type_) for type_ in rows.schema.types):
        return rows
    columns = [column.cast(pa.time64("ns")) if pa.types.is_time(column.type) else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def encode(rows: pa.RecordBatch) -> bytes:
    """The rows without their schema, which both ends know."""
    return bytes(rows.serialize())


def column(blobs: Sequence[pa.Buffer | bytes | None]) -> pa.Array:
    """Blobs as Arrow has them, copied once."""
    sizes = [0 if blob is None else len(blob) for blob in blobs]
    if sum(sizes) >= 1 << 31:
        raise EngineError(
            "one task of an exchange makes more bytes at once than fit into one batch",
            hint="read less in one micro-batch, or divide the input into more parts",
        )
    ends = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=ends[1:])
    is_blob = pa.array([blob is not None for blob in blobs], pa.bool_())
    there = None if is_blob.true_count == len(blobs) else is_blob.buffers()[1]
    content = b"".join(blob for blob in blobs if blob is not None)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [there, pa.py_buffer(ends), pa.py_buffer(content)])


def decode(blob: bytes | memoryview, layout: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(blob), layout)


def times(rows: pa.RecordBatch) -> Ints:
    return np.asarray(rows.column(0).to_numpy(), dtype=np.int64)


def numbers(rows: pa.RecordBatch) -> Ints:
    return np.asarray(rows.column(1).to_numpy(), dtype=np.int64)


def in_order(parts: Sequence[pa.RecordBatch], layout: pa.Schema) -> pa.RecordBatch:
    """All rows of `parts` in order of time, ties by arrival number, further ties as they stand."""
    # parts are mostly in order themselves and follow each other in time: put so, nothing is left to sort
    rows = joined(sorted(parts, key=_beginning), layout)
    time, seq = times(rows), numbers(rows)
    rising = (time[1:] > time[:-1]) | ((time[1:] == time[:-1]) & (seq[1:] >= seq[:-1]))
    if bool(rising.all()):
        return rows
    # parts are mostly in order already, which makes two stable sorts cheaper than one general one
    by_seq = np.argsort(seq, kind="stable")
    order = by_seq[np.argsort(time[by_seq], kind="stable")]
    return rows.take(pa.array(order))


def _beginning(rows: pa.RecordBatch) -> tuple[int, int]:
    return (int(times(rows)[0]), int(numbers(rows)[0])) if rows.num_rows else (0, 0)


def joined(parts: Sequence[pa.RecordBatch], layout: pa.Schema) -> pa.RecordBatch:
    """One batch of all rows."""
    if len(parts) == 1:
        return parts[0]
    batches = pa.Table.from_batches(list(parts), layout).combine_chunks().to_batches()
    if len(batches) > 1:
        raise EngineError(
            "one task of an exchange holds more text than fits into one batch",
            hint="raise spark.sql.shuffle.partitions, so that each task gets less",
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=layout)


def to_batch(rows: pa.RecordBatch, schema: Schema, upto: int, port: int) -> Batch:
    """Rows of the layout as a kernel takes them: the plan's names, the times apart."""
    plain = pa.RecordBatch.from_arrays(rows.columns[2:], schema=schema.arrow)
    return Batch(plain, times(rows), numbers(rows), upto, None, port)


def from_batch(batch: Batch, layout: pa.Schema) -> pa.RecordBatch:
    """What a kernel gave back, as rows of the layout."""
    if batch.other is not None:
        raise EngineError("rows that are valid during an interval are not supported here on Spark")
    columns = [pa.array(batch.time), pa.array(batch.seq), *batch.rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def split(rows: pa.RecordBatch, bucket: npt.NDArray[np.int32], buckets: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each bucket that has any, in the order they had."""
    counts = np.bincount(bucket, minlength=buckets)
    if int(counts.max(initial=0)) < rows.num_rows:
        # numpy sorts 16-bit numbers by radix
        narrow = bucket.astype(np.uint16) if buckets <= 65_536 else bucket
        rows = rows.take(pa.array(np.argsort(narrow, kind="stable")))
    ends = np.cumsum(counts)
    return [(int(b), rows.slice(int(ends[b] - counts[b]), int(counts[b]))) for b in np.flatnonzero(counts)]

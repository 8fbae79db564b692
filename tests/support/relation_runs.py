"""Kernels of relations on streams written down as lists, to compare them with the snapshot algebra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.contract import KernelSpec, RowStage
from millstream.kernels.relations.signs import apart, signed, with_signs
from millstream.schema import Schema
from tests.support.snapshot_algebra import Physical, Raw

Changes = list[tuple[Any, int, int]]
"""(value, time, sign)"""


def events(stream: Raw, schema: Schema, port: int = 0) -> Batch:
    """A raw stream as one batch; values are tuples, or plain values if there is one column."""
    time = np.array([time for _, time in stream], dtype=np.int64)
    return Batch(_rows([value for value, _ in stream], schema), time, np.arange(len(time)), FOREVER, None, port)


def intervals(stream: Physical, schema: Schema, port: int = 0) -> Batch:
    """A physical stream as one batch."""
    start, end = (np.array([row[i] for row in stream], dtype=np.int64) for i in (1, 2))
    rows = _rows([row[0] for row in stream], schema)
    return Batch(rows, start, np.zeros(len(start), dtype=np.int64), FOREVER, end, port)


def changes(stream: Changes, schema: Schema, port: int = 0) -> Batch:
    """Changes as one batch; `schema` is the one without the sign."""
    time, sign = (np.array([row[i] for row in stream], dtype=np.int64) for i in (1, 2))
    rows = with_signs(_rows([row[0] for row in stream], schema), sign, signed(schema))
    return Batch(rows, time, np.zeros(len(time), dtype=np.int64), FOREVER, None, port)


def run(spec: KernelSpec, *inputs: Batch) -> list[Batch]:
    """What a kernel gives, each input in one batch."""
    kernel = spec.build()
    state = kernel.open()
    return [kernel.step(state, batch) for batch in inputs]


def run_in_order(spec: KernelSpec, *inputs: Batch) -> list[Batch]:
    """What a kernel gives when the rows of all inputs come one by one, in order of time."""
    kernel = spec.build()
    state = kernel.open()
    places = sorted((int(time), batch.port, i) for batch in inputs for i, time in enumerate(batch.time))
    outputs = []
    for time, port, i in places:
        piece = inputs[port].slice(i, i + 1)
        # the other inputs tell that they have come as far
        outputs += [kernel.step(state, batch.slice(0, 0).with_upto(time)) for batch in inputs if batch.port != port]
        outputs.append(kernel.step(state, piece.with_upto(time)))
    outputs += [kernel.step(state, batch.slice(0, 0).with_upto(FOREVER)) for batch in inputs]
    return outputs


def stage(work: RowStage, batch: Batch) -> list[Batch]:
    """What a stage makes of a batch."""
    return [work.step(batch)]


def physical(outputs: Sequence[Batch]) -> Physical:
    """Rows with intervals as a physical stream, in the order they came."""
    return _listed(outputs, lambda batch: batch.other)


def raw(outputs: Sequence[Batch]) -> Raw:
    """Events as a raw stream."""
    return [(value, time) for value, time, _ in _listed(outputs, lambda batch: batch.time)]


def changed(outputs: Sequence[Batch]) -> Changes:
    """Changes as a list."""
    result: Changes = []
    for batch in outputs:
        rows, signs = apart(batch.rows)
        result += zip(_values(rows), batch.time.tolist(), signs.tolist(), strict=True)
    return result


def keeps_promise(outputs: Sequence[Batch]) -> bool:
    """Whether rows are in order, and none comes before what was told."""
    upto = last = BEGIN
    for batch in outputs:
        times = batch.time.tolist()
        if any(a > b for a, b in pairwise(times)) or (times and times[0] < max(upto, last)) or batch.upto < upto:
            return False
        upto, last = batch.upto, times[-1] if times else last
    return True


def _listed(outputs: Sequence[Batch], ends: Callable[[Batch], Any]) -> Physical:
    result: Physical = []
    for batch in outputs:
        if len(batch):
            result += zip(_values(batch.rows), batch.time.tolist(), ends(batch).tolist(), strict=True)
    return result


def _values(rows: pa.RecordBatch) -> list[Any]:
    columns = [column.to_pylist() for column in rows.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _rows(values: Sequence[Any], schema: Schema) -> pa.RecordBatch:
    columns = [values] if len(schema) == 1 else [[value[i] for value in values] for i in range(len(schema))]
    arrays = [pa.array(column, field.type.arrow) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)

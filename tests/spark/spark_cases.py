"""Streams, plans and reference answers for the tests of the Spark host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
import pytest

from millstream.catalog import Clock, StreamDef
from millstream.hosts.contract import ReadyQuery
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.contract import KernelSpec
from millstream.kernels.over import Frame, OverSpec
from millstream.physical.nodes import Apply, Physical, Source
from millstream.plan.aggregate_calls import AggregateCall
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR

TRADES = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=TIMESTAMP)
SECOND = 1_000_000

STEPWISE = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Whether Spark divides what is available now into micro-batches if a source in Python (our clock) is read, too."""

stepwise = pytest.mark.skipif(not STEPWISE, reason="what is available is one micro-batch there")


def stream(name: str = "trades", slack: int = 0, schema: Schema = TRADES) -> StreamDef:
    return StreamDef(name, schema, Clock.EXTERNAL, "ts", slack)


def trades(rows: Iterable[tuple[Any, ...]], schema: Schema = TRADES) -> pa.RecordBatch:
    """Rows as Arrow; times are numbers of µs."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for values, field in zip(columns, schema.arrow, strict=True):
        if pa.types.is_timestamp(field.type):
            arrays.append(pa.array(list(values), pa.int64()).view(field.type))
        else:
            arrays.append(pa.array(list(values), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def random_trades(count: int, seed: int, disorder: int = 0) -> list[tuple[Any, ...]]:
    """Rows with some NULL keys and prices, equal times, and times up to `disorder` µs out of order."""
    draw = np.random.default_rng(seed)
    symbols = [None if i % 11 == 3 else f"S{draw.integers(7)}" for i in range(count)]
    prices = [None if i % 13 == 5 else float(draw.integers(100)) for i in range(count)]
    times = 100 * SECOND + np.arange(count) // 3 * SECOND - draw.integers(0, disorder + 1, count)
    return list(zip(symbols, prices, [int(t) for t in times], strict=True))


def over(keys: tuple[str, ...] = ("symbol",), schema: Schema = TRADES, suffix: str = "") -> OverSpec:
    """Running count, sum of the last ten seconds, and minimum of three rows."""
    calls = (
        AggregateCall.over(f"n{suffix}", "count", None, Frame("rows", None), False, BIGINT),
        AggregateCall.over(f"total{suffix}", "sum", "price", Frame("range", 10 * SECOND), False, DOUBLE),
        AggregateCall.over(f"low{suffix}", "min", "price", Frame("rows", 2), False, DOUBLE),
    )
    return OverSpec(schema, keys, calls)


def source(name: str = "trades", schema: Schema = TRADES, side: Any = "main") -> Source:
    return Source(schema, name, side)


def apply(spec: KernelSpec, *inputs: Physical) -> Apply:
    return Apply(spec.output, inputs, spec)


def program(plan: Physical, name: str = "q", columns: Sequence[str] | None = None) -> ReadyQuery:
    return ReadyQuery(name, plan, tuple(columns or plan.schema.names))


def in_process(spec: KernelSpec, rows: list[tuple[Any, ...]], upto: int = FOREVER) -> list[tuple[Any, ...]]:
    """What the kernel gives for rows that arrive in this order, as far as time has come."""
    batch = trades(rows, spec.inputs[0])
    index = spec.inputs[0].index("ts")
    time = np.asarray(batch.column(index).view(pa.int64()), dtype=np.int64)
    seq = np.arange(len(time))
    ordered = Batch(batch, time, seq, upto).take(np.lexsort((seq, time)))
    ordered = ordered.slice(0, int(np.searchsorted(ordered.time, upto)))
    kernel = spec.build()
    return as_rows(kernel.step(kernel.open(), ordered).rows)


def as_rows(table: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows as tuples; times as µs."""
    columns = []
    for column in table.columns:
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        columns.append(plain.to_pylist())
    return list(zip(*columns, strict=True))

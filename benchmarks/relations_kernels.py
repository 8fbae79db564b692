"""Experiments on single operators: what they keep, when they answer, and what the order of ends costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.contract import KernelSpec
from millstream.kernels.jit import using
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.time_changes import RangeChangesSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.relations import RangeWindow
from millstream.schema import Field, Schema
from millstream.types import BIGINT
from relations_data import physical_plan

LEFT, RIGHT = Schema((Field("k", BIGINT), Field("a", BIGINT))), Schema((Field("k", BIGINT), Field("b", BIGINT)))
ROWS = 100_000
STEP = 4_096
MEAN_GAP = 10_000
WINDOW = 5_000_000


def window_state(times: Any, size: int) -> Any:
    """How many rows a window of time holds as changes, after each instant."""
    kernel = RangeChangesSpec(LEFT, RangeWindow(size)).build()
    state = kernel.open()
    instants, first = np.unique(times, return_index=True)
    edges = [*first.tolist(), len(times)]
    held = []
    for instant, low, high in zip(instants.tolist(), edges[:-1], edges[1:], strict=True):
        time_ = np.full(high - low, instant)
        kernel.step(state, Batch(_rows(LEFT, time_, time_), time_, np.arange(low, high), instant))
        held.append(len(state.waiting))
    return np.array(held)


def first_result(rows: int, form: str) -> int:
    """How many rows come after the first one until a window of so many rows gives its first result."""
    statements = "CREATE STREAM s (v BIGINT, t BIGINT) ORDER BY t"
    plan = physical_plan(f"SELECT v FROM s WINDOW(ROWS {rows})", form, statements)
    with ms.connect() as db:
        db.execute(statements)
        query = db.install(plan)
        for count in range(2 * rows + 2):
            db.push("s", [(count, count)])
            db.advance("s", count + 1)
            if query.fetch().num_rows:
                return count
    raise AssertionError("no result came")


def count_by_ends(in_order: bool, rounds: int) -> float:
    """Seconds to count valid rows."""
    call: AggregateCall[str] = AggregateCall(("n",), "count", (), (BIGINT,))
    rows = list(_stream(LEFT, 1_000, 1, in_order))
    return min(_steps(SummarySpec(LEFT, (), (call,)), rows)[0] for _ in range(rounds + 1))


def join_by_ends(in_order: bool, rounds: int) -> float:
    """Seconds to join two streams."""
    return min(_steps(_join(), _two(1_000, in_order))[0] for _ in range(rounds + 1))


@dataclass(frozen=True)
class Queues:
    """What a join does for each row, and what waits while it does."""

    results: float
    seconds: float
    waiting: float
    at_once: float


def queues(values: int, rounds: int) -> Queues:
    """A join of values up to `values`, row by row for the queues and in batches for the time."""
    inputs = _two(values, True)
    seconds, results = min(_steps(_join(), inputs) for _ in range(rounds + 1))
    kernel = _join().build()
    state = kernel.open()
    waiting, given = [], []
    for batch in _one_by_one(_two(values, True, 4_000)):
        given.append(len(kernel.step(state, batch)))
        waiting.append(sum(side.count - side.entered for side in state.sides))
    held = np.array(given[len(given) // 2 :])
    rows = 2 * ROWS
    return Queues(results / rows, seconds / rows, float(np.mean(waiting)), float(held[held > 0].mean()))


def _join() -> JoinSpec:
    return JoinSpec(LEFT, RIGHT, ("k",), (("left", "k"), ("left", "a"), ("right", "b")))


def _steps(spec: KernelSpec, batches: list[Batch]) -> tuple[float, int]:
    with using("on", threads=1):
        kernel = spec.build()
        state = kernel.open()
        began = time.perf_counter()
        results = sum(len(kernel.step(state, batch)) for batch in batches)
        return time.perf_counter() - began, results


def _two(values: int, in_order: bool, rows: int = ROWS) -> list[Batch]:
    """Two streams, batch by batch in turn."""
    streams = [_stream(schema, values, port, in_order, rows) for port, schema in enumerate((LEFT, RIGHT))]
    return [batch for pair in zip(*streams, strict=True) for batch in pair]


def _stream(schema: Schema, values: int, seed: int, in_order: bool, rows: int = ROWS) -> Iterator[Batch]:
    """Values that come as a Poisson process, valid for 5 s each, or for 0 to 10 s if ends are in no order."""
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.exponential(MEAN_GAP, rows).astype(np.int64) + 1)
    length = np.full(rows, WINDOW) if in_order else rng.integers(1, 2 * WINDOW, rows)
    value = rng.integers(1, values + 1, rows)
    for low in range(0, rows, STEP):
        own = slice(low, min(low + STEP, rows))
        upto = FOREVER if own.stop == rows else int(start[own.stop])
        number = np.zeros(own.stop - low, dtype=np.int64)
        yield Batch(_rows(schema, value[own], start[own]), start[own], number, upto, (start + length)[own], seed % 2)


def _one_by_one(batches: list[Batch]) -> list[Batch]:
    """The rows of both inputs in order of time, each telling how far its input has come."""
    rows = [batch.slice(i, i + 1) for batch in batches for i in range(len(batch))]
    return [row.with_upto(int(row.time[0])) for row in sorted(rows, key=lambda row: int(row.time[0]))]


def _rows(schema: Schema, *columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema.arrow)
